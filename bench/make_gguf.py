#!/usr/bin/env python3
"""Write a GGUF file of Qwen3's shape with random blocks, without a tokenizer.

Usage: make_gguf.py [--shape 0.6B | 1.7B | tiny] [--layers N] TYPE OUT.gguf

All matrices have the type; norms are F32. For benches: the answers are noise, but the
speed is real. Scales are such that elements deviate by about 0.02.
"""

import argparse
import os
import struct

# name: number, elements and bytes of a block, and its constant bytes (offset: value)
HALF = {-13: 0x08, -10: 0x14, -9: 0x18, -7: 0x20}  # high byte of the f16 number 2^n
TYPES = {
    "Q4_0": (2, 32, 18, {0: 0, 1: HALF[-9]}),
    "Q4_K": (12, 256, 144, {0: 0, 1: HALF[-13], 2: 0, 3: HALF[-10]}),
    "IQ2_XXS": (16, 256, 66, {0: 0, 1: HALF[-13]}),
    "IQ2_XS": (17, 256, 74, {0: 0, 1: HALF[-13]}),
    "IQ3_XXS": (18, 256, 98, {0: 0, 1: HALF[-13]}),
    "IQ1_S": (19, 256, 50, {0: 0, 1: HALF[-9]}),
    "IQ3_S": (21, 256, 110, {0: 0, 1: HALF[-13]}),
    "IQ2_S": (22, 256, 82, {0: 0, 1: HALF[-13]}),
    "IQ1_M": (29, 256, 56, {49: 0, 51: 0, 53: 0x80, 55: 0x10}),
    "TQ1_0": (34, 256, 54, {52: 0, 53: HALF[-7]}),
    "TQ2_0": (35, 256, 66, {64: 0, 65: HALF[-7]}),
    "MXFP4": (39, 32, 17, {0: 120}),
    "NVFP4": (40, 64, 36, {0: 8, 1: 9, 2: 10, 3: 8}),
}
# d_model, d_ff, layers, heads, kv heads, head_dim, vocabulary
SHAPES = {
    "0.6B": (1024, 3072, 28, 16, 8, 128, 151936),
    "1.7B": (2048, 6144, 28, 16, 8, 128, 151936),
    "tiny": (256, 512, 2, 4, 2, 64, 512),
}
POOL = 1 << 24


def string(s):
    return struct.pack("<Q", len(s)) + s.encode()


def u32(key, v):
    return string(key) + struct.pack("<II", 4, v)


def f32(key, v):
    return string(key) + struct.pack("<If", 6, v)


def text(key, v):
    return string(key) + struct.pack("<I", 8) + string(v)


def tensors_of(shape, n_layers):
    d, ff, _, heads, kv, hd, vocab = shape
    yield "token_embd.weight", (d, vocab)
    for i in range(n_layers):
        for name, dims in (
                ("attn_norm", (d,)), ("attn_q", (d, heads * hd)), ("attn_k", (d, kv * hd)),
                ("attn_v", (d, kv * hd)), ("attn_q_norm", (hd,)), ("attn_k_norm", (hd,)),
                ("attn_output", (heads * hd, d)), ("ffn_norm", (d,)), ("ffn_gate", (d, ff)),
                ("ffn_up", (d, ff)), ("ffn_down", (ff, d))):
            yield "blk.%d.%s.weight" % (i, name), dims
    yield "output_norm.weight", (d,)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--shape", choices=SHAPES, default="0.6B")
    p.add_argument("--layers", type=int)
    p.add_argument("type", choices=TYPES)
    p.add_argument("out")
    o = p.parse_args()
    shape = SHAPES[o.shape]
    d, ff, n_layers, heads, kv, hd, vocab = shape
    n_layers = o.layers or n_layers
    number, block, size, fixed = TYPES[o.type]
    keys = [text("general.architecture", "qwen3"), text("tokenizer.ggml.model", "none"),
            f32("qwen3.rope.freq_base", 1e6), f32("qwen3.attention.layer_norm_rms_epsilon", 1e-6)]
    keys += [u32("qwen3." + k, v) for k, v in (
        ("context_length", 4096), ("embedding_length", d), ("block_count", n_layers),
        ("feed_forward_length", ff), ("attention.head_count", heads),
        ("attention.head_count_kv", kv), ("attention.key_length", hd),
        ("attention.value_length", hd), ("vocab_size", vocab))]
    pool = bytearray(os.urandom(POOL // size * size))
    for at, v in fixed.items():
        pool[at::size] = bytes([v]) * (len(pool) // size)
    entries, sizes, at = [], [], 0
    for name, dims in tensors_of(shape, n_layers):
        n = 1
        for v in dims:
            n *= v
        n = 4 * n if len(dims) == 1 else n // block * size
        entries.append(string(name) + struct.pack("<I%dQ" % len(dims), len(dims), *dims) +
                       struct.pack("<IQ", 0 if len(dims) == 1 else number, at))
        sizes.append((n, len(dims) == 1))
        at += (n + 31) // 32 * 32
    with open(o.out, "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, len(entries), len(keys)))
        f.write(b"".join(keys + entries))
        f.write(bytes(-f.tell() % 32))
        for n, is_vector in sizes:
            left = n
            while left:
                step = min(left, len(pool))
                f.write(struct.pack("<f", 1) * (step // 4) if is_vector else pool[:step])
                left -= step
            f.write(bytes(-n % 32))


if __name__ == "__main__":
    main()
