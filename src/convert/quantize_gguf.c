/* A GGUF file as the result. */
#include "convert/quantize.h"

#include <float.h>
#include <math.h>

#include "file/checkpoint.h"
#include "model/arch.h"
#include "model/blocks_fit.h"

/* Elements that are widened at a time: whole blocks, whose result fits the room
 * in any type. */
enum { STEP = 1 << 13 };

_Static_assert(STEP * sizeof(float) <= sizeof((struct quantize_room *)0)->q &&
                   STEP * sizeof(float) <=
                       sizeof((struct quantize_room *)0)->scales,
               "room for a step");

/* The families whose metadata quantize_gguf_meta can write. */
static const struct arch *const families[] = {&arch_qwen3, &arch_qwen3moe};

static int check_family(const struct quantize_source *s, struct qwick_err *e)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (s->c.arch == families[i])
            return 0;
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: model_type: \"%s\" cannot be written as a GGUF file "
                   "(\"qwen3\" and \"qwen3_moe\" can)",
                   checkpoint_dir(s->ck), s->c.model_type);
}

static const struct quantize_type *
type_of(const struct qwick_quantize_options *o)
{
    return quantize_type_find(o->type ? o->type : "Q4_K_M");
}

static int check(const struct qwick_quantize_options *o, struct qwick_err *e)
{
    if (!type_of(o))
        return err_set(e, QWICK_ERR_USAGE,
                       "type: must be Q8_0, Q6_K, Q4_K_M, Q4_0, BF16 or F16, "
                       "is \"%s\"",
                       o->type);
    return 0;
}

static int plan(struct quantize_plan *p, const struct quantize_source *s,
                struct qwick_err *e)
{
    const struct quantize_type *t = type_of(p->o);
    return check_family(s, e) || quantize_gguf_tensors(p, s, t, e) ||
                   quantize_gguf_meta(p, s, t, e) || quantize_gguf_text(p, s, e)
               ? -1
               : 0;
}

static int begin(struct outdir **out, const char *dst, bool replace,
                 const char *keep, struct qwick_err *e)
{
    (void)keep; /* the source is a directory */
    return outdir_open_file(out, dst, replace, e);
}

static int open_file(struct st_writer **out, const char *path,
                     const struct quantize_plan *p,
                     const struct quantize_shard *s, struct qwick_err *e)
{
    return gguf_writer_open(out, path, &p->meta, s->out, s->n_out, e);
}

/* Elements x [n] in the type of the result; -1: *bad cannot be stored. */
static int round_step(const struct kernels *k, enum dtype type,
                      unsigned char *out, const float *x, size_t n, size_t *bad)
{
    /* No type may store NaN or an infinity as a weight. */
    for (*bad = 0; *bad < n; ++*bad)
        if (!(fabsf(x[*bad]) <= (type == DT_F16 ? 65504.0f : FLT_MAX)))
            return -1;
    if (type >= DT_BLOCKS)
        return blocks_fit(type, k, out, x, n, bad);
    k->from_f32[type](out, x, n);
    return 0;
}

static int write_piece(const struct quantize_work *w,
                       const struct quantize_job *job, size_t begin_at,
                       size_t n, struct quantize_room *room,
                       struct qwick_err *e)
{
    const struct st_tensor *t = job->from.src;
    const enum dtype type = w->shard->out[job->out[0]].dtype;
    const float plus = w->plan->plus[job->out[0]];
    float *x = (float *)(void *)room->scales;
    size_t at = job->at + (begin_at - job->from.begin), bad;
    for (size_t done = 0, step; done < n; done += step) {
        step = n - done < STEP ? n - done : STEP;
        size_t from = begin_at + done;
        w->k->to_f32[t->dtype](x, t->data + from * dtype_bytes(t->dtype), step);
        for (size_t i = 0; i < step && plus != 0; i++)
            x[i] += plus;
        if (round_step(w->k, type, room->q, x, step, &bad))
            return quantize_bad_value(w, t, from + bad, e);
        size_t block = dtype_block(type), bytes = dtype_bytes(type);
        if (st_writer_at(w->writer, job->out[0], (at + done) / block * bytes,
                         room->q, step / block * bytes, e))
            return -1;
    }
    return 0;
}

const struct quantize_form quantize_gguf = {.check = check,
                                            .plan = plan,
                                            .begin = begin,
                                            .open = open_file,
                                            .piece = write_piece};
