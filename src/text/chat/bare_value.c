#include "text/chat/bare_value.h"

#include <stdint.h>
#include <string.h>

enum { BARE_MAX_NESTING = 64 };

/* Values that are being read. */
struct bare {
    struct buf *out;
    const char *quote;
    size_t n_quote;
    const char *p, *end;
    uint64_t objects; /* bit k: level k is an object, else an array */
    unsigned depth;
};

static bool bare_is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void bare_skip_blanks(struct bare *b)
{
    while (b->p < b->end && bare_is_blank(*b->p))
        b->p++;
}

static bool at_quote(const struct bare *b)
{
    return (size_t)(b->end - b->p) >= b->n_quote &&
           !memcmp(b->p, b->quote, b->n_quote);
}

/* Whether the place is one where the name of a member stands. */
static bool in_object(const struct bare *b)
{
    return b->depth && (b->objects >> (b->depth - 1) & 1);
}

/* A string between quotes. One without an end goes on to the end of the text.
 */
static int put_quoted(struct bare *b)
{
    const char *s = b->p + b->n_quote;
    const char *close = memmem(s, (size_t)(b->end - s), b->quote, b->n_quote);
    const char *last = close ? close : b->end;
    b->p = close ? close + b->n_quote : b->end;
    return buf_json_string(b->out, s, (size_t)(last - s));
}

/* Take the text up to one of the bytes `ends`, without blanks around it. */
static size_t take_word(struct bare *b, const char *ends, const char **word)
{
    const char *s = b->p;
    while (b->p < b->end && (!*b->p || !strchr(ends, *b->p)))
        b->p++;
    const char *last = b->p;
    while (last > s && bare_is_blank(last[-1]))
        last--;
    *word = s;
    return (size_t)(last - s);
}

static int put_name(struct bare *b)
{
    const char *word;
    bare_skip_blanks(b);
    if (b->p == b->end || *b->p == '}')
        return 0;
    if (at_quote(b))
        return put_quoted(b);
    size_t n = take_word(b, ":}", &word);
    return buf_json_string(b->out, word, n);
}

/* A string of JSON, which the model should not write. */
static int put_json_string(struct bare *b)
{
    const char *s = b->p++;
    while (b->p < b->end && *b->p != '"')
        b->p += *b->p == '\\' && b->end - b->p > 1 ? 2 : 1;
    b->p += b->p < b->end;
    return buf_append(b->out, s, (size_t)(b->p - s));
}

/* A number, true, false or null, also as Python writes them. */
static int put_word(struct bare *b)
{
    static const char *const python[][2] = {
        {"None", "null"}, {"True", "true"}, {"False", "false"}};
    const char *word;
    size_t n = take_word(b, ",]}", &word);
    for (size_t i = 0; i < sizeof python / sizeof *python; i++)
        if (n == strlen(python[i][0]) && !memcmp(word, python[i][0], n))
            return buf_puts(b->out, python[i][1]);
    return buf_append(b->out, word, n);
}

/* Put one byte of the structure. Names follow "{", and "," in an object. */
static int put_mark(struct bare *b, char c)
{
    b->p++;
    if (buf_putc(b->out, c))
        return -1;
    if (c == '{' || c == '[') {
        uint64_t bit = 1ull << b->depth++;
        b->objects = c == '{' ? b->objects | bit : b->objects & ~bit;
    } else if (c == '}' || c == ']') {
        b->depth--;
    }
    return c == '{' || (c == ',' && in_object(b)) ? put_name(b) : 0;
}

int bare_value_to_json(struct buf *out, const char *quote, const char *s,
                       size_t n, size_t *used)
{
    struct bare b = {out, quote, strlen(quote), s, s + n, 0, 0};
    int rc = 0;
    *used = n;
    for (bool begun = false; !rc && (b.depth || !begun); begun = true) {
        bare_skip_blanks(&b);
        char c = b.p < b.end ? *b.p : '\0';
        if (b.p == b.end || (!b.depth && c != '{') ||
            (b.depth == BARE_MAX_NESTING && (c == '{' || c == '[')))
            return buf_append(out, b.p, b.p < b.end);
        rc = c && strchr("{}[],:", c) ? put_mark(&b, c)
             : at_quote(&b)           ? put_quoted(&b)
             : c == '"'               ? put_json_string(&b)
                                      : put_word(&b);
    }
    *used = (size_t)(b.p - s);
    return rc;
}

bool bare_value_in_string(const char *quote, const char *s, size_t n)
{
    size_t len = strlen(quote);
    bool inside = false;
    for (const char *end = s + n; (s = memmem(s, n, quote, len));
         inside = !inside) {
        s += len;
        n = (size_t)(end - s);
    }
    return inside;
}
