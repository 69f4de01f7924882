#include "text/template/template.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "text/template/interp.h"
#include "text/chat/think.h"

/* Numbers are read and written with a point in any locale of the host. */
static locale_t c_locale(locale_t *outer)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    *outer = c ? uselocale(c) : (locale_t)0;
    return c;
}

static void leave_locale(locale_t c, locale_t outer)
{
    uselocale(outer);
    freelocale(c);
}

double float_read(const char *text)
{
    char *end;
    double d = strtod(text, &end);
    return end != text && *end == '\0' ? d : NAN;
}

/* ---- open ---- */

/* CRLF and CR become LF, and one final newline goes. */
static size_t normalise(char *out, const char *text, size_t n)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\r' && i + 1 < n && text[i + 1] == '\n')
            continue;
        out[len++] = text[i] == '\r' ? '\n' : text[i];
    }
    return len && out[len - 1] == '\n' ? len - 1 : len;
}

static int open_source(struct template *t, const char *name, const char *text,
                       size_t n, struct qwick_err *e)
{
    struct token *tokens = NULL;
    size_t n_tokens;
    struct parser p = {.t = t, .e = e};
    if (n > TEMPLATE_MAX_SOURCE)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: the template is too long (%zu bytes, at most %zu)",
                       name, n, TEMPLATE_MAX_SOURCE);
    size_t valid = utf8_valid(text, n);
    if (valid != n)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: offset %zu: the template is not UTF-8", name,
                       valid);
    char *source = arena_alloc(&t->arena, n + 1, 1);
    if (!source || !(t->file_name = arena_copy(&t->arena, name, strlen(name))))
        return err_oom(e, n);
    if (lex(&tokens, &n_tokens, name, source, normalise(source, text, n), e))
        return -1;
    p.tok = tokens;
    int rc = parse_template(&p);
    free(tokens);
    return rc;
}

int template_open(struct template **out, const char *name, const char *text,
                  size_t n, struct qwick_err *e)
{
    locale_t outer, c = c_locale(&outer);
    struct template *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!c || !t) {
        err_oom(e, sizeof *t);
        goto fail;
    }
    t->seed = rng_random_seed();
    if (open_source(t, name, text, n, e))
        goto fail;
    leave_locale(c, outer);
    *out = t;
    return 0;
fail:
    if (c)
        leave_locale(c, outer);
    template_close(t);
    return -1;
}

void template_close(struct template *t)
{
    if (!t)
        return;
    arena_free(&t->arena);
    hashmap_free(&t->by_name);
    free(t->names);
    free(t);
}

bool template_uses(const struct template *t, const char *name)
{
    return template_name(t, name, strlen(name)) != NULL;
}

/* ---- variables ---- */

static int import(struct rt *rt, const struct json_value *j, bool outside,
                  struct value *out);

/* Roles that templates build control tokens of, as in "<|" + role + "|>". */
static bool is_common_role(const struct json_value *v)
{
    static const char *const roles[] = {
        "system",   "user",  "assistant", "tool",        "developer",
        "function", "model", "ipython",   "observation", "environment",
    };
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (json_equals(v, roles[i]))
            return true;
    return false;
}

static int import_number(struct rt *rt, const struct json_value *j,
                         bool outside, struct value *out)
{
    int64_t i;
    bool integer = j->str[strcspn(j->str, ".eE")] == '\0';
    if (json_int(j, INT64_MIN, INT64_MAX, &i) == 0) {
        *out = value_int(i);
    } else if (integer) {
        const struct str *s = str_new(rt, j->str, j->len, outside);
        if (!s)
            return -1;
        *out = (struct value){.type = V_BIG, .s = s};
    } else {
        *out = value_float(float_read(j->str));
    }
    out->outside = outside;
    return 0;
}

static int import_container(struct rt *rt, const struct json_value *j,
                            bool outside, struct value *out)
{
    if (j->type == JSON_ARRAY) {
        struct seq *s = seq_new(rt, j->len);
        for (size_t i = 0; s && i < j->len; i++) {
            struct value v;
            if (import(rt, &j->items[i], outside, &v) || seq_add(rt, s, v))
                return -1;
        }
        *out = value_seq(V_LIST, s);
        out->outside = outside;
        if (s)
            s->outside = outside;
        return s ? 0 : -1;
    }
    struct dict *d = dict_new(rt, j->len);
    /* Keys of one object differ, so none needs to be looked for. */
    for (size_t i = 0; d && i < j->len; i++) {
        if (import(rt, &j->keys[i], outside, &d->k[i]) ||
            import(rt, &j->items[i], outside, &d->v[i]))
            return -1;
        d->n = i + 1;
    }
    *out = (struct value){.type = V_DICT, .outside = outside, .d = d};
    if (d)
        d->outside = outside;
    return d ? 0 : -1;
}

static int import(struct rt *rt, const struct json_value *j, bool outside,
                  struct value *out)
{
    const struct str *s;
    switch (j->type) {
    case JSON_NULL:
        *out = value_none();
        out->outside = outside;
        return 0;
    case JSON_BOOL:
        *out = value_bool(j->boolean);
        out->outside = outside;
        return 0;
    case JSON_NUMBER:
        return import_number(rt, j, outside, out);
    case JSON_STRING:
        s = str_new(rt, j->str, j->len, outside);
        *out = value_str(s);
        return s ? 0 : -1;
    default:
        break;
    }
    if (rt_enter(rt))
        return -1;
    int rc = import_container(rt, j, outside, out);
    rt_leave(rt);
    return rc;
}

static int own_roles(struct rt *rt, const struct json_value *messages,
                     struct value *v)
{
    for (size_t i = 0; v->type == V_LIST && i < v->seq->n; i++) {
        const struct json_value *role = json_get(&messages->items[i], "role");
        struct value *m = &v->seq->v[i];
        if (m->type != V_DICT || !is_common_role(role))
            continue;
        struct value *to = (struct value *)dict_find(m->d, "role", 4);
        if (to && import(rt, role, false, to))
            return -1;
        if (to)
            ((struct str *)to->s)->fixed = true;
    }
    return 0;
}

static int import_vars(struct rt *rt, const struct template_var *vars,
                       size_t n_vars)
{
    for (size_t i = 0; i < n_vars; i++) {
        const struct name *name =
            template_name(rt->t, vars[i].name, strlen(vars[i].name));
        struct value v;
        if (!name) /* the template never asks for it */
            continue;
        if (import(rt, vars[i].value, vars[i].outside, &v) ||
            (strcmp(vars[i].name, "messages") == 0 &&
             own_roles(rt, vars[i].value, &v)) ||
            env_set(rt, rt->globals, name, v))
            return -1;
    }
    return 0;
}

/* ---- result ---- */

static int find_own(struct template_result *out, const struct sbuf *b,
                    struct qwick_err *e)
{
    size_t cap = 0;
    for (size_t i = 0, end; i < b->len; i = end) {
        bool outside = b->mark ? b->mark[i] : b->has_outside;
        end = b->len;
        if (b->mark) {
            const uint8_t *at = memchr(b->mark + i, outside ? 0 : 1, b->len - i);
            end = at ? (size_t)(at - b->mark) : b->len;
        }
        if (outside)
            continue;
        if (ARRAY_RESERVE(out->own, cap, out->n_own + 1, e))
            return -1;
        out->own[out->n_own++] = (struct bpe_span){i, end};
    }
    return 0;
}

/* The last place of tag in p[0..n), SIZE_MAX: none. */
static size_t find_last(const char *p, size_t n, const char *tag)
{
    size_t len = strlen(tag), at = SIZE_MAX;
    const char *hit;
    for (size_t from = 0;
         from < n && (hit = memmem(p + from, n - from, tag, len));
         from = at + 1)
        at = (size_t)(hit - p);
    return at;
}

/* The closing tag of the think block that the prompt ends inside of, or NULL.
 * Its last part is the template's own then and opens the block. A tag that the
 * template only talks about, in a system message, has text of messages after
 * it. */
static const char *open_think_block(const struct template_result *r)
{
    if (!r->n_own || r->own[r->n_own - 1].end != r->text.len)
        return NULL;
    const char *p = r->text.data + r->own[r->n_own - 1].begin;
    size_t n = r->text.len - r->own[r->n_own - 1].begin;
    for (size_t i = 0; i < N_THINK_TAGS; i++) {
        size_t open = find_last(p, n, think_tags[i].open);
        size_t close = find_last(p, n, think_tags[i].close);
        if (open != SIZE_MAX && (close == SIZE_MAX || close < open))
            return think_tags[i].close;
    }
    return NULL;
}

static int render_root(struct rt *rt, struct template_result *out,
                       const struct template_var *vars, size_t n_vars)
{
    struct env *top;
    if (!(rt->globals = env_new(rt, NULL)) || globals_define(rt, rt->globals) ||
        import_vars(rt, vars, n_vars) || !(top = env_new(rt, rt->globals)) ||
        exec(rt, top, rt->t->root) == FLOW_FAIL)
        return -1;
    if (find_own(out, rt->out, rt->e))
        return -1;
    if (buf_append(&out->text, rt->out->p ? rt->out->p : "", rt->out->len))
        return err_oom(rt->e, rt->out->len);
    out->think_close = open_think_block(out);
    out->in_think = out->think_close != NULL;
    return 0;
}

static size_t at_most(size_t bound, size_t limit)
{
    return limit && limit < bound ? limit : bound;
}

int template_render(struct template_result *out, const struct template *t,
                    const struct template_var *vars, size_t n_vars,
                    const struct tm *now, struct qwick_err *e)
{
    return template_render_within(out, t, vars, n_vars, now, 0, e);
}

int template_render_within(struct template_result *out,
                           const struct template *t,
                           const struct template_var *vars, size_t n_vars,
                           const struct tm *now, size_t max_bytes,
                           struct qwick_err *e)
{
    struct sbuf text = {.heap = true};
    /* the text takes twice its bytes with its marks, and is copied */
    struct rt rt = {.t = t,
                    .out = &text,
                    .now = now,
                    .max_memory = at_most(TEMPLATE_MAX_MEMORY, max_bytes / 2),
                    .max_output = at_most(TEMPLATE_MAX_OUTPUT, max_bytes / 8),
                    .limited = max_bytes != 0,
                    .e = e};
    locale_t outer, c = c_locale(&outer);
    *out = (struct template_result){0};
    if (!c)
        return err_oom(e, 0);
    int rc = render_root(&rt, out, vars, n_vars);
    leave_locale(c, outer);
    sbuf_free(&text);
    arena_free(&rt.arena);
    return rc;
}

void template_result_free(struct template_result *r)
{
    if (!r)
        return;
    buf_free(&r->text);
    free(r->own);
    *r = (struct template_result){0};
}
