/* One record of a batch: functions that parse a line of JSON into prompt and
 * options. A sample is one of the answers that a record asks for. */
#ifndef CLI_BATCH_REQUEST_H
#define CLI_BATCH_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cli/answer/answer_opts.h"
#include "cli/answer/constraint_cache.h"
#include "base/key.h"
#include "cli/opt/opt.h"
#include "cli/answer/tool_choice.h"
#include "cli/answer/tools.h"
#include "qwick.h"

/* Maximum number of samples of a record. */
#define REQUEST_MAX_N OPT_MAX_SAMPLES

/* Settings from the command line that all requests share. */
struct request_common {
    struct qwick_engine *eng;
    const struct opt_parsed *p;
    const char *system; /* NULL: none */
    size_t n_system;
    struct buf before; /* text of -f, which precedes each prompt */
    enum qwick_think think;
    bool raw, allow_special;
    bool extract;              /* answers have "code" */
    struct tool_list tools;    /* for records that have none */
    struct tool_choice choice; /* for records that have tools, but neither a
                                  choice nor a constraint of their own */
    struct constraint_cache constraints;
    struct constraint_ref *constraint; /* of the options, and of `choice` for
                                          `tools`; NULL: none */
    uint64_t seed;                     /* of the run */
    bool seeded;      /* an option set the seed, so that a repeated run has the
                         same one */
    struct qwick_engine *draft; /* NULL: none */
    /* A draft model that changes sampled answers: without --exact. Its identity
       is then in their keys. */
    bool draft_changes;
    uint64_t draft_id[2];
    struct key run;   /* key of the model and of the settings that all answers
                         share */
    const char *name; /* name of the input, for warnings; NULL: no warnings */
    struct buf unknown; /* unknown keys of records about which we have warned */
};

struct json_doc;
struct json_value;

/* Return whether a record has a member of this name, which is a string. */
bool request_has_key(const struct json_value *name);

struct request {
    struct json_doc *doc; /* set between request_open and request_read, and
                             longer if it holds the tools */
    const struct json_value *tools; /* an array that is not empty; NULL: none */
    uint64_t line;
    struct buf id; /* "id" as JSON; empty: none */
    size_t n;      /* number of samples, 1..REQUEST_MAX_N */
    bool has_seed;
    int32_t *ids;
    size_t n_ids;
    struct qwick_generate_options o; /* without sampling */
    struct qwick_sampling sampling;  /* without the seed */
    uint64_t seed;
    char **stop; /* [n_stop] stop strings of the record; NULL: none */
    size_t n_stop;
    struct constraint_ref *constraint; /* NULL: none */
    bool own_logprobs; /* the record says whether it has log-probabilities */
    bool no_top;       /* they are only those of the tokens drawn */
    double tokenize_ms;
    size_t n_open; /* references to this struct: one per open sample, and one of
                      the reader */
    size_t n_todo; /* samples without an answer */
};

/* Parse a line, and read its id and its number of samples. r->id is set
 * whenever the line has an id, even on failure. Returns 0, or -1 with *e set.
 * Call request_free in both cases. */
int request_open(struct request *r, uint64_t line, const char *text, size_t n,
                 struct qwick_err *e);

/* Read the prompt and the options. Returns 0, or -1 with *e set. */
int request_read(struct request *r, struct request_common *c,
                 struct qwick_err *e);
void request_free(struct request *r);

/* Return the options of sample i. Sample 0 has the record's seed or, if the
 * record has none, a seed derived from the run's seed and the line. The seed of
 * any other sample is derived from the seed of sample 0 and i. *sampling becomes
 * a part of the options. */
struct qwick_generate_options request_options(const struct request *r,
                                              const struct request_common *c,
                                              size_t i,
                                              struct qwick_sampling *sampling);

/* Set the key of the run from the model, --exact, the type of the KV cache, the
 * context limit n_ctx, --logprobs, and the name of the form of answers (NULL:
 * JSON lines). Returns 0, or -1 with *e set. */
int request_run_key(struct request_common *c, struct qwick_engine *eng,
                    bool exact, size_t n_ctx, const char *form,
                    struct qwick_err *e);

/* Return the key of sample i: a hash of the run's key, the ids of the prompt,
 * and the options that change the answer. The seed counts only if the answer is
 * sampled. All random seeds count as the same value. */
uint64_t request_key(const struct request *r, const struct request_common *c,
                     size_t i);
/* Return the key of a line that is not a valid record. */
uint64_t request_line_key(const struct request_common *c, const char *text,
                          size_t n);

/* Return the hash of an id; 0 if there is no id. */
uint64_t request_id_hash(const char *id, size_t n);

#endif
