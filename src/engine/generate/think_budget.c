#include "engine/generate/think_budget.h"

#include <stdlib.h>
#include <string.h>

#include "engine/core/engine.h"

/* The text that Qwen3's documentation gives, up to the token that closes the
 * block. */
static const char sentence[] =
    "\n\nConsidering the limited time by the user, I have to give the solution "
    "based on the thinking directly now.\n";

int think_budget_begin(struct think_budget *b, const struct qwick_engine *eng,
                       size_t n, bool in_think, struct qwick_err *e)
{
    const struct bpe_span none = {0, 0};
    size_t len = sizeof sentence - 1;
    *b = (struct think_budget){.open = eng->think_open,
                               .close = eng->think_close,
                               .left = n,
                               .thinking = in_think};
    if (!eng->bpe || b->open < 0 || b->close < 0)
        return err_set(e, QWICK_ERR_USAGE,
                       "think budget: the model has no token that closes a "
                       "think block");
    if (bpe_encode_spans(eng->bpe, sentence, len, &none, 0, true, 0, &b->ids,
                         &b->n_ids, e))
        return -1;
    int32_t *ids = realloc(b->ids, (b->n_ids + 1) * sizeof *ids);
    if (!ids)
        return err_oom(e, (b->n_ids + 1) * sizeof *ids);
    b->ids = ids;
    ids[b->n_ids++] = b->close;
    b->due = in_think && n == 0;
    return 0;
}

void think_budget_free(struct think_budget *b)
{
    free(b->ids);
    *b = (struct think_budget){0};
}

bool think_budget_accept(struct think_budget *b, int32_t id)
{
    if (b->due) {
        b->due = ++b->at < b->n_ids;
        b->thinking = b->due;
        return !b->due;
    }
    if (id == b->open)
        b->thinking = true;
    else if (id == b->close)
        b->thinking = false;
    else if (b->thinking && b->left > 0)
        b->left--;
    b->due = b->ids && b->thinking && b->left == 0;
    return false;
}

size_t think_budget_forced(const struct think_budget *b, int32_t *ids,
                           size_t max)
{
    size_t n = b->due ? b->n_ids - b->at : 0;
    if (n > max)
        n = max;
    if (n > 0)
        memcpy(ids, b->ids + b->at, n * sizeof *ids);
    return n;
}
