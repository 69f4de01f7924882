/* A run of generate: its arguments and its state. choose uses parts of it. */
#ifndef CLI_GEN_JOB_H
#define CLI_GEN_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cli/answer/answer_opts.h"
#include "cli/opt/common.h"
#include "cli/answer/constraint_opts.h"
#include "cli/opt/opt.h"
#include "cli/opt/preset.h"
#include "cli/answer/tool_choice.h"
#include "cli/answer/tools.h"
#include "qwick.h"

struct gen_args {
    struct common_args c;
    const char *prompt;
    struct preset_args preset;
    struct opt_texts files;
    bool file_names;
    const char *system, *system_file;
    bool raw;
    const char *chat_json;
    const char *tools, *tool_choice;
    const char *think;
    bool show_thinking;
    const char *think_file;
    const char *prefill;
    const char *prompt_ids;
    bool allow_special, no_stdin;
    struct answer_args answer;
    struct constraint_args constraint;
    int64_t lookup;
    const char *draft;
    const char *overflow;
    const char *session, *save_session;
    bool keep, go_on; /* --keep, --continue */
    bool no_history;  /* of chat */
    struct opt_flag_file profile;
    const char *profile_file; /* set by --profile-file; moved to profile.file */
    bool no_newline, null;
    bool confidence;
    int64_t samples;
    bool extract;
    int64_t repeat;
};

/* clang-format off */
/* Rows for the option table of a verb. at: offset of struct gen_args in the
 * verb's struct of arguments. */
#define GEN_AT(at, field) ((at) + offsetof(struct gen_args, field))

#define OPT_ROWS_FILE_NAMES(at)                                               \
    {.name = "file-names", .type = OPT_FLAG,                                  \
     .help = "put the name of each file above its text", .offset = (at)}

#define OPT_ROWS_SYSTEM(text_at, file_at, what)                               \
    {.name = "system", .letter = 's', .type = OPT_TEXT, .arg = "TEXT",        \
     .help = what, .offset = (text_at)},                                      \
    {.name = "system-file", .type = OPT_FILE, .arg = "FILE",                  \
     .help = "system prompt from a file", .offset = (file_at)}

#define OPT_ROWS_THINK(at)                                                    \
    {.name = "think", .type = OPT_CHOICE, .choices = "on|off|auto",           \
     .def = "auto",                                                           \
     .help = "let the model think first; auto: as its template does",         \
     .offset = (at)}

#define OPT_ROWS_TOOLS(at, what)                                              \
    {.name = "tools", .type = OPT_FILE, .arg = "FILE", .help = what,          \
     .offset = (at)}

#define OPT_ROWS_ALLOW_SPECIAL(at)                                            \
    {.name = "allow-special", .type = OPT_FLAG,                               \
     .help = "text such as <|im_end|> in the prompt becomes a control token", \
     .offset = (at)}

#define OPT_ROWS_CONTINUE(at, what)                                           \
    {.name = "continue", .letter = 'C', .type = OPT_FLAG, .help = what,       \
     .access = OPT_KEEPS,                                                      \
     .offset = (at)}

#define OPT_ROWS_LOOKUP(at)                                                   \
    {.name = "lookup", .type = OPT_INT, .arg = "N", .imin = 0,                \
     .imax = QWICK_LOOKUP_MAX, .def = OPT_STRING(QWICK_LOOKUP_DEFAULT),       \
     .help = "where the answer repeats the context, guess up to N tokens "    \
             "and check them in one pass; 0: off",                            \
     .offset = (at)}

#define OPT_ROWS_SHOW_THINKING(at)                                            \
    {.name = "show-thinking", .type = OPT_FLAG,                               \
     .help = "print the thinking on stdout, before the answer",               \
     .offset = (at)}

#define OPT_ROWS_SEED(at)                                                     \
    {.name = "seed", .type = OPT_INT, .arg = "N", .imin = 0,                  \
     .imax = INT64_MAX, .def = "random",                                      \
     .help = "seed of the draws; does not turn sampling on by itself",        \
     .offset = (at)}

#define OPT_ROWS_DRAFT(at)                                                    \
    {.name = "draft", .type = OPT_FILE, .arg = "MODEL",                       \
     .help = "a smaller model with the same tokenizer, or a copy of the "     \
             "model with fewer bits: it guesses tokens, which are checked "   \
             "in one pass",                                                   \
     .access = OPT_MODEL, .offset = (at)}

#define OPT_ROWS_PROMPT(at)                                                   \
    {.name = "prompt", .letter = 'p', .type = OPT_TEXT, .arg = "TEXT",        \
     .help = "the prompt, as the argument", .offset = GEN_AT(at, prompt)},    \
    {.name = "file", .letter = 'f', .type = OPT_TEXTS, .arg = "FILE",         \
     .help = "text of FILE before the prompt; repeatable, - is stdin",        \
     .offset = GEN_AT(at, files)},                                            \
    OPT_ROWS_FILE_NAMES(GEN_AT(at, file_names)),                              \
    OPT_ROWS_SYSTEM(GEN_AT(at, system), GEN_AT(at, system_file),              \
                    "system prompt"),                                         \
    {.name = "chat-json", .type = OPT_FILE, .arg = "FILE",                    \
     .help = "a chat as JSON: an array of messages, or an object with them",  \
     .offset = GEN_AT(at, chat_json)},                                        \
    {.name = "prompt-ids", .type = OPT_TEXT, .arg = "IDS",                    \
     .help = "the prompt as token ids, \"1,2,3\"; no template",               \
     .offset = GEN_AT(at, prompt_ids)},                                       \
    OPT_ROWS_ALLOW_SPECIAL(GEN_AT(at, allow_special)),                        \
    {.name = "no-stdin", .type = OPT_FLAG,                                    \
     .help = "do not read standard input", .offset = GEN_AT(at, no_stdin)},   \
    {.name = "overflow", .type = OPT_CHOICE, .arg = "HOW",                    \
     .choices = "error|head|tail|middle", .def = "error",                     \
     .help = "what to do with a prompt that does not fit: refuse it, or keep "\
             "its head, its tail, or both ends",                              \
     .offset = GEN_AT(at, overflow)}
/* clang-format on */

enum gen_mode { MODE_CHAT, MODE_RAW, MODE_IDS };

struct gen_job {
    const struct verb *verb;
    struct opt_parsed p;
    struct gen_args a;
    enum gen_mode mode;
    enum qwick_think think;
    const char *arg; /* prompt, given as an argument or by -p */
    struct buf text; /* composed prompt */
    struct buf system, prefill;
    bool has_system;
    struct qwick_chat *chat; /* made from --chat-json when that is read, or from
                                text and system when they are encoded */
    struct tool_list tools;  /* of --tools or of --chat-json */
    struct tool_choice choice; /* of --tool-choice or of --chat-json */
    int32_t *ids;
    size_t n_ids;
    bool in_think;    /* the prompt ends inside an open think block */
    size_t n_dropped; /* tokens that --overflow cut */
    double start_ms;  /* when the run began, from which --timeout counts; 0: it
                         counts from the prompt's evaluation */
    double tokenize_ms;
    struct qwick_engine *eng;
    struct qwick_engine *draft; /* NULL: none */
    struct qwick_session *ses;
    size_t limit;                        /* of the session's context */
    struct qwick_constraint *constraint; /* NULL: none */
    enum qwick_constraint_kind kind;     /* of the constraint */
    int think_fd, profile_fd;
};

/* Check the options against each other, and copy --profile-file to profile.
 * Returns -1 to go on, or exit status 2 after printing a message. */
int gen_check(struct gen_job *j);

/* "qwick tokenise" and "qwick list" are answered as prompts. Warn that the user
 * probably meant a verb. */
void gen_warn_verb(const struct gen_job *j);

/* Read all files and standard input, before the model is opened. Returns 0, or
 * an exit status after printing a message. */
int gen_read_input(struct gen_job *j, struct qwick_err *e);

/* Set j->mode from the options and the open checkpoint. If the checkpoint has
 * no template, prompts are raw, and options that need a template are refused.
 * Returns 0, or an exit status after printing a message. */
int gen_choose_mode(struct gen_job *j);

/* Check, before any work is done, whether the directory of --save-session is
 * writable. Returns 0, or an exit status after printing a message. */
int gen_check_save(const struct gen_job *j);

/* Open a new session, or the saved session of --session. Returns 0, or an exit
 * status after printing a message. */
int gen_open_session(struct gen_job *j);

/* Put the tokens of the saved session before the ids of a prompt that is not a
 * chat. Returns 0, or -1 with *e set. */
int gen_continue(struct gen_job *j, struct qwick_err *e);

/* Save the session to the file of --save-session, with a note (NULL: none).
 * Returns an exit status, after printing a message if it is not 0. */
int gen_save(struct gen_job *j, const struct qwick_result *r, const char *note,
             size_t n_note);

/* After the answer: store the prompt in the prefix cache, keep the conversation
 * for --continue, and save the session to its file. Returns an exit status,
 * after printing a message if it is not 0. */
int gen_keep(struct gen_job *j, const struct qwick_result *r);

/* Set the ids of the prompt. If they do not fit the session's context, they are
 * cut as --overflow says. Returns 0, or -1 with *e set. */
int gen_encode(struct gen_job *j, struct qwick_err *e);

/* Set *id to the control token with this text; -1 if there is none. Returns 0,
 * or -1 with *e set when out of memory. */
int gen_control_id(const struct qwick_engine *eng, const char *text,
                   int32_t *id, struct qwick_err *e);

/* Return whether ids[0..n) end inside an open think block. */
bool gen_ids_in_think(const struct qwick_engine *eng, const int32_t *ids,
                      size_t n);

/* Set j->think from --think. */
void gen_set_think(struct gen_job *j);

/* Compile the constraint of the options or of the choice of tools. Returns 0,
 * or an exit status after printing a message. */
int gen_open_constraint(struct gen_job *j);

/* Free what a job has, and its options. */
void gen_free(struct gen_job *j);

/* Run the verb. Returns an exit status. */
int gen_run(const struct verb *v, int argc, char **argv);

#endif
