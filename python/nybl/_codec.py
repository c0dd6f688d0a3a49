"""Formats, and blocks from and to f32."""
from __future__ import annotations

import ctypes
import enum
import operator
from typing import Any, Callable, Optional, Union

import numpy as np
import numpy.typing as npt

from ._context import Context
from ._library import CodecOptions, FormatInfo, Progress, call

FloatArray = npt.NDArray[np.float32]
Blocks = npt.NDArray[np.uint8]
ProgressCallback = Callable[[int, int], Optional[bool]]


class Format(enum.IntEnum):
    """Element and block formats, with the numbers of GGUF files."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q8_1 = 9
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    Q8_K = 15
    IQ4_NL = 20
    IQ4_NL_ROW = 65556
    BF16 = 30

    @property
    def block_size(self) -> int:
        """Elements of a block; K is a multiple of it."""
        return int(_info(self).block_size)

    @property
    def block_bytes(self) -> int:
        return int(_info(self).block_bytes)


class Level(enum.IntEnum):
    """How hard quantize() looks for the least error."""

    DEFAULT = 0
    PLAIN = 1
    FAST = 2
    BEST = 3


# A number of GGUF files by any name: gguf.GGMLQuantizationType.Q4_K is one.
FormatLike = Union[Format, int]


def as_format(format: FormatLike) -> Format:
    try:
        return Format(operator.index(format))
    except (TypeError, ValueError):
        raise ValueError(f"format is {format!r}; a nybl.Format or its number is needed") from None


def _info(format: Format) -> FormatInfo:
    info = FormatInfo()
    call("nybl_format_get_info", int(format), ctypes.byref(info))
    return info


def row_bytes(format: FormatLike, k: int) -> int:
    """Bytes of a row of k elements."""
    size = ctypes.c_size_t()
    call("nybl_row_bytes", int(as_format(format)), k, ctypes.byref(size))
    return size.value


def matrix(array: npt.ArrayLike, dtype: Any, what: str) -> npt.NDArray[Any]:
    """A contiguous matrix of that type: the array itself where it is one already."""
    out = np.ascontiguousarray(array, dtype=dtype)
    if out.ndim != 2:
        raise ValueError(f"{what} has {out.ndim} dimensions; two are needed")
    return out


def pointer(array: Optional[npt.NDArray[Any]]) -> Optional[int]:
    return None if array is None or array.size == 0 else int(array.ctypes.data)


def block_rows(blocks: Any, format: Format) -> tuple[Blocks, int]:
    """Blocks as u8 [rows, bytes], and K."""
    given = np.asarray(blocks)
    if given.dtype != np.uint8:  # a matrix of floats would be cast, and multiplied as if it were blocks
        raise TypeError(f"blocks are {given.dtype}; uint8 is needed, as nybl.quantize makes them")
    rows = matrix(given, np.uint8, "blocks")
    blocks_bytes = rows.shape[1] - _info(format).row_extra_bytes if rows.shape[1] else 0
    if blocks_bytes < 0 or blocks_bytes % format.block_bytes:
        raise ValueError(f"blocks: {rows.shape[1]} bytes are no whole number of {format.name} blocks "
                         f"of {format.block_bytes}")
    return rows, blocks_bytes // format.block_bytes * format.block_size


def progress_function(progress: Optional[ProgressCallback]) -> Any:
    """Stops the work where the callback returns True or raises."""
    if progress is None:
        return Progress()

    def stop(_user: Any, done: int, total: int) -> int:
        try:
            return int(bool(progress(done, total)))
        except BaseException:
            return 1
    return Progress(stop)


def codec_options(level: Level, context: Optional[Context], progress: Optional[ProgressCallback]) -> CodecOptions:
    return CodecOptions(ctx=context.handle if context else None, level=int(level),
                        progress=progress_function(progress))


def importance_row(importance: Optional[npt.ArrayLike], k: int) -> Optional[FloatArray]:
    if importance is None:
        return None
    row = np.ascontiguousarray(importance, dtype=np.float32)
    if row.shape != (k,):
        raise ValueError(f"importance has shape {row.shape}; ({k},) is needed")
    return row


def quantize(array: npt.ArrayLike, format: FormatLike, *, importance: Optional[npt.ArrayLike] = None,
             level: Level = Level.DEFAULT, context: Optional[Context] = None,
             progress: Optional[ProgressCallback] = None) -> Blocks:
    """f32 [rows, K] as u8 [rows, row_bytes(format, K)]. importance: K weights of the squared error. context: its
    threads are used. progress(rows_done, rows) may return True to stop (Error, CANCELLED)."""
    format = as_format(format)
    values = matrix(array, np.float32, "array")
    rows, k = values.shape
    weights = importance_row(importance, k)
    out = np.empty((rows, row_bytes(format, k)), np.uint8)
    options = codec_options(level, context, progress)
    call("nybl_quantize_with", ctypes.byref(options), int(format), rows, k, pointer(values), 0, pointer(weights),
         pointer(out), 0)
    return out


def dequantize(blocks: npt.NDArray[np.uint8], format: FormatLike, *, context: Optional[Context] = None,
               progress: Optional[ProgressCallback] = None) -> FloatArray:
    """u8 [rows, bytes] as f32 [rows, K]."""
    format = as_format(format)
    rows, k = block_rows(blocks, format)
    out = np.empty((rows.shape[0], k), np.float32)
    options = codec_options(Level.DEFAULT, context, progress)
    call("nybl_dequantize_with", ctypes.byref(options), int(format), rows.shape[0], k, pointer(rows), 0, pointer(out),
         0)
    return out


def validate(blocks: npt.NDArray[np.uint8], format: FormatLike) -> None:
    """Raises Error (INVALID_DATA) that names the first bad row and block."""
    format = as_format(format)
    rows, k = block_rows(blocks, format)
    call("nybl_validate", int(format), rows.shape[0], k, pointer(rows), 0, rows.size)
