#!/usr/bin/env python3
"""Write tests/golden/gguf/blocks.txt: blocks of each GGUF type and their elements.

Usage: gguf-block-goldens.py ggml-common.h

The grids of the types IQ1, IQ2 and IQ3 are read from this file of llama.cpp.

Blocks are random bytes with random f16 scales, or chosen E8M0 scales. Elements follow the definition
of the type in exact arithmetic, with one rounding to float32 where ggml's
reference rounds: after each product and after each difference.
"""

import random
import re
import struct
import sys

IQ4 = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]


def f32(v):
    return struct.unpack("<f", struct.pack("<f", v))[0]


def f16(b, at):
    return struct.unpack_from("<e", b, at)[0]


def nibbles(q):
    return [v & 15 for v in q] + [v >> 4 for v in q]


def bits(b):
    v = int.from_bytes(b, "little")
    return [v >> j & 1 for j in range(8 * len(b))]


def q4_0(b):
    return [f32((n - 8) * f16(b, 0)) for n in nibbles(b[2:])]


def q4_1(b):
    return [f32(f32(n * f16(b, 0)) + f16(b, 2)) for n in nibbles(b[4:])]


def q5_0(b):
    d, h = f16(b, 0), bits(b[2:6])
    return [f32((n + 16 * h[j] - 16) * d) for j, n in enumerate(nibbles(b[6:]))]


def q5_1(b):
    d, m, h = f16(b, 0), f16(b, 2), bits(b[4:8])
    return [f32(f32((n + 16 * h[j]) * d) + m) for j, n in enumerate(nibbles(b[8:]))]


def q8_0(b):
    return [f32(n * f16(b, 0)) for n in struct.unpack_from("<32b", b, 2)]


def iq4_nl(b):
    return [f32(IQ4[n] * f16(b, 0)) for n in nibbles(b[2:])]


def mxfp4(b):
    half = [0, 1, 2, 3, 4, 6, 8, 12]
    return [f32((-half[n & 7] if n & 8 else half[n]) * 2.0 ** (b[0] - 128)) + 0.0
            for n in nibbles(b[1:])]


def two_bits(q):
    """256 values from 64 bytes."""
    return [q[32 * h + i] >> s & 3 for h in (0, 1) for s in (0, 2, 4, 6) for i in range(32)]


def q2_k(b):
    d, m, q = f16(b, 80), f16(b, 82), two_bits(b[16:80])
    return [f32(f32(f32(d * (b[j // 16] & 15)) * v) - f32(m * (b[j // 16] >> 4)))
            for j, v in enumerate(q)]


def q3_k(b):
    h, q, sc, d = b[:32], two_bits(b[32:96]), b[96:108], f16(b, 108)
    low = [v & 15 for v in sc[:8]] + [v >> 4 for v in sc[:8]]
    high = [0] * 16
    for c in range(4):
        for r in range(4):
            high[4 * r + c] = sc[8 + c] >> 2 * r & 3
    scale = [low[g] + 16 * high[g] - 32 for g in range(16)]
    return [f32(f32(d * scale[j // 16]) * (v - (0 if h[j % 32] >> j // 32 & 1 else 4)))
            for j, v in enumerate(q)]


def scales_mins(sc):
    scale, low = [], []
    for j in range(8):
        if j < 4:
            scale.append(sc[j] & 63)
            low.append(sc[j + 4] & 63)
        else:
            scale.append(sc[j + 4] & 15 | sc[j - 4] >> 6 << 4)
            low.append(sc[j + 4] >> 4 | sc[j] >> 6 << 4)
    return scale, low


def k_elements(b, values):
    d, m = f16(b, 0), f16(b, 2)
    scale, low = scales_mins(b[4:16])
    return [f32(f32(f32(d * scale[j // 32]) * v) - f32(m * low[j // 32]))
            for j, v in enumerate(values)]


def q4_values(q):
    return [q[32 * g + i] >> s & 15 for g in range(4) for s in (0, 4) for i in range(32)]


def q4_k(b):
    return k_elements(b, q4_values(b[16:]))


def q5_k(b):
    h = b[16:48]
    return k_elements(b, [v + 16 * (h[j % 32] >> j // 32 & 1)
                          for j, v in enumerate(q4_values(b[48:]))])


def q6_k(b):
    l, h, sc, d = b[:128], b[128:192], struct.unpack_from("<16b", b, 192), f16(b, 208)
    q = []
    for half in (0, 1):
        for run in range(4):
            for i in range(32):
                low = l[64 * half + 32 * (run % 2) + i]
                low = low & 15 if run < 2 else low >> 4
                q.append(low | (h[32 * half + i] >> 2 * run & 3) << 4)
    return [f32(f32(d * sc[j // 16]) * (v - 32)) for j, v in enumerate(q)]


def iq4_xs(b):
    d, sh, sl = f16(b, 0), b[2] | b[3] << 8, b[4:8]
    scale = [(sl[g // 2] >> 4 * (g % 2) & 15) + 16 * (sh >> 2 * g & 3) - 32 for g in range(8)]
    out = []
    for g in range(8):
        out += [f32(f32(d * scale[g]) * IQ4[n]) for n in nibbles(b[8 + 16 * g:24 + 16 * g])]
    return out


def ue4m3(x):
    e, m = x >> 3 & 15, x & 7
    return 0.0 if x in (0, 0x7f) else m / 512 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7)


def nvfp4(b):
    half = [0, 1, 2, 3, 4, 6, 8, 12]
    out = []
    for s in range(4):
        q = b[4 + 8 * s:12 + 8 * s]
        out += [f32((-half[n & 7] if n & 8 else half[n]) * (ue4m3(b[s]) / 2))
                for n in nibbles(q)]
    return out


GRIDS = {}  # name: a list of grid points, each a list of its elements


def read_grids(path):
    text = open(path).read()
    for name, signed in (("iq2xxs", 0), ("iq2xs", 0), ("iq2s", 0), ("iq3xxs", 0), ("iq3s", 0),
                         ("iq1s", 1)):
        body = re.search(r"GGML_TABLE_BEGIN\(\w+, %s_grid,[^)]*\)(.*?)GGML_TABLE_END" % name,
                         text, re.S).group(1)
        n = 4 if name.startswith("iq3") else 8
        GRIDS[name] = [[v - 256 if signed and v > 127 else v
                        for v in int(x, 16).to_bytes(n, "little")]
                       for x in re.findall(r"0x[0-9a-f]+", body)]


def with_parity(s):
    return s | (bin(s).count("1") & 1) << 7


def signed(points, signs):
    """Elements of grid points; signs has a byte for each eight elements."""
    flat = [v for p in points for v in p]
    return [-v if signs[j // 8] >> j % 8 & 1 else v for j, v in enumerate(flat)]


def words(b, size):
    return [int.from_bytes(b[i:i + size], "little") for i in range(0, len(b), size)]


def scaled(values, scales):
    """Elements times the scales of equal groups."""
    n = len(values) // len(scales)
    return [f32(f32(scales[j // n]) * v) for j, v in enumerate(values)]


def in_turn(b):
    return [n for v in b for n in (v & 15, v >> 4)]


def iq2_xxs(b):
    d, q, points, signs, scales = f16(b, 0), b[2:], [], [], []
    for r in range(8):
        points += [GRIDS["iq2xxs"][i] for i in q[8 * r:8 * r + 4]]
        w = words(q[8 * r + 4:8 * r + 8], 4)[0]
        signs += [with_parity(w >> 7 * l & 127) for l in range(4)]
        scales.append(d * (0.5 + (w >> 28)) / 4)
    return scaled(signed(points, signs), scales)


def iq2_xs(b):
    d, q = f16(b, 0), words(b[2:66], 2)
    return scaled(signed([GRIDS["iq2xs"][v & 511] for v in q], [with_parity(v >> 9) for v in q]),
                  [d * (0.5 + s) / 4 for s in in_turn(b[66:])])


def iq2_s(b):
    d, q, signs, h = f16(b, 0), b[2:34], b[34:66], b[66:74]
    index = [q[j] + 256 * (h[j // 4] >> 2 * (j % 4) & 3) for j in range(32)]
    return scaled(signed([GRIDS["iq2s"][i] for i in index], signs),
                  [d * (0.5 + s) / 4 for s in in_turn(b[74:])])


def iq3_xxs(b):
    d, w = f16(b, 0), words(b[66:], 4)
    signs = [with_parity(v >> 7 * l & 127) for v in w for l in range(4)]
    return scaled(signed([GRIDS["iq3xxs"][i] for i in b[2:66]], signs),
                  [d * (0.5 + (v >> 28)) / 2 for v in w])


def iq3_s(b):
    d, q, h, signs = f16(b, 0), b[2:66], b[66:74], b[74:106]
    index = [q[j] + 256 * (h[j // 8] >> j % 8 & 1) for j in range(64)]
    return scaled(signed([GRIDS["iq3s"][i] for i in index], signs),
                  [d * (1 + 2 * s) for s in in_turn(b[106:])])


def iq1(index, minus, scales):
    values = []
    for i, m in zip(index, minus):
        values += [v + (-0.125 if m else 0.125) for v in GRIDS["iq1s"][i]]
    return scaled(values, scales)


def iq1_s(b):
    d, q, h = f16(b, 0), b[2:34], words(b[34:], 2)
    return iq1([q[j] + 256 * (h[j // 4] >> 3 * (j % 4) & 7) for j in range(32)],
               [h[j // 4] >> 15 for j in range(32)],
               [d * (2 * (v >> 12 & 7) + 1) for v in h])


def iq1_m(b):
    q, h, sc = b[:32], in_turn(b[32:48]), words(b[48:], 2)
    d = f16(sum((v >> 12) << 4 * i for i, v in enumerate(sc)).to_bytes(2, "little"), 0)
    return iq1([q[j] + 256 * (h[j] & 7) for j in range(32)], [h[j] >> 3 for j in range(32)],
               [d * (2 * (v >> 3 * i & 7) + 1) for v in sc for i in range(4)])


def tq1_0(b):
    def digits(q, n):
        return [(v * 3 ** k % 256) * 3 >> 8 for k in range(n) for v in q]
    d = f16(b, 52)
    return [f32(d * (v - 1)) for v in digits(b[:32], 5) + digits(b[32:48], 5) + digits(b[48:52], 4)]


def tq2_0(b):
    return [f32(f16(b, 64) * (v - 1)) for v in two_bits(b[:64])]


# name, function, bytes, where the f16 numbers are
TYPES = [
    ("Q4_0", q4_0, 18, [0]), ("Q4_1", q4_1, 20, [0, 2]), ("Q5_0", q5_0, 22, [0]),
    ("Q5_1", q5_1, 24, [0, 2]), ("Q8_0", q8_0, 34, [0]), ("IQ4_NL", iq4_nl, 18, [0]),
    ("Q2_K", q2_k, 84, [80, 82]), ("Q3_K", q3_k, 110, [108]), ("Q4_K", q4_k, 144, [0, 2]),
    ("Q5_K", q5_k, 176, [0, 2]), ("Q6_K", q6_k, 210, [208]), ("IQ4_XS", iq4_xs, 136, [0]),
    ("MXFP4", mxfp4, 17, []), ("NVFP4", nvfp4, 36, []), ("IQ2_XXS", iq2_xxs, 66, [0]),
    ("IQ2_XS", iq2_xs, 74, [0]), ("IQ2_S", iq2_s, 82, [0]), ("IQ3_XXS", iq3_xxs, 98, [0]),
    ("IQ3_S", iq3_s, 110, [0]), ("IQ1_S", iq1_s, 50, [0]), ("IQ1_M", iq1_m, 56, []),
    ("TQ1_0", tq1_0, 54, [52]), ("TQ2_0", tq2_0, 66, [64]),
]


def main():
    rng = random.Random(17)
    read_grids(sys.argv[1])
    for name, fn, size, halves in TYPES:
        for i in range(4 if size < 80 else 2):
            b = bytearray(rng.randbytes(size))
            if name == "MXFP4":  # subnormal, usual and large scales
                b[0] = [0, 1, 120, 250][i]
            if name == "NVFP4":  # zeros, subnormal and with a bit that does not count
                b[:3] = [[0, 1, 0x7f], [7, 8, 0xff], [0x80, 0x7e, 0x87], [56, 57, 58]][i]
            if name == "IQ1_M":  # d between 1/16 and 1/8
                b[55] = b[55] & 15 | 0x20
                b[53] = b[53] & 15 | 0xc0
            for at in halves:
                struct.pack_into("<e", b, at, rng.gauss(0, 0.02))
            values = fn(bytes(b))
            sys.stdout.write(name + " " + b.hex() + " ")
            sys.stdout.write("".join(struct.pack("<f", v).hex() for v in values) + "\n")


if __name__ == "__main__":
    main()
