/* What tests of sliding windows look at in a session. */
#ifndef TEST_SESSION_PAGES_H
#define TEST_SESSION_PAGES_H

#include "engine/core/engine.h"
#include "test.h"

static inline void same_logits(const struct qwick_session *a,
                               const struct qwick_session *b)
{
    assert_memory_equal(qwick_session_logits(a), qwick_session_logits(b),
                        qwick_engine_info(a->eng)->vocab_size * sizeof(float));
}

static inline size_t n_released(const struct qwick_session *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->kv.n_pages; i++)
        n += s->kv.pages[i]->released;
    return n;
}

#endif
