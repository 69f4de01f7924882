/* qwick_quantize: a checkpoint read, rounded and written piece by piece. */
#include "convert/quantize.h"
#include "convert/widths.h"
#include "engine/core/options.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/flag.h"
#include "base/os.h"
#include "base/par.h"
#include "file/checkpoint.h"
#include "file/map.h"
#include "file/outdir.h"
#include "model/arch.h"
#include "model/config.h"
#include "model/weights.h"
#include "qwick_tools.h"

enum { MAX_THREADS = 1024, MAX_PATH_BYTES = 4096 };

/* ---- a shard's work, on all threads -------------------------------------- */

struct work {
    struct quantize_work w;
    bool mapped; /* the source can be read again after it is dropped */
    struct quantize_room *room; /* [threads] */
    size_t *first;              /* [n_jobs + 1] index of a job's first piece */
    size_t before;              /* bytes of earlier shards */
    atomic_size_t done;
    atomic_bool stop;
    struct qwick_err err; /* of the first that failed */
};

/* Tell the kernel about a piece of the mapping: that it will be needed, or that
 * this process is done with it, so that its pages do not count as ours. Only
 * whole pages, as the rest is shared with other pieces. */
static void advise(const unsigned char *p, size_t n, int advice)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t skip = (page - (uintptr_t)p % page) % page;
    if (n >= skip + page)
        (void)madvise((void *)(uintptr_t)(p + skip), (n - skip) & ~(page - 1),
                      advice);
}

/* The same about the elements of a piece. A piece of a transpose shares its
 * pages with others. */
static void advise_piece(const struct work *w, const struct quantize_job *job,
                         size_t begin, size_t n, int advice)
{
    const unsigned char *data;
    size_t n_bytes;
    if (!w->mapped || job->from.stride)
        return;
    for (size_t i = 0; (data = quantize_data(job, i, begin, n, &n_bytes)); i++)
        advise(data, n_bytes, advice);
}

/* Elements of a job's pieces: whole rows, if it is calibrated. */
static size_t piece_of(const struct quantize_job *job)
{
    size_t cols = job->calibrated ? quantize_row_cols(job) : 1;
    return QUANTIZE_PIECE / cols * cols;
}

static int do_piece(struct work *w, const struct quantize_job *job,
                    size_t index, struct quantize_room *room,
                    struct qwick_err *e)
{
    const size_t piece = piece_of(job), begin = index * piece;
    const size_t left = job->from.n - begin, n = left < piece ? left : piece;
    advise_piece(w, job, begin, n, MADV_WILLNEED);
    int rc = w->w.plan->form->piece(&w->w, job, begin, n, room, e);
    advise_piece(w, job, begin, n, MADV_DONTNEED);
    atomic_fetch_add_explicit(
        &w->done, quantize_stored_bytes(job->packed, job->from.src, n),
        memory_order_relaxed);
    return rc;
}

static bool interrupted(const struct quantize_plan *p)
{
    return flag_is_set(p->o->interrupt);
}

static void work_body(void *ctx, struct par_team *team, int tid, int n_threads)
{
    struct work *w = ctx;
    const struct qwick_quantize_options *o = w->w.plan->o;
    size_t n = w->first[w->w.shard->n_jobs], job = 0, begin, end;
    (void)n_threads;
    while (!atomic_load_explicit(&w->stop, memory_order_relaxed) &&
           par_next(team, n, 1, &begin, &end)) {
        struct qwick_err e;
        while (begin >= w->first[job + 1]) /* pieces come in order */
            job++;
        int rc = interrupted(w->w.plan)
                     ? err_set(&e, QWICK_ERR_INTERRUPTED, "interrupted")
                     : do_piece(w, &w->w.shard->jobs[job],
                                begin - w->first[job], &w->room[tid], &e);
        if (rc && !atomic_exchange(&w->stop, true))
            w->err = e; /* by one thread only, read after the region */
        if (tid == 0 && o->progress)
            o->progress(o->progress_ctx, w->before + w->done,
                        w->w.plan->bytes_read);
    }
}

/* Write a shard; *before counts the source's bytes. */
static int write_shard(struct work *w, struct outdir *out,
                       struct par_pool *pool, struct qwick_err *e)
{
    const struct quantize_shard *s = w->w.shard;
    const struct quantize_plan *p = w->w.plan;
    const char *path = outdir_path(out, s->name, e);
    w->first = calloc(s->n_jobs + 1, sizeof *w->first);
    int rc = !w->first ? err_oom(e, (s->n_jobs + 1) * sizeof *w->first)
             : !path   ? -1
                       : p->form->open(&w->w.writer, path, p, s, e);
    if (!rc) {
        for (size_t i = 0; i < s->n_jobs; i++)
            w->first[i + 1] =
                w->first[i] +
                (s->jobs[i].from.n + piece_of(&s->jobs[i]) - 1) /
                    piece_of(&s->jobs[i]);
        par_run(pool, work_body, w);
        if (w->stop) {
            st_writer_abort(w->w.writer);
            if (e)
                *e = w->err;
            rc = -1;
        } else {
            rc = st_writer_close(w->w.writer, e);
        }
    }
    free(w->first);
    w->before += w->done;
    w->done = 0;
    if (!rc && p->o->progress) /* the calling thread may have had none */
        p->o->progress(p->o->progress_ctx, w->before, p->bytes_read);
    return rc;
}

static int write_shards(const struct quantize_plan *p, struct outdir *out,
                        const char *path, bool mapped, struct par_pool *pool,
                        struct qwick_err *e)
{
    struct work w = {.w = {.plan = p, .k = kernels_best(), .path = path},
                     .mapped = mapped};
    size_t n = (size_t)par_threads(pool);
    w.room = calloc(n, sizeof *w.room);
    if (!w.room)
        return err_oom(e, sizeof *w.room);
    int rc = 0;
    for (size_t i = 0; i < n && p->row_cols && !rc; i++)
        if (!(w.room[i].rows = quantize_rows_new(p->row_cols)))
            rc = err_oom(e, p->row_cols);
    for (size_t i = 0; i < p->n_shards && !rc; i++) {
        w.w.shard = &p->shards[i];
        rc = write_shard(&w, out, pool, e);
    }
    for (size_t i = 0; i < n; i++)
        quantize_rows_free(w.room[i].rows);
    free(w.room);
    return rc;
}

/* ---- the whole ----------------------------------------------------------- */

static int check_options(const struct qwick_quantize_options *o,
                         struct qwick_err *e)
{
    if (o->threads < 0 || o->threads > MAX_THREADS)
        return err_set(e, QWICK_ERR_USAGE,
                       "threads: must be from 1 to %d, is %d", MAX_THREADS,
                       o->threads);
    if (o->format != QWICK_QUANTIZE_MLX && o->format != QWICK_QUANTIZE_GGUF)
        return err_set(e, QWICK_ERR_USAGE, "format: no such choice: %d",
                       (int)o->format);
    return calibration_check(o, e) || widths_check(o, e) ? -1 : 0;
}

/* A head that equals the embedding is left out if they are tied. One that
 * differs unties them. */
static int settle_head(struct quantize_source *s, struct qwick_err *e)
{
    const struct config *c = &s->m.config;
    const struct weight_ref head = {.id = WEIGHT_HEAD};
    struct matrix a, b;
    struct weights w;
    bool differ = false;
    if (!c->tied_head)
        return 0;
    int rc = weights_open(&w, s->stored, checkpoint_dir(s->ck), c->arch->names,
                          kernels_best(), true, e);
    w.quant = &c->quant;
    if (!rc && weights_has(&w, head))
        rc = weights_matrix(&w, &a, c->vocab_size, c->d_model,
                            (struct weight_ref){.id = WEIGHT_EMBED}, e) ||
                     weights_matrix(&w, &b, c->vocab_size, c->d_model, head,
                                    e) ||
                     matrix_compare(kernels_best(), &a, &b, c->vocab_size,
                                    &differ, e)
                 ? -1
                 : 0;
    weights_close(&w);
    s->untied = differ;
    s->m.config.tied_head = !differ;
    return rc;
}

/* Bind the weights that the model reads. */
static int open_model(struct quantize_source *s, struct qwick_err *e)
{
    struct model *m = &s->m;
    bool tied = m->config.tied_head;
    m->k = kernels_best();
    m->exact = m->sizes_only = true;
    for (size_t i = 0; i < st_count(s->set); i++)
        if (quantize_check_tensor(st_at(s->set, i), checkpoint_dir(s->ck), e))
            return -1;
    if (m->config.bidirectional && s->config)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: is a text encoder, which quantize does not write",
                       checkpoint_dir(s->ck));
    if (model_open(m, s->ck, s->set, e))
        return -1;
    /* as settle_head has it; text encoders count as tied */
    m->config.tied_head = tied || m->no_head;
    return 0;
}

/* No form of the result has modules of sentence-transformers. */
static int check_pooling(const struct quantize_source *s, struct qwick_err *e)
{
    const struct pooling *p = &s->pooling;
    bool last = p->modes.n == 1 && p->modes.v[0] == POOLING_LAST;
    if (last && !p->n_dense && !p->lower)
        return 0;
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: %s, which the result would not have",
                   checkpoint_dir(s->ck),
                   !last        ? "vectors are not made of the last token only"
                   : p->n_dense ? "has Dense modules"
                                : "do_lower_case is true");
}

/* The settings of a checkpoint, and what no result could say. */
static int read_config(struct quantize_source *s, struct qwick_err *e)
{
    struct map map;
    bool found;
    char path[MAX_PATH_BYTES];
    if (checkpoint_map_small(s->ck, "config.json", &map, &found, e))
        return -1;
    checkpoint_path(s->ck, "config.json", path, sizeof path);
    if (!found)
        return err_set(e, QWICK_ERR_MODEL, "%s: missing", path);
    int rc = json_parse_python(&s->config, path, (const char *)map.data,
                               map.size, QWICK_ERR_MODEL, e);
    map_close(&map);
    /* Before the model's own check, whose error would say less. */
    if (rc || quantize_check_config(json_root(s->config), path, e))
        return -1;
    if (config_load(&s->m.config, s->ck, e))
        return -1;
    if (pooling_read(&s->pooling, s->ck, &s->m.config, e) ||
        check_pooling(s, e))
        return -1;
    if (s->m.config.class == CLASS_CLASSIFIER)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: architectures: \"%s\": the head of a classifier "
                       "cannot be converted",
                       path, s->m.config.class_name);
    return 0;
}

static int open_set(struct quantize_source *s, const struct quantize_form *form,
                    const struct qwick_quantize_options *o, struct qwick_err *e)
{
    struct lora_spec *specs = calloc(o->n_loras + 1, sizeof *specs);
    if (!specs)
        return err_oom(e, o->n_loras * sizeof *specs);
    for (size_t i = 0; i < o->n_loras; i++)
        specs[i] = (struct lora_spec){.path = o->loras[i].path,
                                      .name = o->loras[i].path,
                                      .scale = o->loras[i].scale};
    int rc = quantize_open_set(s, form->wide, specs, o->n_loras, e);
    free(specs);
    return rc;
}

static int open_source(struct quantize_source *s,
                       const struct quantize_plan *p, const char *spec,
                       struct qwick_err *e)
{
    const struct quantize_form *form = p->form;
    if (checkpoint_open_at(&s->ck, spec, p->o->place, e))
        return -1;
    bool gguf = checkpoint_gguf(s->ck) != NULL;
    if (gguf && !form->binds)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: is a GGUF file, of which only GGUF files are made: "
                       "quantize the safetensors checkpoint to MLX's format",
                       checkpoint_dir(s->ck));
    if (gguf ? config_load(&s->m.config, s->ck, e) : read_config(s, e))
        return -1;
    return open_set(s, form, p->o, e) || settle_head(s, e) ||
                   (form->binds && open_model(s, e))
               ? -1
               : 0;
}

static void close_source(struct quantize_source *s)
{
    model_close(&s->m);
    quantize_close_set(s);
    json_free(s->config);
    pooling_close(&s->pooling);
    checkpoint_close(s->ck);
}

/* A result must not replace a file of its source. */
static int check_place(const struct quantize_source *s, const char *dst,
                       struct qwick_err *e)
{
    struct map_id there;
    const struct map_id *id;
    const char *name;
    if (map_id_now(&there, dst))
        return 0;
    for (size_t i = 0; (id = st_file_id(s->stored, i, &name)); i++)
        if (id->dev == there.dev && id->ino == there.ino)
            return err_set(e, QWICK_ERR_USAGE,
                           "%s: is the source: name another file", dst);
    return 0;
}

static int quantize(const struct quantize_source *s, const char *spec,
                    const char *dst, const struct quantize_plan *plan,
                    struct par_pool *pool, struct qwick_err *e)
{
    const struct qwick_quantize_options *o = plan->o;
    const char *dir = checkpoint_dir(s->ck);
    struct outdir *out;
    if (plan->form->begin(&out, dst, o->force, spec ? dir : NULL, e))
        return -1;
    if (write_shards(plan, out, dir, spec != NULL, pool, e) ||
        (plan->form->finish && plan->form->finish(plan, s, out, e))) {
        outdir_abort(out);
        return -1;
    }
    if (interrupted(plan)) {
        outdir_abort(out);
        return err_set(e, QWICK_ERR_INTERRUPTED, "interrupted");
    }
    return outdir_commit(out, e);
}

/* Without bits or group, those of the source's codes: then nothing of it is
 * rounded. */
static void choose_codes(struct qwick_quantize_options *o,
                         const struct quantize_source *s)
{
    int bits = 4, group = 64, b, g;
    if (quantize_find_codes(s, &b, &g) && (!o->bits || o->bits == b)) {
        bits = b;
        group = g;
    }
    o->bits = o->bits ? o->bits : bits;
    o->group = o->group ? o->group : group;
    if (o->chosen_bits)
        *o->chosen_bits = o->bits;
    if (o->chosen_group)
        *o->chosen_group = o->group;
}

/* Run the source over the texts of the options, if there are some. */
static int calibrate(struct calibration **out, const char *src,
                     const struct qwick_quantize_options *o,
                     struct qwick_err *e)
{
    bool wanted = o->n_calibrate || o->calibrate_self;
    return wanted ? calibration_open(out, src, o, e) : 0;
}

static int open_pool(struct par_pool **out, int threads, struct qwick_err *e)
{
    int n = threads ? threads : os_default_threads();
    *out = par_create(n);
    return *out ? 0 : err_oom(e, (size_t)n * sizeof(pthread_t));
}

/* Choose widths if there is a budget, then plan the result. */
static int plan_all(struct quantize_plan *plan, struct widths *widths,
                    const char *src, struct qwick_quantize_options *o,
                    struct qwick_err *e)
{
    if (o->bpw != 0 || o->target_bytes) {
        if (widths_choose(widths, plan, src, plan->calibration, e))
            return -1;
        const struct quantize_width *common = widths_common(widths);
        o->bits = common->bits;
        o->type = common->name;
        if (o->chosen_bits)
            *o->chosen_bits = o->bits;
        plan->find_width = widths_find;
        plan->find_width_ctx = widths;
        widths_report(widths, o);
    }
    if (plan->form->plan(plan, plan->s, e))
        return -1;
    quantize_mark_jobs(plan);
    return 0;
}

static void fill_report(struct qwick_quantize_report *r,
                        const struct quantize_plan *plan,
                        const struct widths *widths, double start)
{
    r->n_quantized = plan->n_quantized;
    r->n_dense = plan->n_dense;
    r->n_params = plan->n_params;
    r->bytes_read = plan->bytes_read;
    r->bytes_written = plan->bytes_written;
    r->bits_per_weight =
        8 * (double)plan->bytes_written / (double)plan->n_params;
    r->total_ms = clock_ms() - start;
    if (!plan->find_width)
        return;
    r->kl = widths->kl;
    r->uniform_kl = widths->uniform_kl;
    r->uniform_bits = widths->widths[widths->uniform].bits;
    r->n_measured = widths->n_rows;
}

int qwick_quantize(const char *src, const char *dst,
                   const struct qwick_quantize_options *given,
                   struct qwick_quantize_report *r, struct qwick_err *e)
{
    struct qwick_quantize_options all = qwick_quantize_defaults(), *o = &all;
    double start = clock_ms();
    struct quantize_source s = {0};
    struct quantize_plan plan = {0};
    struct calibration *calibration = NULL;
    struct widths widths = {0};
    if (r)
        *r = (struct qwick_quantize_report){0};
    int rc = options_read(o, sizeof *o, given, "quantize", e);
    if (!rc)
        rc = check_options(o, e);
    plan.o = o;
    plan.s = &s;
    plan.form =
        o->format == QWICK_QUANTIZE_GGUF ? &quantize_gguf : &quantize_mlx;
    if (!rc)
        rc = plan.form->check(o, e);
    if (!rc)
        rc = open_source(&s, &plan, src, e) ||
                     (!o->dry_run && check_place(&s, dst, e))
                 ? -1
                 : 0;
    plan.any_group = !o->group;
    if (!rc && o->format == QWICK_QUANTIZE_MLX)
        choose_codes(o, &s);
    if (!rc)
        rc = calibrate(&calibration, src, o, e);
    plan.calibration = calibration;
    if (!rc)
        rc = plan_all(&plan, &widths, src, o, e);
    struct par_pool *pool = NULL;
    if (!rc && !o->dry_run)
        rc = open_pool(&pool, o->threads, e) ||
                     quantize(&s, src, dst, &plan, pool, e)
                 ? -1
                 : 0;
    par_free(pool);
    if (!rc && r)
        fill_report(r, &plan, &widths, start);
    quantize_plan_free(&plan);
    widths_free(&widths);
    calibration_close(calibration);
    close_source(&s);
    return rc;
}

void qwick_quantize_abandon(void)
{
    outdir_abandon();
}
