/* A hash of bytes for tables whose keys come from files. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Mix two words: multiply to 128 bits and fold. Every input bit reaches every
 * output bit. */
static inline uint64_t hash_mix(uint64_t a, uint64_t b)
{
    unsigned __int128 m = (unsigned __int128)a * b;
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

/* Return a hash of n bytes. seed must be random (rng_random_seed), so that
 * nobody can craft a file with collisions. */
static inline uint64_t hash_bytes(uint64_t seed, const void *p, size_t n)
{
    const unsigned char *s = p;
    uint64_t h = hash_mix(seed ^ 0x9e3779b97f4a7c15u, n ^ 0xd6e8feb86659fd93u);
    uint64_t w;
    for (; n > 8; s += 8, n -= 8) {
        memcpy(&w, s, 8);
        h = hash_mix(h ^ w, 0xa0761d6478bd642fu ^ seed);
    }
    w = 0;
    if (n > 0)
        memcpy(&w, s, n);
    return hash_mix(h ^ w, 0xe7037ed1a0b428dbu);
}

/* Return a hash of large data. Four lanes run at the same time: a single lane
 * would wait for its own multiplications and be slower than memory. */
static inline uint64_t hash_bulk(uint64_t seed, const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t h[4], w[4];
    for (uint64_t i = 0; i < 4; i++)
        h[i] = hash_mix(seed ^ 0x9e3779b97f4a7c15u, 0xd6e8feb86659fd93u + i);
    for (; n >= sizeof w; p += sizeof w, n -= sizeof w) {
        memcpy(w, p, sizeof w);
        for (int i = 0; i < 4; i++)
            h[i] = hash_mix(h[i] ^ w[i], 0xa0761d6478bd642fu);
    }
    return hash_bytes(hash_bytes(seed, h, sizeof h), p, n);
}

#endif
