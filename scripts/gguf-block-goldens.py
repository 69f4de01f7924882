#!/usr/bin/env python3
"""Write tests/golden/gguf/blocks.txt: blocks of each GGUF type and their elements.

Blocks are random bytes with random f16 scales, or chosen E8M0 scales. Elements follow the definition
of the type in exact arithmetic, with one rounding to float32 where ggml's
reference rounds: after each product and after each difference.
"""

import random
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


# name, function, bytes, where the f16 numbers are
TYPES = [
    ("Q4_0", q4_0, 18, [0]), ("Q4_1", q4_1, 20, [0, 2]), ("Q5_0", q5_0, 22, [0]),
    ("Q5_1", q5_1, 24, [0, 2]), ("Q8_0", q8_0, 34, [0]), ("IQ4_NL", iq4_nl, 18, [0]),
    ("Q2_K", q2_k, 84, [80, 82]), ("Q3_K", q3_k, 110, [108]), ("Q4_K", q4_k, 144, [0, 2]),
    ("Q5_K", q5_k, 176, [0, 2]), ("Q6_K", q6_k, 210, [208]), ("IQ4_XS", iq4_xs, 136, [0]),
    ("MXFP4", mxfp4, 17, []),
]


def main():
    rng = random.Random(17)
    for name, fn, size, halves in TYPES:
        for i in range(4 if size < 80 else 2):
            b = bytearray(rng.randbytes(size))
            if name == "MXFP4":  # subnormal, usual and large scales
                b[0] = [0, 1, 120, 250][i]
            for at in halves:
                struct.pack_into("<e", b, at, rng.gauss(0, 0.02))
            values = fn(bytes(b))
            sys.stdout.write(name + " " + b.hex() + " ")
            sys.stdout.write("".join(struct.pack("<f", v).hex() for v in values) + "\n")


if __name__ == "__main__":
    main()
