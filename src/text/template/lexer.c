#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/utf8.h"
#include "text/template/node.h"
#include "text/unicode.h"

/* How a tag treats the white space next to it. */
enum { SIGN_NONE, SIGN_MINUS = '-', SIGN_PLUS = '+' };

struct lexer {
    const char *name;
    const char *src, *end, *p;
    uint32_t line;
    bool line_starting; /* the last match ended in a newline */
    struct token *tok;
    size_t n, cap;
    char *open; /* brackets that are open in this tag */
    size_t n_open, cap_open;
    struct qwick_err *e;
};

static const char op_text[N_OPS][3] = {
    [OP_FLOORDIV] = "//", [OP_POW] = "**",      [OP_EQ] = "==",
    [OP_NE] = "!=",       [OP_GE] = ">=",       [OP_LE] = "<=",
    [OP_ADD] = "+",       [OP_SUB] = "-",       [OP_DIV] = "/",
    [OP_MUL] = "*",       [OP_MOD] = "%",       [OP_CONCAT] = "~",
    [OP_LBRACKET] = "[",  [OP_RBRACKET] = "]",  [OP_LPAREN] = "(",
    [OP_RPAREN] = ")",    [OP_LBRACE] = "{",    [OP_RBRACE] = "}",
    [OP_GT] = ">",        [OP_LT] = "<",        [OP_ASSIGN] = "=",
    [OP_DOT] = ".",       [OP_COLON] = ":",     [OP_PIPE] = "|",
    [OP_COMMA] = ",",     [OP_SEMICOLON] = ";",
};

static int lex_fail(struct lexer *x, const char *what)
{
    return err_set(x->e, QWICK_ERR_MODEL, "%s: line %u: %s", x->name, x->line,
                   what);
}

/* Bytes of white space at p: one character of it. */
static size_t space_at(const char *p, const char *end)
{
    uint32_t cp;
    if (p == end)
        return 0;
    size_t n = utf8_decode(p, (size_t)(end - p), &cp, NULL);
    return n && char_is_space(cp) ? n : 0;
}

static const char *skip_space(const char *p, const char *end)
{
    size_t n;
    while ((n = space_at(p, end)))
        p += n;
    return p;
}

/* Where the white space begins that ends at `end`. */
static const char *rskip_space(const char *begin, const char *end)
{
    while (end > begin) {
        const char *p = end - 1;
        while (p > begin && ((unsigned char)*p & 0xC0) == 0x80)
            p--;
        if (space_at(p, end) != (size_t)(end - p))
            break;
        end = p;
    }
    return end;
}

static bool lexer_at(const struct lexer *x, const char *p, const char *s)
{
    size_t n = strlen(s);
    return (size_t)(x->end - p) >= n && memcmp(p, s, n) == 0;
}

/* Move to p and count the lines. */
static void advance(struct lexer *x, const char *p)
{
    x->line_starting = p > x->src && p[-1] == '\n';
    for (; x->p < p; x->p++)
        x->line += *x->p == '\n';
}

static int add_token(struct lexer *x, enum token_type type, enum op op,
                     const char *p, size_t n)
{
    if (ARRAY_RESERVE(x->tok, x->cap, x->n + 1, x->e))
        return -1;
    x->tok[x->n++] = (struct token){type, op, x->line, p, n};
    return 0;
}

/* The text before a tag, without the white space that the tag removes. */
static int add_data(struct lexer *x, const char *tag, int sign, bool variable)
{
    const char *end = tag;
    if (sign == SIGN_MINUS) {
        end = rskip_space(x->p, tag);
    } else if (sign != SIGN_PLUS && !variable) {
        const char *line = tag;
        while (line > x->p && line[-1] != '\n')
            line--;
        if ((line > x->p || x->line_starting) && skip_space(line, tag) == tag)
            end = line;
    }
    if (end > x->p && add_token(x, T_DATA, OP_NONE, x->p, (size_t)(end - x->p)))
        return -1;
    advance(x, tag);
    return 0;
}

static int sign_at(const struct lexer *x, const char *p)
{
    return p < x->end && (*p == '-' || *p == '+') ? *p : SIGN_NONE;
}

/* Past the end of a block or comment tag ("%}" or "#}") that begins at p, with
 * its sign and the white space that it removes; NULL: none is here. */
static const char *block_end(const struct lexer *x, const char *p,
                             const char *mark)
{
    if (*p == '-' && lexer_at(x, p + 1, mark))
        return skip_space(p + 3, x->end);
    if (*p == '+' && lexer_at(x, p + 1, mark))
        return p + 3;
    if (!lexer_at(x, p, mark))
        return NULL;
    return p + 2 < x->end && p[2] == '\n' ? p + 3 : p + 2;
}

static int lex_comment(struct lexer *x)
{
    const char *p = x->p + 2, *end;
    if (sign_at(x, p))
        p++;
    for (; p < x->end; p++) {
        end = block_end(x, p, "#}");
        if (end) {
            advance(x, end);
            return 0;
        }
    }
    return lex_fail(x, "a comment has no end");
}

static const char *skip_word(const struct lexer *x, const char *p,
                             const char *word)
{
    p = skip_space(p, x->end);
    return lexer_at(x, p, word) ? skip_space(p + strlen(word), x->end) : NULL;
}

/* Past the end of "{% raw %}" at the lexer's place; NULL: another tag. */
static const char *raw_begin(const struct lexer *x, const char *tag)
{
    const char *p = tag + 2;
    if (sign_at(x, p))
        p++;
    p = skip_word(x, p, "raw");
    if (!p)
        return NULL;
    if (lexer_at(x, p, "-%}"))
        return skip_space(p + 3, x->end);
    return lexer_at(x, p, "%}") ? p + 2 : NULL;
}

static int lex_raw(struct lexer *x, const char *body)
{
    uint32_t line = x->line;
    advance(x, body);
    for (const char *p = body; p < x->end; p++) {
        if (!lexer_at(x, p, "{%"))
            continue;
        const char *q = p + 2, *end;
        int sign = sign_at(x, q);
        q = skip_word(x, q + (sign != SIGN_NONE), "endraw");
        if (!q || q == x->end || !(end = block_end(x, q, "%}")))
            continue;
        if (add_data(x, p, sign, false))
            return -1;
        advance(x, end);
        return 0;
    }
    x->line = line;
    return lex_fail(x, "a raw block has no end");
}

/* ---- inside tags ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool in_base(char c, int base)
{
    if (base == 16)
        return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
    return c >= '0' && c < '0' + base;
}

/* Digits with single underscores between them. Returns p where there are none.
 */
static const char *skip_digits(const char *p, const char *end, int base)
{
    while (p < end && in_base(*p, base)) {
        p++;
        if (end - p >= 2 && *p == '_' && in_base(p[1], base))
            p++;
    }
    return p;
}

/* Past the exponent or fraction of a number whose digits end at p; p: it has
 * none, so it is an integer. */
static const char *skip_fraction(const char *p, const char *end)
{
    const char *q = p;
    if (end - q >= 2 && *q == '.' && is_digit(q[1]))
        q = skip_digits(q + 1, end, 10);
    if (q < end && (*q == 'e' || *q == 'E')) {
        const char *x = q + 1;
        if (x < end && (*x == '+' || *x == '-'))
            x++;
        const char *digits = skip_digits(x, end, 10);
        if (digits > x)
            return digits;
    }
    return q;
}

static int lex_number(struct lexer *x)
{
    const char *p = x->p, *digits = skip_digits(p, x->end, 10);
    const char *end =
        p > x->src && p[-1] == '.' ? digits : skip_fraction(digits, x->end);
    enum token_type type = end > digits ? T_FLOAT : T_INTEGER;
    if (type == T_INTEGER && *p == '0') {
        static const char letters[] = "bBoOxX";
        static const int bases[] = {2, 2, 8, 8, 16, 16};
        const char *l = p + 1 < x->end && p[1] ? strchr(letters, p[1]) : NULL;
        const char *first = l && p + 2 < x->end && p[2] == '_' ? p + 3 : p + 2;
        end = p + 1;
        while (
            end < x->end &&
            (*end == '0' || (*end == '_' && end + 1 < x->end && end[1] == '0')))
            end++;
        if (l) {
            const char *q = skip_digits(first, x->end, bases[l - letters]);
            end = q > first ? q : end;
        }
    }
    if (add_token(x, type, OP_NONE, p, (size_t)(end - p)))
        return -1;
    advance(x, end);
    return 0;
}

static int lex_string(struct lexer *x)
{
    const char *p = x->p + 1;
    while (p < x->end && *p != *x->p)
        p += *p == '\\' && p + 1 < x->end ? 2 : 1;
    if (p >= x->end)
        return lex_fail(x, "a string has no end");
    p++;
    if (add_token(x, T_STRING, OP_NONE, x->p, (size_t)(p - x->p)))
        return -1;
    advance(x, p);
    return 0;
}

static size_t name_char(const char *p, const char *end)
{
    uint32_t cp;
    char c = *p;
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
        is_digit(c))
        return 1;
    if ((unsigned char)c < 0x80)
        return 0;
    size_t n = utf8_decode(p, (size_t)(end - p), &cp, NULL);
    enum uclass k = unicode_class(cp);
    return n && (k == UC_LETTER || k == UC_NUMBER) ? n : 0;
}

static int lex_operator(struct lexer *x)
{
    enum op op = OP_NONE;
    for (int i = 1; i < N_OPS && op == OP_NONE; i++)
        if (lexer_at(x, x->p, op_text[i]))
            op = (enum op)i;
    char c = *x->p, what[] = "unexpected character 'x'";
    what[sizeof what - 3] = c;
    if (op == OP_NONE)
        return lex_fail(x, (unsigned char)c >= 0x20 && (unsigned char)c < 0x7F
                               ? what
                               : "unexpected character");
    if (c == '(' || c == '[' || c == '{') {
        if (ARRAY_RESERVE(x->open, x->cap_open, x->n_open + 1, x->e))
            return -1;
        x->open[x->n_open++] = c == '(' ? ')' : (char)(c + 2);
    } else if (c == ')' || c == ']' || c == '}') {
        if (!x->n_open || x->open[--x->n_open] != c)
            return lex_fail(x, what);
    }
    const char *end = x->p + strlen(op_text[op]);
    if (add_token(x, T_OP, op, x->p, (size_t)(end - x->p)))
        return -1;
    advance(x, end);
    return 0;
}

/* One token inside a tag; *done: it was the tag's end. */
static int lex_inside(struct lexer *x, bool variable, bool *done)
{
    const char *end = NULL;
    *done = false;
    if (!x->n_open) {
        if (!variable)
            end = block_end(x, x->p, "%}");
        else if (lexer_at(x, x->p, "-}}"))
            end = skip_space(x->p + 3, x->end);
        else if (lexer_at(x, x->p, "}}"))
            end = x->p + 2;
    }
    if (end) {
        *done = true;
        if (add_token(x, variable ? T_VARIABLE_END : T_BLOCK_END, OP_NONE, x->p,
                      2))
            return -1;
        advance(x, end);
        return 0;
    }
    if (space_at(x->p, x->end)) {
        advance(x, skip_space(x->p, x->end));
        return 0;
    }
    if (is_digit(*x->p))
        return lex_number(x);
    if (*x->p == '"' || *x->p == '\'')
        return lex_string(x);
    const char *p = x->p;
    for (size_t n; p < x->end && (n = name_char(p, x->end));)
        p += n;
    if (p == x->p)
        return lex_operator(x);
    if (add_token(x, T_NAME, OP_NONE, x->p, (size_t)(p - x->p)))
        return -1;
    advance(x, p);
    return 0;
}

static int lex_tag(struct lexer *x, int sign)
{
    bool variable = x->p[1] == '{', done = false;
    uint32_t line = x->line;
    if (add_token(x, variable ? T_VARIABLE_BEGIN : T_BLOCK_BEGIN, OP_NONE, x->p,
                  2))
        return -1;
    advance(x, x->p + (sign ? 3 : 2));
    x->n_open = 0;
    while (!done) {
        if (x->p >= x->end) {
            x->line = line;
            return lex_fail(x, "a tag has no end");
        }
        if (lex_inside(x, variable, &done))
            return -1;
    }
    return 0;
}

static int lex_all(struct lexer *x)
{
    while (x->p < x->end) {
        const char *tag = x->p;
        while (tag < x->end && !lexer_at(x, tag, "{{") &&
               !lexer_at(x, tag, "{%") && !lexer_at(x, tag, "{#"))
            tag++;
        if (tag >= x->end) {
            if (add_token(x, T_DATA, OP_NONE, x->p, (size_t)(x->end - x->p)))
                return -1;
            advance(x, x->end);
            break;
        }
        const char *raw = tag[1] == '%' ? raw_begin(x, tag) : NULL;
        int sign = sign_at(x, tag + 2);
        if (add_data(x, tag, sign, tag[1] == '{'))
            return -1;
        if (raw             ? lex_raw(x, raw)
            : tag[1] == '#' ? lex_comment(x)
                            : lex_tag(x, sign))
            return -1;
    }
    return add_token(x, T_END, OP_NONE, x->end, 0);
}

int lex(struct token **out, size_t *n_out, const char *name, const char *src,
        size_t n, struct qwick_err *e)
{
    struct lexer x = {.name = name,
                      .src = src,
                      .end = src + n,
                      .p = src,
                      .line = 1,
                      .line_starting = true,
                      .e = e};
    int rc = lex_all(&x);
    free(x.open);
    if (rc) {
        free(x.tok);
        x.tok = NULL;
        x.n = 0;
    }
    *out = x.tok;
    *n_out = x.n;
    return rc;
}
