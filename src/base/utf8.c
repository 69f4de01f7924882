#include "base/utf8.h"

#include <string.h>

#include "base/buf.h"

/* The length of a character from its first byte, and the bounds of its second
 * byte (Unicode 15, table 3-7). Later bytes are 80..BF. */
static size_t lead_length(unsigned char c, unsigned char *lo, unsigned char *hi)
{
    *lo = 0x80;
    *hi = 0xBF;
    if (c < 0x80)
        return 1;
    if (c >= 0xC2 && c <= 0xDF)
        return 2;
    if (c >= 0xE0 && c <= 0xEF) {
        if (c == 0xE0)
            *lo = 0xA0;
        if (c == 0xED)
            *hi = 0x9F;
        return 3;
    }
    if (c >= 0xF0 && c <= 0xF4) {
        if (c == 0xF0)
            *lo = 0x90;
        if (c == 0xF4)
            *hi = 0x8F;
        return 4;
    }
    return 0;
}

/* How many bytes at p form a valid beginning of one character. *want: its full
 * length, 0 if no character starts with this byte. */
static size_t valid_part(const unsigned char *p, size_t n, size_t *want)
{
    unsigned char lo, hi;
    size_t len = lead_length(p[0], &lo, &hi);
    *want = len;
    size_t i = 1;
    while (i < len && i < n && p[i] >= lo && p[i] <= hi) {
        lo = 0x80;
        hi = 0xBF;
        i++;
    }
    return i;
}

size_t utf8_decode(const char *s, size_t n, uint32_t *cp, size_t *bad)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t want;
    size_t have = valid_part(p, n, &want);
    if (have != want) {
        if (bad)
            *bad = have;
        return 0;
    }
    if (cp) {
        uint32_t c = p[0];
        if (want == 2)
            c &= 0x1F;
        else if (want == 3)
            c &= 0x0F;
        else if (want == 4)
            c &= 0x07;
        for (size_t i = 1; i < want; i++)
            c = c << 6 | (p[i] & 0x3F);
        *cp = c;
    }
    return want;
}

size_t utf8_ascii(const char *p, size_t n)
{
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        uint64_t w;
        memcpy(&w, p + i, 8);
        if (w & 0x8080808080808080u)
            break;
    }
    while (i < n && (unsigned char)p[i] < 0x80)
        i++;
    return i;
}

size_t utf8_valid(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n) {
        size_t want, have;
        i += utf8_ascii(p + i, n - i);
        if (i == n)
            break;
        have = valid_part((const unsigned char *)p + i, n - i, &want);
        if (have != want)
            break;
        i += have;
    }
    return i;
}

size_t utf8_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

size_t utf8_complete(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    /* Only the last three bytes can begin an incomplete character. */
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = p[n - back];
        if (c < 0x80)
            return n;
        if (c >= 0xC0) {
            size_t want;
            size_t have = valid_part(p + n - back, back, &want);
            return have == back && have < want ? n - back : n;
        }
    }
    return n;
}

int utf8_sanitize(struct buf *out, const char *p, size_t n)
{
    size_t start = 0, i = 0;
    while (i < n) {
        size_t bad = 1;
        size_t len = utf8_decode(p + i, n - i, NULL, &bad);
        if (len) {
            i += len;
            continue;
        }
        if (buf_append(out, p + start, i - start) ||
            buf_append(out, "\xEF\xBF\xBD", 3))
            return -1;
        i += bad;
        start = i;
    }
    return buf_append(out, p + start, n - start);
}
