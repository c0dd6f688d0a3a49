"""Weights with their products."""
from __future__ import annotations

import ctypes
import enum
import weakref
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np
import numpy.typing as npt

from ._codec import (Blocks, Format, FormatLike, Level, ProgressCallback, as_format, block_rows, codec_options,
                     importance_row, pointer, row_bytes)
from ._context import Context, Isa, default_context, thread_count
from ._library import KernelInfo, MatmulArgs, MatmulIdArgs, WeightsDesc, call, lib


class Storage(enum.IntEnum):
    PACKED = 0
    ORIGINAL = 1


class Compute(enum.IntEnum):
    DEFAULT = 0
    F32 = 1
    BF16 = 2
    INT8 = 3


@dataclass(frozen=True)
class Kernel:
    """Which kernel a product would use, and why."""

    name: str
    reason: str
    isa: Isa


def _element_type(array: npt.NDArray[Any]) -> Format:
    return Format.F16 if array.dtype == np.float16 else Format.F32


def _floats(array: npt.ArrayLike) -> npt.NDArray[Any]:
    """f16 as it is, everything else as f32; contiguous."""
    given = np.asarray(array)
    return np.ascontiguousarray(given, dtype=np.float16 if given.dtype == np.float16 else np.float32)


class Weights:
    """W[N, K], or several such matrices ("experts"), from u8 [N, bytes] or [experts, N, bytes].

    storage ORIGINAL uses the blocks where they are and keeps the array. validate: refuse non-finite scales."""

    def __init__(self, blocks: Blocks, format: FormatLike, *, context: Optional[Context] = None,
                 storage: Storage = Storage.PACKED, validate: bool = False) -> None:
        format = as_format(format)
        array = np.asarray(blocks)
        if array.ndim not in (2, 3):
            raise ValueError(f"blocks have {array.ndim} dimensions; [N, bytes] or [experts, N, bytes] is needed")
        rows, k = block_rows(array.reshape(-1, array.shape[-1]), format)
        experts = array.shape[0] if array.ndim == 3 else 1
        desc = WeightsDesc(format=int(format), n=array.shape[-2], k=k, n_experts=experts, data=pointer(rows),
                           storage=int(storage), validate=int(validate), data_size=rows.size)
        ctx = context or default_context()
        handle = ctypes.c_void_p()
        call("nybl_weights_create", ctx.handle, ctypes.byref(desc), ctypes.byref(handle))
        self._take(handle, ctx, format, (experts, array.shape[-2], k),
                   rows if storage == Storage.ORIGINAL else None)

    @classmethod
    def quantize(cls, array: npt.ArrayLike, format: FormatLike, *, importance: Optional[npt.ArrayLike] = None,
                 level: Level = Level.DEFAULT, context: Optional[Context] = None,
                 progress: Optional[ProgressCallback] = None) -> Weights:
        """Quantizes f32 [N, K] or [experts, N, K] and packs, in one step."""
        format = as_format(format)
        values = np.ascontiguousarray(array, dtype=np.float32)
        if values.ndim not in (2, 3):
            raise ValueError(f"array has {values.ndim} dimensions; [N, K] or [experts, N, K] is needed")
        experts = values.shape[0] if values.ndim == 3 else 1
        n, k = values.shape[-2:]
        desc = WeightsDesc(format=int(format), n=n, k=k, n_experts=experts)
        ctx = context or default_context()
        weights = importance_row(importance, k)
        options = codec_options(level, None, progress)
        handle = ctypes.c_void_p()
        call("nybl_weights_quantize", ctx.handle, ctypes.byref(desc), pointer(values), 0, pointer(weights),
             ctypes.byref(options), ctypes.byref(handle))
        return cls._from_handle(handle, ctx, format, (experts, n, k), None)

    @classmethod
    def _from_handle(cls, handle: ctypes.c_void_p, ctx: Context, format: Format, shape: tuple[int, int, int],
                     kept: Any) -> Weights:
        made = cls.__new__(cls)
        made._take(handle, ctx, format, shape, kept)
        return made

    def _take(self, handle: ctypes.c_void_p, ctx: Context, format: Format, shape: tuple[int, int, int],
              kept: Any) -> None:
        self.handle = handle
        self.context = ctx
        self.format = format
        self.n_experts, self.n, self.k = shape
        self._kept = kept
        weakref.finalize(self, _destroy_weights, handle, kept)

    def __repr__(self) -> str:
        experts = f"{self.n_experts} x " if self.n_experts > 1 else ""
        return f"<nybl.Weights {self.format.name}, {experts}{self.n} x {self.k}>"

    def matmul(self, x: npt.ArrayLike, *, bias: Optional[npt.ArrayLike] = None, dtype: npt.DTypeLike = np.float32,
               compute: Compute = Compute.DEFAULT, threads: int = 0) -> npt.NDArray[Any]:
        """x[..., K] (f32, or f16) * W^T (+ bias) as [..., N] of dtype (f32 or f16)."""
        values = _floats(x)
        if values.ndim == 0 or values.shape[-1] != self.k:
            raise ValueError(f"x has shape {values.shape}; its last dimension must be K = {self.k}")
        row = None if bias is None else np.ascontiguousarray(bias, dtype=np.float32)
        if row is not None and row.shape != (self.n,):
            raise ValueError(f"bias has shape {row.shape}; ({self.n},) is needed")
        y = _output(values.shape[:-1] + (self.n,), dtype)
        m = int(np.prod(values.shape[:-1], dtype=np.uint64))
        args = MatmulArgs(m=m, x=pointer(values), x_type=_element_type(values), y=pointer(y),
                          y_type=_element_type(y), bias=pointer(row), compute=int(compute), n_threads=thread_count(threads))
        call("nybl_matmul", self.handle, ctypes.byref(args))
        return y

    def matmul_id(self, x: npt.ArrayLike, ids: npt.ArrayLike, *, dtype: npt.DTypeLike = np.float32,
                  compute: Compute = Compute.DEFAULT) -> npt.NDArray[Any]:
        """Experts: y[t, s] = x[t] * W[ids[t, s]]^T, or x[t, s] where x is [tokens, slots, K]. An id of -1 gives
        zeros."""
        values, experts = _floats(x), np.ascontiguousarray(ids, dtype=np.int32)
        if experts.ndim != 2 or values.ndim not in (2, 3) or values.shape[:-1] != experts.shape[:values.ndim - 1] \
                or values.shape[-1] != self.k:
            raise ValueError(f"x {values.shape} and ids {experts.shape}: x is [tokens, {self.k}] or "
                             f"[tokens, slots, {self.k}], ids [tokens, slots]")
        y = _output(experts.shape + (self.n,), dtype)
        args = MatmulIdArgs(n_tokens=experts.shape[0], n_slots=experts.shape[1], ids=pointer(experts),
                            x=pointer(values), x_type=_element_type(values),
                            x_slot_stride=values.strides[1] if values.ndim == 3 else 0, y=pointer(y),
                            y_type=_element_type(y), compute=int(compute))
        call("nybl_matmul_id", self.handle, ctypes.byref(args))
        return y

    def unpack(self) -> Blocks:
        """The original blocks: u8 [N, bytes] or [experts, N, bytes]."""
        size = row_bytes(self.format, self.k)
        shape = (self.n, size) if self.n_experts == 1 else (self.n_experts, self.n, size)
        out = np.empty(shape, np.uint8)
        call("nybl_weights_unpack", self.handle, pointer(out), 0)
        return out

    def explain(self, m: int) -> Kernel:
        """Which kernel a product with m rows of x would use."""
        info = KernelInfo()
        call("nybl_matmul_explain", self.handle, m, ctypes.byref(info))
        return Kernel(info.name.decode(), info.reason.decode(), Isa(info.isa))


def _destroy_weights(handle: ctypes.c_void_p, _kept: Any) -> None:
    lib.nybl_weights_destroy(handle)


def _output(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    if np.dtype(dtype) not in (np.dtype(np.float32), np.dtype(np.float16)):
        raise ValueError(f"dtype is {np.dtype(dtype)}; float32 or float16 is needed")
    return np.empty(shape, dtype)
