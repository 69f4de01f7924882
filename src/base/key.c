#include "base/key.h"

#include <string.h>

/* http://www.isthe.com/chongo/tech/comp/fnv */
#define FNV_BASIS \
    ((unsigned __int128)0x6c62272e07bb0142u << 64 | 0x62b821756295c58du)
#define FNV_PRIME ((unsigned __int128)0x1000000u << 64 | 0x13bu)

struct key key_start(const char *what)
{
    struct key k = {FNV_BASIS};
    key_add_text(&k, what, strlen(what));
    return k;
}

void key_add(struct key *k, const void *p, size_t n)
{
    const unsigned char *s = p;
    for (size_t i = 0; i < n; i++)
        k->h = (k->h ^ s[i]) * FNV_PRIME;
}

void key_add_u64(struct key *k, uint64_t v)
{
    unsigned char b[8];
    for (size_t i = 0; i < 8; i++)
        b[i] = (unsigned char)(v >> 8 * i);
    key_add(k, b, sizeof b);
}

void key_add_text(struct key *k, const char *s, size_t n)
{
    key_add_u64(k, s ? n : UINT64_MAX);
    if (s)
        key_add(k, s, n);
}

void key_add_ids(struct key *k, const int32_t *ids, size_t n)
{
    key_add_u64(k, n);
    for (size_t i = 0; i < n; i++)
        key_add_u64(k, (uint64_t)ids[i]);
}

void key_add_float(struct key *k, float v)
{
    uint32_t bits;
    v += 0.0f; /* -0 is 0 */
    memcpy(&bits, &v, sizeof bits);
    key_add_u64(k, bits);
}

uint64_t key_u64(const struct key *k)
{
    return (uint64_t)k->h ^ (uint64_t)(k->h >> 64);
}
