/* The checks of a self-test; see qwick_selftest. */
#ifndef ENGINE_SELFTEST_H
#define ENGINE_SELFTEST_H

#include "base/buf.h"
#include "engine/core/engine.h"
#include "qwick_tools.h"

/* Maximum number of tokens of the text. Passes of 192 tokens and more use
 * further kernels. */
enum { SELFTEST_MAX_TOKENS = 200 };

struct selftest {
    const struct qwick_selftest_options *o;
    struct qwick_engine *given; /* the caller's engine */
    struct qwick_engine *exact; /* with its kernel level, in exact mode */
    double start_ms;            /* when the test began, by clock_ms */
    double end_ms;              /* when the current check must end; 0: never */
    int32_t *ids;               /* [n] the text that the checks evaluate */
    size_t n;
    float *want;           /* f32 [n, vocab_size] logits of the reference level;
                              NULL: no level has ended yet */
    const char *reference; /* the name of that level */
};

/* How a check ended. */
struct outcome {
    enum qwick_selftest_result result;
    struct buf detail; /* text for people; the check appends to it */
};

/* Each check sets *out and returns 0, or fails with *e. QWICK_ERR_INTERRUPTED
 * means that its time is over, or that the caller's flag is set;
 * QWICK_ERR_MEMORY that it cannot run here. Any other error fails the check. */
int selftest_files(struct selftest *t, struct outcome *out,
                   struct qwick_err *e);
int selftest_tokenizer(struct selftest *t, struct outcome *out,
                       struct qwick_err *e);
int selftest_cached(struct selftest *t, struct outcome *out,
                    struct qwick_err *e);
int selftest_threads(struct selftest *t, struct outcome *out,
                     struct qwick_err *e);
int selftest_batch(struct selftest *t, struct outcome *out,
                   struct qwick_err *e);

/* Compare the logits of kernel level isa with t->want. If that is NULL, the
 * logits become t->want. */
int selftest_level(struct selftest *t, const char *isa, bool exact,
                   struct outcome *out, struct qwick_err *e);

/* Open an engine on the same checkpoint. threads 0: as many as the caller's
 * engine has. */
int selftest_open(struct qwick_engine **out, const struct selftest *t,
                  const char *isa, bool exact, int threads,
                  struct qwick_err *e);

/* Create a session that stops when the flag is set or the time is over. */
int selftest_session(struct qwick_session **out, const struct selftest *t,
                     struct qwick_engine *eng, struct qwick_err *e);

/* Choose the text. Sets t->ids and t->n. Without a tokenizer its ids are made
 * up. */
int selftest_text(struct selftest *t, struct qwick_err *e);

#endif
