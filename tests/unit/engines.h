/* Engines, sessions and prompts for tests. An engine that does not open fails
 * the test with its message. */
#ifndef TEST_ENGINES_H
#define TEST_ENGINES_H

#include <stdlib.h>

#include "qwick.h"
#include "test.h"

/* engine_with(.model = "DIR", .exact = true): open an engine with these
 * options. */
#define engine_with(...)                          \
    engine_opened(&(struct qwick_engine_options){ \
        .size = sizeof(struct qwick_engine_options), __VA_ARGS__})

/* try_open(&eng, &e, .model = "DIR"): the same, for engines that may fail. */
#define try_open(ENG, E, ...)                                          \
    qwick_engine_open(                                                 \
        (ENG),                                                         \
        &(struct qwick_engine_options){                                \
            .size = sizeof(struct qwick_engine_options), __VA_ARGS__}, \
        (E))

static inline struct qwick_engine *
engine_opened(const struct qwick_engine_options *o)
{
    struct qwick_engine *eng = NULL;
    struct qwick_err e;
    assert_ok(qwick_engine_open(&eng, o, &e), &e);
    return eng;
}

/* The error of a model that does not open. */
static inline struct qwick_err open_refused(const char *dir)
{
    struct qwick_engine *eng = (void *)1;
    struct qwick_err e = {0};
    if (!try_open(&eng, &e, .model = dir, .threads = 1))
        fail_msg("accepted");
    assert_null(eng);
    return e;
}

/* A session with the model's whole context. */
static inline struct qwick_session *open_session(struct qwick_engine *eng)
{
    struct qwick_session *s = NULL;
    struct qwick_err e;
    assert_ok(qwick_session_create(&s, eng, 0, &e), &e);
    return s;
}

static inline void sync_to(struct qwick_session *s, const int32_t *ids,
                           size_t n)
{
    struct qwick_err e;
    assert_ok(qwick_session_sync(s, ids, n, &e), &e);
}

/* A model whose tensors are all zero opens a session, and its logits are all
 * zero. */
static inline void logits_are_zero(struct qwick_engine *eng)
{
    static const int32_t ids[] = {1, 2, 3};
    struct qwick_session *s = open_session(eng);
    sync_to(s, ids, 3);
    for (size_t i = 0; i < qwick_engine_info(eng)->vocab_size; i++)
        assert_true(qwick_session_logits(s)[i] == 0);
    qwick_session_free(s);
}

/* Ids that are valid in the vocabularies of all goldens. */
static inline void some_ids(int32_t *ids, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)(seed >> 16) % 320;
    }
}

/* The same ids in memory that the caller frees. */
static inline int32_t *new_ids(size_t n, uint32_t seed)
{
    int32_t *ids = malloc((n ? n : 1) * sizeof *ids);
    assert_non_null(ids);
    some_ids(ids, n, seed);
    return ids;
}

#endif
