#include "engine/generate/think_budget.h"

#include <stdlib.h>
#include <string.h>

#include "engine/core/engine.h"
#include "text/chat/harmony.h"

/* The text that Qwen3's documentation gives, up to the token that closes the
 * block. */
static const char sentence[] =
    "\n\nConsidering the limited time by the user, I have to give the solution "
    "based on the thinking directly now.\n";

/* Encode the sentence and what closes the block. */
static int encode_forced(struct think_budget *b, const struct qwick_engine *eng,
                         bool answers, struct qwick_err *e)
{
    const struct bpe_span none = {0, 0};
    static const char next[] = HARMONY_TURN HARMONY_FINAL;
    const struct bpe_span all = {0, sizeof next - 1};
    if (bpe_encode_spans(eng->bpe, sentence, sizeof sentence - 1, &none, 0,
                         true, 0, &b->ids, &b->n_ids, e))
        return -1;
    int32_t *ids = realloc(b->ids, (b->n_ids + 1) * sizeof *ids);
    if (!ids)
        return err_oom(e, (b->n_ids + 1) * sizeof *ids);
    b->ids = ids;
    ids[b->n_ids++] = b->close;
    return eng->channels.found && answers
               ? bpe_encode_spans(eng->bpe, next, sizeof next - 1, &all, 1,
                                  true, 0, &b->ids, &b->n_ids, e)
               : 0;
}

static int count_label(struct think_budget *b, const struct qwick_engine *eng,
                       struct qwick_err *e)
{
    const struct bpe_span none = {0, 0};
    int32_t *ids = NULL;
    if (!eng->think_label)
        return 0;
    int rc =
        bpe_encode_spans(eng->bpe, eng->think_label, strlen(eng->think_label),
                         &none, 0, true, 0, &ids, &b->n_label, e);
    b->n_label++; /* a newline */
    free(ids);
    return rc;
}

int think_budget_begin(struct think_budget *b, const struct qwick_engine *eng,
                       size_t n, bool in_think, bool answers,
                       struct qwick_err *e)
{
    *b = (struct think_budget){.open = eng->think_open,
                               .close = eng->think_close,
                               .left = n,
                               .thinking = in_think};
    if (!eng->bpe || b->close < 0 || (b->open < 0 && !eng->channels.found))
        return err_set(e, QWICK_ERR_USAGE,
                       "think budget: the model has no token that closes a "
                       "think block");
    if (encode_forced(b, eng, answers, e))
        return -1;
    b->due = in_think && n == 0;
    return count_label(b, eng, e);
}

void think_budget_free(struct think_budget *b)
{
    free(b->ids);
    *b = (struct think_budget){0};
}

void think_budget_open(struct think_budget *b)
{
    b->thinking = true;
    b->at = 0;
    b->left += b->n_label;
    b->due = b->ids && b->left == 0;
}

bool think_budget_accept(struct think_budget *b, int32_t id)
{
    if (b->due) {
        b->due = ++b->at < b->n_ids;
        b->thinking = b->due;
        return !b->due;
    }
    if (id == b->open) {
        think_budget_open(b);
    } else if (id == b->close) {
        b->thinking = false;
    } else if (b->thinking && b->left > 0) {
        b->left--;
    }
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
