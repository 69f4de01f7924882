/* Guesses of the next tokens of one answer, which a pass of the model checks.
 * They come from the text or from a draft model. A decode loop (generate.c) and
 * a batch use them in the same way:
 *
 *     speculative_begin(…);
 *     if (s.asked)
 *         draft_run(…);            for all answers of a batch at once
 *     n = speculative_take(…);
 *     evaluate the newest token and the n guesses in one pass
 *     speculative_draw(…);             from the row of the newest token, and then
 *                                  from that of each guess that was drawn */
#ifndef ENGINE_SPECULATIVE_H
#define ENGINE_SPECULATIVE_H

#include "engine/generate/draft.h"
#include "engine/generate/generate.h"
#include "engine/generate/lookup.h"

/* Who guesses: the text (lookup, constraints and the think budget), or the
 * draft model. */
enum guess_source { FROM_TEXT, FROM_DRAFT };

/* A struct of all zeros makes no guesses; speculative_close accepts it. */
struct speculative {
    struct generation *g;
    enum guess_source source;      /* of the last guesses */
    struct qwick_lookup counts[2]; /* by source; the caller counts */
    int32_t ids[QWICK_LOOKUP_MAX]; /* the last guesses */
    size_t n;                      /* guesses from the text */
    bool asked; /* draft_run must be called for draft */
    /* with lookup */
    const int32_t *prompt;
    struct lookup *lookup; /* has the prompt once n_known > 0 */
    size_t n_known;        /* tokens of the answer that lookup has */
    /* with a draft model */
    struct draft draft; /* all zeros: none */
    bool drafting;      /* the next draw has a guess of the draft model */
    size_t n_right;     /* its guesses that were drawn */
};

/* Prepare guesses for an answer that has begun, as its options say. eng: the
 * engine that answers. lookup: maximum number of guesses of lookup; if it is
 * not 0, prompt[0..n) must stay in place. Checks the options' draft model
 * (qwick_draft_check). Call speculative_close also after a failure. */
int speculative_open(struct speculative *s, struct generation *g,
                 struct qwick_engine *eng, const int32_t *prompt, size_t n,
                 size_t lookup, struct qwick_err *e);
void speculative_close(struct speculative *s);

/* Return the maximum number of guesses in a pass of up to n_tokens tokens, for
 * an answer in this session. */
size_t speculative_max(const struct speculative *s, const struct qwick_session *session,
                   size_t n_tokens);

/* Begin guesses after the context of the session and the answer's last token,
 * which is not evaluated. max: maximum number of guesses, at least 1. */
int speculative_begin(struct speculative *s, struct qwick_session *session, size_t max,
                  struct qwick_err *e);

/* Write the guesses to ids. Returns how many there are. */
size_t speculative_take(struct speculative *s, int32_t *ids);

/* Forget guesses that were made but that no pass has checked. */
void speculative_drop(struct speculative *s);

/* Draw a token, as generation_draw does. While the draft model's guesses are
 * right, each draw has one of them. Threads may draw for different answers at
 * the same time. */
int speculative_draw(struct speculative *s, const float *logits, int32_t *id,
                 struct qwick_err *e);

/* Write the counts to the result of the answer. */
void speculative_report(const struct speculative *s, struct qwick_result *r);

#endif
