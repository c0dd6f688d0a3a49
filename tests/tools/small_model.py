"""Writes a GGUF model of one Q4_0 matrix (32 x 4) and one F32 vector, by hand: small_model.py FILE."""
import struct
import sys


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def tensor(name, dims, kind, offset):
    return (text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) +
            struct.pack("<IQ", kind, offset))


head = b"GGUF" + struct.pack("<IQQ", 3, 2, 1) + text("general.name") + struct.pack("<I", 8) + text("by hand")
head += tensor("a.weight", [32, 4], 2, 0) + tensor("norm", [4], 0, 96)
head += bytes(-len(head) % 32)
blocks = b"".join(struct.pack("<e", 1.0) + bytes(range(16)) for _ in range(4))
with open(sys.argv[1], "wb") as file:
    file.write(head + blocks + bytes(96 - len(blocks)) + struct.pack("<4f", 1, 2, 3, 4))
