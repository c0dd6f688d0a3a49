"""Matrix kernels for weights in the GGUF block formats: Y[M, N] = X[M, K] * W[N, K]^T.

    blocks = nybl.quantize(matrix, nybl.Format.Q4_K)          # f32 [N, K] -> u8 [N, bytes]
    weights = nybl.Weights(blocks, nybl.Format.Q4_K)           # packed as the kernels read them
    y = weights.matmul(x)                                      # f32 [M, K] -> f32 [M, N]

Results are the same bits on every CPU and with any number of threads. Failures raise nybl.Error.
"""
from ._codec import Format, Level, dequantize, quantize, row_bytes, validate
from ._context import Context, Isa, Memory, build_info, version
from ._library import Error, Status
from ._pack import Pack, PackTensor
from ._weights import Compute, Kernel, Storage, Weights

__all__ = ["Compute", "Context", "Error", "Format", "Isa", "Kernel", "Level", "Memory", "Pack", "PackTensor",
           "Status", "Storage", "Weights", "build_info", "dequantize", "quantize", "row_bytes", "validate", "version"]
__version__ = version()
