/* A model and a reference over the same tokens. Two scorers evaluate the texts,
 * each in passes of its own. Both give their rows of logits in nearly the same
 * order; a row waits until the other model has given the row at the same
 * place. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "engine/core/options.h"
#include "engine/tasks/divergence.h"
#include "engine/tasks/score_pass.h"
#include "qwick_tools.h"

/* A row that waits. */
struct waiting {
    struct waiting *next;
    size_t item, at;
    const struct compare_side *of;
    float row[]; /* [n_ids] */
};

struct compare;

struct compare_side {
    struct compare *of;
    struct qwick_scorer *scorer;
    struct qwick_score_item *items; /* [n] */
    size_t n_done;                  /* rows */
    bool more;
};

struct compare {
    struct qwick_compare_item *items;
    struct compare_side model, reference;
    struct waiting *first, **last, *spare;
    size_t n_ids; /* that both models have */
    struct par_pool *pool;
};

/* ---- rows --------------------------------------------------------------- */

/* Take the other model's row at a place from those that wait; NULL: it does not
 * wait. The first one fits, unless the passes differ. */
static struct waiting *take_row(struct compare *c,
                                const struct compare_side *not_of, size_t item,
                                size_t at)
{
    for (struct waiting **p = &c->first; *p; p = &(*p)->next) {
        struct waiting *w = *p;
        if (w->of == not_of || w->item != item || w->at != at)
            continue;
        *p = w->next;
        if (!w->next)
            c->last = p;
        return w;
    }
    return NULL;
}

static int keep_row(struct compare_side *s, size_t item, size_t at,
                    const float *logits, struct qwick_err *e)
{
    struct compare *c = s->of;
    size_t bytes;
    if (size_mul(c->n_ids, sizeof(float), &bytes) ||
        size_add(bytes, sizeof(struct waiting), &bytes))
        return err_oom(e, SIZE_MAX);
    struct waiting *w = c->spare;
    if (w)
        c->spare = w->next;
    else if (!(w = malloc(bytes)))
        return err_oom(e, bytes);
    w->next = NULL;
    w->item = item;
    w->at = at;
    w->of = s;
    memcpy(w->row, logits, c->n_ids * sizeof *logits);
    *c->last = w;
    c->last = &w->next;
    return 0;
}

static int compare_row(void *ctx, size_t item, size_t at, const float *logits,
                       struct qwick_err *e)
{
    struct compare_side *s = ctx;
    struct compare *c = s->of;
    struct waiting *w = take_row(c, s, item, at);
    s->n_done++;
    if (!w)
        return keep_row(s, item, at, logits, e);
    bool own = s == &c->model;
    struct divergence d = divergence(own ? logits : w->row,
                                     own ? w->row : logits, c->n_ids, c->pool);
    c->items[item].losses[at] =
        (struct qwick_token_loss){d.kl, c->model.items[item].logprobs[at],
                                  c->reference.items[item].logprobs[at],
                                  d.same_top};
    w->next = c->spare;
    c->spare = w;
    return 0;
}

/* ---- both models -------------------------------------------------------- */

static void free_rows(struct waiting *w)
{
    while (w) {
        struct waiting *next = w->next;
        free(w);
        w = next;
    }
}

static void close_side(struct compare_side *s, size_t n)
{
    qwick_scorer_free(s->scorer);
    for (size_t i = 0; s->items && i < n; i++)
        free(s->items[i].logprobs);
    free(s->items);
}

static int open_side(struct compare_side *s, struct compare *c,
                     struct qwick_engine *eng, size_t n,
                     const struct qwick_score_options *o, struct qwick_err *e)
{
    s->of = c;
    s->more = true;
    s->items = calloc(n + 1, sizeof *s->items);
    if (!s->items)
        return err_oom(e, n * sizeof *s->items);
    for (size_t i = 0; i < n; i++) {
        const struct qwick_compare_item *it = &c->items[i];
        s->items[i] = (struct qwick_score_item){
            .tokens = it->tokens, .n = it->n, .n_given = it->n_given};
        s->items[i].logprobs = calloc(it->n + 1, sizeof(double));
        if (!s->items[i].logprobs)
            return err_oom(e, it->n * sizeof(double));
    }
    if (qwick_scorer_create(&s->scorer, eng, s->items, n, o, e))
        return -1;
    scorer_on_row(s->scorer, compare_row, s);
    return 0;
}

/* Evaluate a pass of the model that has fewer rows. */
static int compare_step(struct compare *c, struct qwick_err *e)
{
    struct compare_side *s = &c->reference;
    if (!s->more || (c->model.more && c->model.n_done < s->n_done))
        s = &c->model;
    return qwick_scorer_step(s->scorer, &s->more, e);
}

/* Set the context, the window and the stride that both models share. */
static int compare_options(struct qwick_score_options *o,
                           const struct qwick_engine *eng,
                           const struct qwick_engine *reference,
                           struct qwick_err *e)
{
    size_t own, other;
    if (engine_context(eng, o->n_ctx, &own, e) ||
        engine_context(reference, o->n_ctx, &other, e))
        return -1;
    o->n_ctx = own < other ? own : other;
    const struct qwick_score_options given = *o;
    return qwick_score_windows(eng, &given, &o->window, &o->stride, e);
}

int qwick_compare_windows(const struct qwick_engine *eng,
                          const struct qwick_engine *reference,
                          const struct qwick_score_options *given,
                          size_t *window, size_t *stride, struct qwick_err *e)
{
    struct qwick_score_options o = qwick_score_defaults();
    *window = *stride = 0;
    if (options_read(&o, sizeof o, given, "score", e) ||
        compare_options(&o, eng, reference, e))
        return -1;
    *window = o.window;
    *stride = o.stride;
    return 0;
}

int qwick_compare(struct qwick_engine *eng, struct qwick_engine *reference,
                  struct qwick_compare_item *items, size_t n,
                  const struct qwick_score_options *given, struct qwick_err *e)
{
    struct qwick_score_options o = qwick_score_defaults();
    size_t sizes[] = {eng->model.config.vocab_size,
                      reference->model.config.vocab_size};
    struct compare c = {.items = items,
                        .n_ids = sizes[sizes[1] < sizes[0]],
                        .pool = eng->pool};
    c.last = &c.first;
    if (options_read(&o, sizeof o, given, "score", e) ||
        qwick_compare_check(eng, reference, e) ||
        compare_options(&o, eng, reference, e))
        return -1;
    int rc = open_side(&c.model, &c, eng, n, &o, e);
    o.progress = NULL; /* that of the model is enough */
    o.on_score = NULL;
    rc = rc || open_side(&c.reference, &c, reference, n, &o, e) ? -1 : 0;
    while (!rc && (c.model.more || c.reference.more))
        rc = compare_step(&c, e);
    close_side(&c.model, n);
    close_side(&c.reference, n);
    free_rows(c.first);
    free_rows(c.spare);
    return rc;
}
