#include "convert/widths.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "engine/core/engine.h"

/* ---- the budget ---------------------------------------------------------- */

/* Bytes of n weights of an item's in a width. */
static size_t bytes_at(const struct widths *w, const struct widths_item *item,
                       size_t n, size_t b)
{
    const struct quantize_form *form = w->plan->form;
    struct matrix m = {.rows = n / item->cols, .cols = item->cols};
    form->shape(w->plan, &m, &w->widths[b], item->type);
    return matrix_bytes(&m);
}

static void set_bytes(struct widths *w)
{
    for (size_t i = 0; i < w->n; i++)
        for (size_t b = 0; b < w->n_widths; b++)
            w->items[i].choices[b].bytes =
                bytes_at(w, &w->items[i], w->items[i].n_asked, b);
}

/* Bytes of the probe's matrices, and their weights: all but vectors. */
static double matrices_of(const struct quantize_plan *p, double *n)
{
    double bytes = (double)p->bytes_written;
    *n = (double)p->n_params;
    for (size_t i = 0; i < p->n_shards; i++)
        for (size_t k = 0; k < p->shards[i].n_out; k++) {
            const struct st_out_tensor *t = &p->shards[i].out[k];
            if (t->rank > 1)
                continue;
            size_t all = t->rank ? t->shape[0] : 1;
            bytes -= (double)(all * dtype_bytes(t->dtype));
            *n -= (double)all;
        }
    return bytes;
}

/* The bytes that the items may take. What is not to be chosen is in the probe as
 * it will be. */
static int find_limit(const struct widths *w, size_t *limit,
                      struct qwick_err *e)
{
    const struct qwick_quantize_options *o = w->plan->o;
    double items = 0, n, matrices = matrices_of(&w->probe, &n);
    for (size_t i = 0; i < w->n; i++)
        items += (double)w->items[i].choices[w->n_widths - 1].bytes;
    double bytes = o->target_bytes
                       ? (double)o->target_bytes -
                             ((double)w->probe.bytes_written - items)
                       : o->bpw / 8 * n - (matrices - items);
    if (bytes < 1)
        return err_usage(e, "budget: other tensors need more than it has");
    *limit = bytes < (double)w->probe.bytes_written ? (size_t)bytes
                                                    : w->probe.bytes_written;
    return 0;
}

/* The bytes of all items in a width. */
static size_t bytes_of_all(const struct widths *w, size_t b)
{
    size_t n = 0;
    for (size_t i = 0; i < w->n; i++)
        n += w->items[i].choices[b].bytes;
    return n;
}

/* Choose the base and the widest width that fits for all. */
static int choose_base(struct widths *w, size_t limit, struct qwick_err *e)
{
    size_t least = bytes_of_all(w, 0);
    if (least > limit)
        return err_usage(e,
                         "budget: the matrices need at least %zu bytes, and it "
                         "leaves %zu for them",
                         least, limit);
    while (w->uniform + 1 < w->n_widths &&
           bytes_of_all(w, w->uniform + 1) <= limit)
        w->uniform++;
    struct widths_range *r = &w->range;
    r->base = w->uniform;
    if (r->base + 1 < w->n_widths && bytes_of_all(w, r->base + 1) - limit <
                                         limit - bytes_of_all(w, r->base))
        r->base++;
    size_t span = w->n_widths / 5; /* about a bit */
    r->low = r->base > span ? r->base - span : 0;
    r->high = r->base + span < w->n_widths ? r->base + span : w->n_widths - 1;
    return 0;
}

/* ---- sets ---------------------------------------------------------------- */

/* What the sets save with one width more (up), or cost with one less. */
struct sets {
    struct widths_set *v;
    size_t n;
};

/* Measurements besides those of sets, at most. */
enum { N_OTHERS = 8 };

static size_t count_role(const struct widths *w, enum weight_id id)
{
    size_t n = 0;
    for (size_t i = 0; i < w->n; i++)
        n += w->items[i].n_matrices && w->items[i].ref.id == id;
    return n;
}

static bool has_kind(const struct sets *s, enum widths_kind kind, size_t key)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i].kind == kind && s->v[i].key == key)
            return true;
    return false;
}

static void add_set(struct sets *s, enum widths_kind kind, size_t key)
{
    if (!has_kind(s, kind, key))
        s->v[s->n++] = (struct widths_set){kind, key, 0};
}

static int find_sets(const struct widths *w, struct sets *s,
                     struct qwick_err *e)
{
    s->v = calloc(2 * w->n + 1, sizeof *s->v);
    if (!s->v)
        return err_oom(e, w->n * sizeof *s->v);
    for (size_t i = 0; i < w->n; i++) {
        if (!w->items[i].n_matrices)
            continue;
        add_set(s, SET_GROUP, w->items[i].group);
        if (count_role(w, w->items[i].ref.id) > 1)
            add_set(s, SET_ROLE, w->items[i].ref.id);
    }
    return 0;
}

/* ---- measurements -------------------------------------------------------- */

struct search {
    struct widths *w;
    struct widths_measure *q;
    struct sets up, down;
    unsigned char *now; /* [w->n] */
    size_t n_done, n_passes;
};

static int measure(struct search *s, double *kl, struct qwick_err *e)
{
    const struct qwick_quantize_options *o = s->w->plan->o;
    if (o->measuring)
        o->measuring(o->progress_ctx, s->n_done, s->n_passes);
    s->n_done++;
    return widths_measure_kl(s->q, s->now, kl, e);
}

/* Measure all sets with another width, `to`. */
static int measure_sets(struct search *s, struct sets *sets, size_t to,
                        struct qwick_err *e)
{
    struct widths *w = s->w;
    for (size_t k = 0; k < sets->n; k++) {
        struct widths_set *set = &sets->v[k];
        double kl;
        memset(s->now, (int)w->range.base, w->n);
        for (size_t i = 0; i < w->n; i++)
            if (widths_in(set, &w->items[i]))
                s->now[i] = (unsigned char)to;
        if (measure(s, &kl, e))
            return -1;
        set->total = to > w->range.base ? w->base_kl - kl : kl - w->base_kl;
    }
    return 0;
}

/* Fit what each item saves and costs, and set the losses of its widths. */
static int fit_items(struct search *s, struct qwick_err *e)
{
    struct widths *w = s->w;
    const struct widths_range *r = &w->range;
    double *x = calloc(w->n + 1, sizeof *x);
    if (!x)
        return err_oom(e, w->n * sizeof *x);
    for (size_t i = 0; i < w->n; i++)
        x[i] = w->items[i].share[r->base] - w->items[i].share[r->high];
    widths_fit(x, w->items, w->n, s->up.v, s->up.n);
    for (size_t i = 0; i < w->n; i++) {
        w->items[i].up = x[i];
        x[i] = w->items[i].share[r->low] - w->items[i].share[r->base];
    }
    widths_fit(x, w->items, w->n, s->down.v, s->down.n);
    for (size_t i = 0; i < w->n; i++) {
        w->items[i].down = x[i];
        widths_set_losses(&w->items[i], w->n_widths, r);
    }
    free(x);
    return 0;
}

/* ---- choices ------------------------------------------------------------- */

/* Choose the widths from low to high with the least loss within the limit. */
static int spend(const struct widths *w, unsigned char *chosen, size_t limit,
                 size_t low, size_t high, struct qwick_err *e)
{
    struct budget_choice *all = calloc(w->n * w->n_widths + 1, sizeof *all);
    size_t *at = calloc(w->n + 1, sizeof *at);
    int rc = all && at ? 0 : err_oom(e, w->n * w->n_widths * sizeof *all);
    for (size_t i = 0; i < w->n && !rc; i++)
        for (size_t b = 0; b < w->n_widths; b++) {
            size_t of = b < low ? low : b > high ? high : b;
            all[i * w->n_widths + b] =
                w->items[i]
                    .choices[w->items[i].n_matrices ? of : w->range.base];
        }
    if (!rc)
        rc = budget_choose(at, all, w->n, w->n_widths, limit, e);
    for (size_t i = 0; i < w->n && !rc; i++) {
        size_t b = at[i] < low ? low : at[i] > high ? high : at[i];
        const struct budget_choice *c = w->items[i].choices;
        while (b + 1 < w->n_widths && c[b + 1].bytes <= c[b].bytes)
            b++; /* the same type, as rows fit no other */
        chosen[i] = (unsigned char)(w->items[i].n_matrices ? b : w->range.base);
    }
    free(all);
    free(at);
    return rc;
}

/* Keep the widths of s->now if they lose least so far. */
static int try_widths(struct search *s, double *kl, struct qwick_err *e)
{
    struct widths *w = s->w;
    if (measure(s, kl, e))
        return -1;
    if (*kl < w->kl || w->kl < 0) {
        w->kl = *kl;
        memcpy(w->chosen, s->now, w->n);
    }
    return 0;
}

static size_t bytes_of_now(const struct search *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->w->n; i++)
        n += s->w->items[i].choices[s->now[i]].bytes;
    return n;
}

/* Measure the choices that may be the best one. */
static int try_all(struct search *s, size_t limit, struct qwick_err *e)
{
    struct widths *w = s->w;
    const size_t last = w->n_widths - 1, low = w->range.low;
    const size_t ranges[][2] = {
        {0, last}, {low, last}, {low, w->range.high}, {low + 1, last}};
    double kl;
    memset(s->now, (int)w->uniform, w->n);
    w->kl = -1;
    if (try_widths(s, &w->uniform_kl, e))
        return -1;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        bool fits = i == 0 || bytes_of_all(w, ranges[i][0]) <= limit;
        if (fits && (spend(w, s->now, limit, ranges[i][0], ranges[i][1], e) ||
                     (bytes_of_now(s) <= limit && try_widths(s, &kl, e))))
            return -1;
    }
    return 0;
}

static int search(struct search *s, const struct calibration *c, size_t limit,
                  struct qwick_err *e)
{
    struct widths *w = s->w;
    const struct widths_range *r = &w->range;
    if (find_sets(w, &s->up, e) || find_sets(w, &s->down, e))
        return -1;
    if (r->high == r->base)
        s->up.n = 0;
    if (r->low == r->base)
        s->down.n = 0;
    s->n_passes = s->up.n + s->down.n + N_OTHERS;
    s->now = malloc(w->n + 1);
    w->chosen = malloc(w->n + 1);
    if (!s->now || !w->chosen)
        return err_oom(e, w->n);
    if (widths_measure_open(&s->q, w, c, s->n_passes, e))
        return -1;
    for (size_t i = 0; i < w->n; i++)
        if (widths_measure_shares(s->q, &w->items[i], e))
            return -1;
    memset(s->now, (int)r->base, w->n);
    return measure(s, &w->base_kl, e) ||
                   measure_sets(s, &s->up, r->high, e) ||
                   measure_sets(s, &s->down, r->low, e) ||
                   fit_items(s, e) || try_all(s, limit, e)
               ? -1
               : 0;
}

/* ---- the whole ----------------------------------------------------------- */

static int open_engine(struct widths *w, const char *src, struct qwick_err *e)
{
    const struct qwick_quantize_options *o = w->plan->o;
    struct qwick_engine_options eo = qwick_engine_defaults();
    eo.model = src;
    eo.place = o->place;
    eo.threads = o->threads;
    eo.exact = true;
    eo.loras = o->loras;
    eo.n_loras = o->n_loras;
    return qwick_engine_open(&w->eng, &eo, e);
}

int widths_choose(struct widths *w, const struct quantize_plan *plan,
                  const char *src, const struct calibration *c,
                  struct qwick_err *e)
{
    size_t limit = 0;
    *w = (struct widths){.plan = plan, .o = *plan->o};
    w->widths = plan->form->widths(plan, &w->n_widths);
    if (open_engine(w, src, e) || widths_find_items(w, e))
        return -1;
    set_bytes(w);
    if (find_limit(w, &limit, e) || choose_base(w, limit, e))
        return -1;
    struct search s = {.w = w};
    int rc = search(&s, c, limit, e);
    widths_measure_close(s.q);
    free(s.up.v);
    free(s.down.v);
    free(s.now);
    return rc;
}

void widths_free(struct widths *w)
{
    quantize_plan_free(&w->probe);
    for (size_t i = 0; i < w->n; i++)
        free(w->items[i].matrices);
    for (size_t i = 0; i < w->n_entries; i++)
        free(w->entries[i].name);
    free(w->items);
    free(w->entries);
    free(w->item_of);
    free(w->chosen);
    qwick_engine_close(w->eng);
    *w = (struct widths){0};
}

void widths_report(const struct widths *w,
                   const struct qwick_quantize_options *o)
{
    const struct quantize_form *form = w->plan->form;
    for (size_t i = 0; i < w->n_entries && o->on_width; i++) {
        const struct widths_entry *entry = &w->entries[i];
        const struct widths_item *m = &w->items[entry->item];
        size_t b = w->chosen[entry->item];
        struct matrix to = {.cols = m->cols};
        form->shape(w->plan, &to, &w->widths[b], m->type);
        const struct qwick_width width = {
            .name = entry->name,
            .bits = to.bits ? to.bits : 16,
            .group = form == &quantize_mlx ? (int)to.group : 0,
            .type = w->widths[b].name ? dtype_name(to.dtype) : NULL,
            .n_weights = entry->n,
            .bytes = bytes_at(w, m, entry->n, b),
            .loss = m->choices[b].loss * (double)entry->n / (double)m->n_asked};
        o->on_width(o->on_width_ctx, &width);
    }
}

const struct quantize_width *widths_common(const struct widths *w)
{
    size_t n[MAX_WIDTHS] = {0}, best = 0;
    for (size_t i = 0; i < w->n; i++)
        n[w->chosen[i]] += w->items[i].n_asked;
    for (size_t b = 1; b < w->n_widths; b++)
        best = n[b] > n[best] ? b : best;
    return &w->widths[best];
}

const struct quantize_width *widths_find(void *ctx,
                                         const struct quantize_asked *asked)
{
    const struct widths *w = ctx;
    size_t i = 0; /* the same is asked for in the probe */
    while (i + 1 < w->n_entries && strcmp(w->entries[i].name, asked->name) != 0)
        i++;
    return &w->widths[w->chosen[w->entries[i].item]];
}

int widths_check(const struct qwick_quantize_options *o, struct qwick_err *e)
{
    bool budget = o->bpw != 0 || o->target_bytes;
    if (o->dry_run && !budget)
        return err_usage(e, "dry run: has no effect without a budget");
    if (!budget)
        return 0;
    if (o->bpw != 0 && o->target_bytes)
        return err_usage(e, "budget: bpw is %g and target_bytes is %zu, but "
                            "only one of them can be given",
                         o->bpw, o->target_bytes);
    if (!(o->bpw >= 0 && o->bpw <= 32))
        return err_usage(e, "bpw: must be from 0 to 32, is %g", o->bpw);
    if (o->bits || o->head_bits || o->type)
        return err_usage(e, "budget: it chooses all widths, but bits is %d, "
                            "head bits %d and type \"%s\"",
                         o->bits, o->head_bits, o->type ? o->type : "");
    if (!o->n_calibrate && !o->calibrate_self)
        return err_usage(e, "budget: the loss of each width is measured on "
                            "texts for calibration, and there are none");
    return 0;
}
