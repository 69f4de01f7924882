#include "convert/widths.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "engine/core/engine.h"

const int widths_bits[N_WIDTHS] = {2, 3, 4, 5, 6, 8};

/* Bytes of n weights in groups, with a scale and a bias in `type` each. */
static size_t bytes_at(size_t n, int bits, int group, enum dtype type)
{
    return n / 8 * (size_t)bits +
           n / (size_t)group * 2 * dtype_bytes(type); /* the file holds more */
}

static size_t elements(const struct quantize_module *m)
{
    return m->rows * m->cols * (m->stack ? m->stack : 1);
}

/* ---- modules ------------------------------------------------------------- */

static int check_module(const struct quantize_plan *p,
                        const struct quantize_module *m, struct qwick_err *e)
{
    const char *dir = checkpoint_dir(p->s->ck);
    if (m->stack)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: widths of mixtures of experts cannot be chosen "
                       "by a budget yet",
                       dir, m->name);
    if (m->kept || m->codes || quantize_packed(p->s, m->t))
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: is quantized already: a budget needs the "
                       "original",
                       dir, m->name);
    return 0;
}

/* The group of a tensor of the engine's checkpoint. */
static size_t find_group(const struct qwick_engine *eng,
                         const struct st_tensor *t, bool *is_used)
{
    const struct weights *w = &eng->model.weights;
    size_t n_layers = eng->model.config.n_layers, i = 0;
    while (st_at(w->set, i) != t)
        i++;
    *is_used = w->used[i] != WEIGHT_UNUSED;
    return w->refs[i].id == WEIGHT_EMBED  ? n_layers
           : w->refs[i].id == WEIGHT_HEAD ? n_layers + 1
                                          : w->refs[i].layer;
}

static int add_module(struct widths *w, const struct quantize_plan *p,
                      const struct quantize_module *m,
                      const struct qwick_engine *eng, struct qwick_err *e)
{
    struct widths_module *to = &w->v[w->n];
    const struct st_tensor *t =
        st_find(eng->model.weights.set, m->t->name);
    bool is_used;
    if (check_module(p, m, e))
        return -1;
    if (!t)
        return err_set(e, QWICK_ERR_MODEL, "%s: %s: no such tensor",
                       checkpoint_dir(p->s->ck), m->t->name);
    size_t group = find_group(eng, t, &is_used);
    if (!is_used)
        return 0; /* it stays at the widest */
    *to = (struct widths_module){.name = m->name,
                                 .t = t,
                                 .group = group,
                                 .rows = m->rows,
                                 .cols = m->cols};
    for (size_t i = 0; i < N_WIDTHS; i++)
        to->choices[i].bytes =
            bytes_at(elements(m), widths_bits[i], p->o->group, m->scales);
    w->n++;
    return 0;
}

static int find_modules(struct widths *w, const struct quantize_plan *p,
                        const struct qwick_engine *eng, struct qwick_err *e)
{
    w->n_groups = eng->model.config.n_layers + 2;
    w->v = calloc(p->n_modules + 1, sizeof *w->v);
    w->kl = calloc(w->n_groups * N_WIDTHS, sizeof *w->kl);
    if (!w->v || !w->kl)
        return err_oom(e, p->n_modules * sizeof *w->v);
    for (size_t i = 0; i < p->n_modules; i++)
        if (p->modules[i].bits &&
            add_module(w, p, &p->modules[i], eng, e))
            return -1;
    return 0;
}

/* ---- the budget ---------------------------------------------------------- */

/* The bytes that the modules may take, and the weights in them. */
static int find_limit(const struct widths *w, const struct quantize_plan *p,
                      size_t *limit, size_t *n_weights, struct qwick_err *e)
{
    double all = 0, matrices = 0, own = 0;
    *n_weights = 0;
    for (size_t i = 0; i < w->n; i++) {
        *n_weights += w->v[i].rows * w->v[i].cols;
        own += (double)w->v[i].choices[N_WIDTHS - 1].bytes;
    }
    for (size_t i = 0; i < p->n_modules; i++) {
        const struct quantize_module *m = &p->modules[i];
        if (m->bias)
            continue;
        all += (double)elements(m);
        matrices += (double)(m->bits ? bytes_at(elements(m), m->bits,
                                                p->o->group, m->scales)
                                     : elements(m) * dtype_bytes(m->t->dtype));
    }
    /* what is not to be chosen is in the probe as it will be */
    double bytes = p->o->target_bytes
                       ? (double)p->o->target_bytes -
                             ((double)p->bytes_written - own)
                       : p->o->bpw / 8 * all - (matrices - own);
    if (bytes < 1)
        return err_usage(e, "budget: other tensors need more than it has");
    *limit = bytes < (double)p->bytes_written ? (size_t)bytes
                                              : p->bytes_written;
    return 0;
}

/* The width whose bits are nearest to those of the budget. */
static size_t nearest_width(const struct quantize_plan *p, size_t limit,
                            size_t n_weights)
{
    double extra = 32.0 / (double)p->o->group; /* of scales and biases */
    double bits = 8 * (double)limit / (double)n_weights - extra;
    size_t best = 0;
    while (best + 1 < N_WIDTHS &&
           2 * bits > widths_bits[best] + widths_bits[best + 1])
        best++;
    return best;
}

static double group_share(const struct widths *w, size_t group, size_t width)
{
    double sum = 0;
    for (size_t i = 0; i < w->n; i++)
        sum += w->v[i].group == group ? w->v[i].share[width] : 0;
    return sum;
}

static void set_losses(struct widths *w)
{
    for (size_t i = 0; i < w->n; i++) {
        struct widths_module *m = &w->v[i];
        for (size_t b = w->low; b < N_WIDTHS; b++) {
            size_t at = b < w->high ? b : w->high;
            double group = group_share(w, m->group, at);
            double kl = w->kl[m->group * N_WIDTHS + at];
            m->choices[b].loss = group > 0 ? kl * m->share[b] / group : 0;
        }
        for (size_t b = 0; b < w->low; b++)
            m->choices[b] = m->choices[w->low];
    }
}

static int spend(struct widths *w, size_t limit, struct qwick_err *e)
{
    size_t n[N_WIDTHS] = {0}, best = 0;
    struct budget_choice *all = calloc(w->n * N_WIDTHS + 1, sizeof *all);
    size_t *chosen = calloc(w->n + 1, sizeof *chosen);
    int rc = all && chosen ? 0 : err_oom(e, w->n * N_WIDTHS * sizeof *all);
    for (size_t i = 0; i < w->n && !rc; i++)
        memcpy(all + i * N_WIDTHS, w->v[i].choices, sizeof w->v[i].choices);
    if (!rc)
        rc = budget_choose(chosen, all, w->n, N_WIDTHS, limit, e);
    for (size_t i = 0; i < w->n && !rc; i++) {
        w->v[i].chosen = chosen[i] < w->low ? w->low : chosen[i];
        n[w->v[i].chosen] += w->v[i].rows * w->v[i].cols;
    }
    for (size_t b = 1; b < N_WIDTHS; b++)
        best = n[b] > n[best] ? b : best;
    w->common = widths_bits[best];
    free(all);
    free(chosen);
    return rc;
}

/* ---- the whole ----------------------------------------------------------- */

static int open_engine(struct qwick_engine **eng, const char *src,
                       const struct qwick_quantize_options *o,
                       struct qwick_err *e)
{
    struct qwick_engine_options eo = qwick_engine_defaults();
    eo.model = src;
    eo.place = o->place;
    eo.threads = o->threads;
    eo.exact = true;
    eo.loras = o->loras;
    eo.n_loras = o->n_loras;
    return qwick_engine_open(eng, &eo, e);
}

/* Plan the result with the widest width everywhere. */
static int make_probe(struct widths *w, const struct quantize_plan *plan,
                      struct qwick_err *e)
{
    w->o = *plan->o;
    w->o.bits = widths_bits[N_WIDTHS - 1];
    w->o.note = NULL; /* the plan of the result says the same */
    w->o.warn = NULL;
    w->probe = *plan;
    w->probe.o = &w->o;
    return w->probe.form->plan(&w->probe, w->probe.s, e);
}

/* The budget must suffice for the narrowest width. */
static int check_least(const struct widths *w, size_t limit,
                       struct qwick_err *e)
{
    size_t least = 0;
    for (size_t i = 0; i < w->n; i++)
        least += w->v[i].choices[0].bytes;
    if (least <= limit)
        return 0;
    return err_usage(e,
                     "budget: the matrices need at least %zu bytes, and it "
                     "leaves %zu for them",
                     least, limit);
}

int widths_choose(struct widths *w, const struct quantize_plan *plan,
                  const char *src, const struct calibration *c,
                  struct qwick_err *e)
{
    struct qwick_engine *eng = NULL;
    size_t limit = 0, n_weights = 0;
    *w = (struct widths){0};
    int rc = make_probe(w, plan, e) || open_engine(&eng, src, plan->o, e) ||
                     find_modules(w, &w->probe, eng, e) ||
                     find_limit(w, &w->probe, &limit, &n_weights, e) ||
                     check_least(w, limit, e)
                 ? -1
                 : 0;
    if (!rc) {
        w->measured = nearest_width(&w->probe, limit, n_weights);
        w->low = w->measured ? w->measured - 1 : 0;
        w->high = w->measured + 1 < N_WIDTHS ? w->measured + 1 : w->measured;
        rc = widths_measure(w, eng, c, e);
    }
    if (!rc) {
        set_losses(w);
        rc = spend(w, limit, e);
    }
    qwick_engine_close(eng);
    return rc;
}

void widths_free(struct widths *w)
{
    quantize_plan_free(&w->probe);
    free(w->v);
    free(w->kl);
    *w = (struct widths){0};
}

void widths_report(const struct widths *w,
                   const struct qwick_quantize_options *o)
{
    for (size_t i = 0; i < w->n && o->on_width; i++) {
        const struct widths_module *m = &w->v[i];
        const struct budget_choice *c = &m->choices[m->chosen];
        const struct qwick_width width = {
            .name = m->name,
            .bits = widths_bits[m->chosen],
            .n_weights = m->rows * m->cols,
            .bytes = c->bytes,
            .loss = c->loss,
            .group_kl = w->kl[m->group * N_WIDTHS + w->measured],
            .measured_bits = widths_bits[w->measured]};
        o->on_width(o->on_width_ctx, &width);
    }
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
    if (o->format == QWICK_QUANTIZE_GGUF)
        return err_usage(e, "budget: the types of a GGUF file cannot be chosen "
                            "by a budget yet, only the widths of MLX's format");
    if (o->bits || o->head_bits)
        return err_usage(e, "budget: it chooses all widths, but bits is %d and "
                            "head bits %d",
                         o->bits, o->head_bits);
    if (!o->n_calibrate && !o->calibrate_self)
        return err_usage(e, "budget: the loss of each width is measured on "
                            "texts for calibration, and there are none");
    return 0;
}

int widths_find(const struct widths *w, const char *module)
{
    for (size_t i = 0; i < w->n; i++)
        if (strcmp(w->v[i].name, module) == 0)
            return widths_bits[w->v[i].chosen];
    return 0;
}
