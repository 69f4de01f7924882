#include "cli/io/escape.h"

#include <string.h>

#include "base/utf8.h"

bool escape_needs(uint32_t cp, enum escape_kind kind)
{
    static const struct {
        uint32_t first, last;
        enum escape_kind from; /* the first kind that needs it */
    } rows[] = {
        {0x00, 0x1f, ESCAPE_TEXT},     /* C0 */
        {0x7f, 0x9f, ESCAPE_TEXT},     /* DEL, C1 */
        {0x61c, 0x61c, ESCAPE_NAME},   /* Arabic letter mark */
        {0x200e, 0x200f, ESCAPE_NAME}, /* left-to-right, right-to-left mark */
        {0x202a, 0x202e, ESCAPE_TEXT}, /* embeddings and overrides */
        {0x2066, 0x2069, ESCAPE_TEXT}, /* isolates */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (cp >= rows[i].first && cp <= rows[i].last)
            return kind >= rows[i].from;
    return false;
}

bool escape_is_plain(const char *name)
{
    size_t n = strlen(name), k;
    for (uint32_t cp; n; name += k, n -= k)
        if (!(k = utf8_decode(name, n, &cp, NULL)) ||
            escape_needs(cp, ESCAPE_NAME))
            return false;
    return true;
}

int escape_append(struct buf *out, const char *s, size_t n,
                  enum escape_kind kind, const char *keep)
{
    while (n) {
        uint32_t cp;
        size_t k = utf8_decode(s, n, &cp, NULL);
        bool plain = k && (!escape_needs(cp, kind) || (*s && strchr(keep, *s)));
        int bad = plain ? buf_append(out, s, k) : 0;
        k = k ? k : 1;
        for (size_t i = 0; !plain && !bad && i < k; i++)
            bad = buf_printf(out, "\\x%02x", (unsigned char)s[i]);
        if (bad)
            return -1;
        s += k;
        n -= k;
    }
    return 0;
}

void escape_letters(struct buf *out, const char *s, size_t n,
                    const char *special, const char *letters, bool controls)
{
    for (size_t i = 0; i < n; i++) {
        const char *at = s[i] ? strchr(special, s[i]) : NULL;
        unsigned char c = (unsigned char)s[i];
        if (at)
            buf_printf(out, "\\%c", letters[at - special]);
        else if (controls && (c < 0x20 || c == 0x7f))
            buf_printf(out, "\\x%02x", c);
        else
            buf_putc(out, s[i]);
    }
}
