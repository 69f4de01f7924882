#include "text/bpe/bpe_int.h"

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

/* The byte that the character at *p (valid UTF-8) stands for, or -1. */
static int next_byte(const struct alphabet *a, const unsigned char **p)
{
    const unsigned char *s = *p;
    if (*s < 0x80) {
        *p += 1;
        return a->byte_of[*s];
    }
    /* First bytes C2 to C5 cover U+0080 to U+017F. */
    if (*s > 0xC5)
        return -1;
    *p += 2;
    return a->byte_of[(*s & 7u) << 6 | (s[1] & 0x3Fu)];
}

void alphabet_bytes(const struct alphabet *a, char *arena, struct bpe_tok *t)
{
    unsigned char *out = (unsigned char *)arena + t->off;
    const unsigned char *p = out, *end = out + t->len;
    t->flags &= (uint16_t)~BPE_SPELLED;
    while (p < end) {
        if (next_byte(a, &p) < 0) {
            t->flags |= BPE_RAW;
            return;
        }
    }
    uint16_t n = 0;
    for (p = out; p < end; n++)
        out[n] = (unsigned char)next_byte(a, &p);
    t->len = n;
}
