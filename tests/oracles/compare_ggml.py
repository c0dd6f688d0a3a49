#!/usr/bin/env python3
"""The library's quantizers beside ggml's (package ggml-python), through the C API of the built shared library.

Rows of a real model (NYBL_MODEL, a GGUF file) and fresh random rows of several distributions; with and without importance;
every level. The (weighted) error of the library's bytes may be at most 1.02 of that of ggml's. Both are decoded by the gguf
package, so that neither side judges itself. NYBL_SEED repeats a run. Prints the lines that tests/run.py counts.
"""
import ctypes
import os
import pathlib
import secrets
import sys

import ggml
import gguf
import numpy as np

LIMIT = 1.02
FORMATS = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL"]
LEVELS = {"default": 0, "plain": 1, "fast": 2, "best": 3}


class CodecOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("ctx", ctypes.c_void_p), ("level", ctypes.c_int),
                ("progress", ctypes.c_void_p), ("user", ctypes.c_void_p)]


def load_nybl():
    library = ctypes.CDLL(str(pathlib.Path(os.environ["NYBL_BUILD_DIR"]) / "libnybl.so"))
    library.nybl_last_error.restype = ctypes.c_char_p
    library.nybl_quantize_with.argtypes = [ctypes.POINTER(CodecOptions), ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64,
                                           ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p,
                                           ctypes.c_size_t]
    library.nybl_dequantize.argtypes = [ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t,
                                        ctypes.c_void_p, ctypes.c_size_t]
    return library


def encoded_buffer(rows, kind):
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    return np.zeros((rows.shape[0], rows.shape[1] // block * block_bytes), dtype=np.uint8)


def quantize_nybl(library, kind, rows, importance, level):
    out = encoded_buffer(rows, kind)
    options = CodecOptions(ctypes.sizeof(CodecOptions), None, level, None, None)
    status = library.nybl_quantize_with(ctypes.byref(options), int(kind), rows.shape[0], rows.shape[1], rows.ctypes.data, 0,
                                        None if importance is None else importance.ctypes.data, out.ctypes.data, 0)
    if status:
        raise RuntimeError(f"nybl_quantize_with: {status}: {library.nybl_last_error().decode()}")
    return out


def quantize_ggml(kind, rows, importance):
    out = encoded_buffer(rows, kind)
    floats = ctypes.POINTER(ctypes.c_float)
    weights = None if importance is None else importance.ctypes.data_as(floats)
    ggml.ggml_quantize_chunk(int(kind), rows.ctypes.data_as(floats), out.ctypes.data, 0, rows.shape[0], rows.shape[1], weights)
    return out


def rmse(kind, encoded, rows, importance):
    error = gguf.dequantize(encoded, kind).astype(np.float64) - rows
    weights = np.ones(rows.shape[1]) if importance is None else importance.astype(np.float64)
    return float(np.sqrt((error * error * weights).sum() / weights.sum() / rows.shape[0]))


def random_rows(rng):
    shape = (24, 1024)
    yield "normal", rng.normal(0, 0.02, shape)
    yield "laplace", rng.laplace(0, 0.05, shape)
    yield "student-t", rng.standard_t(4, shape)
    yield "offset", rng.uniform(-0.1, 0.1, shape) + 0.7
    outlier = rng.normal(0, 0.01, shape)
    outlier[:, rng.choice(shape[1], 12, replace=False)] *= 40
    yield "outliers", outlier


def model_rows(path):
    """A few rows from tensors of both widths of the model."""
    for tensor in gguf.GGUFReader(path).tensors:
        name = tensor.name
        if name in ("blk.0.ffn_down.weight", "blk.17.ffn_down.weight", "blk.3.attn_q.weight", "token_embd.weight"):
            rows = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            yield f"model {name.removesuffix('.weight')}", rows[:: max(1, rows.shape[0] // 24)]


def compare(library, name, rows, importance):
    """One test case: one set of rows, every format that takes its width, every level."""
    worst, failures = {}, []
    for format_name in FORMATS:
        kind = gguf.GGMLQuantizationType[format_name]
        if rows.shape[1] % gguf.GGML_QUANT_SIZES[kind][0]:
            continue
        theirs = rmse(kind, quantize_ggml(kind, rows, importance), rows, importance)
        for level_name, level in LEVELS.items():
            encoded = quantize_nybl(library, kind, rows, importance, level)
            ours = rmse(kind, encoded, rows, importance)
            if not ours <= LIMIT * theirs:
                failures.append(f"{format_name} {level_name}: {ours:.6g} against {theirs:.6g}")
            if level_name == "default":
                worst[format_name] = ours / theirs if theirs else 1.0
        decoded = np.empty_like(rows)
        if library.nybl_dequantize(int(kind), *rows.shape, encoded.ctypes.data, 0, decoded.ctypes.data, 0) or not np.array_equal(
                decoded, gguf.dequantize(encoded, kind)):
            failures.append(f"{format_name}: nybl_dequantize differs from the gguf package")
    print("    " + name + ": " + ", ".join(f"{f} {ratio:.3f}" for f, ratio in worst.items()))
    print(f"not ok against ggml, {name}: {'; '.join(failures)}" if failures else f"ok against ggml, {name}", flush=True)
    return not failures


def main():
    seed = int(os.environ.get("NYBL_SEED") or secrets.randbits(32))
    print(f"    NYBL_SEED={seed}; error of the default level as a share of ggml's:")
    rng = np.random.default_rng(seed)
    library = load_nybl()
    sources = list(random_rows(rng))
    if os.environ.get("NYBL_MODEL"):
        sources += model_rows(os.environ["NYBL_MODEL"])
    else:
        print("skip against ggml, model rows: no model file (NYBL_MODEL)")
    passed = True
    for name, rows in sources:
        rows = np.ascontiguousarray(rows, dtype=np.float32)
        importance = (rng.chisquare(1, rows.shape[1]) + 1e-3).astype(np.float32)
        passed &= compare(library, name, rows, None)
        passed &= compare(library, name + " with importance", rows, importance)
    return 0 if passed else 1


sys.exit(main())
