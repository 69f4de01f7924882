#include "cli/report/loss_rows.h"

#include <math.h>

#include "cli/report/report.h"

/* A fact with a title begins a line of text, others continue it. */
#define VALUE(name, v) FACT(name, .title = name, AS_REAL(v, 0, 0))
#define INTERVAL(name, v)                           \
    VALUE(name, (v).value),                         \
        FACT(name "_low", AS_REAL((v).low, 0, 0)),  \
        FACT(name "_high", AS_REAL((v).high, 0, 0))

enum { N_FACTS = 19 };

static void losses_facts(struct fact out[N_FACTS],
                         const struct qwick_loss_summary *s)
{
    const struct fact facts[N_FACTS] = {
        FACT("n_scored", .title = "scored_tokens", AS_COUNT(s->n_tokens)),
        FACT("n_blocks", .title = "blocks", AS_COUNT(s->n_blocks)),
        INTERVAL("kl", s->kl),
        VALUE("kl_p99", s->kl_p99),
        VALUE("kl_max", s->kl_max),
        INTERVAL("agreement", s->agreement),
        INTERVAL("perplexity", s->perplexity),
        INTERVAL("reference_perplexity", s->reference_perplexity),
        INTERVAL("perplexity_ratio", s->ratio),
    };
    for (size_t i = 0; i < N_FACTS; i++)
        out[i] = facts[i];
}

void losses_json(struct json_writer *w, const struct qwick_loss_summary *s)
{
    struct fact facts[N_FACTS];
    losses_facts(facts, s);
    report_json(w, facts, N_FACTS);
}

int losses_lines(struct buf *b, const struct qwick_loss_summary *s)
{
    struct fact facts[N_FACTS];
    int bad = 0;
    losses_facts(facts, s);
    for (size_t i = 0; i < N_FACTS && !bad; i++) {
        const struct fact *f = &facts[i];
        bad |= f->title ? buf_printf(b, "%s%s\t", i ? "\n" : "", f->title)
                        : buf_putc(b, '\t');
        bad |= f->type == FACT_COUNT ? buf_printf(b, "%zu", f->n)
               : isnan(f->real)      ? buf_putc(b, '-')
                                     : buf_printf(b, "%.6g", f->real);
    }
    return bad | buf_putc(b, '\n') ? -1 : 0;
}
