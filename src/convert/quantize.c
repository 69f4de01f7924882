/* qwick_quantize: a checkpoint read, rounded and written piece by piece. */
#include "convert/quantize.h"
#include "engine/core/options.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/os.h"
#include "base/par.h"
#include "file/checkpoint.h"
#include "file/map.h"
#include "file/outdir.h"
#include "model/affine.h"
#include "model/config.h"

/* Elements that a thread takes at a time: whole groups of any size, few enough
 * for the second-level cache. */
enum { PIECE = 1 << 18, MAX_THREADS = 1024, MAX_PATH_BYTES = 4096 };

/* The files of a checkpoint that are copied, besides config.json and weights.
 * large: the limit for files of tokenizers applies. */
static const struct {
    const char *name;
    bool large;
} companions[] = {
    {"generation_config.json", false},
    {"tokenizer.json", true},
    {"tokenizer_config.json", false},
    {"tokenizer.model", true},
    {"special_tokens_map.json", false},
    {"added_tokens.json", false},
    {"vocab.json", true},
    {"merges.txt", true},
    {"chat_template.jinja", false},
    {"chat_template.json", false},
    {"LICENSE", false},
    {"NOTICE", false},
};

/* ---- a shard's work, on all threads -------------------------------------- */

/* Results of a piece until they are written. */
struct room {
    unsigned char q[PIECE];
    unsigned char scales[PIECE / 32 * sizeof(float)];
    unsigned char biases[PIECE / 32 * sizeof(float)];
};

struct work {
    const struct quantize_plan *plan;
    const struct quantize_shard *shard;
    struct st_writer *writer;
    const struct kernels *k;
    const char *path;  /* of the source, for messages */
    bool mapped;       /* the source can be read again after it is dropped */
    struct room *room; /* [threads] */
    size_t *first;     /* [n_jobs + 1] index of a job's first piece */
    size_t before;     /* bytes of earlier shards */
    atomic_size_t done;
    atomic_bool stop;
    struct qwick_err err; /* of the first that failed */
};

/* Tell the kernel about a piece of the mapping: that it will be needed, or that
 * this process is done with it, so that its pages do not count as ours. Only
 * whole pages, as the rest is shared with other pieces. */
static void advise(const unsigned char *p, size_t n, int advice)
{
    const size_t page = 4096;
    size_t skip = (page - (uintptr_t)p % page) % page;
    if (n >= skip + page)
        (void)madvise((void *)(uintptr_t)(p + skip), (n - skip) & ~(page - 1),
                      advice);
}

static int quantize_piece(struct work *w, const struct quantize_job *job,
                          size_t begin, size_t n, struct room *room,
                          struct qwick_err *e)
{
    const struct st_tensor *t = job->from.src;
    const size_t bytes = dtype_bytes(t->dtype);
    const size_t group = (size_t)w->plan->o->group;
    const struct affine_format f = {
        .bits = job->bits,
        .group = group,
        .type = t->dtype,
        .search =
            w->plan->o->scales == QWICK_SCALES_LSQ ? AFFINE_LSQ : AFFINE_MLX,
        .k = w->k};
    size_t bad;
    if (affine_quantize(&f, room->q, room->scales, room->biases,
                        t->data + begin * bytes, n, &bad))
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: tensor %.200s: row %zu: holds NaN, infinities "
                       "or values too large",
                       w->path, t->file, t->name,
                       (begin + bad) / t->shape[t->rank - 1]);
    size_t to = job->at + (begin - job->from.begin);
    size_t at = to / group * bytes, n_sb = n / group * bytes;
    size_t n_q = n / 8 * (size_t)job->bits;
    size_t q_at = to / 8 * (size_t)job->bits;
    return st_writer_at(w->writer, job->out[0], q_at, room->q, n_q, e) ||
                   st_writer_at(w->writer, job->out[1], at, room->scales, n_sb,
                                e) ||
                   st_writer_at(w->writer, job->out[2], at, room->biases, n_sb,
                                e)
               ? -1
               : 0;
}

static int do_piece(struct work *w, const struct quantize_job *job,
                    size_t index, struct room *room, struct qwick_err *e)
{
    const struct st_tensor *t = job->from.src;
    const size_t bytes = dtype_bytes(t->dtype);
    const size_t done = index * PIECE, left = job->from.n - done;
    const size_t begin = job->from.begin + done;
    const size_t n = left < PIECE ? left : PIECE;
    const unsigned char *data = t->data + begin * bytes;
    if (w->mapped)
        advise(data, n * bytes, MADV_WILLNEED);
    int rc = job->bits ? quantize_piece(w, job, begin, n, room, e)
                       : st_writer_at(w->writer, job->out[0], begin * bytes,
                                      data, n * bytes, e);
    if (w->mapped)
        advise(data, n * bytes, MADV_DONTNEED);
    atomic_fetch_add_explicit(&w->done, n * bytes, memory_order_relaxed);
    return rc;
}

static bool interrupted(const struct quantize_plan *p)
{
    return p->o->interrupt && *p->o->interrupt;
}

static void work_body(void *ctx, struct par_team *team, int tid, int n_threads)
{
    struct work *w = ctx;
    const struct qwick_quantize_options *o = w->plan->o;
    size_t n = w->first[w->shard->n_jobs], job = 0, begin, end;
    (void)n_threads;
    while (!atomic_load_explicit(&w->stop, memory_order_relaxed) &&
           par_next(team, n, 1, &begin, &end)) {
        struct qwick_err e;
        while (begin >= w->first[job + 1]) /* pieces come in order */
            job++;
        int rc = interrupted(w->plan)
                     ? err_set(&e, QWICK_ERR_INTERRUPTED, "interrupted")
                     : do_piece(w, &w->shard->jobs[job], begin - w->first[job],
                                &w->room[tid], &e);
        if (rc && !atomic_exchange(&w->stop, true))
            w->err = e; /* by one thread only, read after the region */
        if (tid == 0 && o->progress)
            o->progress(o->progress_ctx, w->before + w->done,
                        w->plan->bytes_read);
    }
}

/* Write a shard; *before counts the source's bytes. */
static int write_shard(struct work *w, struct outdir *out,
                       struct par_pool *pool, struct qwick_err *e)
{
    const struct quantize_shard *s = w->shard;
    const char *path = outdir_path(out, s->name, e);
    w->first = calloc(s->n_jobs + 1, sizeof *w->first);
    int rc = !w->first ? err_oom(e, (s->n_jobs + 1) * sizeof *w->first)
             : !path   ? -1
                       : st_writer_open_large(&w->writer, path, "mlx", s->out,
                                              s->n_out, e);
    if (!rc) {
        for (size_t i = 0; i < s->n_jobs; i++)
            w->first[i + 1] =
                w->first[i] + (s->jobs[i].from.n + PIECE - 1) / PIECE;
        par_run(pool, work_body, w);
        if (w->stop) {
            st_writer_abort(w->writer);
            if (e)
                *e = w->err;
            rc = -1;
        } else {
            rc = st_writer_close(w->writer, e);
        }
    }
    free(w->first);
    w->before += w->done;
    w->done = 0;
    if (!rc && w->plan->o->progress) /* the calling thread may have had none */
        w->plan->o->progress(w->plan->o->progress_ctx, w->before,
                             w->plan->bytes_read);
    return rc;
}

static int write_shards(const struct quantize_plan *p, struct outdir *out,
                        const char *path, bool mapped, struct par_pool *pool,
                        struct qwick_err *e)
{
    struct work w = {
        .plan = p, .k = kernels_best(), .path = path, .mapped = mapped};
    size_t bytes;
    if (size_mul((size_t)par_threads(pool), sizeof *w.room, &bytes))
        return err_oom(e, SIZE_MAX);
    w.room = malloc(bytes);
    if (!w.room)
        return err_oom(e, bytes);
    int rc = 0;
    for (size_t i = 0; i < p->n_shards && !rc; i++) {
        w.shard = &p->shards[i];
        rc = write_shard(&w, out, pool, e);
    }
    free(w.room);
    return rc;
}

/* ---- the other files ----------------------------------------------------- */

static int copy_companions(const struct checkpoint *ck, struct outdir *out,
                           struct qwick_err *e)
{
    for (size_t i = 0; i < sizeof companions / sizeof *companions; i++) {
        struct map map;
        bool found;
        const char *name = companions[i].name;
        if (companions[i].large
                ? checkpoint_map(ck, name, &map, &found, e)
                : checkpoint_map_small(ck, name, &map, &found, e))
            return -1;
        if (!found)
            continue;
        int rc = outdir_write(out, name, map.data, map.size, e);
        map_close(&map);
        if (rc)
            return -1;
    }
    return 0;
}

/* config.json is written last, since a directory without it does not count as a
 * checkpoint. */
static int write_json(const struct quantize_plan *p, struct outdir *out,
                      const struct json_value *config, struct qwick_err *e)
{
    struct buf b = {0};
    int rc = 0;
    if (p->n_shards > 1)
        rc = quantize_index(&b, p)
                 ? err_oom(e, b.len)
                 : outdir_write(out, "model.safetensors.index.json", b.data,
                                b.len, e);
    b.len = 0;
    if (!rc)
        rc = quantize_config(&b, config, p)
                 ? err_oom(e, b.len)
                 : outdir_write(out, "config.json", b.data, b.len, e);
    buf_free(&b);
    return rc;
}

/* ---- the whole ----------------------------------------------------------- */

static int check_options(const struct qwick_quantize_options *o,
                         struct qwick_err *e)
{
    size_t group = o->group > 0 ? (size_t)o->group : 0;
    if (!affine_valid(o->bits, 32))
        return err_set(e, QWICK_ERR_USAGE,
                       "bits: must be 2, 3, 4, 5, 6 or 8, is %d", o->bits);
    if (o->head_bits && !affine_valid(o->head_bits, 32))
        return err_set(e, QWICK_ERR_USAGE,
                       "head bits: must be 2, 3, 4, 5, 6 or 8, is %d",
                       o->head_bits);
    if (!affine_valid(4, group))
        return err_set(e, QWICK_ERR_USAGE,
                       "group: must be 32, 64 or 128, is %d", o->group);
    if (o->scales != QWICK_SCALES_MLX && o->scales != QWICK_SCALES_LSQ)
        return err_set(e, QWICK_ERR_USAGE, "scales: no such choice: %d",
                       (int)o->scales);
    if (o->threads < 0 || o->threads > MAX_THREADS)
        return err_set(e, QWICK_ERR_USAGE,
                       "threads: must be from 1 to %d, is %d", MAX_THREADS,
                       o->threads);
    return 0;
}

/* The parts of the source that are read. */
struct source {
    struct checkpoint *ck;
    struct json_doc *config;
    struct st_set *set;
    struct config c;
};

static int open_source(struct source *s, const char *spec, struct qwick_err *e)
{
    struct map map;
    bool found;
    char path[MAX_PATH_BYTES];
    if (checkpoint_open(&s->ck, spec, e))
        return -1;
    if (checkpoint_gguf(s->ck))
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: is a GGUF file: only safetensors checkpoints can "
                       "be quantized",
                       checkpoint_dir(s->ck));
    if (checkpoint_map_small(s->ck, "config.json", &map, &found, e))
        return -1;
    checkpoint_path(s->ck, "config.json", path, sizeof path);
    if (!found)
        return err_set(e, QWICK_ERR_MODEL, "%s: missing", path);
    int rc = json_parse(&s->config, path, (const char *)map.data, map.size,
                        QWICK_ERR_MODEL, e);
    map_close(&map);
    /* Before the model's own check, whose error would say less. */
    if (rc || quantize_check_config(json_root(s->config), path, e))
        return -1;
    if (config_load(&s->c, s->ck, e))
        return -1;
    return st_open(&s->set, s->ck, e);
}

static void close_source(struct source *s)
{
    st_close(s->set);
    config_free(&s->c);
    json_free(s->config);
    checkpoint_close(s->ck);
}

static int quantize(const struct source *s, const char *spec, const char *dst,
                    const struct quantize_plan *plan, struct par_pool *pool,
                    struct qwick_err *e)
{
    const struct qwick_quantize_options *o = plan->o;
    const char *dir = checkpoint_dir(s->ck);
    struct outdir *out;
    if (outdir_open(&out, dst, o->force, spec ? dir : NULL, e))
        return -1;
    if (write_shards(plan, out, dir, spec != NULL, pool, e) ||
        copy_companions(s->ck, out, e) ||
        write_json(plan, out, json_root(s->config), e)) {
        outdir_abort(out);
        return -1;
    }
    if (interrupted(plan)) {
        outdir_abort(out);
        return err_set(e, QWICK_ERR_INTERRUPTED, "interrupted");
    }
    return outdir_commit(out, e);
}

static int open_pool(struct par_pool **out, int threads, struct qwick_err *e)
{
    int n = threads ? threads : os_default_threads();
    *out = par_create(n);
    return *out ? 0 : err_oom(e, (size_t)n * sizeof(pthread_t));
}

int qwick_quantize(const char *src, const char *dst,
                   const struct qwick_quantize_options *given,
                   struct qwick_quantize_report *r, struct qwick_err *e)
{
    struct qwick_quantize_options all = qwick_quantize_defaults(), *o = &all;
    double start = clock_ms();
    struct source s = {0};
    struct quantize_plan plan = {0};
    if (r)
        *r = (struct qwick_quantize_report){0};
    int rc = options_read(o, sizeof *o, given, "quantize", e);
    if (!rc)
        rc = check_options(o, e);
    if (!rc)
        rc = open_source(&s, src, e);
    if (!rc)
        rc = quantize_plan(&plan, s.set, checkpoint_dir(s.ck), &s.c, o, e);
    struct par_pool *pool = NULL;
    if (!rc)
        rc = open_pool(&pool, o->threads, e);
    if (!rc)
        rc = quantize(&s, src, dst, &plan, pool, e);
    par_free(pool);
    if (!rc && r) {
        for (size_t i = 0; i < plan.n_modules; i++)
            ++*(plan.modules[i].bits ? &r->n_quantized : &r->n_dense);
        r->n_params = plan.n_params;
        r->bytes_read = plan.bytes_read;
        r->bytes_written = plan.bytes_written;
        r->bits_per_weight =
            8 * (double)plan.bytes_written / (double)plan.n_params;
        r->total_ms = clock_ms() - start;
    }
    quantize_plan_free(&plan);
    close_source(&s);
    return rc;
}

void qwick_quantize_abandon(void)
{
    outdir_abandon();
}
