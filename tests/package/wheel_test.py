"""The Python package in the environment where it is installed: prints "ok NAME" or "not ok NAME: why" per case."""
import sys
import tempfile
import threading
import traceback

import numpy as np

import nybl

FORMATS = [nybl.Format.Q4_0, nybl.Format.Q4_1, nybl.Format.Q5_1, nybl.Format.Q4_K, nybl.Format.Q5_K,
           nybl.Format.IQ4_NL, nybl.Format.IQ4_NL_ROW]
rng = np.random.default_rng(7)


def raises(status, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except nybl.Error as error:
        assert error.status == status, error.status
        return str(error)
    raise AssertionError(f"{call} did not fail")


def refused(kind, text, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except kind as error:
        assert text in str(error), error
        return
    raise AssertionError(f"{call} did not fail")


def round_trip():
    matrix = rng.standard_normal((5, 512), dtype=np.float32)
    for format in FORMATS:
        blocks = nybl.quantize(matrix, format)
        assert blocks.dtype == np.uint8 and blocks.shape == (5, nybl.row_bytes(format, 512))
        back = nybl.dequantize(blocks, format)
        assert back.dtype == np.float32 and back.shape == matrix.shape
        assert np.linalg.norm(back - matrix) < 0.12 * np.linalg.norm(matrix)
        nybl.validate(blocks, format)
        assert (nybl.quantize(matrix, format, context=nybl.Context(threads=2)) == blocks).all()


def products():
    matrix, x = rng.standard_normal((33, 256), dtype=np.float32), rng.standard_normal((3, 256), dtype=np.float32)
    bias = rng.standard_normal(33, dtype=np.float32)
    for format in FORMATS:
        blocks = nybl.quantize(matrix, format)
        exact = x @ nybl.dequantize(blocks, format).T
        weights = nybl.Weights(blocks, format)
        y = weights.matmul(x)
        assert np.linalg.norm(y - exact) < 0.02 * np.linalg.norm(exact)
        original = nybl.Weights(blocks, format, storage=nybl.Storage.ORIGINAL)
        assert (original.matmul(x) == y).all() and (weights.unpack() == blocks).all()
        assert (weights.matmul(x[1]) == y[1]).all()
        assert (weights.matmul(x.reshape(3, 1, 256)) == y.reshape(3, 1, 33)).all()
        assert (weights.matmul(np.asfortranarray(x)) == y).all()
        assert (weights.matmul(x, bias=bias) == y + bias).all()  # one f32 addition, after all else
        assert (weights.matmul(x, dtype=np.float16) == y.astype(np.float16)).all()
        assert (weights.matmul(x.astype(np.float16)) == weights.matmul(x.astype(np.float16).astype(np.float32))).all()
        by_number = nybl.Weights(blocks, np.int64(format))  # as gguf's own enumeration counts them
        assert by_number.format is format and repr(by_number) == f"<nybl.Weights {format.name}, 33 x 256>"
        assert weights.explain(3).name and weights.explain(3).reason


def gpu():
    try:
        context = nybl.Context(gpu=0)
    except nybl.Error as error:
        assert error.status == nybl.Status.UNSUPPORTED_HARDWARE and "GPU" in str(error), error
        return
    x = rng.standard_normal((2, 256), dtype=np.float32)
    blocks = nybl.quantize(rng.standard_normal((32, 256), dtype=np.float32), nybl.Format.Q4_K)
    weights = nybl.Weights(blocks, nybl.Format.Q4_K, context=context)
    exact = x @ nybl.dequantize(blocks, nybl.Format.Q4_K).T
    assert weights.explain(2).name.startswith(("opencl:", "onednn:")), weights.explain(2)
    assert np.linalg.norm(weights.matmul(x) - exact) < 0.02 * np.linalg.norm(exact)
    assert "no device 999" in raises(nybl.Status.UNSUPPORTED_HARDWARE, nybl.Context, gpu=999)


def experts():
    matrices, x = rng.standard_normal((3, 20, 256), dtype=np.float32), rng.standard_normal((2, 256), dtype=np.float32)
    weights = nybl.Weights.quantize(matrices, nybl.Format.Q4_K)
    ids = np.array([[2, 0], [-1, 1]])
    y = weights.matmul_id(x, ids)
    for t in range(2):
        for s in range(2):
            one = nybl.Weights.quantize(matrices[ids[t, s]], nybl.Format.Q4_K).matmul(x[t])
            assert (y[t, s] == (one if ids[t, s] >= 0 else 0)).all()
    each = np.repeat(x[:, None], 2, axis=1)
    assert (weights.matmul_id(each, ids) == y).all()
    assert "token 1, slot 0" in raises(nybl.Status.INVALID_ARGUMENT, weights.matmul_id, x, [[0, 1], [3, 0]])


def failures():
    assert "256" in raises(nybl.Status.INVALID_ARGUMENT, nybl.row_bytes, nybl.Format.Q4_K, 100)
    bad = nybl.quantize(np.ones((4, 64), np.float32), nybl.Format.Q4_0)
    bad[2, 19] = 0x7e
    assert "row 2, block 1" in raises(nybl.Status.INVALID_DATA, nybl.validate, bad, nybl.Format.Q4_0)
    raises(nybl.Status.INVALID_DATA, nybl.Weights, bad, nybl.Format.Q4_0, validate=True)
    raises(nybl.Status.INVALID_DATA, nybl.quantize, np.full((1, 32), np.nan), nybl.Format.Q4_0)
    raises(nybl.Status.CANCELLED, nybl.quantize, np.ones((4096, 64)), nybl.Format.Q4_0, progress=lambda done, n: True)
    weights = nybl.Weights(nybl.quantize(np.ones((4, 64)), nybl.Format.Q4_0), nybl.Format.Q4_0)
    for format in ("Q4_0", 99, None):
        refused(ValueError, "nybl.Format", nybl.quantize, np.ones((4, 64)), format)
    refused(TypeError, "float32", nybl.Weights, np.ones((4, 72), np.float32), nybl.Format.Q4_0)
    refused(ValueError, "threads is -1", nybl.Context, threads=-1)
    refused(ValueError, "threads is -1", weights.matmul, np.ones(64), threads=-1)
    for wrong in (np.ones(63), np.ones((2, 65)), np.float32(1)):
        try:
            weights.matmul(wrong)
        except ValueError as error:
            assert "64" in str(error)
        else:
            raise AssertionError("a wrong K was taken")


def lifetimes():
    def make():
        blocks = nybl.quantize(rng.standard_normal((16, 64), dtype=np.float32), nybl.Format.Q4_1)
        context = nybl.Context(threads=1)
        return nybl.Weights(blocks, nybl.Format.Q4_1, context=context, storage=nybl.Storage.ORIGINAL), blocks.copy()
    weights, blocks = make()
    x = rng.standard_normal(64, dtype=np.float32)
    expected = nybl.Weights(blocks, nybl.Format.Q4_1).matmul(x)
    for _ in range(100):
        make()
    results = []
    threads = [threading.Thread(target=lambda: results.append(weights.matmul(x))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4 and all((y == expected).all() for y in results)


def packs(path, source):
    matrix = np.frombuffer(source, np.uint8).reshape(4, 18)
    with_checks = nybl.Pack(path, verify=True)
    assert [tensor.name for tensor in with_checks] == ["a.weight", "norm"] and len(with_checks) == 2
    x = rng.standard_normal(32, dtype=np.float32)
    assert (with_checks["a.weight"].matmul(x) == nybl.Weights(matrix, nybl.Format.Q4_0).matmul(x)).all()
    assert with_checks.data("norm").view(np.float32).tolist() == [1, 2, 3, 4]
    assert with_checks.metadata()[:4] == b"GGUF" and b"by hand" in with_checks.metadata()
    raises(nybl.Status.UNSUPPORTED, lambda: with_checks["norm"])
    raises(nybl.Status.INVALID_ARGUMENT, lambda: with_checks["none"])
    with tempfile.NamedTemporaryFile() as other:
        raises(nybl.Status.INVALID_DATA, nybl.Pack, other.name)


def main():
    cases = [("quantize and dequantize", round_trip), ("products", products), ("experts", experts), ("a GPU, or words", gpu),
             ("failures are exceptions", failures), ("lifetimes and threads", lifetimes)]
    if len(sys.argv) > 2:
        packs_of = (sys.argv[1], open(sys.argv[2], "rb").read()[-112:-40])
        cases.append(("packed models", lambda: packs(*packs_of)))
    failed = 0
    for name, case in cases:
        try:
            case()
            print(f"ok Python, {name}")
        except Exception:
            failed += 1
            print(f"not ok Python, {name}: {traceback.format_exc().strip().splitlines()[-1]}")
            traceback.print_exc()
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
