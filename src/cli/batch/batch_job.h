/* A run of batch: its arguments and its state. A record is a line of the input.
 * A record may ask for several answers, its samples. */
#ifndef CLI_BATCH_JOB_H
#define CLI_BATCH_JOB_H

#include "base/hashmap.h"
#include "base/key.h"
#include "cli/answer/request.h"
#include "cli/batch/batch_form.h"
#include "cli/batch/batch_out.h"
#include "cli/input/source.h"
#include "cli/io/lines.h"
#include "qwick.h"

/* Maximum number of warnings about repeated ids; further repeats are only
 * counted. */
#define BATCH_SHOWN_IDS 10

struct sample;

/* The ids read so far, to find repeated ids. */
struct id_set {
    struct batch_id *v; /* [n] */
    size_t n, cap;
    struct hashmap map; /* from their hashes to v */
    uint64_t n_repeated;
};

struct batch_job {
    struct gen_job g;
    struct request_context c; /* of g */
    struct args *a;   /* of g.p */
    size_t shard;   /* this run answers record i if i % n_shards == shard */
    size_t n_shards;
    struct lines in;
    struct source source; /* the records of in */
    struct buf columns;   /* for CSV: of the record that is being read */
    const struct output_form *form; /* of the answers */
    bool compared;      /* we have compared the model that requests name */
    uint64_t n_printed; /* errors that were printed */
    struct batch_out out;

    uint64_t draft_id[2]; /* identity of a draft model that is in keys */
    struct key run;       /* key of the model and of the settings that all
                             answers share */

    struct qwick_batch *batch;
    struct sample *samples; /* list of the requests that have no answer yet */
    struct id_set ids;
    bool at_end; /* the input has ended */
    /* Make passes that depend only on the numbers of the records, not on when
       they arrive: a pass begins when it is full or the input has ended. */
    bool by_number;
    uint64_t n_records;  /* records read, including records of other shards */
    uint64_t n_answered; /* records that this run answered or refused */
    uint64_t n_skipped;  /* records that an earlier run has answered */
    uint64_t n_errors;   /* answers of this run that are errors */
    uint64_t n_samples;  /* samples of the records read, whichever run answers
                            them */
    uint64_t n_done;     /* answers of this run */
    /* answers of this run, by finish reason */
    uint64_t n_ended[QWICK_FINISH_CANCELLED + 1];
    /* answers of this run that are not complete, each in one of these numbers
     */
    uint64_t n_broken; /* that fall short of a constraint, tools or --extract */
    uint64_t n_cut[QWICK_FINISH_CANCELLED + 1]; /* by finish reason */
    uint64_t n_empty;                           /* that have no text */
    struct qwick_err fatal; /* error of a callback; code 0: no error */
    /* for progress */
    uint64_t in_bytes; /* size of the input; 0: unknown */
    uint64_t n_total;  /* records of this shard; 0: unknown */
    double start_ms;   /* start of the run */
};

/* Read records, answer them and write the answers, until the input ends, a
 * signal comes or something fails. Returns an exit status, after printing a
 * message if it is not 0. */
int batch_work(struct batch_job *j);

/* Hand records to the scheduler while it wants more and input is available. A
 * bad record is answered with an error at once. Waits up to timeout_ms for the
 * first record. *got is set to whether a record came. Returns 0, or -1 with *e
 * set. */
int batch_feed(struct batch_job *j, int timeout_ms, bool *got,
               struct qwick_err *e);

/* Return whether the scheduler has room for more records. */
bool batch_wants_more(const struct batch_job *j);

/* Return the part of an answer's key that all answers of the run share. */
uint32_t batch_run_key(const struct batch_job *j);

/* The scheduler's callback for a request that has ended. ctx is the job. */
int batch_done(void *ctx, void *tag, struct qwick_result *r,
               const struct qwick_err *e);

/* Free the requests that have no answer yet. */
void batch_drop(struct batch_job *j);

#endif
