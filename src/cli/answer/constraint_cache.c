#include "cli/answer/constraint_cache.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/hash.h"
#include "cli/io/out.h"

/* The most constraints without users that are kept. */
enum { MAX_UNUSED = 8 };

static bool same_text(const struct buf *b, const char *s, size_t n)
{
    return b->len == n && (n == 0 || memcmp(b->data, s, n) == 0);
}

static size_t tool_length(const struct qwick_constraint_options *o)
{
    return o->tool ? strlen(o->tool) : 0;
}

static struct constraint_ref *
constraint_cache_find(const struct constraint_cache *c,
                      const struct qwick_constraint_options *o)
{
    struct constraint_ref *r = c->first;
    while (r && (r->kind != o->kind || r->json_indent != o->json_indent ||
                 r->lenient != o->lenient ||
                 r->json_any_order != o->json_any_order ||
                 !same_text(&r->text, o->text, o->n_text) ||
                 !same_text(&r->tool, o->tool, tool_length(o))))
        r = r->next;
    return r;
}

static void ref_free(struct constraint_ref *r)
{
    qwick_constraint_free(r->constraint);
    buf_free(&r->text);
    buf_free(&r->tool);
    free(r);
}

/* If there are too many constraints without users, drop the one whose last use
 * is the longest ago. With the mutex held. */
static void drop_oldest(struct constraint_cache *c)
{
    struct constraint_ref **oldest = NULL;
    size_t n_unused = 0;
    for (struct constraint_ref **p = &c->first; *p; p = &(*p)->next) {
        if ((*p)->n_users)
            continue;
        n_unused++;
        if (!oldest || (*p)->last_use < (*oldest)->last_use)
            oldest = p;
    }
    if (n_unused <= MAX_UNUSED)
        return;
    struct constraint_ref *r = *oldest;
    *oldest = r->next;
    ref_free(r);
}

/* Print a warning that was not printed before. Errors are in the message of the
 * failure, which goes to the record. */
static void cache_warn(void *ctx, enum qwick_log_level level, const char *line)
{
    struct constraint_cache *c = ctx;
    uint64_t hash = hash_bytes(0, line, strlen(line));
    if (level != QWICK_LOG_WARNING || c->n_warned == MAX_CONSTRAINT_WARNINGS)
        return;
    for (size_t i = 0; i < c->n_warned; i++)
        if (c->warned[i] == hash)
            return;
    c->warned[c->n_warned++] = hash;
    msg_warn("%s", line);
}

/* Compile a constraint that the cache does not have. */
static int constraint_cache_compile(struct constraint_cache *c,
                                    struct qwick_engine *eng,
                                    const struct qwick_constraint_options *o,
                                    struct constraint_ref **out,
                                    struct qwick_err *e)
{
    struct qwick_constraint_options logged = *o;
    struct constraint_ref *r = calloc(1, sizeof(*r));
    if (!r)
        return err_oom(e, sizeof(*r));
    r->cache = c;
    r->kind = o->kind;
    r->json_indent = o->json_indent;
    r->lenient = o->lenient;
    r->json_any_order = o->json_any_order;
    if (buf_reserve(&r->text, 0) || buf_append(&r->text, o->text, o->n_text) ||
        buf_append(&r->tool, o->tool ? o->tool : "", tool_length(o))) {
        ref_free(r);
        return err_oom(e, o->n_text);
    }
    logged.log = cache_warn;
    logged.log_ctx = c;
    if (qwick_constraint_create(&r->constraint, eng, &logged, e)) {
        ref_free(r);
        return -1;
    }
    *out = r;
    return 0;
}

void constraint_cache_init(struct constraint_cache *c)
{
    *c = (struct constraint_cache){.mutex = PTHREAD_MUTEX_INITIALIZER};
}

int constraint_cache_get(struct constraint_cache *c, struct qwick_engine *eng,
                         const struct qwick_constraint_options *o,
                         struct constraint_ref **out, struct qwick_err *e)
{
    /* only this thread changes the list; compiling may take seconds */
    struct constraint_ref *r = constraint_cache_find(c, o);
    bool is_new = !r;
    *out = NULL;
    if (is_new && constraint_cache_compile(c, eng, o, &r, e))
        return -1;
    pthread_mutex_lock(&c->mutex);
    if (is_new) {
        r->next = c->first;
        c->first = r;
    }
    r->n_users++;
    r->last_use = ++c->n_uses;
    drop_oldest(c);
    pthread_mutex_unlock(&c->mutex);
    *out = r;
    return 0;
}

struct constraint_ref *constraint_cache_share(struct constraint_ref *r)
{
    pthread_mutex_lock(&r->cache->mutex);
    r->n_users++;
    pthread_mutex_unlock(&r->cache->mutex);
    return r;
}

void constraint_cache_put(struct constraint_ref *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->cache->mutex);
    r->n_users--;
    pthread_mutex_unlock(&r->cache->mutex);
}

void constraint_cache_free(struct constraint_cache *c)
{
    while (c->first) {
        struct constraint_ref *r = c->first;
        c->first = r->next;
        ref_free(r);
    }
}

void constraint_add_key(struct key *k, const struct constraint_ref *r)
{
    key_add_text(k, "constraint", 10);
    key_add_u64(k, (uint64_t)r->kind);
    key_add_text(k, r->text.data, r->text.len);
    key_add_u64(k, (uint64_t)r->json_indent);
    if (r->lenient)
        key_add_text(k, "lenient", 7);
    if (r->json_any_order)
        key_add_text(k, "any order", 9);
    if (r->kind == QWICK_CONSTRAINT_TOOLS)
        key_add_text(k, buf_text(&r->tool), r->tool.len);
}
