#!/usr/bin/env python3
"""Cuts a GGUF file of golden tensors down to what the tests compare: make_golden.py GOLDEN.gguf golden.bin

Sources, importance rows, weight blocks and activation blocks go over byte for byte. The dequantised values, much the
largest part, become one FNV-1a hash a row. Layout (little-endian): golden.h, which reads it.
"""
import struct
import sys

import gguf
import numpy as np

MAGIC = b"NYBLGOLD"
ROW_HASHES = 0xFFFFFFFF  # in place of a format number
# Stored as plain bytes in the GGUF file: number of the format, elements and bytes of its block.
ACTIVATIONS = {"act_q8_0": (8, 32, 34), "act_q8_1": (9, 32, 36), "act_q8_k": (15, 256, 292)}


def fnv1a_rows(data):
    """64-bit FNV-1a of each row's bytes."""
    columns = np.ascontiguousarray(data).view(np.uint8).reshape(data.shape[0], -1).T
    value = np.full(data.shape[0], 0xCBF29CE484222325, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            value = (value ^ column.astype(np.uint64)) * np.uint64(0x100000001B3)
    return value


def entry(tensor):
    """(format number, rows, elements of a row, bytes) of one tensor."""
    data = np.ascontiguousarray(tensor.data)
    data = data.reshape(1, -1) if data.ndim == 1 else data
    rows, kind, last = data.shape[0], tensor.tensor_type, tensor.name.rsplit(".", 1)[-1]
    if last == "deq":
        if np.isnan(data).any():
            raise ValueError(f"{tensor.name} holds a NaN: a hash of it would not be portable")
        return ROW_HASHES, rows, data.shape[1], fnv1a_rows(data).tobytes()
    number, block, block_bytes = ACTIVATIONS.get(last) or (int(kind), *gguf.GGML_QUANT_SIZES[kind])
    row_bytes = data.nbytes // rows
    if row_bytes % block_bytes:
        raise ValueError(f"{tensor.name}: {row_bytes} bytes a row are no whole blocks of {block_bytes}")
    return number, rows, row_bytes // block_bytes * block, data.tobytes()


def main():
    source, target = sys.argv[1:]
    tensors = gguf.GGUFReader(source).tensors
    directory, payload = b"", b""
    for tensor in tensors:
        kind, rows, k, data = entry(tensor)
        directory += struct.pack("<40sIIIII", tensor.name.encode(), kind, rows, k, len(payload), len(data))
        payload += data + bytes(-len(data) % 8)
    with open(target, "wb") as out:
        out.write(MAGIC + struct.pack("<II", len(tensors), 60) + directory)
        out.write(payload)


main()
