#!/usr/bin/env python3
"""Writes a llama-architecture GGUF file of random F16 weights whose K are multiples of 256: for speed only."""
import sys

import gguf
import numpy as np

EMBEDDING, FEED_FORWARD, LAYERS, HEADS, KV_HEADS, VOCABULARY = 2048, 5632, 8, 32, 8, 8192


def main(path: str) -> None:
    rng = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("random")
    writer.add_context_length(4096)
    writer.add_embedding_length(EMBEDDING)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(EMBEDDING // HEADS)
    writer.add_vocab_size(VOCABULARY)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("none")

    def matrix(name: str, n: int, k: int) -> None:
        weights = rng.standard_normal((n, k), dtype=np.float32) / np.sqrt(k)
        writer.add_tensor(name + ".weight", weights.astype(np.float16))

    def norm(name: str) -> None:
        writer.add_tensor(name + ".weight", np.ones(EMBEDDING, dtype=np.float32))

    matrix("token_embd", VOCABULARY, EMBEDDING)
    norm("output_norm")
    matrix("output", VOCABULARY, EMBEDDING)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        norm(block + "attn_norm")
        matrix(block + "attn_q", EMBEDDING, EMBEDDING)
        matrix(block + "attn_k", EMBEDDING // HEADS * KV_HEADS, EMBEDDING)
        matrix(block + "attn_v", EMBEDDING // HEADS * KV_HEADS, EMBEDDING)
        matrix(block + "attn_output", EMBEDDING, EMBEDDING)
        norm(block + "ffn_norm")
        matrix(block + "ffn_gate", FEED_FORWARD, EMBEDDING)
        matrix(block + "ffn_up", FEED_FORWARD, EMBEDDING)
        matrix(block + "ffn_down", EMBEDDING, FEED_FORWARD)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(sys.argv[1])
