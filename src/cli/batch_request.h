/* One record of a batch: a line of JSON to prompts and options. */
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

/* What holds for all records, as options say. */
struct request_common {
    const struct qwick_engine *eng;
    const struct opt_parsed *p;
    const struct answer_args *answer;
    const char *system; /* NULL: none */
    size_t n_system;
    struct buf before; /* text before each prompt, of -f */
    enum qwick_think think;
    bool raw, allow_special;
    uint64_t seed;  /* of the run */
    bool seeded;    /* by an option: a run that is started again has it, too */
    struct key run; /* of the model and what holds for all answers */
    /* keys that are no options, said once each; NULL: nothing is said */
    const char *name; /* of the input */
    struct buf unknown;
};

struct json_doc;

struct request {
    struct json_doc *doc; /* between request_open and request_read */
    uint64_t line;
    struct buf id; /* as JSON; empty: none */
    size_t n;      /* samples, 1..REQUEST_MAX_N */
    bool has_seed;
    int32_t *ids;
    size_t n_ids;
    struct qwick_generate_options o; /* but for the seed */
    uint64_t seed;
    char **stop; /* of the record itself */
    size_t n_stop;
    double tokenize_ms;
    size_t n_open; /* holders of the record: samples, and who reads it */
    size_t n_todo; /* samples without an answer */
};

/* Parse a line: its id and the number of samples. *r is for request_free in any
 * case, and has the id as far as there is one. */
int request_open(struct request *r, uint64_t line, const char *text, size_t n,
                 struct qwick_err *e);

/* The rest of it: prompt and options. */
int request_read(struct request *r, struct request_common *c,
                 struct qwick_err *e);
void request_free(struct request *r);

/* Options of sample i. The first has the seed that the record gives; where it
 * gives none, line, i and the run's seed make one. */
struct qwick_generate_options request_options(const struct request *r,
                                              const struct request_common *c,
                                              size_t i);

/* What holds for all answers: model, exactness, type of the cache, context,
 * logprobs. n_ctx is the context's limit. */
int request_run_key(struct request_common *c, struct qwick_engine *eng,
                    bool exact, size_t n_ctx, struct qwick_err *e);

/* The key of sample i: of the run, the prompt's ids, and the options that
 * change its text. A seed counts where one is drawn with; one that nobody gave
 * is the same as any other such. */
uint64_t request_key(const struct request *r, const struct request_common *c,
                     size_t i);
/* The key of a line that is no record. */
uint64_t request_line_key(const struct request_common *c, const char *text,
                          size_t n);

/* An id as a number to compare; 0: none. */
uint64_t request_id_hash(const char *id, size_t n);

#endif
