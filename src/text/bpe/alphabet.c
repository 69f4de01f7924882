#include "text/bpe/bpe_int.h"

#include <string.h>

static bool is_printable(uint32_t c)
{
    return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) ||
           (c >= 0xAE && c <= 0xFF);
}

void alphabet_fill(struct alphabet *a)
{
    uint16_t next = 0x100;
    for (size_t c = 0; c < ALPHABET_CHARS; c++)
        a->byte_of[c] = -1;
    for (uint16_t c = 0; c < 256; c++) {
        uint16_t u = is_printable(c) ? c : next++;
        a->char_of[c] = u;
        a->byte_of[u] = (int16_t)c;
    }
}

static int put_char(struct buf *out, uint32_t c)
{
    const char s[2] = {(char)(0xC0 | c >> 6), (char)(0x80 | (c & 0x3F))};
    return c < 0x80 ? buf_putc(out, (char)c) : buf_append(out, s, 2);
}

int alphabet_spell(const struct alphabet *a, const char *p, size_t n,
                   struct buf *out)
{
    for (size_t i = 0; i < n; i++)
        if (put_char(out, a->char_of[(unsigned char)p[i]]))
            return -1;
    return 0;
}

/* The byte that the character at *p (valid UTF-8) stands for, or -1. The byte
 * after the character is readable. Branches on it would be mispredicted. */
static inline int next_byte(const struct alphabet *a, const unsigned char **p)
{
    const unsigned char *s = *p;
    unsigned two = *s >= 0x80, c = (*s & 7u) << 6 | (s[1] & 0x3Fu);
    *p += 1 + two;
    /* First bytes C2 to C5 cover U+0080 to U+017F. */
    return a->byte_of[two ? c : *s] | -(*s > 0xC5);
}

/* Return the first character of p[0..n) that is not printable ASCII, which
 * stands for itself. Eight bytes at a time: of a byte below 0x21 or above 0x7E,
 * one of the terms has the high bit; of other bytes, none. */
static const unsigned char *skip_ascii(const unsigned char *p, size_t n)
{
    const unsigned char *end = p + n;
    uint64_t x;
    for (; end - p >= 8; p += 8) {
        memcpy(&x, p, sizeof x);
        if ((x | (x - 0x2121212121212121u) | (x + 0x0101010101010101u)) &
            0x8080808080808080u)
            break;
    }
    while (p<end && * p> ' ' && *p < 0x7F)
        p++;
    return p;
}

#define EACH_BYTE(b) (0x0101010101010101u * (b))
#define HIGH_BITS    EACH_BYTE(0x80)

/* The high bit of each byte that is 0. */
static inline uint64_t zero_bytes(uint64_t x)
{
    return ~(((x & ~HIGH_BITS) + ~HIGH_BITS) | x) & HIGH_BITS;
}

/* The high bit of each byte that is at least `low`, for bytes below 0x80. */
static inline uint64_t bytes_from(uint64_t x, unsigned low)
{
    return (x + EACH_BYTE(0x80u - low)) & HIGH_BITS;
}

/* Whether each character that begins in x stands for a byte. next: the bytes
 * that follow those of x. */
static inline bool words_cover(uint64_t x, uint64_t next)
{
    uint64_t low = x & ~HIGH_BITS, second = next & EACH_BYTE(0x3F);
    uint64_t above = x & bytes_from(low, 0x46); /* C6 and above */
    uint64_t c5 = zero_bytes(x ^ EACH_BYTE(0xC5)),
             c2 = zero_bytes(x ^ EACH_BYTE(0xC2));
    uint64_t soft_hyphen = zero_bytes(second ^ EACH_BYTE(0x2D));
    uint64_t control =
        (~x & ~bytes_from(low, 0x21)) | zero_bytes(x ^ EACH_BYTE(0x7F));
    return !((control & HIGH_BITS) | above | (c5 & bytes_from(second, 0x04)) |
             (c2 & (~bytes_from(second, 0x21) | soft_hyphen)));
}

int alphabet_first(const struct alphabet *a, const char *spelled, size_t n)
{
    const unsigned char *p = (const unsigned char *)spelled;
    if (n == 0 || *p < 0x80)
        return n ? *p : -1;
    int byte = next_byte(a, &p);
    size_t i = 0;
    for (; n - i > 8; i += 8)
        if (!words_cover(bpe_load64(spelled + i), bpe_load64(spelled + i + 1)))
            return -1;
    uint64_t rest = bpe_load_part(spelled + i, n - i);
    if (n - i < 8)
        rest |= EACH_BYTE('!') << 8 * (n - i);
    return words_cover(rest, bpe_load64(spelled + i + 1)) ? byte : -1;
}

void alphabet_bytes(const struct alphabet *a, char *arena, struct bpe_tok *t)
{
    unsigned char *out = (unsigned char *)arena + t->off;
    const unsigned char *end = out + t->len, *p = skip_ascii(out, t->len);
    t->flags &= (uint16_t)~BPE_SPELLED;
    int bytes = 0; /* negative: one of the characters is no byte */
    out += p - out;
    while (p < end)
        bytes |= next_byte(a, &p);
    if (bytes < 0) {
        t->flags |= BPE_RAW;
        return;
    }
    for (p = out; p < end;)
        *out++ = (unsigned char)next_byte(a, &p);
    t->len = (uint16_t)(out - ((unsigned char *)arena + t->off));
}
