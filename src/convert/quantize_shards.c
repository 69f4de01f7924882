/* The files of a checkpoint in MLX's format: which tensors they get, and from
 * which elements of the source. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/quantize.h"

static const char weight[] = ".weight";

void quantize_add_job(const struct quantize_plan *p, struct quantize_shard *s,
                      struct quantize_job job)
{
    job.packed = quantize_packed(p->s, job.from.src);
    job.merge = quantize_merge_of(p->s, job.from.src);
    s->jobs[s->n_jobs++] = job;
}

/* NAME.SUFFIX, kept by the plan. */
static const char *make_name(struct quantize_plan *p, const char *module,
                             const char *suffix)
{
    struct buf b = {0};
    if (buf_printf(&b, "%s%s", module, suffix)) {
        buf_free(&b);
        return NULL;
    }
    return p->names[p->n_names++] = buf_take(&b, NULL);
}

static int add_copy(const struct quantize_plan *p, struct quantize_shard *s,
                    const struct st_tensor *t)
{
    struct st_out_tensor *out = &s->out[s->n_out];
    *out = (struct st_out_tensor){
        .name = t->name, .dtype = t->dtype, .rank = t->rank};
    memcpy(out->shape, t->shape, sizeof out->shape);
    quantize_add_job(
        p, s,
        (struct quantize_job){
            .from = {.src = t, .n = t->n_bytes / dtype_bytes(t->dtype)},
            .out = {s->n_out++}});
    return 0;
}

/* Shape of a module's array whose rows have n elements. */
static void put_shape(struct st_out_tensor *t, const struct quantize_module *m,
                      size_t n)
{
    const size_t stack[] = {m->stack, m->rows, n};
    t->rank = m->stack ? 3 : 2;
    memcpy(t->shape, stack + (m->stack ? 0 : 1), t->rank * sizeof *stack);
}

static int add_packed(struct quantize_plan *p, struct quantize_shard *s,
                      const struct quantize_module *m)
{
    const char *codes = make_name(p, m->name, weight);
    const char *scales = codes ? make_name(p, m->name, ".scales") : NULL;
    const char *biases = scales ? make_name(p, m->name, ".biases") : NULL;
    size_t at = 0, first = s->n_out;
    if (!biases)
        return -1;
    for (size_t i = 0; i < m->n_parts; i++) {
        quantize_add_job(
            p, s,
            (struct quantize_job){.from = m->parts[i],
                                  .at = at,
                                  .bits = m->bits,
                                  .group = m->group,
                                  .kept = m->kept,
                                  .codes = m->codes,
                                  .out = {first, first + 1, first + 2}});
        at += m->parts[i].n;
    }
    /* groups are multiples of 32, so that rows are whole words */
    struct st_out_tensor big = {.name = codes, .dtype = DT_U32};
    struct st_out_tensor small = {.name = scales, .dtype = m->scales};
    size_t bits = (size_t)m->bits, group = (size_t)m->group;
    if (m->kept) {
        bits = 4;
        group = 32;
        small.dtype = DT_U8;
    }
    put_shape(&big, m, m->cols / 32 * bits);
    put_shape(&small, m, m->cols / group);
    s->out[s->n_out++] = big;
    s->out[s->n_out++] = small;
    if (m->kept)
        return 0;
    small.name = biases;
    s->out[s->n_out++] = small;
    return 0;
}

/* A module that stays dense, and whose elements have to be gathered. */
static int add_dense(struct quantize_plan *p, struct quantize_shard *s,
                     const struct quantize_module *m)
{
    struct st_out_tensor out = {
        .name = make_name(p, m->name, m->bias ? ".bias" : weight),
        .dtype = m->t->dtype};
    if (!out.name)
        return -1;
    for (size_t i = 0, at = 0; i < m->n_parts; at += m->parts[i++].n)
        quantize_add_job(p, s,
                         (struct quantize_job){
                             .from = m->parts[i], .at = at, .out = {s->n_out}});
    put_shape(&out, m, m->cols);
    s->out[s->n_out++] = out;
    return 0;
}

struct ranked {
    struct st_out_tensor t;
    size_t was;
};

static int by_alignment(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    size_t m = dtype_bytes(x->t.dtype), n = dtype_bytes(y->t.dtype);
    if (m != n)
        return m > n ? -1 : 1;
    return (x->was > y->was) - (x->was < y->was);
}

static int job_outs(const struct quantize_job *job)
{
    return job->kept ? 2 : job->bits ? 3 : 1;
}

/* Larger elements first, as safetensors' own writer puts them: then everything
 * is aligned, which some readers need. */
static int sort_shard(struct quantize_shard *s)
{
    struct ranked *r = calloc(s->n_out + 1, sizeof *r);
    size_t *now = calloc(s->n_out + 1, sizeof *now);
    int rc = r && now ? 0 : -1;
    for (size_t i = 0; i < s->n_out && !rc; i++)
        r[i] = (struct ranked){s->out[i], i};
    if (!rc)
        qsort(r, s->n_out, sizeof *r, by_alignment);
    for (size_t i = 0; i < s->n_out && !rc; i++) {
        s->out[i] = r[i].t;
        now[r[i].was] = i;
    }
    for (size_t i = 0; i < s->n_jobs && !rc; i++)
        for (int j = 0, n = job_outs(&s->jobs[i]); j < n; j++)
            s->jobs[i].out[j] = now[s->jobs[i].out[j]];
    free(r);
    free(now);
    return rc;
}

/* The module that tensor i belongs to; NULL: none. */
static const struct quantize_module *
module_of(const struct quantize_plan *p, const struct st_tensor *t, size_t i)
{
    const struct quantize_claim *c = &p->claims[i];
    if (c->claimed)
        return &p->modules[c->module];
    bool plain = c->module < p->n_modules && p->modules[c->module].t == t;
    return plain ? &p->modules[c->module] : NULL;
}

/* Plan the results of tensor i of the source. All results of a module go to the
 * file of its first tensor. */
static int add_tensor(struct quantize_plan *p, struct quantize_shard *s,
                      const struct st_tensor *t, size_t i)
{
    const struct quantize_module *m = module_of(p, t, i);
    if (!m || (!m->bits && !m->kept && !m->parts->stride))
        return add_copy(p, s, t);
    if (m->t != t)
        return 0;
    int (*add)(struct quantize_plan *, struct quantize_shard *,
               const struct quantize_module *) =
        m->bits || m->kept ? add_packed : add_dense;
    return (m->fused && add(p, s, m - 1)) || add(p, s, m) ? -1 : 0;
}

/* Arrays for the results of tensors [begin, end). */
static int reserve_shard(const struct quantize_plan *p,
                         struct quantize_shard *s, const struct st_set *set,
                         size_t begin, size_t end)
{
    size_t n_jobs = 0;
    for (size_t i = begin; i < end; i++) {
        const struct quantize_module *m = module_of(p, st_at(set, i), i);
        n_jobs += !m ? 1 : m->t != st_at(set, i) ? 1 : 2 * m->n_parts;
    }
    s->out = calloc((end - begin) * 6, sizeof *s->out);
    s->jobs = calloc(n_jobs, sizeof *s->jobs);
    return s->out && s->jobs ? 0 : -1;
}

/* Tensors [begin, end) of the set share a file. */
static int fill_shard(struct quantize_plan *p, const struct st_set *set,
                      size_t begin, size_t end, bool tied)
{
    struct quantize_shard *s = &p->shards[p->n_shards++];
    if (reserve_shard(p, s, set, begin, end))
        return -1;
    for (size_t i = begin; i < end; i++) {
        const struct st_tensor *t = st_at(set, i);
        if (quantize_is_spare_head(p, t, tied))
            continue;
        if (add_tensor(p, s, t, i))
            return -1;
        size_t n = t->n_bytes / dtype_bytes(t->dtype);
        p->n_params += n;
        p->bytes_read += quantize_stored_bytes(quantize_packed(p->s, t), t, n);
    }
    if (s->n_out == 0) { /* nothing but the spare head, or parts of stacks */
        free(s->out);
        free(s->jobs);
        *s = (struct quantize_shard){0};
        p->n_shards--;
        return 0;
    }
    for (size_t i = 0; i < s->n_out; i++) {
        size_t bytes = dtype_bytes(s->out[i].dtype);
        for (size_t d = 0; d < s->out[i].rank; d++)
            bytes *= s->out[i].shape[d]; /* at most what the source has */
        p->bytes_written += bytes;
    }
    return sort_shard(s);
}

int quantize_shards(struct quantize_plan *p, const struct st_set *set,
                    bool tied, struct qwick_err *e)
{
    size_t n = st_count(set), end;
    p->shards = calloc(n + 1, sizeof *p->shards);
    p->names = calloc(3 * p->n_modules + 1, sizeof *p->names);
    if (!p->shards || !p->names)
        return err_oom(e, (n + 1) * sizeof *p->shards);
    for (size_t begin = 0; begin < n; begin = end) {
        end = begin + 1;
        while (end < n && st_at(set, end)->file == st_at(set, begin)->file)
            end++;
        if (fill_shard(p, set, begin, end, tied))
            return err_oom(e, (end - begin) * sizeof *p->shards->out);
    }
    if (p->n_shards == 1)
        strcpy(p->shards[0].name, "model.safetensors");
    for (size_t i = 0; i < p->n_shards && p->n_shards > 1; i++)
        snprintf(p->shards[i].name, sizeof p->shards[i].name,
                 "model-%05zu-of-%05zu.safetensors", i + 1, p->n_shards);
    return 0;
}
