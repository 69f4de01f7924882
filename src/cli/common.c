#include "cli/common.h"

#include <stdlib.h>
#include <string.h>

#include "cli/out.h"

int common_check(const struct opt_parsed *p, const struct common_args *c)
{
    msg_level(c->quiet, c->verbose);
    if (c->exact && c->kv && strcmp(c->kv, "f32") != 0)
        return opt_usage(p->verb, "--kv %s: --exact needs f32", c->kv);
    static const char *const with_cache[] = {"prefix-cache-size", NULL};
    if (!c->prefix_cache.on) {
        int r = opt_no_effect(p, with_cache, "without --prefix-cache");
        if (r >= 0)
            return r;
    }
    return opt_conflict(p, "json", "jsonl");
}

size_t common_warn(const struct qwick_engine *eng, size_t i)
{
    const char *s;
    for (; (s = qwick_engine_warning(eng, i)); i++)
        msg_warn("%s", s);
    return i;
}

int common_open(struct qwick_engine **eng, const struct common_args *c,
                bool tokenizer_only)
{
    struct qwick_engine_options o = qwick_engine_defaults();
    struct qwick_err e = {0};
    const char *s;
    o.model = c->model ? c->model : getenv("QWICK_MODEL");
    if (o.model && !*o.model)
        o.model = NULL;
    o.isa = c->isa;
    o.threads = (int)c->threads;
    o.exact = c->exact;
    if (c->kv)
        o.kv = strcmp(c->kv, "f32") == 0   ? QWICK_KV_F32
               : strcmp(c->kv, "f16") == 0 ? QWICK_KV_F16
                                           : QWICK_KV_Q8;
    o.prefill_chunk = (size_t)c->prefill_chunk;
    o.preload = c->preload;
    o.tokenizer_only = tokenizer_only;
    o.prefix_cache_bytes = c->prefix_memory;
    o.prefix_cache_disk = c->prefix_cache.on;
    o.prefix_cache_dir = c->prefix_cache.file;
    o.prefix_cache_disk_bytes = (size_t)c->prefix_cache_size;
    *eng = NULL;
    if (qwick_engine_open(eng, &o, &e))
        return msg_fail(&e);
    common_warn(*eng, 0);
    for (size_t i = 0; (s = qwick_engine_note(*eng, i)); i++)
        msg_note("%s", s);
    return 0;
}
