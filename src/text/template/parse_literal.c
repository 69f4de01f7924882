/* Strings and numbers of the source. */
#include <string.h>

#include "base/utf8.h"
#include "text/template/interp.h"
#include "text/template/node.h"

static size_t read_hex(const char *p, const char *end, size_t n, uint32_t *out)
{
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        char c = p + i < end ? p[i] : 'x';
        int d = c >= '0' && c <= '9'                     ? c - '0'
                : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                         : -1;
        if (d < 0)
            return 0;
        *out = *out * 16 + (uint32_t)d;
    }
    return n;
}

/* The escape behind the backslash at p. Appends to out[*n]; returns how many
 * bytes of the source it takes, 0 where it is malformed. */
static size_t unescape(const char *p, const char *end, char *out, size_t *n)
{
    static const char from[] = "ntr\\'\"abfv", to[] = "\n\t\r\\'\"\a\b\f\v";
    const char *simple = p[1] ? strchr(from, p[1]) : NULL;
    uint32_t cp;
    if (simple) {
        out[(*n)++] = to[simple - from];
        return 2;
    }
    if (p[1] == '\n')
        return 2;
    if (p[1] >= '0' && p[1] <= '7') {
        size_t i = 1;
        for (cp = 0; i < 4 && p + i < end && p[i] >= '0' && p[i] <= '7'; i++)
            cp = cp * 8 + (uint32_t)(p[i] - '0');
        *n += utf8_encode(cp, out + *n);
        return i;
    }
    size_t digits = p[1] == 'x' ? 2 : p[1] == 'u' ? 4 : p[1] == 'U' ? 8 : 0;
    if (digits) {
        if (!read_hex(p + 2, end, digits, &cp) || cp > 0x10FFFF ||
            (cp >= 0xD800 && cp <= 0xDFFF))
            return 0;
        *n += utf8_encode(cp, out + *n);
        return 2 + digits;
    }
    if (p[1] == 'N')
        return 0;
    out[(*n)++] = '\\'; /* not an escape: both characters stay */
    return 1;
}

/* Adjacent strings make one. */
struct node *parse_string(struct parser *p)
{
    struct node *node = parse_node(p, N_CONST, p->tok->line);
    size_t cap = 0, n = 0;
    for (const struct token *t = p->tok; t->type == T_STRING; t++)
        cap += t->n;
    /* No escape is shorter than its character; utf8_encode may write 4. */
    char *out = arena_alloc(&p->t->arena, cap + 4, 1);
    struct str *s = arena_alloc(&p->t->arena, sizeof *s, _Alignof(struct str));
    if (!node)
        return NULL;
    if (!out || !s) {
        err_oom(p->e, cap);
        return NULL;
    }
    for (; p->tok->type == T_STRING; p->tok++) {
        const char *q = p->tok->p + 1, *end = p->tok->p + p->tok->n - 1;
        while (q < end) {
            size_t used = 1;
            if (*q == '\\')
                used = unescape(q, end, out, &n);
            else
                out[n++] = *q;
            if (!used)
                return parse_fail(p, p->tok->line,
                                  "a string has an escape that is not "
                                  "a character");
            q += used;
        }
    }
    *s = (struct str){.p = out, .n = n, .n_chars = SIZE_MAX};
    s->n_chars = str_chars(s);
    node->val = value_str(s);
    return node;
}

static int read_integer(const char *text, int64_t *out)
{
    int base = 10;
    int64_t v = 0;
    char letter = text[0] == '0' ? (char)(text[1] | 0x20) : '\0';
    if (letter == 'x' || letter == 'o' || letter == 'b') {
        base = letter == 'x' ? 16 : letter == 'o' ? 8 : 2;
        text += 2;
    }
    for (; *text; text++) {
        int d = *text <= '9' ? *text - '0' : (*text | 0x20) - 'a' + 10;
        if (__builtin_mul_overflow(v, base, &v) ||
            __builtin_add_overflow(v, d, &v))
            return -1;
    }
    *out = v;
    return 0;
}

static struct node *parse_big(struct parser *p, struct node *node,
                              const char *text, size_t n)
{
    struct str *s = arena_alloc(&p->t->arena, sizeof *s, _Alignof(struct str));
    if (!s) {
        err_oom(p->e, sizeof *s);
        return NULL;
    }
    *s = (struct str){.p = text, .n = n, .n_chars = n};
    node->val = (struct value){.type = V_BIG, .s = s};
    p->tok++;
    return node;
}

struct node *parse_number(struct parser *p)
{
    struct node *node = parse_node(p, N_CONST, p->tok->line);
    char *text = arena_alloc(&p->t->arena, p->tok->n + 1, 1);
    size_t n = 0;
    if (!node)
        return NULL;
    if (!text) {
        err_oom(p->e, p->tok->n);
        return NULL;
    }
    for (size_t i = 0; i < p->tok->n; i++)
        if (p->tok->p[i] != '_')
            text[n++] = p->tok->p[i];
    text[n] = '\0';
    if (p->tok->type == T_FLOAT)
        node->val = value_float(float_read(text));
    else if (read_integer(text, &node->val.i) == 0)
        node->val.type = V_INT;
    else if (*text != '0')
        return parse_big(p, node, text, n);
    else
        return parse_fail(p, p->tok->line, "integer %.40s is too large", text);
    p->tok++;
    return node;
}
