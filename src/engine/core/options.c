#include "engine/core/options.h"

#include <string.h>

#include "qwick_tools.h"

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

void options_init(void *o, size_t size, const void *defaults, size_t known)
{
    memset(o, 0, size);
    memcpy(o, defaults, known < size ? known : size);
    memcpy(o, &size, sizeof size);
}

void qwick_engine_options_init(struct qwick_engine_options *o, size_t size)
{
    static const struct qwick_engine_options defaults;
    options_init(o, size, &defaults, sizeof defaults);
}

void qwick_chat_options_init(struct qwick_chat_options *o, size_t size)
{
    static const struct qwick_chat_options defaults = {.add_generation_prompt =
                                                           true};
    options_init(o, size, &defaults, sizeof defaults);
}

void qwick_sampling_init(struct qwick_sampling *o, size_t size)
{
    static const struct qwick_sampling neutral = {
        .temperature = 1, .top_p = 1, .repeat_penalty = 1};
    options_init(o, size, &neutral, sizeof neutral);
}

void qwick_generate_options_init(struct qwick_generate_options *o, size_t size)
{
    static const struct qwick_generate_options defaults = {
        .split_thinking = true,
        .lookup = QWICK_LOOKUP_DEFAULT,
    };
    options_init(o, size, &defaults, sizeof defaults);
}

void qwick_constraint_options_init(struct qwick_constraint_options *o,
                                   size_t size)
{
    static const struct qwick_constraint_options defaults;
    options_init(o, size, &defaults, sizeof defaults);
}

void qwick_batch_options_init(struct qwick_batch_options *o, size_t size)
{
    static const struct qwick_batch_options defaults;
    options_init(o, size, &defaults, sizeof defaults);
}

void qwick_score_options_init(struct qwick_score_options *o, size_t size)
{
    static const struct qwick_score_options defaults;
    options_init(o, size, &defaults, sizeof defaults);
}

void qwick_quantize_options_init(struct qwick_quantize_options *o, size_t size)
{
    static const struct qwick_quantize_options defaults;
    options_init(o, size, &defaults, sizeof defaults);
}

void qwick_embed_options_init(struct qwick_embed_options *o, size_t size)
{
    static const struct qwick_embed_options defaults = {.normalize = true};
    options_init(o, size, &defaults, sizeof defaults);
}

void qwick_rerank_options_init(struct qwick_rerank_options *o, size_t size)
{
    static const struct qwick_rerank_options defaults;
    options_init(o, size, &defaults, sizeof defaults);
}

void qwick_selftest_options_init(struct qwick_selftest_options *o, size_t size)
{
    static const struct qwick_selftest_options defaults = {.time_ms = 60000};
    options_init(o, size, &defaults, sizeof defaults);
}

void qwick_plan_options_init(struct qwick_plan_options *o, size_t size)
{
    static const struct qwick_plan_options defaults = {.n_answer = 256};
    options_init(o, size, &defaults, sizeof defaults);
}

const char *qwick_version(void)
{
    return QWICK_VERSION;
}
