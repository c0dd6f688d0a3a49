#!/usr/bin/env python3
"""4-bit products of ONNX Runtime and OpenVINO at the bench's shapes, on one thread: CSV lines library,m,GB/s,GFLOP/s.

Weights are cycled through a given amount of memory, as nybl-bench does; activation quantisation is included; figures are medians.
"""
import argparse
import statistics
import sys
import time

import numpy as np

N = K = 4096
GROUP = 32


def copies_for(mebibytes, bytes_each):
    return max(1, (mebibytes << 20) // bytes_each)


def onnx_runtime(copies, rng):
    """One session a copy: MatMulNBits with a zero point a group and accuracy level 4 (int8 activations)."""
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    blobs = GROUP // 2
    sessions = []
    for _ in range(copies):
        weights = rng.integers(0, 256, (N, K // GROUP, blobs), dtype=np.uint8)
        scales = rng.uniform(0.01, 0.02, N * K // GROUP).astype(np.float32)
        zeros = rng.integers(0, 256, N * ((K // GROUP + 1) // 2), dtype=np.uint8)
        node = helper.make_node("MatMulNBits", ["x", "w", "s", "z"], ["y"], domain="com.microsoft", K=K, N=N, bits=4,
                                block_size=GROUP, accuracy_level=4)
        graph = helper.make_graph(
            [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["m", K])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m", N])],
            [onnx.numpy_helper.from_array(value, name) for name, value in (("w", weights), ("s", scales), ("z", zeros))])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)],
                                  ir_version=10)
        sessions.append(onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]))
    return [lambda x, s=session: s.run(None, {"x": x}) for session in sessions]


def openvino(copies, rng):
    """One compiled model a copy: u4 weights, zero point and scale a group of 32, decompressed inside the product."""
    import openvino as ov
    import openvino.opset13 as ops

    core = ov.Core()
    # Dynamic quantisation to int8 activations by group, where the plugin has it.
    settings = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "DYNAMIC_QUANTIZATION_GROUP_SIZE": GROUP}
    requests, kept = [], []
    for _ in range(copies):
        codes = rng.integers(0, 256, N * K // 2, dtype=np.uint8)
        points = rng.integers(0, 256, N * K // GROUP // 2, dtype=np.uint8)
        kept += [codes, points]  # the tensors below only refer to them
        weights = ops.constant(ov.Tensor(codes, [N, K // GROUP, GROUP], ov.Type.u4))
        zeros = ops.constant(ov.Tensor(points, [N, K // GROUP, 1], ov.Type.u4))
        scales = ops.constant(rng.uniform(0.01, 0.02, (N, K // GROUP, 1)).astype(np.float16))
        plain = ops.multiply(ops.subtract(ops.convert(weights, ov.Type.f16), ops.convert(zeros, ov.Type.f16)), scales)
        flat = ops.convert(ops.reshape(plain, ops.constant(np.array([N, K], dtype=np.int64)), False), ov.Type.f32)
        x = ops.parameter([-1, K], ov.Type.f32)
        model = ov.Model([ops.matmul(x, flat, False, True)], [x])
        requests.append(core.compile_model(model, "CPU", settings).create_infer_request())
    return [lambda x, r=request, _=kept: r.infer([x], share_inputs=True, share_outputs=True) for request in requests]


def measure(calls, m, rng, seconds):
    x = rng.standard_normal((m, K), dtype=np.float32)
    # The first call of a shape may pack weights or make a kernel.
    for call in calls if m <= 16 else calls[:2]:
        call(x)
    rates, start, at = [], time.process_time(), 0
    while len(rates) < 3 or time.process_time() - start < seconds:
        before = time.process_time()
        calls[at % len(calls)](x)
        rates.append(1 / (time.process_time() - before))
        at += 1
    return statistics.median(rates)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--m", type=int, nargs="+", default=[1, 4, 16, 64, 512])
    parser.add_argument("--arena", type=int, default=450, help="MiB that weights are cycled through")
    parser.add_argument("--seconds", type=float, default=1.0, help="CPU time a figure")
    parser.add_argument("--libraries", nargs="+", default=["onnxruntime", "openvino"])
    arguments = parser.parse_args()
    makers = {"onnxruntime": onnx_runtime, "openvino": openvino}
    # u4 codes, a scale and a zero point a group.
    weight_bytes = N * K // 2 + N * K // GROUP * 5 // 2
    for library in arguments.libraries:
        rng = np.random.default_rng(1)
        try:
            calls = makers[library](copies_for(arguments.arena, weight_bytes), rng)
        except ImportError as error:
            print(f"{library}: {error}", file=sys.stderr)
            continue
        for m in arguments.m:
            rate = measure(calls, m, rng, arguments.seconds)
            print(f"{library},{m},{rate * weight_bytes * 1e-9:.2f},{rate * 2 * m * N * K * 1e-9:.1f}", flush=True)
        del calls


if __name__ == "__main__":
    main()
