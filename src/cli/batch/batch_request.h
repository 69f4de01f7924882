/* One record of a batch: functions that parse a line of JSON into prompt and
 * options. A sample is one of the answers that a record asks for. */
#ifndef CLI_BATCH_REQUEST_H
#define CLI_BATCH_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/key.h"
#include "cli/answer/constraint_cache.h"
#include "cli/opt/opt.h"
#include "qwick.h"

/* Maximum number of samples of a record. */
#define REQUEST_MAX_N OPT_MAX_SAMPLES

/* Name of a record in messages. record_fault is err_usage for one. */
#define RECORD               "record"
#define record_fault(e, ...) err_usage((e), RECORD ": " __VA_ARGS__)

struct batch_job;
struct json_doc;
struct json_value;

/* Return whether a record has a member of this name, which is a string. */
bool request_has_key(const struct json_value *name);

struct request {
    struct json_doc *doc; /* set between request_open and request_read, and
                             longer if it holds the tools or stop strings */
    const struct json_value *tools; /* an array that is not empty; NULL: none */
    uint64_t line;
    struct buf id;    /* "id" as JSON; empty: none */
    uint64_t id_hash; /* request_id_hash of id */
    size_t n;         /* number of samples, 1..REQUEST_MAX_N */
    bool has_seed;
    uint64_t seed; /* of sample 0: the record's own, or one derived from the
                      run's seed and the line */
    int32_t *ids;
    size_t n_ids;
    struct qwick_generate_options o; /* without sampling */
    struct qwick_sampling sampling;  /* without the seed */
    const char **stop; /* stop strings of the record, in doc; NULL: none */
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

/* Read the prompt and the options, which overrule those of the command line.
 * Returns 0, or -1 with *e set. */
int request_read(struct request *r, struct batch_job *j, struct qwick_err *e);
void request_free(struct request *r);

/* Return the options of sample i, of which *sampling becomes a part. The seed of
 * each sample but the first is derived from that of the first and i. */
struct qwick_generate_options request_options(const struct request *r,
                                              const struct batch_job *j,
                                              size_t i,
                                              struct qwick_sampling *sampling);

/* Set the key of the run from the model, the form of the answers, and the
 * options that all answers share. Returns 0, or -1 with *e set. */
int request_run_key(struct batch_job *j, struct qwick_err *e);

/* Return the key of sample i: a hash of the run's key, the ids of the prompt,
 * and the options that change the answer. The seed counts only if the answer is
 * sampled. All random seeds count as the same value. */
uint64_t request_key(const struct request *r, const struct batch_job *j,
                     size_t i);
/* Return the key of a line that is not a valid record. */
uint64_t request_line_key(const struct batch_job *j, const char *text,
                          size_t n);

/* Append an id, a string or a number, as JSON; any other value, or NULL, is
 * none. Returns 0, or -1 when out of memory. */
int request_id(struct buf *out, const struct json_value *id);
/* Return the hash of an id; 0 if there is no id. */
uint64_t request_id_hash(const struct buf *id);

#endif
