/* Options that several verbs share, and opening the engine with them. */
#ifndef CLI_COMMON_H
#define CLI_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/opt/opt.h"
#include "qwick.h"

/* Values of the common options: the first member of every verb's struct of
 * arguments. */
struct common_args {
    bool help, version, show_config; /* handled by the parser */
    bool no_config;
    bool no_sandbox;
    const struct opt_parsed *parsed; /* set by common_check */
    const char *model; /* common_check replaces an alias by what it means */
    const char *alias; /* the alias and its place, "NAME, an alias (FILE:LINE)";
                          NULL: -m is none */
    /* Set by common_open, before the sandbox: what --draft and its alias mean, and
     * where both models are (qwick_model_find; NULL: none, or not searched). */
    const char *draft, *draft_alias, *place, *draft_place;
    bool model_is_name; /* see qwick_model_find; common_check sets it */
    bool quiet, verbose;
    int64_t threads;
    const char *isa;
    bool exact;
    const char *kv;
    int64_t ctx;
    int64_t prefill_chunk;
    bool preload;
    const char *numa; /* NULL: off */
    bool json, jsonl, lines;
    struct opt_texts input; /* files with records */
    const char *color;
    struct opt_flag_file prefix_cache;
    const char *core;
    const char *cache_dir; /* set by --cache-dir; moved to prefix_cache.file */
    int64_t prefix_cache_size;
    size_t prefix_memory; /* maximum bytes of the prefix cache in memory; the
                             verb sets it, no option does */
    const char *chat_template;
    struct opt_texts template_args; /* each is NAME=VALUE */
    const char *template_time;
};

#define COMMON(field) offsetof(struct common_args, field)

/* clang-format off */
#define OPT_ROWS_MODEL                                                        \
    {.name = "model", .letter = 'm', .type = OPT_FILE, .arg = "MODEL",        \
     .help = "checkpoint directory, .gguf file, hub id (org/name) in the "    \
             "local Hugging Face cache, or short name; see qwick(1)",         \
     .def = "the built-in demo model",                     \
     .access = OPT_MODEL, .offset = COMMON(model)}

#define OPT_ROWS_COLOR                                                        \
    {.name = "color", .type = OPT_CHOICE, .arg = "WHEN",                      \
     .choices = "auto|always|never", .def = "auto",                           \
     .help = "colours; auto: on a terminal that shows them",                  \
     .offset = COMMON(color)}

/* Of verbs that render chats. */
#define OPT_ROWS_TEMPLATE                                                     \
    {.name = "chat-template", .type = OPT_FILE, .arg = "NAME|FILE",           \
     .def = "the checkpoint's",                                               \
     .help = "one of the checkpoint's chat templates by its name, or a file " \
             "with a template",                                               \
     .offset = COMMON(chat_template)},                                        \
    {.name = "template-arg", .type = OPT_TEXTS, .arg = "NAME=VALUE",          \
     .help = "a variable of the template: a JSON value, else a text; "        \
             "repeatable",                                                    \
     .offset = COMMON(template_args)},                                        \
    {.name = "template-time", .type = OPT_FILE, .arg = "TIME",                \
     .def = "now, in local time",                                                            \
     .help = "the time that templates see, as \"2026-11-22 10:30:00\"",       \
     .offset = COMMON(template_time)}

#define OPT_ROWS_THREADS                                                      \
    {.name = "threads", .letter = 't', .type = OPT_INT, .arg = "N",           \
     .imin = 1, .imax = 1024, .def = "physical cores",                        \
     .help = "number of threads", .offset = COMMON(threads)}

#define OPT_ROWS_KERNELS                                                      \
    {.name = "isa", .type = OPT_TEXT, .arg = "LEVEL",                       \
     .def = "the best this CPU has",                                          \
     .help = "highest level of kernels to use; qwick(1) lists them",          \
     .offset = COMMON(isa)},                                                  \
    {.name = "exact", .type = OPT_FLAG,                                       \
     .help = "compute in float32 with one fixed order of sums, without BLAS", \
     .offset = COMMON(exact)},                                                \
    {.name = "kv", .type = OPT_CHOICE, .choices = "f32|f16|q8",               \
     .def = "f16, f32 with --exact",                                          \
     .help = "type of the KV cache", .offset = COMMON(kv)}

#define OPT_ROWS_CORE                                                         \
    {.name = "core", .type = OPT_TEXT, .arg = "NAME", .def = "this CPU's core", \
     .help = "use the record of another core, or measure with probe",         \
     .offset = COMMON(core)}

#define OPT_ROWS_CTX                                                          \
    {.name = "ctx", .letter = 'c', .type = OPT_INT, .arg = "N", .imin = 1,    \
     .imax = INT32_MAX, .def = "the model's maximum",                         \
     .help = "most tokens of prompt and answer", .offset = COMMON(ctx)}

#define OPT_ROWS_PREFILL                                                      \
    {.name = "prefill-chunk", .type = OPT_INT, .arg = "N", .imin = 1,         \
     .imax = 65536, .def = "512", .help = "tokens per prefill pass",          \
     .offset = COMMON(prefill_chunk)},                                        \
    {.name = "preload", .type = OPT_FLAG,                                     \
     .help = "copy the weights into memory at start",                         \
     .offset = COMMON(preload)},                                              \
    {.name = "numa", .type = OPT_CHOICE, .arg = "MODE",                       \
     .choices = "off|interleave|bind", .def = "off",                          \
     .help = "on several memory nodes: spread the copy of --preload, or "     \
             "bind threads and copy to their nodes",                          \
     .offset = COMMON(numa)}

/* Options of every verb that evaluates a model. */
#define OPT_ROWS_EVALUATE                                                     \
    {.type = OPT_HEADING, .help = "Model and machine"}, OPT_ROWS_MODEL,       \
    OPT_ROWS_THREADS, OPT_ROWS_KERNELS, OPT_ROWS_CTX, OPT_ROWS_PREFILL

#define OPT_ROWS_MAX_BATCH(at, number, what)                                  \
    {.name = "max-batch", .type = OPT_INT, .arg = "N", .imin = 1,             \
     .imax = 1024, .def = number, .help = what, .offset = (at)}

#define OPT_ROWS_PREFIX                                                       \
    {.name = "prefix-cache", .type = OPT_FLAG_FILE, .arg = "DIR",             \
     .place = "cache-dir", .access = OPT_CACHES,                              \
     .help = "keep the beginnings of prompts on disk, so that later runs do " \
             "not evaluate them again",                                       \
     .offset = COMMON(prefix_cache)},                                         \
    {.name = "cache-dir", .type = OPT_FILE, .arg = "DIR",                     \
     .def = "$XDG_CACHE_HOME/qwick or ~/.cache/qwick",                        \
     .help = "directory of the prefix cache; turns --prefix-cache on",        \
     .offset = COMMON(cache_dir)},                                            \
    {.name = "prefix-cache-size", .type = OPT_SIZE, .arg = "SIZE",            \
     .imin = 1, .def = "4G",                                                  \
     .help = "keep at most SIZE bytes, with K, M, G or T",                    \
     .offset = COMMON(prefix_cache_size)}

/* Of verbs that read records. */
#define OPT_ROWS_INPUT                                                        \
    {.name = "input", .letter = 'i', .type = OPT_TEXTS, .access = OPT_READS,  \
     .arg = "FILE", .def = "standard input",                                  \
     .help = "records from FILE, - is stdin; repeatable; without another "    \
             "form they are those of --jsonl",                                \
     .offset = COMMON(input)}

/* Of verbs that call sandbox_enter. */
#define OPT_ROWS_SANDBOX                                                      \
    {.name = "no-sandbox", .type = OPT_FLAG,                                  \
     .help = "keep the rights to open files, use the network and start "      \
             "programs; see qwick(1)",                                        \
     .offset = COMMON(no_sandbox)}

#define OPT_ROWS_BASIC                                                        \
    {.name = "quiet", .letter = 'q', .type = OPT_FLAG,                        \
     .help = "print no warnings", .offset = COMMON(quiet)},                   \
    {.name = "verbose", .letter = 'v', .type = OPT_FLAG,                      \
     .help = "print notes on stderr", .offset = COMMON(verbose)},             \
    {.name = "no-config", .type = OPT_FLAG,                                   \
     .help = "do not read the config file", .offset = COMMON(no_config)},     \
    {.name = "show-config", .type = OPT_FLAG,                                 \
     .help = "print each option's value and where it is set",                 \
     .offset = COMMON(show_config)},                                          \
    {.name = "help", .letter = 'h', .type = OPT_FLAG,                         \
     .help = "print this help", .offset = COMMON(help)},                      \
    {.name = "version", .letter = 'V', .type = OPT_FLAG,                      \
     .help = "print the version", .offset = COMMON(version)}
/* clang-format on */

/* Exit statuses that enum qwick_err_code does not have. */
enum {
    EXIT_INCOMPLETE = 6, /* --require-answer and the answer is cut or empty; a
                            constraint and the answer is cut; --extract and it
                            has no complete code block; a tool call that is
                            malformed or cut; selftest and a check is cut */
    EXIT_BELOW = 10      /* choose: not likely enough, or the answer is no */
};

/* Check the common options against each other, set the level of messages,
 * resolve an alias of -m, and copy --cache-dir to prefix_cache. Returns -1 to
 * go on, or exit status 2 after printing a message. */
int common_check(const struct opt_parsed *p, struct common_args *c);

/* Refuse an option that colours stdout, if it is given and stdout gets no
 * colours: the terminal does not show them, or it is no terminal and --color
 * always is not given. Returns -1 to go on, or exit status 2 after printing a
 * message. */
int common_check_colours(const struct opt_parsed *p,
                         const struct common_args *c, const char *option);

/* Return the memory that a prefix cache may take, for requests that share the
 * beginnings of their prompts with later ones. */
size_t common_cache_memory(void);

/* Find the models that the options name, and begin the first part of the verb's
 * sandbox (sandbox_load). Verbs that do not call common_open may call this.
 * Returns 0, or an exit status after printing a message. */
int common_find(struct common_args *c);

/* Call common_find, open the engine, and
 * print its warnings and notes. Returns 0, or an exit
 * status after printing a message. */
int common_open(struct qwick_engine **eng, struct common_args *c,
                bool tokenizer_only);

/* After common_open, open the draft model of --draft, if there is one, for eng,
 * and print its messages.
 * Returns 0, or an exit status after printing a message. */
int common_open_draft(struct qwick_engine **draft, const struct common_args *c,
                      struct qwick_engine *eng);

/* If the demo model answers and stderr is a terminal, print a hint about it. */
void common_hint_demo(const struct common_args *c);

/* If the only argument is the name of a regular file, warn that the name is
 * used as text, and that -f reads files. After "--" an argument is text anyway.
 */
void common_warn_file(const struct opt_parsed *p);

/* Refuse several arguments where one text is read (hint ends the message), or
 * an argument beside --prompt. If one of them is a file, the message suggests
 * -f for each file. Returns exit status 2. */
int common_refuse_words(const struct opt_parsed *p, const char *what,
                        const char *hint);

/* Check the options of records, --input, --lines and --jsonl. Records without a
 * form are those of --jsonl: this sets c->jsonl. Returns -1 to go on, or exit
 * status 2 after printing a message. */
int common_check_records(const struct opt_parsed *p, struct common_args *c);

/* What the arguments of a verb are. */
enum text_args {
    TEXT_ONE,  /* one text */
    TEXT_MANY, /* texts */
    TEXT_IDS   /* token ids, which are no names of files */
};

/* Check the arguments and sources of a verb that reads texts from its
 * arguments, from the files of -f, from standard input, or as records. `what`
 * is the name of its texts ("text", "chat"). An argument that is a regular
 * file's name is refused, because a number about the name is never wanted. An
 * argument "-" means standard input and is removed from *p. Returns -1 to go
 * on, or exit status 2 after printing a message. */
int common_check_text(struct opt_parsed *p, struct common_args *c,
                      const char *what, enum text_args kind);

/* Print that a verb has no text to read. Returns exit status 2. */
int common_no_input(const struct verb *v);

#endif
