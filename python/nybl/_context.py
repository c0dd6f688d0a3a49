"""The library's version, and contexts: threads, an instruction set, memory."""
from __future__ import annotations

import ctypes
import enum
import weakref
from dataclasses import dataclass
from typing import Optional

from ._library import ContextDesc, MemoryStats, call, lib


class Isa(enum.IntEnum):
    BEST = 0
    SCALAR = 1
    AVX2 = 2
    AVX_VNNI = 3
    AVX512_VNNI = 4
    AMX = 5


@dataclass(frozen=True)
class Memory:
    """Bytes a context uses and used at its highest."""

    host_bytes: int
    host_peak_bytes: int
    device_bytes: int
    device_peak_bytes: int


def version() -> str:
    number = lib.nybl_version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def build_info() -> str:
    return str(lib.nybl_build_info().decode())


def thread_count(threads: int) -> int:
    if not 0 <= threads < 2**32:  # ctypes would wrap it round
        raise ValueError(f"threads is {threads}; 0 (as many as may be used) or more is needed")
    return threads


class Context:
    """An instruction set, threads (0: the cores this process may use) and memory. Weights keep theirs alive.

    gpu: products on this OpenCL device (0: the first); what it has no kernel for runs on the CPU. Error
    (UNSUPPORTED_HARDWARE) where there is none."""

    def __init__(self, threads: int = 0, max_isa: Isa = Isa.BEST, *, gpu: Optional[int] = None) -> None:
        desc = ContextDesc(n_threads=thread_count(threads), max_isa=int(max_isa), device=int(gpu is not None),
                           device_index=gpu or 0)
        handle = ctypes.c_void_p()
        call("nybl_context_create", ctypes.byref(desc), ctypes.byref(handle))
        self.handle = handle
        weakref.finalize(self, lib.nybl_context_destroy, handle)

    @property
    def isa(self) -> Isa:
        return Isa(lib.nybl_context_isa(self.handle))

    @property
    def memory(self) -> Memory:
        stats = MemoryStats()
        call("nybl_context_memory", self.handle, ctypes.byref(stats))
        return Memory(stats.host_bytes, stats.host_peak_bytes, stats.device_bytes, stats.device_peak_bytes)


_default: Optional[Context] = None


def default_context() -> Context:
    """Made at its first use."""
    global _default
    if _default is None:
        _default = Context()
    return _default
