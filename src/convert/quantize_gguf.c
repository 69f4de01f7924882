/* A GGUF file as the result. */
#include "convert/quantize.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "file/checkpoint.h"
#include "kernel/blocks.h"
#include "model/arch.h"
#include "model/blocks_fit.h"
#include "qwick_tools.h"

/* Elements that are widened at a time: whole blocks, whose result fits the room
 * in any type. */
enum { STEP = 1 << 13, QUANTIZATION_VERSION = 2 };

_Static_assert(STEP * sizeof(float) <= sizeof((struct quantize_room *)0)->q &&
                   STEP * sizeof(float) <=
                       sizeof((struct quantize_room *)0)->scales,
               "room for a step");

static const char default_type[] = "Q4_K_M", mxfp4_type[] = "MXFP4";

static int gguf_check(const struct qwick_quantize_options *o,
                      struct qwick_err *e)
{
    if (o->type && !quantize_type_find(o->type))
        return err_set(
            e, QWICK_ERR_USAGE,
            "type: must be Q8_0, Q6_K, Q5_K_M, Q4_K_M, Q4_0, IQ4_NL, "
            "Q3_K_M, Q2_K, BF16, F16 or MXFP4, is \"%s\"",
            o->type);
    return 0;
}

/* Whether a key says how the source is stored. */
static bool is_of_file(const struct gguf_value *v)
{
    static const char *const keys[] = {
        "general.file_type", "general.quantization_version",
        "general.alignment", "split.no",
        "split.count",       "split.tensors.count"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (v->key_len == strlen(keys[i]) &&
            memcmp(v->key, keys[i], v->key_len) == 0)
            return true;
    return false;
}

/* Copy the metadata of a GGUF file. */
static void copy_meta(struct gguf_out *o, const struct gguf *g)
{
    for (size_t i = 0; i < gguf_count(g); i++)
        if (!is_of_file(gguf_at(g, i)))
            gguf_put_value(o, gguf_at(g, i));
}

/* The sums for the report. */
static void tensors_count(struct quantize_plan *p)
{
    const struct quantize_shard *s = p->shards;
    for (size_t i = 0; i < s->n_jobs; i++) {
        size_t n = s->jobs[i].from.n;
        enum dtype type = s->out[s->jobs[i].out[0]].dtype;
        p->n_params += n;
        p->bytes_read +=
            quantize_stored_bytes(s->jobs[i].packed, s->jobs[i].from.src, n);
        p->bytes_written += n / dtype_block(type) * dtype_bytes(type);
    }
}

static int gguf_plan(struct quantize_plan *p, const struct quantize_source *s,
                     struct qwick_err *e)
{
    const bool mxfp4 = quantize_has_mxfp4(s);
    const char *name = p->o->type ? p->o->type
                       : mxfp4    ? mxfp4_type
                                  : default_type;
    const struct quantize_type *t = quantize_type_find(name);
    if (t->keeps_mxfp4 && !mxfp4)
        return err_set(e, QWICK_ERR_USAGE,
                       "type: \"%s\": only weights that are in MXFP4 already "
                       "can stay so, and %s has none",
                       name, checkpoint_dir(s->ck));
    const struct gguf *g = checkpoint_gguf(s->ck);
    if (p->o->chosen_type)
        *p->o->chosen_type = t->name;
    if (g)
        copy_meta(&p->meta, g);
    else if (quantize_gguf_meta(p, s, e) || quantize_gguf_text(p, s, e))
        return -1;
    gguf_put_u32(&p->meta, "general.quantization_version",
                 QUANTIZATION_VERSION);
    gguf_put_u32(&p->meta, "general.file_type", t->file_type);
    if (quantize_gguf_tensors(p, s, t, e))
        return -1;
    tensors_count(p);
    return 0;
}

static int gguf_begin(struct outdir **out, const char *dst, bool replace,
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

/* Find element i of a job's result in its source, both counted from the job's
 * first element. *n: how many elements from it on are in the order of the
 * result; at most *n as given. */
static size_t find_source(const struct quantize_job *job, size_t i, size_t *n)
{
    const struct quantize_order *o = &job->order;
    if (!o->unit)
        return i;
    size_t unit = i / o->unit, at = i % o->unit, in = unit % o->block;
    size_t from =
        in < o->rows * o->cols ? in % o->rows * o->cols + in / o->rows : in;
    *n = o->unit - at < *n ? o->unit - at : *n;
    return (unit - in + from) * o->unit + at;
}

/* Widen elements [from, from + n) of a job's result to x, and change them. */
static void widen(const struct quantize_work *w, const struct quantize_job *job,
                  size_t from, float *x, size_t n, struct quantize_room *room)
{
    const struct st_tensor *t = job->from.src;
    const struct quantize_change *c = &w->plan->changes[job->out[0]];
    for (size_t i = 0, run; i < n; i += run) {
        run = n - i;
        size_t at = find_source(job, from + i, &run);
        w->k->to_f32[t->dtype](
            x + i, quantize_elements(job, at, run, w->k, room), run);
    }
    for (size_t i = 0; i < n && c->decay; i++)
        x[i] = (float)-exp((double)x[i]); /* as bind_decay of arch_qwen35.c */
    for (size_t i = 0; i < n && (c->plus != 0 || c->times != 1); i++)
        x[i] = (x[i] + c->plus) * c->times;
}

/* Elements [from, from + n) of a job's result, whole blocks, which are in MXFP4
 * already. GGUF has the first half of a group's elements in the low halves of
 * the bytes. */
static int keep_step(const struct quantize_work *w,
                     const struct quantize_job *job, size_t from,
                     unsigned char *out, size_t n, struct quantize_room *room,
                     struct qwick_err *e)
{
    struct mxfp4 b;
    unsigned char *numbers = room->gathered, *scales = numbers + STEP / 2;
    for (size_t i = 0, run; i < n; i += run) {
        run = n - i;
        size_t at = find_source(job, from + i, &run);
        if (quantize_mxfp4(w, job, at, run, numbers + i / 2, scales + i / 32,
                           e))
            return -1;
    }
    for (size_t i = 0; i < n / 32; i++, out += sizeof b, numbers += 16) {
        b.e = scales[i];
        for (size_t j = 0; j < 16; j++) {
            int low = numbers[j / 2] >> j % 2 * 4 & 15;
            int high = numbers[8 + j / 2] >> j % 2 * 4 & 15;
            b.q[j] = (unsigned char)(low | high << 4);
        }
        memcpy(out, &b, sizeof b);
    }
    return 0;
}

/* The scales and mins of a superblock's groups, as the file has them. */
static const struct block_limits {
    enum dtype type;
    int low, high; /* of scales */
    int m;         /* the largest min; 0: there are none */
} block_limits[] = {{DT_Q2_K, 0, 15, 15},
                    {DT_Q3_K, -32, 31, 0},
                    {DT_Q4_K, 0, 63, 63},
                    {DT_Q5_K, 0, 63, 63},
                    {DT_Q6_K, -128, 127, 0}};

static const struct block_limits *find_limits(enum dtype type)
{
    for (size_t i = 0; i < sizeof block_limits / sizeof *block_limits; i++)
        if (block_limits[i].type == type)
            return &block_limits[i];
    return NULL;
}

/* What a calibrated row's block needs. */
struct block_format {
    enum dtype type;
    const struct kernels *k;
    const struct block_limits *limits; /* NULL: no numbers of groups */
};

/* The scales of a block of a calibrated row. */
static int fit_block(void *ctx, size_t row, size_t col, const float *x,
                     const float *h, float *step, float *base)
{
    struct quantize_rows *r = ctx;
    const struct block_format *f = r->format;
    const size_t block = dtype_block(f->type);
    const size_t group = (size_t)blocks_codes(f->type)->group;
    struct block_scales *s = &r->blocks[(row * r->cols + col) / block];
    size_t bad;
    if (blocks_scales(f->type, f->k, s, x, h, block, &bad))
        return -1;
    for (size_t i = 0; i < block; i++) {
        step[i] = s->d * (float)s->sc[i / group];
        base[i] = -(s->dmin * (float)s->m[i / group]);
    }
    return 0;
}

static void read_block(void *ctx, size_t row, size_t col, float *step,
                       float *base)
{
    const struct quantize_rows *r = ctx;
    const struct block_format *f = r->format;
    const size_t block = dtype_block(f->type);
    const size_t group = (size_t)blocks_codes(f->type)->group;
    const struct block_scales *s = &r->blocks[(row * r->cols + col) / block];
    for (size_t i = 0; i < block; i++) {
        step[i] = s->d * (float)s->sc[i / group];
        base[i] = -(s->dmin * (float)s->m[i / group]);
    }
}

/* The whole number from low to high that is nearest to v / unit. */
static int nearest_number(float v, float unit, int low, int high)
{
    float n = unit != 0 ? rintf(v / unit) : 0;
    return n > (float)low ? n < (float)high ? (int)n : high : low;
}

/* d and dmin stay as they are. */
static void write_block(void *ctx, size_t row, size_t col, float *step,
                        float *base, bool keep)
{
    struct quantize_rows *r = ctx;
    const struct block_format *f = r->format;
    const size_t block = dtype_block(f->type), at = row * r->cols + col;
    const size_t g = at % block / (size_t)blocks_codes(f->type)->group;
    struct block_scales *s = &r->blocks[at / block];
    int sc = nearest_number(*step, s->d, f->limits->low, f->limits->high);
    int m = nearest_number(-*base, s->dmin, 0, f->limits->m);
    *step = s->d * (float)sc;
    *base = -(s->dmin * (float)m);
    if (keep) {
        s->sc[g] = sc;
        s->m[g] = m;
    }
}

/* The formats of --bpw's types, and of those that they fall back to. */
static const struct {
    enum dtype type;
    const struct format *format;
    int bits;
} stored[] = {{DT_Q2_K, &format_q2_k, 2}, {DT_Q3_K, &format_q3_k, 3},
              {DT_Q4_K, &format_q4_k, 4}, {DT_Q5_K, &format_q5_k, 5},
              {DT_Q6_K, &format_q6_k, 6}, {DT_Q8_0, &format_q8_0, 8},
              {DT_Q4_0, &format_q4_0, 4}, {DT_Q5_0, &format_q5_0, 5},
              {DT_Q5_1, &format_q5_1, 5}, {DT_F16, &format_f16, 0}};

static void shape_matrix(const struct quantize_plan *p, struct matrix *m,
                         const struct quantize_width *width, enum dtype type)
{
    size_t i = 0;
    (void)p;
    (void)type;
    m->dtype = quantize_type_fit(width->type, m->cols);
    while (stored[i].type != m->dtype)
        i++;
    m->format = stored[i].format;
    m->bits = stored[i].bits;
    m->group = 32; /* of activations */
}

static int round_rows(const struct quantize_plan *p, const struct kernels *k,
                      struct quantize_rows *r, const struct matrix *m,
                      size_t rows, unsigned char *const out[FORMAT_ARRAYS])
{
    const struct block_codes *c = blocks_codes(m->dtype);
    const struct block_limits *limits = find_limits(m->dtype);
    const struct block_format f = {m->dtype, k, limits};
    size_t n = rows * m->cols, bad;
    if (!c)
        return round_step(k, m->dtype, out[0], r->w, n, &bad);
    const struct grid g = {c->low, c->high, c->table};
    const struct feedback form = {.g = &g,
                                  .unit = dtype_block(m->dtype),
                                  .group = (size_t)c->group,
                                  .no_bases = limits && !limits->m,
                                  .fit = fit_block,
                                  .read = read_block,
                                  .write = limits ? write_block : NULL};
    r->format = &f;
    if (quantize_round_rows(p, k, r, &form, m->cols, rows))
        return -1;
    blocks_pack(m->dtype, k, out[0], r->blocks, (int8_t *)r->codes, n);
    return 0;
}

/* Put the weights of a row's errors into the order of the file. Blocks of
 * moments then do not apply. */
static void order_weights(const struct quantize_job *job,
                          struct quantize_rows *r, size_t cols)
{
    size_t one = 1;
    if (!job->order.unit || job->order.unit % cols == 0)
        return;
    for (size_t i = 0; i < cols && r->moments; i++)
        r->weights[i] = r->moments->diagonal[find_source(job, i, &one) % cols];
    r->moments = NULL;
}

/* Write whole rows of a calibrated job. */
static int calibrated_piece(const struct quantize_work *w,
                            const struct quantize_job *job, size_t begin,
                            size_t n, struct quantize_room *room,
                            struct qwick_err *e)
{
    struct matrix m = {.dtype = w->shard->out[job->out[0]].dtype,
                       .cols = quantize_row_cols(job)};
    struct quantize_rows *r = room->rows;
    size_t block = dtype_block(m.dtype), bytes = dtype_bytes(m.dtype);
    unsigned char *const out[] = {room->q, NULL, NULL};
    size_t one = 1;
    for (size_t done = 0, rows; done < n; done += rows * m.cols) {
        size_t at = begin + done;
        rows = quantize_next_rows(w->plan, job, find_source(job, at, &one),
                                  n - done, r);
        order_weights(job, r, m.cols);
        for (size_t i = 0; i < rows; i++)
            widen(w, job, at + i * m.cols, r->w + i * m.cols, m.cols, room);
        if (round_rows(w->plan, w->k, r, &m, rows, out)) {
            size_t bad = at + quantize_find_bad(r, rows * m.cols);
            return quantize_bad_value(
                w, job->from.src,
                quantize_place(&job->from, find_source(job, bad, &one)), e);
        }
        if (st_writer_at(w->writer, job->out[0],
                         (job->at + at) / block * bytes, room->q,
                         rows * m.cols / block * bytes, e))
            return -1;
    }
    return 0;
}

static int write_piece(const struct quantize_work *w,
                       const struct quantize_job *job, size_t begin, size_t n,
                       struct quantize_room *room, struct qwick_err *e)
{
    const struct st_tensor *t = job->from.src;
    const enum dtype type = w->shard->out[job->out[0]].dtype;
    size_t block = dtype_block(type), bytes = dtype_bytes(type);
    float *x = (float *)(void *)room->scales;
    size_t bad, one = 1;
    if (job->calibrated)
        return calibrated_piece(w, job, begin, n, room, e);
    if (job->same) {
        const unsigned char *data =
            job->packed ? job->packed->data[0] : t->data;
        size_t at = begin / block * bytes;
        return st_writer_at(w->writer, job->out[0], at, data + at,
                            n / block * bytes, e);
    }
    for (size_t done = 0, step; done < n; done += step) {
        step = n - done < STEP ? n - done : STEP;
        size_t from = begin + done;
        if (type == DT_MXFP4) {
            if (keep_step(w, job, from, room->q, step, room, e))
                return -1;
        } else {
            widen(w, job, from, x, step, room);
        }
        if (type != DT_MXFP4 &&
            round_step(w->k, type, room->q, x, step, &bad)) {
            bad = find_source(job, from + bad, &one);
            return quantize_bad_value(w, t, quantize_place(&job->from, bad), e);
        }
        if (st_writer_at(w->writer, job->out[0],
                         (job->at + from) / block * bytes, room->q,
                         step / block * bytes, e))
            return -1;
    }
    return 0;
}

static const struct quantize_width *find_widths(const struct quantize_plan *p,
                                                size_t *n)
{
    static const struct quantize_width all[] = {
        {2, 0, DT_Q2_K, "Q2_K"},   {3, 0, DT_Q3_K, "Q3_K_M"},
        {4, 0, DT_Q4_K, "Q4_K_M"}, {5, 0, DT_Q5_K, "Q5_K_M"},
        {6, 0, DT_Q6_K, "Q6_K"},   {8, 0, DT_Q8_0, "Q8_0"}};
    (void)p;
    *n = sizeof all / sizeof *all;
    return all;
}

const struct quantize_form quantize_gguf = {.binds = true,
                                            .wide = DT_F32,
                                            .check = gguf_check,
                                            .plan = gguf_plan,
                                            .begin = gguf_begin,
                                            .open = open_file,
                                            .piece = write_piece,
                                            .widths = find_widths,
                                            .shape = shape_matrix,
                                            .round = round_rows};
