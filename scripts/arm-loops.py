#!/usr/bin/env python3
"""Count the instructions of inner loops in kernels for 64-bit ARM.

Usage: scripts/arm-loops.py [BUILD]

BUILD is a directory that was built for 64-bit ARM (default build/aarch64). For
each kernel of a table, one loop is taken from objdump: the one with the most
multiply-adds in the function, or the shortest with the number in the table. Its
instructions, multiply-adds, and loads are counted, and the least cycles that
the documented widths of some cores allow. Nothing is measured, and latencies
and caches do not count.
"""

import re
import subprocess
import sys

# kernel, object, function, bytes of a weight, tokens, multiply-adds (0: the
# most); with groups of 64 an MLX loop has 256
KERNELS = [
    ("f16, one token, fcvtl", "k_neon", "k_matmul_f32_f16_neon", 2, 1, 32),
    ("bf16, one token, shifts", "k_neon", "k_matmul_f32_bf16_neon", 2, 1, 32),
    ("bf16, one token, bfdot", "k_bf16", "rows_by_one|k_gemm_bf16_bf16", 2, 1,
     0),
    ("MLX 4 bit, one token, sdot", "k_int8_dotprod", "rows_4", 0.5, 1, 256),
    ("MLX 8 bit, one token, sdot", "k_int8_dotprod", "rows_8", 1, 1, 256),
    ("Q4_0, one token, sdot", "k_int8_dotprod", "k_gemm_q8_q4_0_dotprod",
     18 / 32, 1, 0),
    ("Q8_0, one token, sdot", "k_int8_dotprod", "k_gemm_q8_q8_0_dotprod",
     34 / 32, 1, 0),
    ("Q4_K, one token, sdot", "k_int8_dotprod", "k_gemm_q8_q4_k_dotprod",
     144 / 256, 1, 0),
    ("Q6_K, one token, sdot", "k_int8_dotprod", "k_gemm_q8_q6_k_dotprod",
     210 / 256, 1, 0),
    ("MLX 4 bit, one token, smull", "k_int8_neon", "rows_4", 0.5, 1, 256),
    ("int8 panel, 4 tokens, smull", "k_int8_neon", "panel_many_scaled", 1, 4,
     0),
    ("int8 panel, 4 tokens, sdot", "k_int8_dotprod", "panel_many_scaled", 1, 4,
     0),
    ("int8 panel, 4 tokens, smmla", "k_int8_i8mm", "panel_many_scaled", 1, 4,
     0),
    ("f32 panel, 8 tokens, fmla", "k_neon", "gemm_block", 4, 8, 256),
    ("bf16, 8 tokens, bfmmla", "k_bf16", "tile_tokens", 2, 8, 0),
]

# What a core can do in a cycle: instructions that it dispatches, loads, vector
# operations, and of these: multiplications and conversions of integers and of
# f16, shifts. Then the instructions that it lacks. Sources: docs/performance.md.
CORES = [("N1", 4, 2, 2, 1, 1, {"smmla", "bfdot", "bfmmla"}),
         ("V2", 8, 3, 4, 2, 2, set())]

MADDS = {"sdot": 16, "smmla": 32, "bfdot": 8, "bfmmla": 16}


def madds(op, args):
    if op in MADDS:
        return MADDS[op]
    if op in ("fmla", "fmls") and ".4s" in args:
        return 4
    if op in ("smull", "smull2", "smlal", "smlal2") and ".8h" in args:
        return 8
    return 0


def all_madds(body):
    """The multiply-adds of a loop. In loops of integers, fmla adds up their
    sums."""
    counts = [(op, madds(op, args)) for _, op, args in body]
    whole = sum(n for op, n in counts if op not in ("fmla", "fmls"))
    return whole or sum(n for _, n in counts)


def is_load(op):
    return op.startswith(("ld", "ldr", "ldp")) and not op.startswith("ldax")


def operations(body):
    """Numbers of loads, of vector operations, and of those on the pipes for
    multiplications and for shifts. A pair of q registers is two loads; widening
    f16 and conversions of four integers take two operations."""
    loads = vectors = multiply = shift = 0
    for _, op, args in body:
        if is_load(op):
            loads += 2 if op == "ldp" and args.startswith("q") else 1
            vectors += op == "ld1r"
        elif re.search(r"\bv\d+\.", args) and not op.startswith("st"):
            twice = 2 if op.startswith(("fcvt", "scvtf", "ucvtf")) else 1
            vectors += twice
            if op.startswith(("smull", "smlal", "fcvt", "scvtf", "ucvtf")):
                multiply += twice
            if op.startswith(("shl", "sshl", "ushl", "sshr", "ushr", "sadalp")):
                shift += 1
    return loads, vectors, multiply, shift


def cycles(body, core):
    """The least cycles of a loop, by the widths of a core, as text."""
    loads, vectors, multiply, shift = operations(body)
    _, dispatch, n_loads, n_vectors, n_multiply, n_shift, lacks = core
    if lacks & {op for _, op, _ in body}:
        return ""
    return f"""{max(len(body) / dispatch, loads / n_loads, vectors / n_vectors,
                    multiply / n_multiply, shift / n_shift):.0f}"""


def function(path, names):
    """The instructions of the first of these functions that exists."""
    text = subprocess.run(["aarch64-linux-gnu-objdump", "-d",
                           "--no-show-raw-insn", path],
                          check=True, capture_output=True, text=True).stdout
    for name in names.split("|"):
        at = re.search(rf"^[0-9a-f]+ <{name}(?:\.[\w.]+)?>:\n((?:.+\n)+)",
                       text, re.M)
        if at:
            return re.findall(r"^ *([0-9a-f]+):\t(\S+)(?:\t(.*))?$",
                              at.group(1), re.M)
    sys.exit(f"{path}: no {names}")


def loops(code):
    """The loops: a branch back, with no other branch back inside."""
    index = {a: i for i, (a, _, _) in enumerate(code)}
    found = []
    for i, (_, op, args) in enumerate(code):
        target = re.search(r"\b([0-9a-f]+) <", args)
        if op.startswith(("b.", "cb", "tb")) or op == "b":
            start = index.get(target.group(1)) if target else None
            if start is not None and start <= i:
                found.append((start, i + 1))
    return [(a, b) for a, b in found
            if not any(a <= c and d <= b and (a, b) != (c, d)
                       for c, d in found)]


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else "build/aarch64"
    print("| loop | multiply-adds | instructions | per multiply-add | "
          "on vectors | loads | loads per byte of weights | " +
          " | ".join(f"cycles, {core[0]}" for core in CORES) + " |")
    print("|---" + "|---:" * (6 + len(CORES)) + "|")
    for name, obj, names, size, tokens, wanted in KERNELS:
        code = function(f"{build}/src/kernel/arm/{obj}.o", names)
        counted = [(all_madds(code[a:b]), code[a:b]) for a, b in loops(code)]
        n = wanted or max(c[0] for c in counted)
        body = min((c[1] for c in counted if c[0] == n), key=len)
        vector = operations(body)[1]
        loads = sum(is_load(op) for _, op, _ in body)
        print(f"| {name} | {n} | {len(body)} | {len(body) / n:.3f} | "
              f"{vector} | {loads} | {loads / (n / tokens * size):.2f} | " +
              " | ".join(cycles(body, core) for core in CORES) + " |")


main()
