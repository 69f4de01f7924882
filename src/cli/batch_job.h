/* One run of batch: its arguments, and what they become. */
#ifndef CLI_BATCH_JOB_H
#define CLI_BATCH_JOB_H

#include "cli/batch_out.h"
#include "cli/batch_request.h"
#include "cli/common.h"
#include "cli/lines.h"
#include "qwick.h"

struct batch_args {
    struct common_args c;
    const char *input, *output;
    bool unordered, redo;
    const char *shard;
    int64_t line_offset, max_batch, debounce;
    const char *system, *system_file;
    struct opt_texts files;
    bool file_names;
    bool raw, allow_special;
    const char *think;
    struct answer_args answer;
};

/* Repeated ids that are told one by one. */
#define BATCH_TOLD_IDS 10

/* Ids that came before, to tell of those that come again. */
struct id_entry {
    uint64_t hash, line; /* hash 0: free */
};
struct id_set {
    struct id_entry *v;
    size_t cap, n;
    uint64_t n_repeated;
};

struct sample;

struct batch_job {
    const struct verb *verb;
    struct opt_parsed p;
    struct batch_args a;
    size_t shard, n_shards; /* records whose number is shard modulo n_shards */
    struct lines in;
    uint64_t in_bytes; /* of the input, 0: unknown */
    struct batch_out out;
    struct request_common common;
    struct buf system;
    struct qwick_engine *eng;
    struct qwick_batch *batch;
    struct sample *samples; /* list of the requests that are open */
    struct id_set ids;
    bool at_end; /* of the input */
    /* Passes are made up by the records' numbers alone: no pass begins before
       all records are there that it has room for. */
    bool by_number;
    uint64_t n_records;  /* seen, those of other shards included */
    uint64_t n_total;    /* of this shard in all; 0: nobody knows */
    uint64_t n_answered; /* records of this run, with an error or without */
    uint64_t n_skipped;  /* records that an earlier run has answered */
    uint64_t n_errors;   /* answers of this run that are errors */
    uint64_t n_samples;  /* answers to the records read, whoever gave them */
    uint64_t n_done;     /* answers of this run */
    /* answers of this run, by their ending */
    uint64_t n_ended[QWICK_FINISH_CANCELLED + 1], n_empty;
    uint64_t n_incomplete; /* of them cut or empty */
    double start_ms;
    struct qwick_err fatal; /* of a callback; code 0: none */
};

/* Read, answer, write, until the end, a signal or a failure. An exit status,
 * the message having been printed. */
int batch_work(struct batch_job *j);

/* Hand the next records that are there to the scheduler; answer bad ones. Waits
 * up to timeout_ms for the first. *got: whether any came. */
int batch_feed(struct batch_job *j, int timeout_ms, bool *got,
               struct qwick_err *e);

/* Whether the next passes have room for records that were not read. */
bool batch_wants_more(const struct batch_job *j);

/* The part of an answer's key that all answers of the run share. */
uint32_t batch_run_key(const struct batch_job *j);

/* Done callback of the scheduler; ctx is the job. */
int batch_done(void *ctx, void *tag, struct qwick_result *r,
               const struct qwick_err *e);

/* Free the requests that are not going to be answered. */
void batch_drop(struct batch_job *j);

#endif
