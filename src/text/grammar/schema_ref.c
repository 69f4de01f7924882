/* References inside a schema, and the places of messages. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "text/grammar/schema.h"
#include "text/grammar/schema_int.h"

/* ---- places -------------------------------------------------------------- */

/* A JSON pointer that is being written; what does not fit is left out. */
struct pointer {
    char text[WHAT_BYTES];
    size_t n;
};

static void put_token(struct pointer *p, const char *s, size_t n)
{
    char shown[ERR_SHOWN];
    err_show(shown, s, n);
    if (p->n + 1 < sizeof p->text)
        p->text[p->n++] = '/';
    for (const char *c = shown; *c && p->n + 3 < sizeof p->text; c++) {
        if (*c == '~' || *c == '/')
            p->text[p->n++] = '~';
        p->text[p->n++] = *c == '~' ? '0' : *c == '/' ? '1' : *c;
    }
    p->n = utf8_complete(p->text, p->n);
    p->text[p->n] = '\0';
}

/* Append the way from v to a value inside it. Returns false if it is not
 * there. */
static bool find_value(struct pointer *p, const struct json_value *v,
                       const struct json_value *wanted)
{
    size_t before = p->n;
    if (v == wanted)
        return true;
    if (v->type != JSON_ARRAY && v->type != JSON_OBJECT)
        return false;
    for (size_t i = 0; i < v->len; i++) {
        char number[32];
        int n = snprintf(number, sizeof number, "%zu", i);
        if (v->type == JSON_OBJECT)
            put_token(p, v->keys[i].str, v->keys[i].len);
        else
            put_token(p, number, (size_t)n);
        if (find_value(p, &v->items[i], wanted))
            return true;
        p->n = before;
        p->text[before] = '\0';
    }
    return false;
}

static void where(const struct schema *s, struct pointer *p,
                  const struct json_value *at, const char *keyword)
{
    *p = (struct pointer){.text = "#", .n = 1};
    if (at)
        find_value(p, s->root, at);
    if (keyword)
        put_token(p, keyword, strlen(keyword));
}

int schema_refuse(struct schema *s, const struct json_value *at,
                  const char *keyword, const char *fmt, ...)
{
    struct pointer p;
    char msg[512];
    va_list ap;
    if (s->e->code) /* the first error is the one to report */
        return -1;
    va_start(ap, fmt);
    int n = vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    if (n >= (int)sizeof msg)
        msg[utf8_complete(msg, sizeof msg - 1)] = '\0';
    where(s, &p, at, keyword);
    return err_set(s->e, QWICK_ERR_USAGE, "%s: %s", p.text, msg);
}

int schema_refuse_err(struct schema *s, const struct json_value *at,
                      const char *keyword, const struct qwick_err *e)
{
    if (e->code == QWICK_ERR_USAGE)
        return schema_refuse(s, at, keyword, "%s", e->msg);
    if (!s->e->code)
        *s->e = *e;
    return -1;
}

/* ---- references ---------------------------------------------------------- */

static int hex_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Append s[0..n) with %HH decoded and, inside a pointer, ~0 and ~1. */
static int decode(struct buf *out, const char *s, size_t n, bool tildes)
{
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (c == '%' && i + 2 < n && hex_value(s[i + 1]) >= 0 &&
            hex_value(s[i + 2]) >= 0) {
            c = (char)(hex_value(s[i + 1]) << 4 | hex_value(s[i + 2]));
            i += 2;
        } else if (tildes && c == '~' && i + 1 < n &&
                   (s[i + 1] == '0' || s[i + 1] == '1')) {
            c = s[++i] == '0' ? '~' : '/';
        }
        if (buf_putc(out, c))
            return -1;
    }
    return 0;
}

/* Return the part of v that a token of a pointer names, or NULL. */
static const struct json_value *part_of(const struct json_value *v,
                                        const char *token, size_t n)
{
    size_t index = 0;
    if (v->type != JSON_ARRAY)
        return json_get_n(v, token, n);
    if (n == 0 || n > 9)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        if (token[i] < '0' || token[i] > '9')
            return NULL;
        index = index * 10 + (size_t)(token[i] - '0');
    }
    return index < v->len ? &v->items[index] : NULL;
}

const struct json_value *schema_follow(const struct json_value *root,
                                       const char *p, size_t n, size_t *steps)
{
    const struct json_value *v = root;
    struct buf token = {0};
    for (size_t i = 0; v && i < n;) {
        const char *slash = memchr(p + i + 1, '/', n - i - 1);
        size_t end = slash ? (size_t)(slash - p) : n, work = v->len / 16 + 1;
        token.len = 0;
        *steps = *steps > work ? *steps - work : 0;
        if (!*steps || decode(&token, p + i + 1, end - i - 1, true)) {
            v = NULL;
            break;
        }
        v = part_of(v, token.data ? token.data : "", token.len);
        i = end;
    }
    buf_free(&token);
    return v;
}

/* Find the object with an "$anchor". */
static const struct json_value *find_anchor(struct schema *s,
                                            const struct json_value *v,
                                            const char *name, size_t n)
{
    const struct json_value *anchor = json_get(v, "$anchor");
    if (json_is(anchor, JSON_STRING) && anchor->len == n &&
        memcmp(anchor->str, name, n) == 0)
        return v;
    if ((v->type != JSON_ARRAY && v->type != JSON_OBJECT) ||
        schema_step(s, v->len + 1))
        return NULL;
    for (size_t i = 0; i < v->len; i++) {
        const struct json_value *found = find_anchor(s, &v->items[i], name, n);
        if (found)
            return found;
    }
    return NULL;
}

const struct json_value *schema_resolve(struct schema *s,
                                        const struct json_value *at,
                                        const struct json_value *ref)
{
    const struct json_value *v;
    const char *p = ref->str + 1;
    if (ref->len == 0 || ref->str[0] != '#') {
        schema_refuse(s, at, "$ref",
                      "\"%s\" is outside of this schema; only references that "
                      "begin with # are supported",
                      ERR_SHOW(ref->str, ref->len));
        return NULL;
    }
    if (ref->len == 1)
        return s->root;
    v = *p == '/' ? schema_follow(s->root, p, ref->len - 1, &s->steps_left)
                  : find_anchor(s, s->root, p, ref->len - 1);
    if (s->steps_left == 0)
        schema_step(s, 1);
    if (!v && s->steps_left > 0)
        schema_refuse(s, at, "$ref", "nothing is at \"%s\"",
                      ERR_SHOW(ref->str, ref->len));
    return v;
}
