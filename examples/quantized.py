"""Python: a matrix quantized, multiplied and compared; experts; a mistake."""
import numpy as np

import nybl

rng = np.random.default_rng(1)
matrix = rng.standard_normal((96, 512), dtype=np.float32)
x = rng.standard_normal((4, 512), dtype=np.float32)
exact = x @ matrix.T

for format in (nybl.Format.Q4_0, nybl.Format.Q4_1, nybl.Format.Q5_1, nybl.Format.Q4_K, nybl.Format.Q5_K, nybl.Format.IQ4_NL):
    blocks = nybl.quantize(matrix, format)
    weights = nybl.Weights(blocks, format)
    error = np.linalg.norm(weights.matmul(x) - exact) / np.linalg.norm(exact)
    print(f"{format.name:7} {8 * blocks.size / matrix.size:5.2f} bits per weight, error {error:.4f}, "
          f"{weights.explain(4).name}")

# Four tokens choose two of three experts each; -1 chooses none.
experts = nybl.Weights.quantize(rng.standard_normal((3, 96, 512), dtype=np.float32), nybl.Format.Q4_K)
y = experts.matmul_id(x, [[0, 2], [1, 1], [2, 0], [-1, 1]])
print("experts:", y.shape, "no expert gives zeros:", not y[3, 0].any())

try:
    nybl.row_bytes(nybl.Format.Q4_K, 100)
except nybl.Error as error:
    print(f"{error.status.name}: {error}")
