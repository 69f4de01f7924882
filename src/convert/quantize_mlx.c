/* A quantized checkpoint in MLX's affine format. */
#include "convert/quantize.h"

#include "file/checkpoint.h"
#include "file/map.h"
#include "model/affine.h"
#include "qwick_tools.h"

/* The files of a checkpoint that are copied, besides config.json and weights.
 * large: the limit for files of tokenizers applies. */
static const struct {
    const char *name;
    bool large;
} companions[] = {
    {"generation_config.json", false},
    {"tokenizer.json", true},
    {"tekken.json", true},
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

static int check_options(const struct qwick_quantize_options *o,
                         struct qwick_err *e)
{
    size_t group = o->group > 0 ? (size_t)o->group : 0;
    if (o->bits && !affine_valid(o->bits, 32))
        return err_set(e, QWICK_ERR_USAGE,
                       "bits: must be 2, 3, 4, 5, 6 or 8, is %d", o->bits);
    if (o->head_bits && !affine_valid(o->head_bits, 32))
        return err_set(e, QWICK_ERR_USAGE,
                       "head bits: must be 2, 3, 4, 5, 6 or 8, is %d",
                       o->head_bits);
    if (o->group && !affine_valid(4, group))
        return err_set(e, QWICK_ERR_USAGE,
                       "group: must be 32, 64 or 128, is %d", o->group);
    if (o->scales < QWICK_SCALES_MLX || o->scales > QWICK_SCALES_FEEDBACK)
        return err_set(e, QWICK_ERR_USAGE, "scales: no such choice: %d",
                       (int)o->scales);
    if (o->type)
        return err_set(e, QWICK_ERR_USAGE,
                       "type: \"%s\": only GGUF files have types, here bits "
                       "count",
                       o->type);
    return 0;
}

static int plan_mlx(struct quantize_plan *p, const struct quantize_source *s,
                    struct qwick_err *e)
{
    return quantize_modules(p, s, e) ||
                   quantize_shards(p, s->set, s->m.config.tied_head, e)
               ? -1
               : 0;
}

/* ---- weights --------------------------------------------------------------
 */

static int open_shard(struct st_writer **out, const char *path,
                      const struct quantize_plan *p,
                      const struct quantize_shard *s, struct qwick_err *e)
{
    (void)p;
    return st_writer_open_large(out, path, "mlx", s->out, s->n_out, e);
}

/* Write the room's codes, scales and biases; `bytes` of each of these two. */
static int write_groups(const struct quantize_work *w,
                        const struct quantize_job *job, size_t begin, size_t n,
                        size_t bytes, const struct quantize_room *room,
                        struct qwick_err *e)
{
    const size_t group = (size_t)job->group;
    size_t to = job->at + begin;
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

static struct affine_format format_of(const struct quantize_work *w,
                                      const struct quantize_job *job)
{
    bool mlx = w->plan->o->scales == QWICK_SCALES_MLX && !w->plan->calibration;
    return (struct affine_format){.bits = job->bits,
                                  .group = (size_t)job->group,
                                  .type = job->from.src->dtype,
                                  .search = mlx ? AFFINE_MLX : AFFINE_LSQ,
                                  .k = w->k};
}

/* The scale and the bias of a group of a calibrated row. */
static int fit_group(void *ctx, size_t row, size_t col, const float *x,
                     const float *h, float *step, float *base)
{
    struct quantize_rows *r = ctx;
    const struct affine_format *f = r->format;
    size_t at = (row * r->cols + col) / f->group, bad;
    if (affine_scales(f, &r->scales[at], &r->biases[at], x, h, f->group, &bad))
        return -1;
    for (size_t i = 0; i < f->group; i++) {
        step[i] = r->scales[at];
        base[i] = r->biases[at];
    }
    return 0;
}

static void read_group(void *ctx, size_t row, size_t col, float *step,
                       float *base)
{
    const struct quantize_rows *r = ctx;
    const struct affine_format *f = r->format;
    size_t at = (row * r->cols + col) / f->group;
    for (size_t i = 0; i < f->group; i++) {
        step[i] = r->scales[at];
        base[i] = r->biases[at];
    }
}

static void write_group(void *ctx, size_t row, size_t col, float *step,
                        float *base, bool keep)
{
    struct quantize_rows *r = ctx;
    const struct affine_format *f = r->format;
    size_t at = (row * r->cols + col) / f->group;
    unsigned char stored[2 * sizeof(float)];
    float v[2] = {*step, *base};
    f->k->from_f32[f->type](stored, v, 2);
    f->k->to_f32[f->type](v, stored, 2);
    *step = v[0];
    *base = v[1];
    if (keep) {
        r->scales[at] = v[0];
        r->biases[at] = v[1];
    }
}

static void shape_matrix(const struct quantize_plan *p, struct matrix *m,
                         const struct quantize_width *width, enum dtype type)
{
    m->format = &format_affine;
    m->dtype = m->bias_dtype = type;
    m->codes = AFFINE_UNSIGNED;
    m->bits = width->bits;
    m->group = (size_t)quantize_group(p, width, m->cols);
}

static int round_rows(const struct quantize_plan *p, const struct kernels *k,
                      struct quantize_rows *r, const struct matrix *m,
                      size_t rows, unsigned char *const out[FORMAT_ARRAYS])
{
    const struct affine_format f = {.bits = m->bits,
                                    .group = m->group,
                                    .type = m->dtype,
                                    .search = AFFINE_LSQ,
                                    .k = k};
    const struct grid g = {.high = (1 << f.bits) - 1};
    const struct feedback form = {.g = &g,
                                  .unit = f.group,
                                  .group = f.group,
                                  .fit = fit_group,
                                  .read = read_group,
                                  .write = write_group};
    size_t n = rows * m->cols;
    r->format = &f;
    if (quantize_round_rows(p, k, r, &form, m->cols, rows))
        return -1;
    affine_pack(out[0], r->codes, n, f.bits);
    k->from_f32[f.type](out[1], r->scales, n / f.group);
    k->from_f32[f.type](out[2], r->biases, n / f.group);
    return 0;
}

/* As round_piece, for whole rows of a calibrated job. */
static int calibrated_piece(const struct quantize_work *w,
                            const struct quantize_job *job, size_t begin,
                            size_t n, struct quantize_room *room,
                            struct qwick_err *e)
{
    const struct quantize_width width = {.bits = job->bits, .group = job->group};
    struct matrix m = {.cols = quantize_row_cols(job)};
    struct quantize_rows *r = room->rows;
    shape_matrix(w->plan, &m, &width, job->from.src->dtype);
    size_t bytes = dtype_bytes(m.dtype);
    unsigned char *out[] = {room->q, room->scales, room->biases};
    for (size_t done = 0, rows; done < n; done += rows * m.cols) {
        size_t at = begin + done;
        rows = quantize_next_rows(w->plan, job, at, n - done, r);
        size_t each = rows * m.cols;
        w->k->to_f32[m.dtype](
            r->w, quantize_elements(job, at, each, w->k, room), each);
        if (round_rows(w->plan, w->k, r, &m, rows, out))
            return quantize_bad_value(
                w, job->from.src,
                quantize_place(&job->from, at + quantize_find_bad(r, each)), e);
        for (size_t i = 0; i < 3; i++)
            out[i] += rows * format_affine.row_bytes(&m, i);
    }
    return write_groups(w, job, begin, n, bytes, room, e);
}

static int round_piece(const struct quantize_work *w,
                       const struct quantize_job *job, size_t begin, size_t n,
                       struct quantize_room *room, struct qwick_err *e)
{
    const struct st_tensor *t = job->from.src;
    const size_t bytes = dtype_bytes(t->dtype);
    const struct affine_format f = format_of(w, job);
    size_t bad;
    if (job->calibrated)
        return calibrated_piece(w, job, begin, n, room, e);
    if (affine_quantize(&f, room->q, room->scales, room->biases,
                        quantize_elements(job, begin, n, w->k, room), n, &bad))
        return quantize_bad_value(w, t, quantize_place(&job->from, begin + bad),
                                  e);
    return write_groups(w, job, begin, n, bytes, room, e);
}

static int code_piece(const struct quantize_work *w,
                      const struct quantize_job *job, size_t begin, size_t n,
                      struct quantize_room *room, struct qwick_err *e)
{
    const size_t group = (size_t)job->group;
    const enum dtype type = w->shard->out[job->out[1]].dtype;
    return quantize_codes(w, job, begin, n, group, type, room, e) ||
                   write_groups(w, job, begin, n, dtype_bytes(type), room, e)
               ? -1
               : 0;
}

static int keep_piece(const struct quantize_work *w,
                      const struct quantize_job *job, size_t begin, size_t n,
                      struct quantize_room *room, struct qwick_err *e)
{
    size_t to = job->at + begin;
    return quantize_mxfp4(w, job, begin, n, room->q, room->scales, e) ||
                   st_writer_at(w->writer, job->out[0], to / 2, room->q, n / 2,
                                e) ||
                   st_writer_at(w->writer, job->out[1], to / 32, room->scales,
                                n / 32, e)
               ? -1
               : 0;
}

static int write_piece(const struct quantize_work *w,
                       const struct quantize_job *job, size_t begin, size_t n,
                       struct quantize_room *room, struct qwick_err *e)
{
    const size_t bytes = dtype_bytes(job->from.src->dtype);
    return job->kept    ? keep_piece(w, job, begin, n, room, e)
           : job->codes ? code_piece(w, job, begin, n, room, e)
           : job->bits
               ? round_piece(w, job, begin, n, room, e)
               : st_writer_at(w->writer, job->out[0], (job->at + begin) * bytes,
                              quantize_elements(job, begin, n, w->k, room),
                              n * bytes, e);
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
static int write_json(const struct quantize_plan *p,
                      const struct quantize_source *s, struct outdir *out,
                      struct qwick_err *e)
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
        rc = quantize_config(&b, s, p)
                 ? err_oom(e, b.len)
                 : outdir_write(out, "config.json", b.data, b.len, e);
    buf_free(&b);
    return rc;
}

static int finish(const struct quantize_plan *p,
                  const struct quantize_source *s, struct outdir *out,
                  struct qwick_err *e)
{
    return copy_companions(s->ck, out, e) || write_json(p, s, out, e) ? -1 : 0;
}

/* Of the widths by bits and group, those that lose least for their bytes. */
static const struct quantize_width *find_widths(const struct quantize_plan *p,
                                                size_t *n)
{
    static const struct quantize_width
        fixed[] = {{.bits = 2}, {.bits = 3}, {.bits = 4},
                   {.bits = 5}, {.bits = 6}, {.bits = 8}},
        all[] = {{2, 128, 0, NULL}, {2, 64, 0, NULL},  {3, 128, 0, NULL},
                 {3, 64, 0, NULL},  {4, 128, 0, NULL}, {4, 64, 0, NULL},
                 {5, 128, 0, NULL}, {5, 64, 0, NULL},  {6, 128, 0, NULL},
                 {6, 64, 0, NULL},  {8, 64, 0, NULL}};
    *n = p->any_group ? sizeof all / sizeof *all : sizeof fixed / sizeof *fixed;
    return p->any_group ? all : fixed;
}

const struct quantize_form quantize_mlx = {.wide = DT_BF16,
                                           .check = check_options,
                                           .plan = plan_mlx,
                                           .begin = outdir_open,
                                           .open = open_shard,
                                           .piece = write_piece,
                                           .finish = finish,
                                           .widths = find_widths,
                                           .shape = shape_matrix,
                                           .round = round_rows};
