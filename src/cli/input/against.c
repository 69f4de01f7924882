#include "cli/input/against.h"

#include <stdlib.h>

#include "base/err.h"
#include "cli/io/out.h"
#include "cli/report/loss_rows.h"
#include "cli/report/report.h"

/* The losses of the scored tokens of an item. */
static int add_item(struct qwick_losses *sum,
                    const struct qwick_compare_item *it, struct qwick_err *e)
{
    const struct qwick_score_item scored = {.n = it->n, .n_given = it->n_given};
    size_t first = qwick_score_first(&scored);
    return first < it->n ? qwick_losses_add(sum, it->losses + first,
                                            it->n - first, e)
                         : 0;
}

int against_compare(struct against *x, const struct score_text *texts, size_t n,
                    const struct qwick_score_options *o, struct qwick_err *e)
{
    x->items = calloc(n + 1, sizeof(*x->items));
    if (!x->items)
        return err_oom(e, n * sizeof(*x->items));
    for (; x->n_items < n; x->n_items++) {
        const struct qwick_score_item *it = &texts[x->n_items].item;
        struct qwick_token_loss *losses = calloc(it->n + 1, sizeof(*losses));
        if (!losses)
            return err_oom(e, it->n * sizeof(*losses));
        x->items[x->n_items] = (struct qwick_compare_item){
            it->tokens, it->n, it->n_given, losses};
    }
    if ((!x->sum && qwick_losses_create(&x->sum, e)) ||
        qwick_compare(x->eng, x->reference, x->items, n, o, e))
        return -1;
    for (size_t i = 0; i < n; i++) {
        x->n_texts += x->items[i].n > 0; /* lines with faults have no text */
        if (add_item(x->sum, &x->items[i], e))
            return -1;
    }
    return 0;
}

void against_drop(struct against *x)
{
    for (size_t i = 0; i < x->n_items; i++)
        free(x->items[i].losses);
    free(x->items);
    x->items = NULL;
    x->n_items = 0;
}

int against_put_text(const struct against *x, size_t i, struct json_writer *w,
                     struct qwick_err *e)
{
    struct qwick_loss_summary s;
    struct qwick_losses *own;
    if (qwick_losses_create(&own, e))
        return -1;
    int rc = add_item(own, &x->items[i], e) ||
                     qwick_losses_summary(own, &s, e)
                 ? -1
                 : 0;
    qwick_losses_free(own);
    if (!rc)
        losses_json(w, &s);
    return rc || !jw_status(w) ? rc : err_oom(e, w->out->len);
}

int against_print(const struct against *x, const struct qwick_score_options *o,
                  bool json)
{
    struct qwick_loss_summary s = {0};
    struct qwick_err e = {0};
    struct buf b = {0};
    size_t window, stride;
    if (qwick_compare_windows(x->eng, x->reference, o, &window, &stride, &e) ||
        (x->sum && qwick_losses_summary(x->sum, &s, &e)))
        return msg_fail(&e);
    const struct fact facts[] = {
        FACT("model", AS_NAME(qwick_engine_info(x->eng)->model)),
        FACT("reference", AS_NAME(qwick_engine_info(x->reference)->model)),
        FACT("window", AS_COUNT(window)),
        FACT("stride", AS_COUNT(stride)),
        FACT("n_texts", AS_COUNT(x->n_texts)),
    };
    size_t n = sizeof(facts) / sizeof(*facts);
    if (json) {
        struct json_writer w = jw_line(&b);
        report_json(&w, facts, n);
        losses_json(&w, &s);
        jw_end_line(&w);
        return out_print(&b, out_write_names);
    }
    for (size_t i = 0; i < 2; i++) {
        buf_printf(&b, "%s\t", facts[i].json);
        report_name(&b, facts[i].text);
        buf_putc(&b, '\n');
    }
    losses_lines(&b, &s);
    return out_print(&b, out_write_names);
}

void against_close(struct against *x)
{
    against_drop(x);
    qwick_losses_free(x->sum);
    qwick_engine_close(x->reference);
}
