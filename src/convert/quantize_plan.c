/* What becomes of each tensor of a checkpoint that is quantized. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/quantize.h"

enum { SHOWN = 200 }; /* bytes of a name in messages */

static const char weight[] = ".weight";

static bool ends_in(const struct st_tensor *t, const char *suffix)
{
    size_t n = strlen(suffix);
    return t->name_len > n && memcmp(t->name + t->name_len - n, suffix, n) == 0;
}

static int err_tensor(const char *path, const struct st_tensor *t,
                      const char *why, struct qwick_err *e)
{
    return err_set(e, QWICK_ERR_MODEL, "%s: %s: tensor %.*s: %s", path, t->file,
                   SHOWN, t->name, why);
}

static void note(const struct quantize_plan *p, const char *what,
                 const char *why)
{
    char line[SHOWN + 128];
    if (!p->o->note)
        return;
    snprintf(line, sizeof line, "%.*s: %s", SHOWN, what, why);
    p->o->note(p->o->note_ctx, line);
}

/* ---- modules ------------------------------------------------------------- */

/* Packed weights of other formats come with tensors of these names. */
static int check_tensor(const struct st_tensor *t, const char *path,
                        struct qwick_err *e)
{
    static const char *const traces[] = {
        ".scales",           ".biases",       ".qweight",       ".qzeros",
        ".weight_scale_inv", ".weight_scale", ".weight_packed",
    };
    char why[96];
    if (strlen(t->name) != t->name_len)
        return err_tensor(path, t, "a NUL byte is in its name", e);
    for (size_t i = 0; i < sizeof traces / sizeof *traces; i++)
        if (ends_in(t, traces[i]))
            return err_tensor(path, t,
                              "the checkpoint is quantized already: start from "
                              "the original",
                              e);
    if (t->rank == 2 && ends_in(t, weight) && t->dtype >= DT_N_FLOAT) {
        snprintf(why, sizeof why,
                 "dtype %s cannot be quantized (BF16, F16 and F32 can)",
                 dtype_name(t->dtype));
        return err_tensor(path, t, why, e);
    }
    return 0;
}

/* Whether one of the patterns matches; marks all that do. */
static bool matches(const char *const *patterns, size_t n, const char *name,
                    bool *used)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        if (fnmatch(patterns[i], name, 0) != 0)
            continue;
        any = true;
        used[i] = true;
    }
    return any;
}

static bool is_head(const char *name, bool tied)
{
    return tied ? strcmp(name, "model.embed_tokens") == 0 ||
                      strcmp(name, "embed_tokens") == 0
                : strcmp(name, "lm_head") == 0;
}

static bool is_spare_head(const struct st_tensor *t, bool tied)
{
    return tied && strcmp(t->name, "lm_head.weight") == 0;
}

/* Bits of a module, 0: dense. */
static int choose_bits(const struct quantize_plan *p,
                       const struct quantize_module *m, bool tied,
                       bool *only_used, bool *skip_used)
{
    const struct qwick_quantize_options *o = p->o;
    bool only = matches(o->only, o->n_only, m->name, only_used);
    bool skip = matches(o->skip, o->n_skip, m->name, skip_used);
    if ((o->n_only > 0 && !only) || skip)
        return 0;
    if (m->t->n_bytes == 0 || m->t->shape[1] % (size_t)o->group != 0) {
        char why[96];
        snprintf(why, sizeof why,
                 "stays as it is: %zu columns are no multiple of the group of "
                 "%d",
                 m->t->shape[1], o->group);
        note(p, m->name, why);
        return 0;
    }
    return is_head(m->name, tied) && o->head_bits ? o->head_bits : o->bits;
}

static int check_used(const char *what, const char *const *patterns, size_t n,
                      const bool *used, struct qwick_err *e)
{
    for (size_t i = 0; i < n; i++)
        if (!used[i])
            return err_set(e, QWICK_ERR_USAGE,
                           "%s: %s: matches no module of the checkpoint", what,
                           patterns[i]);
    return 0;
}

static int check_modules(const struct quantize_plan *p, bool tied,
                         const bool *only_used, const bool *skip_used,
                         struct qwick_err *e)
{
    const struct qwick_quantize_options *o = p->o;
    bool any = false, head = false;
    if (check_used("only", o->only, o->n_only, only_used, e) ||
        check_used("skip", o->skip, o->n_skip, skip_used, e))
        return -1;
    for (size_t i = 0; i < p->n_modules; i++) {
        any |= p->modules[i].bits > 0;
        head |= p->modules[i].bits > 0 && is_head(p->modules[i].name, tied);
    }
    if (!any)
        return err_set(e, QWICK_ERR_USAGE,
                       "quantize: no module is left to quantize");
    if (o->head_bits && !head)
        return err_set(e, QWICK_ERR_USAGE,
                       "head bits: %d: the head is not quantized",
                       o->head_bits);
    return 0;
}

static int find_modules(struct quantize_plan *p, const struct st_set *set,
                        const char *path, bool tied, struct qwick_err *e)
{
    size_t n = st_count(set);
    bool *only = calloc(p->o->n_only + 1, sizeof *only);
    bool *skip = calloc(p->o->n_skip + 1, sizeof *skip);
    p->modules = calloc(n + 1, sizeof *p->modules);
    int rc = 0;
    if (!only || !skip || !p->modules)
        rc = err_oom(e, (n + 1) * sizeof *p->modules);
    for (size_t i = 0; i < n && !rc; i++) {
        const struct st_tensor *t = st_at(set, i);
        rc = check_tensor(t, path, e);
        if (rc || t->rank != 2 || !ends_in(t, weight))
            continue;
        if (is_spare_head(t, tied)) {
            note(p, "lm_head", "left out: the embedding is the head");
            continue;
        }
        struct quantize_module *m = &p->modules[p->n_modules];
        *m = (struct quantize_module){.t = t};
        m->name = strndup(t->name, t->name_len - (sizeof weight - 1));
        if (!m->name) {
            rc = err_oom(e, t->name_len);
            continue;
        }
        p->n_modules++;
        m->bits = choose_bits(p, m, tied, only, skip);
    }
    if (!rc)
        rc = check_modules(p, tied, only, skip, e);
    free(only);
    free(skip);
    return rc;
}

/* ---- shards -------------------------------------------------------------- */

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

static int add_copy(struct quantize_shard *s, const struct st_tensor *t)
{
    struct st_out_tensor *out = &s->out[s->n_out];
    *out = (struct st_out_tensor){
        .name = t->name, .dtype = t->dtype, .rank = t->rank};
    memcpy(out->shape, t->shape, sizeof out->shape);
    s->jobs[s->n_jobs++] = (struct quantize_job){.src = t, .out = {s->n_out++}};
    return 0;
}

static int add_packed(struct quantize_plan *p, struct quantize_shard *s,
                      const struct quantize_module *m)
{
    const char *scales = make_name(p, m->name, ".scales");
    const char *biases = scales ? make_name(p, m->name, ".biases") : NULL;
    if (!biases)
        return -1;
    size_t rows = m->t->shape[0], cols = m->t->shape[1];
    struct st_out_tensor small = {.name = scales,
                                  .dtype = m->t->dtype,
                                  .rank = 2,
                                  .shape = {rows, cols / (size_t)p->o->group}};
    s->jobs[s->n_jobs++] =
        (struct quantize_job){.src = m->t,
                              .bits = m->bits,
                              .out = {s->n_out, s->n_out + 1, s->n_out + 2}};
    /* groups are multiples of 32, so that rows are whole words */
    s->out[s->n_out++] =
        (struct st_out_tensor){.name = m->t->name,
                               .dtype = DT_U32,
                               .rank = 2,
                               .shape = {rows, cols / 32 * (size_t)m->bits}};
    s->out[s->n_out++] = small;
    small.name = biases;
    s->out[s->n_out++] = small;
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
        for (int j = 0; j < (s->jobs[i].bits ? 3 : 1); j++)
            s->jobs[i].out[j] = now[s->jobs[i].out[j]];
    free(r);
    free(now);
    return rc;
}

/* Tensors [begin, end) of the set share a file. */
static int fill_shard(struct quantize_plan *p, const struct st_set *set,
                      size_t begin, size_t end, bool tied, size_t *module)
{
    struct quantize_shard *s = &p->shards[p->n_shards];
    s->out = calloc((end - begin) * 3, sizeof *s->out);
    s->jobs = calloc(end - begin, sizeof *s->jobs);
    p->n_shards++;
    if (!s->out || !s->jobs)
        return -1;
    for (size_t i = begin; i < end; i++) {
        const struct st_tensor *t = st_at(set, i);
        const struct quantize_module *m = NULL;
        if (is_spare_head(t, tied))
            continue;
        if (*module < p->n_modules && p->modules[*module].t == t)
            m = &p->modules[(*module)++];
        if (m && m->bits ? add_packed(p, s, m) : add_copy(s, t))
            return -1;
        size_t size = dtype_bytes(t->dtype);
        p->n_params += t->n_bytes / size;
        p->bytes_read += t->n_bytes;
    }
    if (s->n_out == 0) { /* held nothing but the spare head */
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

static int make_shards(struct quantize_plan *p, const struct st_set *set,
                       bool tied, struct qwick_err *e)
{
    size_t n = st_count(set), module = 0, end;
    p->shards = calloc(n + 1, sizeof *p->shards);
    p->names = calloc(2 * p->n_modules + 1, sizeof *p->names);
    if (!p->shards || !p->names)
        return err_oom(e, (n + 1) * sizeof *p->shards);
    for (size_t begin = 0; begin < n; begin = end) {
        end = begin + 1;
        while (end < n && st_at(set, end)->file == st_at(set, begin)->file)
            end++;
        if (fill_shard(p, set, begin, end, tied, &module))
            return err_oom(e, (end - begin) * sizeof *p->shards->out);
    }
    if (p->n_shards == 1)
        strcpy(p->shards[0].name, "model.safetensors");
    for (size_t i = 0; i < p->n_shards && p->n_shards > 1; i++)
        snprintf(p->shards[i].name, sizeof p->shards[i].name,
                 "model-%05zu-of-%05zu.safetensors", i + 1, p->n_shards);
    return 0;
}

int quantize_plan(struct quantize_plan *p, const struct st_set *set,
                  const char *path, bool tied,
                  const struct qwick_quantize_options *o, struct qwick_err *e)
{
    *p = (struct quantize_plan){.o = o};
    if (find_modules(p, set, path, tied, e) == 0 &&
        make_shards(p, set, tied, e) == 0)
        return 0;
    quantize_plan_free(p);
    return -1;
}

void quantize_plan_free(struct quantize_plan *p)
{
    for (size_t i = 0; i < p->n_modules; i++)
        free(p->modules[i].name);
    for (size_t i = 0; i < p->n_shards; i++) {
        free(p->shards[i].out);
        free(p->shards[i].jobs);
    }
    for (size_t i = 0; i < p->n_names; i++)
        free(p->names[i]);
    free(p->modules);
    free(p->shards);
    free(p->names);
    *p = (struct quantize_plan){0};
}
