/* References inside a schema, and the places of messages. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "text/schema/schema.h"
#include "text/schema/schema_int.h"
#include "text/schema/uri.h"

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

void schema_pointer(const struct json_value *root, const struct json_value *at,
                    const char *keyword, char out[WHAT_BYTES])
{
    struct pointer p = {.text = "#", .n = 1};
    if (at)
        find_value(&p, root, at);
    if (keyword)
        put_token(&p, keyword, strlen(keyword));
    memcpy(out, p.text, sizeof p.text);
}

/* Set *e to the error of a place. The place is left out if there are so many
 * problems that the error is only counted: it takes long to find. */
static int error_at(const struct schema *s, struct qwick_err *e,
                    const struct json_value *at, const char *keyword,
                    const char *fmt, va_list ap)
{
    char pointer[WHAT_BYTES] = "#", msg[512];
    size_t n_problems = 0;
    int n = vsnprintf(msg, sizeof msg, fmt, ap);
    if (n >= (int)sizeof msg)
        msg[utf8_complete(msg, sizeof msg - 1)] = '\0';
    if (s->g)
        grammar_remarks(s->g, GRAMMAR_PROBLEM, &n_problems);
    if (n_problems < GRAMMAR_MAX_PROBLEMS)
        schema_pointer(s->root, at, keyword, pointer);
    return err_usage(e, "%s: %s", pointer, msg);
}

int schema_refuse(struct schema *s, const struct json_value *at,
                  const char *keyword, const char *fmt, ...)
{
    va_list ap;
    if (s->e->code) /* the first error is the one to report */
        return -1;
    va_start(ap, fmt);
    error_at(s, s->e, at, keyword, fmt, ap);
    va_end(ap);
    s->refused = true;
    return -1;
}

/* Return 1 if a problem at this place is new, 0 if it was reported before, or
 * -1 with the error set. */
static int is_new_problem(struct schema *s, const struct json_value *at,
                          const char *keyword)
{
    uint64_t key =
        hash_bytes((uint64_t)(uintptr_t)at, keyword, strlen(keyword));
    if (!s->problems &&
        !(s->problems = schema_alloc(s, MAX_PROBLEMS, sizeof *s->problems)))
        return -1;
    for (size_t i = 0; i < s->n_problems; i++)
        if (s->problems[i] == key)
            return 0;
    if (s->n_problems == MAX_PROBLEMS && s->lenient)
        return 0;
    if (s->n_problems == MAX_PROBLEMS)
        return err_usage(s->e, "there are more than %d problems", MAX_PROBLEMS);
    s->problems[s->n_problems++] = key;
    return 1;
}

/* Note that the grammar does not hold a keyword. Returns 0. */
static int weaken(struct schema *s, const struct json_value *at,
                  const char *keyword)
{
    char pointer[WHAT_BYTES];
    schema_pointer(s->root, at, keyword, pointer);
    grammar_remark(s->g, GRAMMAR_WEAKENED, "%s%s", s->where, pointer);
    return 0;
}

int schema_cannot_hold(struct schema *s, const struct json_value *at,
                       const char *keyword, const char *fmt, ...)
{
    struct qwick_err e;
    int is_new = s->checks ? 0 : is_new_problem(s, at, keyword ? keyword : "");
    va_list ap;
    s->n_reports++;
    if (is_new <= 0)
        return is_new;
    if (s->lenient)
        return weaken(s, at, keyword);
    va_start(ap, fmt);
    error_at(s, &e, at, keyword, fmt, ap);
    va_end(ap);
    grammar_remark(s->g, GRAMMAR_PROBLEM, "%s%s", s->where, e.msg);
    return 0;
}

int schema_go_on(struct schema *s)
{
    if (!s->refused)
        return -1;
    grammar_remark(s->g, GRAMMAR_PROBLEM, "%s%s", s->where, s->e->msg);
    *s->e = (struct qwick_err){0};
    s->refused = false;
    s->bad = true;
    return 0;
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

/* ---- pointers ------------------------------------------------------------ */

/* Append a token of a pointer with ~0 and ~1 decoded. */
static int decode_token(struct buf *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (c == '~' && i + 1 < n && (s[i + 1] == '0' || s[i + 1] == '1'))
            c = s[++i] == '0' ? '~' : '/';
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
    if (n == 0 || n > 9 || (n > 1 && token[0] == '0'))
        return NULL;
    for (size_t i = 0; i < n; i++) {
        if (token[i] < '0' || token[i] > '9')
            return NULL;
        index = index * 10 + (size_t)(token[i] - '0');
    }
    return index < v->len ? &v->items[index] : NULL;
}

/* A walk along a pointer, without percent-encoding. */
struct follow {
    const char *p;
    size_t n, at; /* at: the next token's slash */
    struct buf token;
    size_t *steps;
};

/* Return the part of v that the next token names, or NULL. */
static const struct json_value *follow_token(struct follow *f,
                                             const struct json_value *v)
{
    size_t i = f->at + 1, work = v->len / 16 + 1;
    const char *slash = memchr(f->p + i, '/', f->n - i);
    f->at = slash ? (size_t)(slash - f->p) : f->n;
    f->token.len = 0;
    *f->steps = *f->steps > work ? *f->steps - work : 0;
    if (!*f->steps || decode_token(&f->token, f->p + i, f->at - i))
        return NULL;
    return part_of(v, f->token.data ? f->token.data : "", f->token.len);
}

const struct json_value *schema_follow(const struct json_value *root,
                                       const char *p, size_t n, size_t *steps)
{
    const struct json_value *v = root;
    struct buf plain = {0};
    if (uri_decode(&plain, p, n))
        v = NULL;
    struct follow f = {.p = plain.data, .n = plain.len, .steps = steps};
    while (v && f.at < f.n)
        v = follow_token(&f, v);
    buf_free(&f.token);
    buf_free(&plain);
    return v;
}

/* ---- identifiers --------------------------------------------------------- */

/* The base of a document without an absolute "$id". Messages leave it out. */
#define NO_BASE "schema:/"

#define NONE UINT32_MAX

static uint64_t hash_place(const struct json_value *at)
{
    return hash_mix((uint64_t)(uintptr_t)at, 0x9e3779b97f4a7c15u);
}

static uint64_t hash_name(uint32_t resource, const char *s, size_t n)
{
    return hash_bytes(resource, s, n);
}

/* Return a copy of b's text that lives until the compiler ends, and empty b.
 * NULL with the error set. */
static const char *ref_keep(struct schema *s, struct buf *b, size_t *n)
{
    char *copy = schema_alloc(s, b->len, 1);
    if (copy && b->len)
        memcpy(copy, b->data, b->len);
    *n = b->len;
    buf_free(b);
    return copy;
}

/* Return the draft of a resource; NONE: of the whole schema, unless it names
 * one. */
static enum schema_draft draft_of(const struct schema *s, uint32_t resource)
{
    return resource == NONE ? DRAFT_2020 : s->resources[resource].draft;
}

/* Add a resource that begins at a schema. Returns its number, or NONE with the
 * error set. */
static uint32_t add_resource(struct schema *s, const struct json_value *root,
                             uint32_t outer, const struct json_value *id)
{
    struct buf uri = {0};
    const char *base = outer == NONE ? NO_BASE : s->resources[outer].uri;
    size_t n_base = outer == NONE ? strlen(base) : s->resources[outer].n_uri;
    struct schema_resource r = {
        .root = root, .draft = schema_draft_at(root, draft_of(s, outer))};
    if (!r.draft) {
        schema_refuse(s, root, "$schema", "drafts before 4 are not supported");
        return NONE;
    }
    if (uri_resolve(&uri, base, n_base, id ? id->str : "", id ? id->len : 0)) {
        buf_free(&uri);
        err_oom(s->e, n_base);
        return NONE;
    }
    r.uri = ref_keep(s, &uri, &r.n_uri);
    if (!r.uri ||
        ARRAY_RESERVE(s->resources, s->cap_resources, s->n_resources + 1, s->e))
        return NONE;
    s->resources[s->n_resources] = r;
    return (uint32_t)s->n_resources++;
}

static int add_name(struct schema *s, uint32_t resource, const char *text,
                    size_t n, const struct json_value *at, uint32_t in)
{
    if (ARRAY_RESERVE(s->names, s->cap_names, s->n_names + 1, s->e))
        return -1;
    s->names[s->n_names++] = (struct schema_name){
        .resource = resource, .text = text, .n = n, .at = at, .in = in};
    return 0;
}

/* Return the "$id" that begins a resource inside `outer`, or NULL. Whether
 * there is one depends on the draft outside: "$schema" without it has no
 * effect. An
 * "$id" that is only a fragment names a place of the resource around it, as in
 * drafts 4 to 7. */
static const struct json_value *
resource_id(const struct schema *s, const struct json_value *v, uint32_t outer)
{
    enum schema_draft draft = outer == NONE ? schema_draft_at(v, DRAFT_2020)
                                            : s->resources[outer].draft;
    const struct json_value *id = schema_id_of(v, draft);
    bool hidden = outer != NONE && schema_only_ref(v, draft);
    return id && !hidden && uri_fragment(id->str, id->len) > 0 ? id : NULL;
}

/* Add the names of one schema, in a resource. */
static int add_names(struct schema *s, const struct json_value *v, uint32_t in)
{
    static const char *const anchors[] = {"$anchor", "$dynamicAnchor"};
    const struct json_value *id = schema_id_of(v, draft_of(s, in));
    size_t hash = id ? uri_fragment(id->str, id->len) : 0;
    if (schema_only_ref(v, draft_of(s, in)))
        return 0;
    if (id && hash + 1 < id->len && id->str[hash + 1] != '/' &&
        add_name(s, in, id->str + hash + 1, id->len - hash - 1, v, in))
        return -1;
    for (size_t i = 0; i < 2; i++) {
        const struct json_value *a = json_get(v, anchors[i]);
        if (!json_is(a, JSON_STRING))
            continue;
        if (add_name(s, in, a->str, a->len, v, in))
            return -1;
        s->names[s->n_names - 1].dynamic = i == 1;
    }
    return 0;
}

/* Collect the resources and names of a schema and of all schemas in it. outer:
 * the resource around it. */
static int collect_names(struct schema *s, const struct json_value *v,
                         uint32_t outer)
{
    const struct json_value *id = resource_id(s, v, outer);
    uint32_t in = outer;
    if (v->type != JSON_OBJECT)
        return 0;
    if (schema_step(s, 1 + v->len))
        return -1;
    if (outer == NONE || id) {
        in = add_resource(s, v, outer, id);
        if (in == NONE || add_name(s, NONE, s->resources[in].uri,
                                   s->resources[in].n_uri, v, in))
            return -1;
    }
    if (add_names(s, v, in))
        return -1;
    for (size_t i = 0; i < v->len; i++) {
        const struct json_value *part = &v->items[i];
        enum schema_parts parts = schema_parts_of(&v->keys[i]);
        if (parts == PARTS_ONE && collect_names(s, part, in))
            return -1;
        bool many = parts == PARTS_MAP ? part->type == JSON_OBJECT
                                       : parts && part->type == JSON_ARRAY;
        for (size_t k = 0; many && k < part->len; k++)
            if (collect_names(s, &part->items[k], in))
                return -1;
    }
    return 0;
}

static const struct schema_name *
find_name(const struct schema *s, uint32_t resource, const char *text, size_t n)
{
    uint64_t h = hash_name(resource, text, n);
    uint32_t at = hashmap_slot(&s->by_name, h), i;
    while ((i = hashmap_next(&s->by_name, h, &at)) != HASHMAP_NONE) {
        const struct schema_name *v = &s->names[i];
        if (v->resource == resource && v->n == n &&
            (n == 0 || memcmp(v->text, text, n) == 0))
            return v;
    }
    return NULL;
}

int schema_find_names(struct schema *s)
{
    if (collect_names(s, s->root, NONE))
        return -1;
    if (s->n_resources == 0) /* the root is no object */
        return add_resource(s, s->root, NONE, NULL) == NONE ? -1 : 0;
    if (hashmap_init(&s->by_root, s->n_resources, s->n_resources, s->e) ||
        hashmap_init(&s->by_name, s->n_names, s->n_names, s->e))
        return -1;
    for (uint32_t i = 0; i < s->n_resources; i++)
        hashmap_put(&s->by_root, hash_place(s->resources[i].root), i);
    for (uint32_t i = 0; i < s->n_names; i++) {
        struct schema_name *v = &s->names[i];
        const struct schema_name *old =
            find_name(s, v->resource, v->text, v->n);
        if (old && old->at != v->at)
            s->names[old - s->names].twice = true;
        if (!old)
            hashmap_put(&s->by_name, hash_name(v->resource, v->text, v->n), i);
    }
    return 0;
}

uint32_t schema_resource_at(const struct schema *s, const struct json_value *at,
                            uint32_t outer)
{
    uint64_t h = hash_place(at);
    uint32_t slot, i;
    if (!s->by_root.slots)
        return outer;
    slot = hashmap_slot(&s->by_root, h);
    while ((i = hashmap_next(&s->by_root, h, &slot)) != HASHMAP_NONE)
        if (s->resources[i].root == at)
            return i;
    return outer;
}

uint32_t schema_resource_in(struct schema *s, const struct json_value *at,
                            uint32_t outer)
{
    const struct json_value *id =
        s->resources[outer].root == at ? NULL : resource_id(s, at, outer);
    return id ? add_resource(s, at, outer, id) : outer;
}

/* ---- references ---------------------------------------------------------- */

/* Return the value that a pointer leads to. *in: the resource around it. */
static const struct json_value *follow_in(struct schema *s, const char *p,
                                          size_t n, uint32_t *in)
{
    const struct json_value *v = s->resources[*in].root;
    struct follow f = {.p = p, .n = n, .steps = &s->steps_left};
    while (v && f.at < f.n) {
        v = follow_token(&f, v);
        if (v)
            *in = schema_resource_at(s, v, *in);
    }
    buf_free(&f.token);
    if (s->steps_left == 0)
        schema_step(s, 1);
    return v;
}

/* Find the resource that a reference without its fragment means. */
static int find_resource(struct schema *s, const struct json_value *at,
                         const char *keyword, const struct json_value *ref,
                         uint32_t *in)
{
    struct buf uri = {0};
    const struct schema_resource *base = &s->resources[*in];
    size_t skip = 0;
    int rc = 0;
    if (uri_fragment(ref->str, ref->len) == 0)
        return 0; /* the resource around it */
    if (uri_resolve(&uri, base->uri, base->n_uri, ref->str, ref->len)) {
        buf_free(&uri);
        return err_oom(s->e, base->n_uri + ref->len);
    }
    const struct schema_name *name = find_name(s, NONE, uri.data, uri.len);
    if (uri.len > strlen(NO_BASE) &&
        memcmp(uri.data, NO_BASE, strlen(NO_BASE)) == 0)
        skip = strlen(NO_BASE);
    if (!name)
        rc = schema_refuse(s, at, keyword,
                           "\"%s\" is outside of this schema, in which no $id "
                           "is \"%s\"",
                           ERR_SHOW(ref->str, ref->len),
                           ERR_SHOW(uri.data + skip, uri.len - skip));
    else if (name->twice)
        rc = schema_refuse(s, at, keyword, "two schemas have the $id \"%s\"",
                           ERR_SHOW(uri.data + skip, uri.len - skip));
    else
        *in = name->in;
    buf_free(&uri);
    return rc;
}

static bool is_recursive(const struct json_value *root)
{
    const struct json_value *v = json_get(root, "$recursiveAnchor");
    return json_is(v, JSON_BOOL) && v->boolean;
}

/* Whether other resources have an anchor with the name of a dynamic one, or a
 * "$recursiveAnchor" if anchor is NULL. */
static bool has_other_target(const struct schema *s,
                             const struct schema_name *anchor, uint32_t in)
{
    for (size_t i = 0; !anchor && i < s->n_resources; i++)
        if (i != in && is_recursive(s->resources[i].root))
            return true;
    for (size_t i = 0; anchor && i < s->n_names; i++) {
        const struct schema_name *v = &s->names[i];
        if (v->dynamic && v->resource != in && v->n == anchor->n &&
            memcmp(v->text, anchor->text, v->n) == 0)
            return true;
    }
    return false;
}

/* Resolve a "$dynamicRef" that leads to a "$dynamicAnchor" in the resource *in,
 * or a "$recursiveRef" to the root of *in, for which anchor is NULL. The target
 * is the outermost such schema on the way that the validator took. That is the
 * one in the whole schema, or if it has none, the only one. */
static const struct json_value *
resolve_dynamic(struct schema *s, const struct json_value *at,
                const char *keyword, const struct schema_name *anchor,
                uint32_t *in)
{
    const struct schema_name *outermost =
        anchor ? find_name(s, 0, anchor->text, anchor->n) : NULL;
    if (schema_step(s, 1 + s->n_names / 16))
        return NULL;
    if (anchor ? outermost && outermost->dynamic
               : is_recursive(s->resources[0].root)) {
        *in = 0;
        return anchor ? outermost->at : s->resources[0].root;
    }
    if (!has_other_target(s, anchor, *in))
        return anchor ? anchor->at : s->resources[*in].root;
    schema_cannot_hold(s, at, keyword,
                       "its target depends on the way to it, which is not "
                       "supported");
    return NULL;
}

/* Return the anchor that a fragment names, or NULL. If the fragment is a
 * pointer, set *v to the value that it leads to. */
static const struct schema_name *resolve_fragment(struct schema *s,
                                                  const struct json_value *ref,
                                                  size_t hash, uint32_t *in,
                                                  const struct json_value **v)
{
    struct buf fragment = {0};
    size_t n;
    if (uri_decode(&fragment, ref->str + hash + 1, ref->len - hash - 1)) {
        buf_free(&fragment);
        err_oom(s->e, ref->len);
        return NULL;
    }
    const char *p = ref_keep(s, &fragment, &n);
    if (p && *p != '/')
        return find_name(s, *in, p, n);
    *v = p ? follow_in(s, p, n, in) : NULL;
    return NULL;
}

const struct json_value *
schema_resolve(struct schema *s, const struct json_value *at,
               const char *keyword, const struct json_value *ref, uint32_t *in)
{
    size_t hash = uri_fragment(ref->str, ref->len);
    const struct json_value *v = NULL;
    const struct schema_name *anchor = NULL;
    if (find_resource(s, at, keyword, ref, in))
        return NULL;
    if (hash + 1 >= ref->len) {
        v = s->resources[*in].root;
        return strcmp(keyword, "$recursiveRef") == 0 && is_recursive(v)
                   ? resolve_dynamic(s, at, keyword, NULL, in)
                   : v;
    }
    anchor = resolve_fragment(s, ref, hash, in, &v);
    if (anchor && anchor->twice)
        schema_refuse(s, at, keyword, "two schemas have the anchor \"%s\"",
                      ERR_SHOW(anchor->text, anchor->n));
    else if (anchor && anchor->dynamic && strcmp(keyword, "$dynamicRef") == 0)
        return resolve_dynamic(s, at, keyword, anchor, in);
    else if (anchor)
        v = anchor->at;
    else if (!v)
        schema_refuse(s, at, keyword, "nothing is at \"%s\"",
                      ERR_SHOW(ref->str, ref->len));
    return s->e->code ? NULL : v;
}
