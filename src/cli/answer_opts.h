/* Options that shape answers, for the verbs that give some: length, sampling.
 */
#ifndef CLI_ANSWER_OPTS_H
#define CLI_ANSWER_OPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/opt.h"
#include "qwick.h"

/* Member of a verb's struct of arguments. */
struct answer_args {
    int64_t max_tokens;
    struct opt_texts stop;
    bool ignore_eos;
    int64_t loop_guard;
    bool greedy;
    double temp, top_p, min_p, repeat, presence, frequency;
    int64_t top_k, seed;
    int64_t logprobs;
    double timeout; /* seconds; 0: none */
    bool require_answer;
};

/* clang-format off */
/* at: offset of the struct above; rows of the table go between headings. */
#define ANSWER_AT(at, field) ((at) + offsetof(struct answer_args, field))

#define OPT_ROWS_MAX_TOKENS(at)                                               \
    {.name = "max-tokens", .letter = 'n', .type = OPT_INT, .arg = "N",        \
     .imin = 1, .imax = INT32_MAX, .def = "until the model stops",            \
     .help = "at most N tokens", .offset = ANSWER_AT(at, max_tokens)}

#define OPT_ROWS_STOP(at)                                                     \
    {.name = "stop", .type = OPT_TEXTS, .arg = "TEXT",                        \
     .help = "stop before TEXT; repeatable",                                  \
     .offset = ANSWER_AT(at, stop)},                                          \
    {.name = "ignore-eos", .type = OPT_FLAG,                                  \
     .help = "never draw a stop token",                                       \
     .offset = ANSWER_AT(at, ignore_eos)},                                    \
    {.name = "loop-guard", .type = OPT_INT, .arg = "N", .imin = 3,            \
     .imax = 1000000, .def = "off",                                           \
     .help = "stop when the last N tokens are one sequence at least three "   \
             "times over",                                                    \
     .offset = ANSWER_AT(at, loop_guard)}

#define OPT_ROWS_ENDING(at, status)                                           \
    {.name = "timeout", .type = OPT_NUMBER, .arg = "SECONDS", .min = 0.001,   \
     .max = 1e9, .def = "none",                                               \
     .help = "stop an answer that takes longer, its prompt included",         \
     .offset = ANSWER_AT(at, timeout)},                                       \
    {.name = "require-answer", .type = OPT_FLAG,                              \
     .help = "an answer that is cut (by -n, too) or empty is a failure: "     \
             status,                                                          \
     .offset = ANSWER_AT(at, require_answer)}

#define OPT_ROWS_SAMPLING(at)                                                 \
    {.type = OPT_HEADING,                                                     \
     .help = "Sampling (defaults: generation_config.json, else greedy; any "  \
             "of these\nturns sampling on)"},                                 \
    {.name = "greedy", .type = OPT_FLAG,                                      \
     .help = "always the likeliest token, the same as --temp 0",              \
     .offset = ANSWER_AT(at, greedy)},                                        \
    {.name = "temp", .type = OPT_NUMBER, .arg = "T", .min = 0,                \
     .max = QWICK_TEMPERATURE_MAX, .help = "temperature",                     \
     .offset = ANSWER_AT(at, temp)},                                          \
    {.name = "top-k", .type = OPT_INT, .arg = "K", .imin = 0,                 \
     .imax = INT32_MAX, .help = "among the K likeliest, 0: off",              \
     .offset = ANSWER_AT(at, top_k)},                                         \
    {.name = "top-p", .type = OPT_NUMBER, .arg = "P", .min = 0, .max = 1,     \
     .help = "among the likeliest that hold probability P, 1: off",           \
     .offset = ANSWER_AT(at, top_p)},                                         \
    {.name = "min-p", .type = OPT_NUMBER, .arg = "P", .min = 0, .max = 1,     \
     .help = "at least P times as likely as the likeliest, 0: off",           \
     .offset = ANSWER_AT(at, min_p)},                                         \
    {.name = "repeat-penalty", .type = OPT_NUMBER, .arg = "X",                \
     .min = QWICK_REPEAT_PENALTY_MIN, .max = QWICK_REPEAT_PENALTY_MAX,        \
     .help = "against tokens of prompt and answer, 1: off",                   \
     .offset = ANSWER_AT(at, repeat)},                                        \
    {.name = "presence-penalty", .type = OPT_NUMBER, .arg = "X",              \
     .min = -QWICK_PENALTY_MAX, .max = QWICK_PENALTY_MAX,                     \
     .help = "against tokens of the answer, 0: off",                          \
     .offset = ANSWER_AT(at, presence)},                                      \
    {.name = "frequency-penalty", .type = OPT_NUMBER, .arg = "X",             \
     .min = -QWICK_PENALTY_MAX, .max = QWICK_PENALTY_MAX,                     \
     .help = "the same for each time, 0: off",                                \
     .offset = ANSWER_AT(at, frequency)}

#define OPT_ROWS_LOGPROBS(at, how)                                            \
    {.name = "logprobs", .type = OPT_INT, .arg = "K", .imin = 1, .imax = 100, \
     .def = "off",                                                            \
     .help = "log-probabilities of each token and the K likeliest" how,       \
     .offset = ANSWER_AT(at, logprobs)}
/* clang-format on */

/* Sampling as far as somebody asked for it. */
enum wish {
    WISH_TEMP = 1,
    WISH_TOP_K = 2,
    WISH_TOP_P = 4,
    WISH_MIN_P = 8,
    WISH_REPEAT = 16,
    WISH_PRESENCE = 32,
    WISH_FREQUENCY = 64
};
struct sampling_wish {
    unsigned given; /* of enum wish */
    struct qwick_sampling v;
};

/* Sampling options against each other: exit status 2 with a message, or -1. */
int answer_check(const struct opt_parsed *p, const struct answer_args *a);

/* What the options ask for; --greedy is a temperature of 0. */
struct sampling_wish answer_wish(const struct opt_parsed *p,
                                 const struct answer_args *a);

/* What the checkpoint says, overruled by what was asked for. The seed is left
 * 0. */
struct qwick_sampling answer_sampling(const struct qwick_engine *eng,
                                      bool think_off,
                                      const struct sampling_wish *w);

/* Whether an answer has no text, or white space alone. */
bool answer_is_empty(const struct qwick_result *r);

/* Whether something else than the model or a stop string ended an answer. */
bool answer_is_cut(enum qwick_finish why);

/* Length, stops, timeout and log-probabilities of *o. */
void answer_options(struct qwick_generate_options *o,
                    const struct answer_args *a);

#endif
