/* Adapters that are merged into a source's weights before these are rounded. */
#include "convert/quantize.h"

#include <stdlib.h>
#include <string.h>

#include "file/checkpoint.h"
#include "model/lora.h"

/* Whether a tensor has the rows of a matrix, from row *row on. */
static bool holds(const struct st_tensor *t, const struct matrix *m,
                  size_t *row)
{
    size_t bytes = m->format->row_bytes(m, 0);
    if (!m->data[0] || m->step != 1 || m->stored || m->data[0] < t->data ||
        m->data[0] >= t->data + t->n_bytes)
        return false;
    *row = (size_t)(m->data[0] - t->data) / bytes;
    return true;
}

/* Find the tensor of an adapted matrix. */
static int place_merge(struct quantize_source *s, const struct lora_place *p,
                       struct qwick_err *e)
{
    size_t row = 0, i = 0, n = st_count(s->stored);
    while (i < n && !holds(st_at(s->stored, i), p->w, &row))
        i++;
    /* a part of a transposed weight has no place of its own */
    bool part = s->adapted.config.quant.transposed.form && row;
    if (i == n || part)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: layer %zu: an adapter cannot be merged into weights "
                       "in this form: start from the original",
                       checkpoint_dir(s->ck), p->ref.layer);
    if (p->w->cols > QUANTIZE_COLS)
        return quantize_err(checkpoint_dir(s->ck), st_at(s->stored, i),
                            "rows are too long", e);
    struct quantize_merge *m = &s->merges[i];
    m->parts[m->n++] = (struct quantize_merged){p->of, row, p->w->rows};
    m->cols = p->w->cols;
    return 0;
}

int quantize_open_merges(struct quantize_source *s, const struct lora_spec *specs,
                         size_t n, struct qwick_err *e)
{
    struct model *m = &s->adapted;
    s->merges = calloc(st_count(s->stored) + 1, sizeof *s->merges);
    if (!s->merges)
        return err_oom(e, st_count(s->stored) * sizeof *s->merges);
    m->k = kernels_best();
    m->exact = m->sizes_only = true;
    if (config_load(&m->config, s->ck, e) ||
        model_open(m, s->ck, s->stored, e) || loras_open(m, specs, n, e))
        return -1;
    for (size_t i = 0; i < m->loras.n_places; i++)
        if (place_merge(s, &m->loras.places[i], e))
            return -1;
    return 0;
}

void quantize_close_merges(struct quantize_source *s)
{
    if (s->merges)
        model_close(&s->adapted);
    free(s->merges);
    s->merges = NULL;
}

void quantize_merge_row(const struct quantize_merge *m, float *w, size_t row,
                        const struct kernels *k, float *tmp)
{
    for (size_t i = 0; i < m->n; i++) {
        const struct quantize_merged *p = &m->parts[i];
        if (row >= p->row && row < p->row + p->rows && p->of->a.rows)
            lora_merge(k, p->of, w, row - p->row, 1, tmp);
    }
}
