/* Options that shape an answer: its length, its sampling, how it ends. */
#ifndef CLI_ANSWER_OPTS_H
#define CLI_ANSWER_OPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/opt/opt.h"
#include "qwick.h"

/* Maximum number of answers to a prompt. */
#define ANSWER_MAX_SAMPLES 1000

/* Values of the answer options: a member of a verb's struct of arguments. */
struct answer_args {
    int64_t max_tokens;
    struct opt_texts stop;
    bool ignore_eos;
    int64_t loop_guard;
    int64_t think_budget;
    bool greedy;
    double temp, top_p, min_p, repeat, presence, frequency;
    int64_t top_k, seed;
    int64_t logprobs;
    double timeout; /* seconds; 0: none */
    bool require_answer;
};

/* clang-format off */
/* Rows for the option table of a verb. at: offset of struct answer_args in the
 * verb's struct of arguments. */
#define ANSWER_AT(at, field) ((at) + offsetof(struct answer_args, field))

#define OPT_ROWS_MAX_TOKENS(at)                                               \
    {.name = "max-tokens", .letter = 'n', .type = OPT_INT, .arg = "N",        \
     .imin = 1, .imax = INT32_MAX, .def = "until the model stops",            \
     .help = "at most N tokens", .offset = ANSWER_AT(at, max_tokens)}

#define OPT_ROWS_THINK_BUDGET(at)                                             \
    {.name = "think-budget", .type = OPT_INT, .arg = "N", .imin = 0,          \
     .imax = INT32_MAX, .def = "none",                                        \
     .help = "let the model think for at most N tokens, then make it answer", \
     .offset = ANSWER_AT(at, think_budget)}

#define OPT_ROWS_STOP(at)                                                     \
    {.name = "stop", .type = OPT_TEXTS, .arg = "TEXT",                        \
     .help = "stop before TEXT; repeatable",                                  \
     .offset = ANSWER_AT(at, stop)},                                          \
    {.name = "ignore-eos", .type = OPT_FLAG,                                  \
     .help = "never draw a stop token",                                       \
     .offset = ANSWER_AT(at, ignore_eos)},                                    \
    {.name = "loop-guard", .type = OPT_INT, .arg = "N", .imin = 0,            \
     .imax = 1000000, .def = OPT_STRING(QWICK_LOOP_GUARD_DEFAULT) ", 0 with --raw and --ignore-eos",\
     .help = "stop when the last N tokens repeat one sequence three times or "\
             "more; 0: never",                                                \
     .offset = ANSWER_AT(at, loop_guard)}

#define OPT_ROWS_TIMEOUT(at)                                                  \
    {.name = "timeout", .type = OPT_NUMBER, .arg = "SECONDS", .min = 0.001,   \
     .max = 1e9, .def = "none",                                               \
     .help = "stop an answer that takes longer, prompt included",             \
     .offset = ANSWER_AT(at, timeout)}

#define OPT_ROWS_ENDING(at, status)                                           \
    OPT_ROWS_TIMEOUT(at),                                                     \
    {.name = "require-answer", .type = OPT_FLAG,                              \
     .help = "fail when an answer is empty or cut, by -n too: "               \
             status,                                                          \
     .offset = ANSWER_AT(at, require_answer)}

#define OPT_ROWS_SAMPLING(at)                                                 \
    {.type = OPT_HEADING,                                                     \
     .help = "Sampling (defaults: generation_config.json, else greedy; each " \
             "of these\noptions turns sampling on)"},                         \
    {.name = "greedy", .type = OPT_FLAG,                                      \
     .help = "always take the likeliest token, as with --temp 0",             \
     .offset = ANSWER_AT(at, greedy)},                                        \
    {.name = "temp", .type = OPT_NUMBER, .arg = "T", .min = 0,                \
     .max = QWICK_TEMPERATURE_MAX, .help = "temperature",                     \
     .offset = ANSWER_AT(at, temp)},                                          \
    {.name = "top-k", .type = OPT_INT, .arg = "K", .imin = 0,                 \
     .imax = INT32_MAX, .help = "draw among the K likeliest, 0: off",         \
     .offset = ANSWER_AT(at, top_k)},                                         \
    {.name = "top-p", .type = OPT_NUMBER, .arg = "P", .min = 0, .max = 1,     \
     .help = "draw among the likeliest that together have probability P, "    \
             "1: off",                                                        \
     .offset = ANSWER_AT(at, top_p)},                                         \
    {.name = "min-p", .type = OPT_NUMBER, .arg = "P", .min = 0, .max = 1,     \
     .help = "draw among those at least P times as likely as the likeliest, " \
             "0: off",                                                        \
     .offset = ANSWER_AT(at, min_p)},                                         \
    {.name = "repeat-penalty", .type = OPT_NUMBER, .arg = "X",                \
     .min = QWICK_REPEAT_PENALTY_MIN, .max = QWICK_REPEAT_PENALTY_MAX,        \
     .help = "make tokens of prompt and answer less likely, 1: off",          \
     .offset = ANSWER_AT(at, repeat)},                                        \
    {.name = "presence-penalty", .type = OPT_NUMBER, .arg = "X",              \
     .min = -QWICK_PENALTY_MAX, .max = QWICK_PENALTY_MAX,                     \
     .help = "make tokens of the answer less likely, 0: off",                 \
     .offset = ANSWER_AT(at, presence)},                                      \
    {.name = "frequency-penalty", .type = OPT_NUMBER, .arg = "X",             \
     .min = -QWICK_PENALTY_MAX, .max = QWICK_PENALTY_MAX,                     \
     .help = "make tokens of the answer less likely each time they occur, "   \
             "0: off",                                                        \
     .offset = ANSWER_AT(at, frequency)}

#define OPT_ROWS_LOGPROBS(at, how)                                            \
    {.name = "logprobs", .type = OPT_INT, .arg = "K", .imin = 1, .imax = 100, \
     .def = "off",                                                            \
     .help = "give log-probabilities of each token and the K likeliest" how,  \
     .offset = ANSWER_AT(at, logprobs)}
/* clang-format on */

/* Sampling values that an option or a record can set, as bits. */
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
    unsigned given; /* bits of enum wish: the fields of v that are set */
    struct qwick_sampling v;
};

/* Refuse sampling options that have no effect together. Returns -1 to go on, or
 * exit status 2 after printing a message. */
int answer_check(const struct opt_parsed *p, const struct answer_args *a);

/* Return the sampling values that the options set. --greedy becomes temperature
 * 0. */
struct sampling_wish answer_wish(const struct opt_parsed *p,
                                 const struct answer_args *a);

/* Return the sampling values of an answer: the values of *w, and the
 * checkpoint's defaults for all others. The seed is 0; the caller sets it. */
struct qwick_sampling answer_sampling(const struct qwick_engine *eng,
                                      bool think_off,
                                      const struct sampling_wish *w);

/* Return the seed of sample i: the seed itself for sample 0, else one of 53
 * bits that is derived from both. Every JSON reader represents it exactly. */
uint64_t answer_seed(uint64_t seed, uint64_t i);

/* Return whether an answer is empty or has only white space. */
bool answer_is_empty(const struct qwick_result *r);

/* Return whether an answer was cut: neither the model nor a stop string ended
 * it. */
bool answer_is_cut(enum qwick_finish why);

/* Drop --think and --think-budget, which have no effect WHY. Scripts give them
 * to any model, so --think off and auto are silent and the others a warning.
 * think: the value of --think, or NULL. */
void answer_drop_think(const struct opt_parsed *p, const char *think,
                       const char *why);
/* Drop those that have no effect with this model in a chat. */
void answer_drop_think_of(const struct opt_parsed *p, const char *think,
                          const struct qwick_engine *eng);

/* If the model has no chat template, refuse the options that need one and warn
 * that prompts are raw. Returns -1 if it has a template, 0 if prompts are raw,
 * or exit status 2 after printing a message. */
int answer_choose_raw(const struct opt_parsed *p, const char *think,
                      const char *const *need, const struct qwick_engine *eng);

/* Refuse a model whose generation_config.json asks for what we do not have.
 * Returns 0, or the exit status after printing a message. */
int answer_check_generation(const struct opt_parsed *p,
                            const struct answer_args *a,
                            const struct qwick_engine *eng);

/* Set length, think budget, stop strings, loop guard, timeout and
 * log-probabilities of *o from the options. With --raw, the prompt is a text to
 * be continued, so the loop guard needs its option. *o borrows the strings. */
void answer_options(struct qwick_generate_options *o,
                    const struct opt_parsed *p, const struct answer_args *a);

#endif
