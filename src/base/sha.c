#include "base/sha.h"

#include <stdio.h>
#include <string.h>

static uint32_t rotl(uint32_t x, int n)
{
    return x << n | x >> (32 - n);
}

static uint32_t rotr(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static uint32_t load_be(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 |
           p[3];
}

/* Section 6.1.2 of the standard. */
static void block_1(uint32_t h[8], const unsigned char *p)
{
    uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int t = 0; t < 16; t++)
        w[t] = load_be(p + 4 * t);
    for (int t = 16; t < 80; t++)
        w[t] = rotl(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
    for (int t = 0; t < 80; t++) {
        uint32_t f, k;
        if (t < 20)
            f = (b & c) | (~b & d), k = 0x5a827999;
        else if (t < 40)
            f = b ^ c ^ d, k = 0x6ed9eba1;
        else if (t < 60)
            f = (b & c) | (b & d) | (c & d), k = 0x8f1bbcdc;
        else
            f = b ^ c ^ d, k = 0xca62c1d6;
        uint32_t x = rotl(a, 5) + f + e + k + w[t];
        e = d;
        d = c;
        c = rotl(b, 30);
        b = a;
        a = x;
    }
    h[0] += a;
    h[1] += b;
    h[2] += c;
    h[3] += d;
    h[4] += e;
}

/* Section 4.2.2: the cube roots of the first 64 primes. */
static const uint32_t k_256[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

/* Section 6.2.2. */
static void block_256(uint32_t h[8], const unsigned char *p)
{
    uint32_t w[64], v[8];
    memcpy(v, h, sizeof v);
    for (int t = 0; t < 16; t++)
        w[t] = load_be(p + 4 * t);
    for (int t = 16; t < 64; t++) {
        uint32_t a = w[t - 15], b = w[t - 2];
        w[t] = w[t - 16] + (rotr(a, 7) ^ rotr(a, 18) ^ a >> 3) + w[t - 7] +
               (rotr(b, 17) ^ rotr(b, 19) ^ b >> 10);
    }
    for (int t = 0; t < 64; t++) {
        uint32_t a = v[0], e = v[4];
        uint32_t x = v[7] + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) +
                     ((e & v[5]) ^ (~e & v[6])) + k_256[t] + w[t];
        uint32_t y = (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) +
                     ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += x;
        v[0] = x + y;
    }
    for (int i = 0; i < 8; i++)
        h[i] += v[i];
}

void sha_begin(struct sha *s, enum sha_kind kind)
{
    static const uint32_t start_1[8] = {0x67452301, 0xefcdab89, 0x98badcfe,
                                        0x10325476, 0xc3d2e1f0};
    static const uint32_t start_256[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372,
                                          0xa54ff53a, 0x510e527f, 0x9b05688c,
                                          0x1f83d9ab, 0x5be0cd19};
    *s = (struct sha){.kind = kind};
    memcpy(s->h, kind == SHA_1 ? start_1 : start_256, sizeof s->h);
}

static void add_block(struct sha *s, const unsigned char *p)
{
    if (s->kind == SHA_1)
        block_1(s->h, p);
    else
        block_256(s->h, p);
}

void sha_add(struct sha *s, const void *data, size_t n)
{
    const unsigned char *p = data;
    size_t have = s->n_bytes % 64;
    s->n_bytes += n;
    if (have + n >= 64 && have > 0) {
        memcpy(s->tail + have, p, 64 - have);
        add_block(s, s->tail);
        p += 64 - have;
        n -= 64 - have;
        have = 0;
    }
    for (; n >= 64; p += 64, n -= 64)
        add_block(s, p);
    if (n > 0)
        memcpy(s->tail + have, p, n);
}

void sha_end(struct sha *s, char out[65])
{
    static const unsigned char pad[64] = {0x80};
    uint64_t bits = s->n_bytes * 8;
    size_t have = s->n_bytes % 64;
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    sha_add(s, pad, (have < 56 ? 56 : 120) - have);
    sha_add(s, length, sizeof length);
    for (int i = 0; i < (s->kind == SHA_1 ? 5 : 8); i++)
        snprintf(out + 8 * i, 9, "%08x", s->h[i]);
}
