/* Tests of draft models: pairs of goldens, sets of options, and counts of
 * sampled answers. */
#ifndef TEST_DRAFT_PAIRS_H
#define TEST_DRAFT_PAIRS_H

#include <stdbool.h>
#include <string.h>

#include "engine/core/engine.h"
#include "engines.h"
#include "lcg.h"
#include "own_sampling.h"

#define GOLDEN "tests/golden/models/"
#define FAMILY "tests/golden/families/"

/* good: the draft model is the target, so it is mostly right. */
static const struct {
    const char *target, *draft;
    bool draft_exact, good;
} pairs[] = {
    {GOLDEN "yarn", GOLDEN "yarn", true, true}, /* shares keys and values */
    {GOLDEN "yarn", GOLDEN "yarn", false, true},
    {GOLDEN "tied-bf16", GOLDEN "f16", true, false},
    {GOLDEN "f32", GOLDEN "mlx4", true, false},
    {GOLDEN "moe", GOLDEN "moe", true, true},
    {GOLDEN "gemma3-gqa", GOLDEN "gemma3-gqa", true, true},
    {GOLDEN "gemma3-gqa", GOLDEN "gemma3-tied", false, false},
    {GOLDEN "qwen35-tied", GOLDEN "qwen35-tied", true, true},
    {GOLDEN "qwen35-tied", GOLDEN "qwen35-tied", false, true},
    {GOLDEN "qwen35-tied", GOLDEN "yarn", true, false},
    {GOLDEN "yarn", GOLDEN "qwen35-tied", true, false},
    /* keys that change beyond 64 tokens */
    {FAMILY "phi3-crossing", FAMILY "phi3-crossing", true, true},
    /* packed projections, and split ones */
    {FAMILY "qwen3next-odd", FAMILY "qwen3next-odd.gguf", true, true},
};
enum { N_PAIRS = sizeof pairs / sizeof *pairs };

enum { N_OPTIONS = 6 };

/* Sets of options that a draft model must not change. */
static inline struct qwick_generate_options draft_options(size_t i,
                                                          size_t max_tokens)
{
    struct qwick_generate_options o = qwick_generate_defaults();
    size_t kind = i % N_OPTIONS;
    o.ignore_eos = i % 2 == 0;
    o.split_thinking = false;
    o.max_tokens = max_tokens;
    own_sampling(&o)->temperature = kind < 2 ? 0 : 0.8f;
    own_sampling(&o)->seed = i;
    if (kind == 1 || kind == 4) {
        own_sampling(&o)->repeat_penalty = 1.2f;
        own_sampling(&o)->frequency_penalty = 0.3f;
    }
    if (kind == 3) {
        own_sampling(&o)->top_p = 0.9f;
        own_sampling(&o)->top_k = 30;
    }
    return o;
}

static inline struct qwick_constraint *regex(struct qwick_engine *eng,
                                             const char *pattern)
{
    struct qwick_constraint_options o = qwick_constraint_defaults();
    struct qwick_constraint *c;
    o.kind = QWICK_CONSTRAINT_REGEX;
    o.text = pattern;
    o.n_text = strlen(pattern);
    assert_int_equal(qwick_constraint_create(&c, eng, &o, NULL), 0);
    return c;
}

static inline void random_prompt(int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)below(320);
}

/* Change what a draft model guesses, but not much. */
static inline void add_noise(struct qwick_engine *draft, float noise)
{
    for (size_t i = 0; i < draft->model.config.d_model; i++)
        draft->model.norm[i] *= 1 + noise * ((float)uniform() - 0.5f);
}

/* Short sampled answers, counted without (a) and with (b) a draft model. Up to
 * two of their tokens are guessed in a pass. */
enum { ANSWER = 4, SEEDS = 6000, CELLS = 600 };

struct answer_counts {
    int32_t ids[CELLS][ANSWER];
    double a[CELLS], b[CELLS];
    size_t n;
};

static inline struct qwick_generate_options counted_options(void)
{
    struct qwick_generate_options o = qwick_generate_defaults();
    o.max_tokens = ANSWER;
    o.split_thinking = false;
    own_sampling(&o)->top_k = 3;
    own_sampling(&o)->temperature = 1.3f;
    own_sampling(&o)->presence_penalty = 0.4f;
    return o;
}

static inline void count_answer(struct answer_counts *t,
                                const struct qwick_result *r, bool with_draft)
{
    int32_t ids[ANSWER];
    size_t i = 0;
    for (size_t k = 0; k < ANSWER; k++)
        ids[k] = k < r->n_tokens ? r->tokens[k] : -1;
    while (i < t->n && memcmp(t->ids[i], ids, sizeof ids) != 0)
        i++;
    if (i == t->n) {
        assert_true(t->n < CELLS);
        memcpy(t->ids[t->n++], ids, sizeof ids);
    }
    (with_draft ? t->b : t->a)[i] += 1;
}

#endif
