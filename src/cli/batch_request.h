/* One record of a batch: parse a line of JSON into prompts and options. */
#ifndef CLI_BATCH_REQUEST_H
#define CLI_BATCH_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cli/answer_opts.h"
#include "cli/key.h"
#include "cli/opt.h"
#include "qwick.h"

/* Most samples of one record. */
#define REQUEST_MAX_N 1000

/* Settings that the options give to all requests. */
struct request_common {
    const struct qwick_engine *eng;
    const struct opt_parsed *p;
    const struct answer_args *answer;
    const char *system; /* NULL: none */
    size_t n_system;
    struct buf before; /* text of -f, put before each prompt */
    enum qwick_think think;
    bool raw, allow_special;
    uint64_t seed;    /* seed of the run */
    bool seeded;      /* an option gave the seed, so a repeated run has the same
                         seed */
    struct key run;   /* key of the model and of the settings of all answers */
    const char *name; /* name of the input, for warnings; NULL: no warnings */
    struct buf unknown; /* unknown keys that were warned about */
};

struct json_doc;

struct request {
    struct json_doc *doc; /* between request_open and request_read */
    uint64_t line;
    struct buf id; /* "id" as JSON; empty: none */
    size_t n;      /* samples, 1..REQUEST_MAX_N */
    bool has_seed;
    int32_t *ids;
    size_t n_ids;
    struct qwick_generate_options o; /* without the seed */
    uint64_t seed;
    char **stop; /* [n_stop] stop strings of the record; NULL: none */
    size_t n_stop;
    double tokenize_ms;
    size_t n_open; /* references: open samples, and the reader */
    size_t n_todo; /* samples without an answer */
};

/* Parse a line, and read its id and its number of samples. r->id is set
 * whenever the line has an id, even on failure. Returns 0, or -1 with *e set.
 * Call request_free in both cases. */
int request_open(struct request *r, uint64_t line, const char *text, size_t n,
                 struct qwick_err *e);

/* Read prompt and options. Returns 0, or -1 with *e set. */
int request_read(struct request *r, struct request_common *c,
                 struct qwick_err *e);
void request_free(struct request *r);

/* Options of sample i. Sample 0 has the record's seed, or else a seed derived
 * from the run's seed and the line. The other samples derive their seeds from
 * that and i. */
struct qwick_generate_options request_options(const struct request *r,
                                              const struct request_common *c,
                                              size_t i);

/* Set the key of the run from the model, --exact, the type of the KV cache, the
 * context limit n_ctx, and --logprobs. Returns 0, or -1 with *e set. */
int request_run_key(struct request_common *c, struct qwick_engine *eng,
                    bool exact, size_t n_ctx, struct qwick_err *e);

/* The key of sample i: a hash of the run, the ids of the prompt, and the
 * options that change the answer. The seed is part of it if the answer is
 * sampled; all random seeds count as one value. */
uint64_t request_key(const struct request *r, const struct request_common *c,
                     size_t i);
/* The key of a line that is not a valid record. */
uint64_t request_line_key(const struct request_common *c, const char *text,
                          size_t n);

/* The hash of an id; 0: there is none. */
uint64_t request_id_hash(const char *id, size_t n);

#endif
