#!/usr/bin/env python3
"""Write tests/golden/gguf/demo.txt: what llama.cpp's quantizer made of the demo model.

    scripts/gguf-demo-goldens.py CHECKPOINT FILE.gguf... >tests/golden/gguf/demo.txt

A line is: file, tensor, type, and of a Q8_0 tensor the FNV-1a hash (64 bits) of its
bytes, of other block types the root of the mean squared error against the checkpoint.
"""

import array
import importlib.util
import json
import math
import os
import re
import struct
import sys

here = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("blocks", here + "/gguf-block-goldens.py")
blocks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(blocks)

# number in the file: name, elements and bytes of a block, its decoder
TYPES = {0: ("F32", 1, 4, None), 1: ("F16", 1, 2, None), 30: ("BF16", 1, 2, None),
         2: ("Q4_0", 32, 18, blocks.q4_0), 6: ("Q5_0", 32, 22, blocks.q5_0),
         8: ("Q8_0", 32, 34, None), 10: ("Q2_K", 256, 84, blocks.q2_k),
         11: ("Q3_K", 256, 110, blocks.q3_k), 12: ("Q4_K", 256, 144, blocks.q4_k),
         13: ("Q5_K", 256, 176, blocks.q5_k), 14: ("Q6_K", 256, 210, blocks.q6_k),
         20: ("IQ4_NL", 32, 18, blocks.iq4_nl)}
PARTS = {"attn_k": "self_attn.k_proj", "attn_q": "self_attn.q_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_down": "mlp.down_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj"}
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
           12: "d"}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        self.at += n
        return self.data[self.at - n:self.at]

    def number(self, code):
        return struct.unpack("<" + code, self.take(struct.calcsize(code)))[0]

    def string(self):
        return self.take(self.number("Q"))

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            element, n = self.number("I"), self.number("Q")
            return [self.value(element) for _ in range(n)]
        return self.number(NUMBERS[kind])


def tensors(path):
    """Yield name, type and bytes of each tensor."""
    r = Reader(open(path, "rb").read())
    assert r.take(4) == b"GGUF" and r.number("I") == 3
    n, n_keys = r.number("Q"), r.number("Q")
    for _ in range(n_keys):
        r.string()
        r.value(r.number("I"))
    entries = []
    for _ in range(n):
        name = r.string().decode()
        dims = [r.number("Q") for _ in range(r.number("I"))]
        entries.append((name, math.prod(dims), r.number("I"), r.number("Q")))
    begin = (r.at + 31) // 32 * 32
    for name, elements, kind, offset in entries:
        _, block, size, _ = TYPES[kind]
        at = begin + offset
        yield name, kind, r.data[at:at + elements // block * size]


def source(checkpoint):
    raw = open(checkpoint + "/model.safetensors", "rb").read()
    n = struct.unpack_from("<Q", raw)[0]
    header = json.loads(raw[8:8 + n])

    def get(name):
        m = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
        key = (f"model.layers.{m[1]}.{PARTS[m[2]]}.weight" if m
               else "model.embed_tokens.weight")
        begin, end = header[key]["data_offsets"]
        assert header[key]["dtype"] == "BF16"
        high = array.array("H", raw[8 + n + begin:8 + n + end])
        wide = array.array("H", bytes(4 * len(high)))
        wide[1::2] = high
        return array.array("f", wide.tobytes())

    return get


def fnv(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


def error(kind, data, want):
    _, block, size, decode = TYPES[kind]
    total = 0.0
    for i in range(len(data) // size):
        got = decode(data[i * size:(i + 1) * size])
        total += sum((a - b) ** 2 for a, b in zip(got, want[i * block:(i + 1) * block]))
    return f"{math.sqrt(total / len(want)):.9e}"


def main():
    get = source(sys.argv[1])
    for path in sys.argv[2:]:
        file = os.path.basename(path).removesuffix(".gguf").removeprefix("demo-")
        for name, kind, data in tensors(path):
            what = (fnv(data) if kind == 8 else error(kind, data, get(name))
                    if TYPES[kind][3] else "-")
            print(file, name, TYPES[kind][0], what)


main()
