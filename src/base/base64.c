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
