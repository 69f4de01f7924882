/* Options that verbs share, and opening the engine with them. */
#ifndef CLI_COMMON_H
#define CLI_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/opt.h"
#include "qwick.h"

/* First member of every verb's struct of arguments. */
struct common_args {
    bool help, version; /* answered by the parser */
    const char *model;
    bool quiet, verbose;
    int64_t threads;
    const char *isa;
    bool exact;
    const char *kv;
    int64_t ctx;
    int64_t prefill_chunk;
    bool preload;
    bool json, jsonl;
    const char *color;
    struct opt_flag_file prefix_cache;
    const char *cache_dir; /* the same place as prefix_cache.file */
    int64_t prefix_cache_size;
    size_t prefix_memory; /* no option: a verb's prefix cache in memory */
};

#define COMMON(field) offsetof(struct common_args, field)

/* clang-format off */
#define OPT_ROWS_MODEL                                                        \
    {.name = "model", .letter = 'm', .type = OPT_FILE, .arg = "MODEL",        \
     .help = "checkpoint directory, or hub id (org/name) in the local "       \
             "Hugging Face cache",                                            \
     .def = "$QWICK_MODEL, else the built-in demo model",                     \
     .offset = COMMON(model)}

#define OPT_ROWS_THREADS                                                      \
    {.name = "threads", .letter = 't', .type = OPT_INT, .arg = "N",           \
     .imin = 1, .imax = 1024, .def = "physical cores",                        \
     .help = "number of threads", .offset = COMMON(threads)}

#define OPT_ROWS_KERNELS                                                      \
    {.name = "isa", .type = OPT_CHOICE, .arg = "LEVEL",                       \
     .choices = "ref|avx2|avxvnni|avx512|avx512bf16|amx",                     \
     .def = "the best this CPU has", .help = "kernels to use at most",        \
     .offset = COMMON(isa)},                                                  \
    {.name = "exact", .type = OPT_FLAG,                                       \
     .help = "float32 throughout, one fixed order of sums, no BLAS",          \
     .offset = COMMON(exact)},                                                \
    {.name = "kv", .type = OPT_CHOICE, .choices = "f32|f16|q8",               \
     .def = "f16, f32 with --exact",                                          \
     .help = "type of the KV cache", .offset = COMMON(kv)}

#define OPT_ROWS_CTX                                                          \
    {.name = "ctx", .letter = 'c', .type = OPT_INT, .arg = "N", .imin = 1,    \
     .imax = INT32_MAX, .def = "the model's maximum",                         \
     .help = "most tokens of prompt and answer", .offset = COMMON(ctx)}

#define OPT_ROWS_PREFILL                                                      \
    {.name = "prefill-chunk", .type = OPT_INT, .arg = "N", .imin = 1,         \
     .imax = 65536, .def = "512", .help = "tokens a prefill pass",            \
     .offset = COMMON(prefill_chunk)},                                        \
    {.name = "preload", .type = OPT_FLAG,                                     \
     .help = "copy the weights into memory at start",                         \
     .offset = COMMON(preload)}

#define OPT_ROWS_PREFIX                                                       \
    {.name = "prefix-cache", .type = OPT_FLAG_FILE, .arg = "DIR",             \
     .place = "cache-dir",                                                    \
     .help = "keep the beginnings of prompts on disk, so that later runs do " \
             "not evaluate them again",                                       \
     .offset = COMMON(prefix_cache)},                                         \
    {.name = "cache-dir", .type = OPT_FILE, .arg = "DIR",                     \
     .def = "$XDG_CACHE_HOME/qwick or ~/.cache/qwick",                        \
     .help = "directory of the prefix cache; turns --prefix-cache on",        \
     .offset = COMMON(cache_dir)},                                            \
    {.name = "prefix-cache-size", .type = OPT_SIZE, .arg = "SIZE",            \
     .imin = 1, .def = "4G",                                                  \
     .help = "most bytes to keep, with K, M, G or T",                         \
     .offset = COMMON(prefix_cache_size)}

#define OPT_ROWS_BASIC                                                        \
    {.name = "quiet", .letter = 'q', .type = OPT_FLAG,                        \
     .help = "no warnings", .offset = COMMON(quiet)},                         \
    {.name = "verbose", .letter = 'v', .type = OPT_FLAG,                      \
     .help = "notes on stderr", .offset = COMMON(verbose)},                   \
    {.name = "help", .letter = 'h', .type = OPT_FLAG,                         \
     .help = "this text", .offset = COMMON(help)},                            \
    {.name = "version", .letter = 'V', .type = OPT_FLAG,                      \
     .help = "version", .offset = COMMON(version)}
/* clang-format on */

/* Exit statuses beyond those of enum qwick_err_code. */
enum {
    EXIT_INCOMPLETE = 6, /* --require-answer: the answer is cut or empty */
    EXIT_BELOW = 10      /* choose: not likely enough, or no */
};

/* Check the common options against each other: exit status 2 with a message,
 * else -1. Sets the level of messages; --cache-dir becomes part of
 * prefix_cache. */
int common_check(const struct opt_parsed *p, struct common_args *c);

/* Open the engine, print its warnings and notes. 0, or an exit status with the
 * message printed. */
int common_open(struct qwick_engine **eng, const struct common_args *c,
                bool tokenizer_only);

/* At a terminal, without a model of the user's: say what the demo model can
 * answer. For the verbs that answer. */
void common_hint_demo(const struct common_args *c);

/* At a terminal: where an argument that is taken as text (NULL: none) is the
 * name of a file, say that -f reads it. */
void common_hint_file(const char *text);

/* Check the argument of a verb that takes one text (what: "text", "chat"), or
 * files of -f, or standard input: exit status 2 with a message, else -1. An
 * argument that names a file is refused: it was a file in earlier versions. "-"
 * as the argument is standard input and is removed from *p. */
int common_check_text(struct opt_parsed *p, const char *what, bool has_files,
                      bool jsonl);

#endif
