#include "text/prompt_template.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

static bool is_name_char(unsigned char c)
{
    return isalnum(c) || c >= 0x80 || c == '_' || c == '-' || c == '.';
}

bool template_is_name(const char *s, size_t n)
{
    if (n == 0 || s[0] == ' ' || s[n - 1] == ' ')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!is_name_char((unsigned char)s[i]) && s[i] != ' ')
            return false;
    return true;
}

/* ---- parsing ------------------------------------------------------------ */

struct parser {
    struct prompt_template *t;
    const struct template_names *known;
    const char *s, *end;
    size_t line;
    const char *text; /* where the current text begins */
    size_t text_line;
    size_t single; /* line of the first brace that is only a brace; 0: none */
    size_t twice;  /* line of the first doubled brace; 0: none */
    struct qwick_err *e;
};

static int template_add_part(struct parser *p, bool is_field, const char *s,
                             size_t n, size_t line)
{
    struct prompt_template *t = p->t;
    if (!is_field && n == 0)
        return 0;
    if (ARRAY_RESERVE(t->v, t->cap, t->n + 1, p->e))
        return -1;
    t->v[t->n++] = (struct template_part){is_field, s, n, line};
    return 0;
}

/* End the current text before `end`; the next text begins at `next`. */
static int end_text(struct parser *p, const char *end, const char *next)
{
    const char *s = p->text;
    size_t line = p->text_line;
    p->text = p->s = next;
    p->text_line = p->line;
    return template_add_part(p, false, s, (size_t)(end - s), line);
}

/* The length of what is between the brace at s and the next "}" of its line;
 * SIZE_MAX: another brace or the end of the line comes first. */
static size_t inside(const struct parser *p)
{
    for (const char *at = p->s + 1; at < p->end && *at != '\n'; at++) {
        if (*at == '}')
            return (size_t)(at - p->s - 1);
        if (*at == '{')
            break;
    }
    return SIZE_MAX;
}

static bool is_known(const struct template_names *known, const char *s,
                     size_t n)
{
    for (size_t i = 0; known && i < known->n; i++)
        if (strlen(known->v[i]) == n && memcmp(known->v[i], s, n) == 0)
            return true;
    return false;
}

/* Whether s[0..n) would be a name, or nothing, without blanks at its ends. */
static bool is_near_name(const char *s, size_t n)
{
    while (n && (*s == ' ' || *s == '\t')) {
        s++;
        n--;
    }
    while (n && (s[n - 1] == ' ' || s[n - 1] == '\t'))
        n--;
    return n == 0 || template_is_name(s, n);
}

/* Read a field, or a brace that begins none. */
static int read_open(struct parser *p)
{
    const char *name = p->s + 1;
    size_t n = inside(p);
    if (n != SIZE_MAX &&
        (n == 0 || template_is_name(name, n) || is_known(p->known, name, n)))
        return end_text(p, p->s, name + n + 1) ||
                       template_add_part(p, true, name, n, p->line)
                   ? -1
                   : 0;
    if (n != SIZE_MAX && is_near_name(name, n))
        return err_usage(p->e,
                         "%s:%zu: \"{%s}\": a field has no blanks at its ends; "
                         "{{ and }} are braces",
                         p->t->name, p->line, ERR_SHOW(name, n));
    if (!p->single)
        p->single = p->line;
    p->s++;
    return 0;
}

static int read_brace(struct parser *p)
{
    if (p->s + 1 < p->end && p->s[1] == *p->s) {
        if (!p->twice)
            p->twice = p->line;
        return end_text(p, p->s + 1, p->s + 2); /* keep one of them */
    }
    if (*p->s == '{')
        return read_open(p);
    if (!p->single)
        p->single = p->line;
    p->s++;
    return 0;
}

static int template_parse(struct parser *p)
{
    while (p->s < p->end) {
        if (*p->s == '{' || *p->s == '}') {
            if (read_brace(p))
                return -1;
            continue;
        }
        p->line += *p->s == '\n';
        p->s++;
    }
    if (p->single && p->twice)
        return err_usage(p->e,
                         "%s:%zu: \"{{\" and \"}}\" are one brace each, but "
                         "line %zu has a single one; double each brace that is "
                         "not of a field, or put a blank between the two",
                         p->t->name, p->twice, p->single);
    return end_text(p, p->s, p->s);
}

int prompt_template_parse(struct prompt_template *t, const char *name,
                          const char *text, size_t n, size_t line,
                          const struct template_names *known,
                          struct qwick_err *e)
{
    *t = (struct prompt_template){.name = strdup(name), .text = malloc(n + 1)};
    if (!t->name || !t->text)
        return err_oom(e, n);
    memcpy(t->text, text, n);
    t->text[n] = 0;
    struct parser p = {.t = t,
                       .known = known,
                       .s = t->text,
                       .end = t->text + n,
                       .line = line,
                       .text = t->text,
                       .text_line = line,
                       .e = e};
    return template_parse(&p);
}

void prompt_template_free(struct prompt_template *t)
{
    free(t->name);
    free(t->text);
    free(t->v);
    *t = (struct prompt_template){0};
}

/* ---- use ---------------------------------------------------------------- */

const struct template_part *
prompt_template_find(const struct prompt_template *t, const char *name,
                     size_t n)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->v[i].is_field && t->v[i].n == n &&
            memcmp(t->v[i].s, name, n) == 0)
            return &t->v[i];
    return NULL;
}

int prompt_template_fill(const struct prompt_template *t, template_value_fn get,
                         void *ctx, struct buf *out, struct qwick_err *e)
{
    for (size_t i = 0; i < t->n; i++) {
        const char *s = t->v[i].s;
        size_t n = t->v[i].n;
        if (t->v[i].is_field && get(ctx, &t->v[i], &s, &n, e))
            return -1;
        if (buf_append(out, s, n))
            return err_oom(e, n);
    }
    return 0;
}
