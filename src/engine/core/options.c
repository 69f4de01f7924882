#include "engine/core/options.h"

#include <string.h>

#include "qwick.h"

/* A larger size can only be uninitialised memory. */
enum { MAX_SIZE = 1 << 16 };

int options_read(void *out, size_t size, const void *given, const char *what,
                 struct qwick_err *e)
{
    const unsigned char *p = given;
    size_t n;
    if (!given)
        return 0;
    memcpy(&n, given, sizeof n);
    if (n < sizeof n || n > MAX_SIZE)
        return err_set(e, QWICK_ERR_USAGE,
                       "%s options: size is %zu; begin with the defaults", what,
                       n);
    for (size_t i = size; i < n; i++)
        if (p[i])
            return err_set(e, QWICK_ERR_USAGE,
                           "%s options: have %zu bytes; those after the %zu "
                           "that version %s knows must be zero",
                           what, n, size, QWICK_VERSION);
    memcpy(out, given, n < size ? n : size);
    memcpy(out, &size, sizeof size);
    return 0;
}

/* Copy the defaults into the caller's struct of `size` bytes. A smaller struct
 * gets a part of them; in a larger one, the bytes that this version does not
 * know become zero. */
static void set(void *o, size_t size, const void *defaults, size_t known)
{
    memset(o, 0, size);
    memcpy(o, defaults, known < size ? known : size);
    memcpy(o, &size, sizeof size);
}

void qwick_engine_options_init(struct qwick_engine_options *o, size_t size)
{
    static const struct qwick_engine_options defaults;
    set(o, size, &defaults, sizeof defaults);
}

void qwick_chat_options_init(struct qwick_chat_options *o, size_t size)
{
    static const struct qwick_chat_options defaults = {.add_generation_prompt =
                                                           true};
    set(o, size, &defaults, sizeof defaults);
}

struct qwick_sampling qwick_sampling_neutral(void)
{
    return (struct qwick_sampling){
        .temperature = 1, .top_p = 1, .repeat_penalty = 1};
}

void qwick_generate_options_init(struct qwick_generate_options *o, size_t size)
{
    const struct qwick_generate_options defaults = {
        .sampling = qwick_sampling_neutral(),
        .split_thinking = true,
        .lookup = QWICK_LOOKUP_DEFAULT,
    };
    set(o, size, &defaults, sizeof defaults);
}

void qwick_constraint_options_init(struct qwick_constraint_options *o,
                                   size_t size)
{
    static const struct qwick_constraint_options defaults;
    set(o, size, &defaults, sizeof defaults);
}

void qwick_batch_options_init(struct qwick_batch_options *o, size_t size)
{
    static const struct qwick_batch_options defaults;
    set(o, size, &defaults, sizeof defaults);
}

void qwick_score_options_init(struct qwick_score_options *o, size_t size)
{
    static const struct qwick_score_options defaults;
    set(o, size, &defaults, sizeof defaults);
}

void qwick_quantize_options_init(struct qwick_quantize_options *o, size_t size)
{
    static const struct qwick_quantize_options defaults = {.bits = 4,
                                                           .group = 64};
    set(o, size, &defaults, sizeof defaults);
}

void qwick_embed_options_init(struct qwick_embed_options *o, size_t size)
{
    static const struct qwick_embed_options defaults = {.normalize = true};
    set(o, size, &defaults, sizeof defaults);
}

void qwick_rerank_options_init(struct qwick_rerank_options *o, size_t size)
{
    static const struct qwick_rerank_options defaults;
    set(o, size, &defaults, sizeof defaults);
}

void qwick_selftest_options_init(struct qwick_selftest_options *o, size_t size)
{
    static const struct qwick_selftest_options defaults = {.time_ms = 60000};
    set(o, size, &defaults, sizeof defaults);
}

void qwick_plan_options_init(struct qwick_plan_options *o, size_t size)
{
    static const struct qwick_plan_options defaults = {.n_answer = 256};
    set(o, size, &defaults, sizeof defaults);
}

const char *qwick_version(void)
{
    return QWICK_VERSION;
}
