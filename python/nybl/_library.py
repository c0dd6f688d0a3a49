"""The C library through ctypes: its structs, its functions, and its failures as exceptions."""
from __future__ import annotations

import ctypes
import enum
import os
import pathlib
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any


class Status(enum.IntEnum):
    """What nybl_status says; the name of an Error's status."""

    OK = 0
    INVALID_ARGUMENT = 1
    INVALID_DATA = 2
    UNSUPPORTED = 3
    UNSUPPORTED_HARDWARE = 4
    OUT_OF_MEMORY = 5
    BUFFER_TOO_SMALL = 6
    JIT_FAILURE = 7
    DEVICE_ERROR = 8
    INTERNAL = 9
    CANCELLED = 10


class Error(Exception):
    """A call failed; the text is the library's own sentence: what, where, what to do."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = Status(status)


class _Struct(ctypes.Structure):
    """A struct of nybl.h: struct_size first, everything else zero."""

    def __init__(self, **members: Any) -> None:
        super().__init__(struct_size=ctypes.sizeof(type(self)), **members)


class FormatInfo(_Struct):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("block_size", c_uint32), ("block_bytes", c_uint32),
                ("group_size", c_uint32), ("has_min", c_uint32), ("vec_dot_type", c_int),
                ("row_extra_bytes", c_uint32)]


Progress = ctypes.CFUNCTYPE(c_int, c_void_p, c_uint64, c_uint64)


class CodecOptions(_Struct):
    _fields_ = [("struct_size", c_size_t), ("ctx", c_void_p), ("level", c_int), ("progress", Progress),
                ("user", c_void_p)]


class ContextDesc(_Struct):
    _fields_ = [("struct_size", c_size_t), ("device", c_int), ("device_index", c_uint32), ("max_isa", c_int),
                ("n_threads", c_uint32), ("threadpool", c_void_p), ("allocator", c_void_p), ("log", c_void_p),
                ("log_user", c_void_p)]


class WeightsDesc(_Struct):
    _fields_ = [("struct_size", c_size_t), ("format", c_int), ("n", c_uint64), ("k", c_uint64),
                ("n_experts", c_uint64), ("data", c_void_p), ("row_stride", c_size_t), ("expert_stride", c_size_t),
                ("storage", c_int), ("validate", c_uint32), ("data_size", c_size_t)]


class MatmulArgs(_Struct):
    _fields_ = [("struct_size", c_size_t), ("m", c_uint64), ("x", c_void_p), ("x_type", c_int),
                ("x_stride", c_size_t), ("y", c_void_p), ("y_type", c_int), ("y_stride", c_size_t),
                ("bias", c_void_p), ("compute", c_int), ("batch", c_uint64), ("x_batch_stride", c_size_t),
                ("y_batch_stride", c_size_t), ("n_threads", c_uint32)]


class MatmulIdArgs(_Struct):
    _fields_ = [("struct_size", c_size_t), ("n_tokens", c_uint64), ("n_slots", c_uint64), ("ids", c_void_p),
                ("ids_stride", c_size_t), ("x", c_void_p), ("x_type", c_int), ("x_token_stride", c_size_t),
                ("x_slot_stride", c_size_t), ("y", c_void_p), ("y_type", c_int), ("y_token_stride", c_size_t),
                ("y_slot_stride", c_size_t), ("compute", c_int)]


class MemoryStats(_Struct):
    _fields_ = [("struct_size", c_size_t), ("host_bytes", c_size_t), ("host_peak_bytes", c_size_t),
                ("device_bytes", c_size_t), ("device_peak_bytes", c_size_t), ("device_param_bytes", c_size_t)]


class KernelInfo(_Struct):
    _fields_ = [("struct_size", c_size_t), ("name", ctypes.c_char * 96), ("reason", ctypes.c_char * 160),
                ("isa", c_int), ("mr", c_uint32), ("nr", c_uint32), ("device", c_int), ("storage", c_int)]


class PackOptions(_Struct):
    _fields_ = [("struct_size", c_size_t), ("verify", c_uint32), ("progress", Progress), ("user", c_void_p)]


class PackTensor(_Struct):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("format", c_int), ("storage", c_int),
                ("n", c_uint64), ("k", c_uint64), ("n_experts", c_uint64), ("data", c_void_p),
                ("data_size", c_size_t), ("layout_id", c_uint64)]


_OUT = POINTER(c_void_p)
_SIZE = POINTER(c_size_t)

# Functions that return a status, and their arguments.
_SIGNATURES = {
    "nybl_format_get_info": [c_int, POINTER(FormatInfo)],
    "nybl_row_bytes": [c_int, c_uint64, _SIZE],
    "nybl_quantize_with": [POINTER(CodecOptions), c_int, c_uint64, c_uint64, c_void_p, c_size_t, c_void_p, c_void_p,
                           c_size_t],
    "nybl_dequantize_with": [POINTER(CodecOptions), c_int, c_uint64, c_uint64, c_void_p, c_size_t, c_void_p,
                             c_size_t],
    "nybl_validate": [c_int, c_uint64, c_uint64, c_void_p, c_size_t, c_size_t],
    "nybl_context_create": [POINTER(ContextDesc), _OUT],
    "nybl_context_memory": [c_void_p, POINTER(MemoryStats)],
    "nybl_weights_create": [c_void_p, POINTER(WeightsDesc), _OUT],
    "nybl_weights_quantize": [c_void_p, POINTER(WeightsDesc), c_void_p, c_size_t, c_void_p, POINTER(CodecOptions),
                              _OUT],
    "nybl_weights_unpack": [c_void_p, c_void_p, c_size_t],
    "nybl_matmul": [c_void_p, POINTER(MatmulArgs)],
    "nybl_matmul_id": [c_void_p, POINTER(MatmulIdArgs)],
    "nybl_matmul_explain": [c_void_p, c_uint64, POINTER(KernelInfo)],
    "nybl_pack_open": [c_void_p, c_char_p, POINTER(PackOptions), _OUT],
    "nybl_pack_count": [c_void_p, POINTER(c_uint64)],
    "nybl_pack_at": [c_void_p, c_uint64, POINTER(PackTensor)],
    "nybl_pack_find": [c_void_p, c_char_p, POINTER(PackTensor)],
    "nybl_pack_weights": [c_void_p, c_char_p, _OUT],
    "nybl_pack_metadata": [c_void_p, _OUT, _SIZE],
}


def _load() -> ctypes.CDLL:
    """The library beside this module; NYBL_LIBRARY names another one."""
    path = os.environ.get("NYBL_LIBRARY") or str(pathlib.Path(__file__).with_name("libnybl.so"))
    library = ctypes.CDLL(path)
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, c_int
    for name in ("nybl_context_destroy", "nybl_weights_destroy", "nybl_pack_close"):
        function = getattr(library, name)
        function.argtypes, function.restype = [c_void_p], None
    for name in ("nybl_last_error", "nybl_build_info", "nybl_isa_string"):
        getattr(library, name).restype = c_char_p
    library.nybl_isa_string.argtypes = [c_int]
    library.nybl_context_isa.argtypes = [c_void_p]
    library.nybl_version.restype = c_uint32
    return library


lib = _load()


def call(name: str, *arguments: Any) -> None:
    """Calls a function that returns a status; a failure is raised with the library's sentence."""
    status = getattr(lib, name)(*arguments)
    if status != Status.OK:
        raise Error(status, lib.nybl_last_error().decode(errors="replace"))
