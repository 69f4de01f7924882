/* The items of a budget: which matrices of the result there are, and which ones
 * of the running model they are made of. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "convert/widths.h"
#include "engine/core/engine.h"
#include "file/checkpoint.h"

/* The weight whose width a weight shares: experts have one for gate and up. */
static enum weight_id role_of(enum weight_id id)
{
    switch (id) {
    case WEIGHT_EXPERT_GATE:
    case WEIGHT_EXPERT_UP:
    case WEIGHT_EXPERTS_GATE:
    case WEIGHT_EXPERTS_UP:
        return WEIGHT_EXPERTS_GATE_UP;
    case WEIGHT_EXPERT_DOWN:
        return WEIGHT_EXPERTS_DOWN;
    default:
        return id;
    }
}

/* Layers, the experts of layers, and weights of the model. */
static size_t group_of(const struct widths *w, const struct weight_ref *r)
{
    size_t n_layers = w->eng->model.config.n_layers;
    if (r->id < WEIGHT_ATTN_NORM)
        return 2 * n_layers + r->id;
    bool expert =
        r->id == WEIGHT_EXPERTS_GATE_UP || r->id == WEIGHT_EXPERTS_DOWN;
    return r->layer + (expert ? n_layers : 0);
}

/* The item of a weight; makes it if there is none. SIZE_MAX: memory is short. */
static size_t find_item(struct widths *w, struct weight_ref ref)
{
    ref.id = role_of(ref.id);
    for (size_t i = 0; i < w->n; i++)
        if (w->items[i].ref.id == ref.id && w->items[i].ref.layer == ref.layer)
            return i;
    if (ARRAY_RESERVE(w->items, w->cap, w->n + 1, NULL))
        return SIZE_MAX;
    w->items[w->n] =
        (struct widths_item){.ref = ref, .group = group_of(w, &ref)};
    return w->n++;
}

/* ---- what is asked for --------------------------------------------------- */

static size_t tensor_index(const struct widths *w, const char *name)
{
    const struct st_tensor *t = st_find(w->eng->weights, name);
    return t ? (size_t)(t - st_at(w->eng->weights, 0)) : SIZE_MAX;
}

/* As quantize_plan.find_width, of the probe: keep what is asked for. */
static const struct quantize_width *keep_asked(void *ctx,
                                               const struct quantize_asked *a)
{
    struct widths *w = ctx;
    const struct quantize_width *widest = &w->widths[w->n_widths - 1];
    const struct weights *weights = &w->eng->model.weights;
    size_t t = tensor_index(w, a->t->name), item = SIZE_MAX;
    char *name = strdup(a->name);
    if (t != SIZE_MAX && weights->used[t] != WEIGHT_UNUSED)
        item = find_item(w, weights->refs[t]);
    else /* of its own */
        item = find_item(w, (struct weight_ref){.id = N_WEIGHTS,
                                                .layer = w->n_entries});
    if (!name || item == SIZE_MAX ||
        ARRAY_RESERVE(w->entries, w->cap_entries, w->n_entries + 1, NULL)) {
        free(name);
        w->failed = true;
        return widest;
    }
    w->entries[w->n_entries++] = (struct widths_entry){name, item, a->n};
    w->items[item].type = a->t->dtype;
    w->items[item].cols = a->cols;
    w->items[item].n_asked += a->n;
    return widest;
}

static int plan_probe(struct widths *w, struct qwick_err *e)
{
    const struct quantize_form *form = w->plan->form;
    w->o.bits = w->widths[w->n_widths - 1].bits;
    w->o.type = w->widths[w->n_widths - 1].name;
    w->o.note = NULL; /* the plan of the result says the same */
    w->o.warn = NULL;
    w->o.chosen_type = NULL;
    w->probe = *w->plan;
    w->probe.o = &w->o;
    w->probe.find_width = keep_asked;
    w->probe.find_width_ctx = w;
    if (form->plan(&w->probe, w->probe.s, e))
        return -1;
    return w->failed ? err_oom(e, w->n_entries * sizeof *w->entries) : 0;
}

/* ---- matrices of the engine ---------------------------------------------- */

static int by_data(const void *a, const void *b)
{
    const struct st_tensor *x = *(const struct st_tensor *const *)a,
                           *y = *(const struct st_tensor *const *)b;
    return (x->data > y->data) - (x->data < y->data);
}

/* The tensor of an array of n that has a byte; NULL: none. */
static const struct st_tensor *tensor_at(const struct st_tensor *const *v,
                                         size_t n, const unsigned char *data)
{
    size_t low = 0;
    while (n - low > 1) {
        size_t middle = low + (n - low) / 2;
        if (v[middle]->data <= data)
            low = middle;
        else
            n = middle;
    }
    return n && data >= v[low]->data && data < v[low]->data + v[low]->n_bytes
               ? v[low]
               : NULL;
}

static int add_matrix(struct widths_item *item, size_t index,
                      const struct matrix *m, struct qwick_err *e)
{
    size_t n = item->n_matrices;
    if ((n & (n - 1)) == 0) { /* a power of two, or none */
        size_t *more =
            realloc(item->matrices, (n ? 2 * n : 1) * sizeof *more);
        if (!more)
            return err_oom(e, 2 * n * sizeof *more);
        item->matrices = more;
    }
    item->matrices[item->n_matrices++] = index;
    item->n += m->rows * m->cols;
    return 0;
}

/* Tell items which tensors and matrices are theirs. */
static int find_matrices(struct widths *w, struct qwick_err *e)
{
    const struct weights *weights = &w->eng->model.weights;
    size_t n = st_count(w->eng->weights);
    const struct st_tensor **sorted = calloc(n + 1, sizeof *sorted);
    w->item_of = calloc(n + 1, sizeof *w->item_of);
    int rc = sorted && w->item_of ? 0 : err_oom(e, n * sizeof *sorted);
    for (size_t i = 0; i < n && !rc; i++) {
        enum weight_id id = role_of(weights->refs[i].id);
        sorted[i] = st_at(w->eng->weights, i);
        w->item_of[i] = SIZE_MAX;
        for (size_t k = 0; k < w->n && weights->used[i] != WEIGHT_UNUSED; k++)
            if (w->items[k].ref.id == id &&
                w->items[k].ref.layer == weights->refs[i].layer)
                w->item_of[i] = k;
    }
    if (!rc)
        qsort(sorted, n, sizeof *sorted, by_data);
    for (size_t i = 0; i < weights->n_matrices && !rc; i++) {
        const struct matrix *m = weights->matrices[i];
        const struct st_tensor *t = tensor_at(sorted, n, m->data[0]);
        size_t item =
            t ? w->item_of[t - st_at(w->eng->weights, 0)] : SIZE_MAX;
        if (item != SIZE_MAX && m->rows && m->cols == w->items[item].cols)
            rc = add_matrix(&w->items[item], i, m, e);
    }
    free(sorted);
    return rc;
}

/* Items are measured only if all of their weights are known. */
static void leave_others(struct widths *w)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->items[i].n != w->items[i].n_asked)
            w->items[i].n_matrices = 0;
}

int widths_find_items(struct widths *w, struct qwick_err *e)
{
    int bits, group;
    if (quantize_find_codes(w->plan->s, &bits, &group))
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: has integer codes already: a budget needs the "
                       "original",
                       checkpoint_dir(w->plan->s->ck));
    if (plan_probe(w, e) || find_matrices(w, e))
        return -1;
    leave_others(w);
    return 0;
}
