"""Whole models of packed weights, mapped: the files that nybl-pack writes."""
from __future__ import annotations

import ctypes
import os
import weakref
from dataclasses import dataclass
from typing import Any, Iterator, Optional, Union

import numpy as np
import numpy.typing as npt

from ._codec import Format, ProgressCallback, progress_function
from ._context import Context, default_context
from ._library import PackOptions
from ._library import PackTensor as _PackTensor
from ._library import call, lib
from ._weights import Storage, Weights


@dataclass(frozen=True)
class PackTensor:
    """A tensor of the file; format is a plain number where this library does not know it."""

    name: str
    format: Union[Format, int]
    storage: Storage
    n: int
    k: int
    n_experts: int


class Pack:
    """An open file; pack["blk.0.attn_q.weight"] is weights in place. verify: compare every checksum first."""

    def __init__(self, path: Union[str, "os.PathLike[str]"], *, context: Optional[Context] = None,
                 verify: bool = False, progress: Optional[ProgressCallback] = None) -> None:
        self.context = context or default_context()
        options = PackOptions(verify=int(verify), progress=progress_function(progress))
        handle = ctypes.c_void_p()
        call("nybl_pack_open", self.context.handle, os.fsencode(path), ctypes.byref(options), ctypes.byref(handle))
        self._handle = handle
        weakref.finalize(self, lib.nybl_pack_close, handle)

    def __len__(self) -> int:
        count = ctypes.c_uint64()
        call("nybl_pack_count", self._handle, ctypes.byref(count))
        return count.value

    def __iter__(self) -> Iterator[PackTensor]:
        for i in range(len(self)):
            tensor = _PackTensor()
            call("nybl_pack_at", self._handle, i, ctypes.byref(tensor))
            yield _public(tensor)

    def find(self, name: str) -> PackTensor:
        return _public(self._find(name))

    def __getitem__(self, name: str) -> Weights:
        tensor = self._find(name)
        handle = ctypes.c_void_p()
        call("nybl_pack_weights", self._handle, name.encode(), ctypes.byref(handle))
        return Weights._from_handle(handle, self.context, Format(tensor.format),
                                    (tensor.n_experts, tensor.n, tensor.k), None)

    def data(self, name: str) -> npt.NDArray[np.uint8]:
        """A copy of a tensor's bytes: for vectors and unquantized tensors, .view(np.float32) of it."""
        tensor = self._find(name)
        return np.frombuffer(_bytes(tensor.data, tensor.data_size), np.uint8).copy()

    def metadata(self) -> bytes:
        """The model's metadata as a GGUF file without tensors."""
        data, size = ctypes.c_void_p(), ctypes.c_size_t()
        call("nybl_pack_metadata", self._handle, ctypes.byref(data), ctypes.byref(size))
        return _bytes(data.value, size.value)

    def _find(self, name: str) -> _PackTensor:
        tensor = _PackTensor()
        call("nybl_pack_find", self._handle, name.encode(), ctypes.byref(tensor))
        return tensor


def _bytes(address: Optional[int], size: int) -> bytes:
    return ctypes.string_at(address, size) if address else b""


def _public(tensor: _PackTensor) -> PackTensor:
    number: Any = tensor.format
    known = number in set(Format)
    return PackTensor(tensor.name.decode(errors="replace"), Format(number) if known else number,
                      Storage(tensor.storage), tensor.n, tensor.k, tensor.n_experts)
