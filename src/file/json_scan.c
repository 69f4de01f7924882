#include "file/json_scan.h"

#include "base/utf8.h"

const char *json_read_hex4(const char *p, const char *end, uint32_t *v)
{
    if (end - p < 4)
        return NULL;
    *v = 0;
    for (int i = 0; i < 4; i++) {
        unsigned c = (unsigned char)p[i];
        unsigned digit = c - '0', letter = (c | 0x20) - 'a';
        if (digit > 9 && letter > 5)
            return NULL;
        *v = *v << 4 | (digit <= 9 ? digit : letter + 10);
    }
    return p + 4;
}

const char *json_copy_escape(const char *p, const char *end, char **at)
{
    static const char letters[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    uint32_t c, low;
    if (end - p < 2)
        return NULL;
    if (p[1] != 'u') {
        const char *k = memchr(letters, p[1], sizeof letters - 1);
        if (!k)
            return NULL;
        *(*at)++ = bytes[k - letters];
        return p + 2;
    }
    p = json_read_hex4(p + 2, end, &c);
    if (p && (c & 0xF800) == 0xD800) { /* a surrogate: the first of a pair */
        if (c >= 0xDC00 || end - p < 2 || memcmp(p, "\\u", 2) != 0 ||
            !(p = json_read_hex4(p + 2, end, &low)) || (low & 0xFC00) != 0xDC00)
            return NULL;
        c = 0x10000 + ((c & 0x3FF) << 10 | (low & 0x3FF));
    }
    if (p)
        *at += utf8_encode(c, *at);
    return p;
}

/* Whether the eight bytes at p are plain ASCII, to be copied as they are. */
static bool is_plain(const char *p)
{
    uint64_t w;
    memcpy(&w, p, 8);
    return !((w & JSON_HIGH) | json_bytes_stop(w));
}

const char *json_copy_rest(const char *p, const char *end, char *out, char *at,
                           size_t *n)
{
    while (p && p < end && *p != '"') {
        if (*p == '\\') {
            p = json_copy_escape(p, end, &at);
            continue;
        }
        size_t k = end - p >= 8 && is_plain(p)
                       ? 8
                       : utf8_decode(p, (size_t)(end - p), NULL, NULL);
        if (k == 0 || (unsigned char)*p < ' ')
            return NULL;
        for (; k > 0; k--)
            *at++ = *p++;
    }
    *n = (size_t)(at - out);
    return p && p < end ? p : NULL;
}
