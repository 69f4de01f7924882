/* cache: list, shrink and clear the prefix cache on disk. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "cli/io/out.h"
#include "cli/io/units.h"
#include "cli/opt/opt.h"
#include "cli/opt/verbs.h"
#include "file/json_writer.h"
#include "qwick_tools.h"

/* ---- ls ---- */

/* Write the prefixes, or the probes of this CPU's cores. */
static void put_entries(struct json_writer *w, const char *key,
                        const struct qwick_cache_entry *v, size_t n,
                        bool probes)
{
    jw_array(w, key);
    for (; n; n--, v++) {
        if (v->tuning != probes)
            continue;
        jw_object(w, NULL);
        if (!probes) {
            jw_cstr(w, "model", v->damaged ? NULL : v->model);
            jw_uint(w, "tokens", v->n_tokens);
            jw_uint(w, "first", v->first);
        }
        jw_uint(w, "bytes", v->n_bytes);
        if (!probes) {
            jw_cstr(w, "kv", v->kv);
            jw_bool(w, "exact", v->exact);
            jw_cstr(w, "isa", v->isa);
            jw_bool(w, "damaged", v->damaged);
        }
        jw_double(w, "last_use", v->used);
        jw_cstr(w, "path", v->path);
        jw_end_object(w);
    }
    jw_end_array(w);
}

static void cache_json(struct buf *b, const char *dir,
                       const struct qwick_cache_entry *v, size_t n,
                       size_t total)
{
    struct json_writer w = jw_line(b);
    jw_cstr(&w, "dir", dir);
    jw_uint(&w, "bytes", total);
    put_entries(&w, "entries", v, n, false);
    put_entries(&w, "probes", v, n, true);
    jw_end_line(&w);
}

static void cache_row(struct buf *b, const struct qwick_cache_entry *v)
{
    time_t t = (time_t)v->used;
    struct tm tm;
    char when[32] = "?";
    if (localtime_r(&t, &tm))
        strftime(when, sizeof(when), "%Y-%m-%d %H:%M", &tm);
    buf_printf(b, "%7zu %7zu %13zu  %-16s  ", v->n_tokens,
               v->n_tokens - v->first, v->n_bytes, when);
    if (v->tuning || v->damaged) {
        buf_puts(b, v->tuning ? "(probe of this CPU's core)\n" : "(damaged)\n");
        return;
    }
    /* The name comes from a file: quote it, so that no control byte reaches the
     * terminal. */
    buf_json_cstr(b, v->model);
    buf_printf(b, " %s%s %s\n", v->kv, v->exact ? " exact" : "", v->isa);
}

static void cache_table(struct buf *b, const char *dir,
                        const struct qwick_cache_entry *v, size_t n, bool json)
{
    size_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += v[i].n_bytes;
    if (json) {
        cache_json(b, dir, v, n, total);
        return;
    }
    buf_puts(b, " tokens     new         bytes  last use          "
                "model, KV cache, kernels\n");
    for (size_t i = 0; i < n; i++)
        cache_row(b, &v[i]);
    buf_printf(b, "%zu bytes in %zu %s, in %s\n", total, n,
               plural(n, "entry", "entries"), dir);
}

static int cache_list(const struct args *a, const char *dir)
{
    struct qwick_cache_entry *v;
    struct qwick_err e;
    struct buf b = {0};
    size_t n;
    if (qwick_cache_list(dir, &v, &n, &e))
        return msg_fail(&e);
    cache_table(&b, dir, v, n, a->json);
    qwick_cache_list_free(v, n);
    return out_print(&b, out_write_names);
}

/* ---- gc, clear ---- */

static int cache_collect(const char *dir, size_t most)
{
    struct qwick_err e;
    size_t n, n_bytes;
    int rc = qwick_cache_gc(dir, most, &n, &n_bytes, &e);
    msg_note("%s: %zu files with %zu bytes removed", dir, n, n_bytes);
    return msg_result(rc, &e);
}

static int cache_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    const struct verb *v = p->verb;
    const struct args *a = &p->a;
    const char *what = p->n_args ? p->args[0] : "";
    bool ls = !strcmp(what, "ls"), gc = !strcmp(what, "gc");
    int r = -1;
    (void)eng;
    if (!p->n_args)
        return opt_usage(v, "ls, gc or clear is missing");
    if (!ls && !gc && strcmp(what, "clear") != 0)
        return opt_usage(v, "\"%s\": is none of ls, gc, clear", what);
    if (p->n_args > 1)
        return opt_usage(v, "\"%s\": unexpected, a directory goes with --dir",
                         p->args[1]);
    if ((!ls &&
         (r = opt_no_effect(p, OPT_json, OPT_NONE, "without ls")) >= 0) ||
        (!gc && (r = opt_no_effect(p, OPT_size, OPT_NONE, "without gc")) >= 0))
        return r;
    struct qwick_err e;
    char *dir;
    if (!a->dir && qwick_cache_dir(&dir, &e))
        return msg_fail(&e);
    if (a->dir && !(dir = strdup(a->dir)))
        return msg_oom();
    r = ls ? cache_list(a, dir) : cache_collect(dir, gc ? (size_t)a->size : 0);
    free(dir);
    return r;
}

const struct verb verb_cache = {
    .bit = V_CACHE,
    .name = "cache",
    .group = VERBS_MACHINE,
    .args = "ls|gc|clear",
    .summary = "list, shrink or empty the prefix cache on disk",
    .about = "ls lists what --prefix-cache keeps, the latest used first: the "
             "length of each\nprefix, how much of it its entry adds, bytes, "
             "last use, model. gc removes the\nentries that were used longest "
             "ago until at most --size is left. clear removes\neverything. "
             "Entries that running programs use can be removed without harm.",
    .examples = "  qwick cache ls\n"
                "  qwick cache gc --size 1G\n",
    .run = cache_run,
};
