#include "base/base64.h"

#include <stdint.h>

int base64_append(struct buf *out, const void *p, size_t n)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *s = p;
    int bad = 0;
    for (size_t i = 0; i < n && !bad; i += 3) {
        size_t left = n - i;
        uint32_t x = (uint32_t)s[i] << 16;
        if (left > 1)
            x |= (uint32_t)s[i + 1] << 8;
        if (left > 2)
            x |= s[i + 2];
        const char four[4] = {digits[x >> 18], digits[x >> 12 & 63],
                              left > 1 ? digits[x >> 6 & 63] : '=',
                              left > 2 ? digits[x & 63] : '='};
        bad = buf_append(out, four, 4);
    }
    return bad;
}

static int base64_value(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

int base64_decode(struct buf *out, const char *p, size_t n)
{
    size_t padding = 0;
    while (padding < 2 && padding < n && p[n - 1 - padding] == '=')
        padding++;
    if (n % 4)
        return 1;
    for (size_t i = 0; i < n; i += 4) {
        uint32_t word = 0;
        size_t n_bytes = i + 4 == n ? 3 - padding : 3;
        for (size_t k = 0; k < 4; k++) {
            int v = k > n_bytes ? 0 : base64_value(p[i + k]);
            if (v < 0)
                return 1;
            word = word << 6 | (uint32_t)v;
        }
        char b[3] = {(char)(word >> 16), (char)(word >> 8), (char)word};
        if (buf_append(out, b, n_bytes))
            return -1;
    }
    return 0;
}
