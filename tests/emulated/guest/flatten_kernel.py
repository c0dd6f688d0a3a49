"""flatten_kernel.py VMLINUZ OUT: takes the ELF kernel out of a Debian vmlinuz and writes its segments as they lie in memory
from 16 MiB on; prints entry= (the PVH entry) and initrd= (the first free place behind it)."""
import struct
import subprocess
import sys

BASE = 0x1000000
DECOMPRESSORS = {b"\x02\x21\x4c\x18": "lz4", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zX": "xz", b"\x1f\x8b": "gzip"}
PT_LOAD, PT_NOTE, XEN_ELFNOTE_PHYS32_ENTRY = 1, 4, 18


def extract_elf(image):
    payload_offset, payload_length = struct.unpack_from("<II", image, 0x248)
    start = ((image[0x1F1] or 4) + 1) * 512 + payload_offset
    payload = image[start:start + payload_length]
    if payload[:4] != b"\x7fELF":
        tool = next(tool for magic, tool in DECOMPRESSORS.items() if payload.startswith(magic))
        # the last 4 bytes are the length, which the tools take for trailing garbage
        payload = subprocess.run([tool, "-dc"], input=payload[:-4], stdout=subprocess.PIPE).stdout
    if payload[:4] != b"\x7fELF":
        sys.exit("no ELF kernel in the image")
    return payload


def pvh_entry(notes):
    at = 0
    while at < len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, at)
        name = notes[at + 12:at + 12 + name_size]
        data = at + 12 + (name_size + 3 & ~3)
        if name == b"Xen\0" and kind == XEN_ELFNOTE_PHYS32_ENTRY:
            return int.from_bytes(notes[data:data + size], "little")
        at = data + (size + 3 & ~3)
    return None


def main():
    with open(sys.argv[1], "rb") as f:
        elf = extract_elf(f.read())
    headers_at, = struct.unpack_from("<Q", elf, 32)
    headers, = struct.unpack_from("<H", elf, 56)
    memory, end, entry = bytearray(), 0, None
    for i in range(headers):
        kind, _, offset, _, address, file_size, memory_size, _ = struct.unpack_from("<IIQQQQQQ", elf, headers_at + 56 * i)
        if kind == PT_LOAD:
            at = address - BASE
            memory.extend(bytes(max(0, at + file_size - len(memory))))
            memory[at:at + file_size] = elf[offset:offset + file_size]
            end = max(end, address + memory_size)
        elif kind == PT_NOTE:
            entry = pvh_entry(elf[offset:offset + file_size]) or entry
    if not entry:
        sys.exit("the kernel has no PVH entry")
    with open(sys.argv[2], "wb") as f:
        f.write(memory)
    print("entry=%#x\ninitrd=%#x" % (entry, (end + 0x3FFFFF) & ~0x1FFFFF))


main()
