/* A request: functions that parse a record of batch, or what serve makes of a
 * body, into prompt and options. A sample is one of the answers that a request
 * asks for. */
#ifndef CLI_REQUEST_H
#define CLI_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "cli/answer/constraint_cache.h"
#include "cli/answer/gen_job.h"
#include "cli/opt/opt.h"
#include "text/chat/tool_calls.h"
#include "qwick.h"

/* Maximum number of samples of a request. */
#define REQUEST_MAX_N OPT_MAX_SAMPLES

/* Name of a record in messages. record_fault is err_usage for one. */
#define RECORD               "record"
#define record_fault(e, ...) err_usage((e), RECORD ": " __VA_ARGS__)

/* Most bytes of the name of a member at fault. */
#define REQUEST_FAULT 64

struct json_doc;
struct json_value;

/* What all requests of a run share. One thread at a time reads requests;
 * another one may end them meanwhile. */
struct request_context {
    struct gen_job *g; /* its tools are for requests that have none, its choice
                          is for requests that have tools, but neither a choice
                          nor a constraint of their own */
    bool raw;          /* g->mode is MODE_RAW */
    uint64_t seed;
    struct constraint_cache constraints;
    struct constraint_ref *constraint; /* of the options, and of g->choice for
                                          g->tools; NULL: none */

    /* Memory for the JSON of a request, and for its chat template (see
       qwick_chat_options); 0: no limit. */
    size_t json_bytes, render_bytes;

    /* For messages. */
    const char *name; /* of a request; NULL: messages begin with the member */
    /* The name in the input of a record's member; NULL: it is the same. */
    const char *(*member_name)(const char *name);
    const char *input;  /* what warnings name */
    const char *unit;   /* of request.line */
    struct buf unknown; /* names of unknown members about which we have warned
                         */
    size_t n_unknown;
};

/* Must be the first call. The names for messages are the caller's to set. */
void request_context_init(struct request_context *c, struct gen_job *g);
/* After g is open: set raw, seed and constraint. Returns 0, or an exit status
 * after printing a message. */
int request_context_open(struct request_context *c);
void request_context_free(struct request_context *c);

/* Return whether a record has a member of this name, which is a string. */
bool request_has_key(const struct json_value *name);

/* Warn about an unknown member of request `number`: it may be data for other
 * programs, or a misspelt option. Warns once per name, and about 64 names. */
void request_warn_unknown(struct request_context *c,
                          const struct json_value *name, uint64_t number);

struct request {
    struct request_context *c;
    struct json_doc *doc; /* set between request_open and request_read, and
                             longer if it holds the tools or stop strings */
    const struct json_value *tools; /* an array that is not empty; NULL: none */
    uint64_t line;                  /* its number in the input */
    struct buf id;                  /* "id" as JSON; empty: none */
    uint64_t id_hash;               /* request_id_hash of id */
    size_t n;                       /* number of samples, 1..REQUEST_MAX_N */
    bool has_seed;
    uint64_t seed; /* of sample 0: the record's own, or one derived from the
                      run's seed and the line */
    int32_t *ids;
    size_t n_ids;
    struct buf asked, system; /* for the log, if the context has one: the prompt
                                 and the system prompt (data NULL: none) */
    int64_t n_messages;       /* the same: messages of the chat; 0: no chat */
    struct qwick_generate_options o; /* without sampling */
    struct qwick_sampling sampling;  /* without the seed */
    const char **stop; /* stop strings of the record, in doc; NULL: none */
    struct qwick_bias *bias;           /* [o.n_bias] or NULL: none */
    struct constraint_ref *constraint; /* NULL: none */
    bool raw; /* no template frames the prompt; request_open sets it to that of
                 the context, and the caller may set it before request_read */
    bool one_call;     /* its answers have at most one tool call */
    bool own_logprobs; /* the record says whether it has log-probabilities */
    bool no_top;       /* they are only those of the tokens drawn */
    double tokenize_ms;
    size_t n_open; /* references to this struct: one per open sample, and one of
                      the reader */
    size_t n_todo; /* samples without an answer */
    char fault[REQUEST_FAULT]; /* after a failure: the member at fault, with its
                                  name in the input; empty: unknown */
};

/* Parse a record, and read its id and its number of samples. r->id is set
 * whenever the record has an id, even on failure. Returns 0, or -1 with *e set.
 * Call request_free in both cases. */
int request_open(struct request *r, struct request_context *c, uint64_t line,
                 const char *text, size_t n, struct qwick_err *e);

/* Read the prompt and the options, which overrule those of the command line.
 * Returns 0, or -1 with *e set. */
int request_read(struct request *r, struct qwick_err *e);
void request_free(struct request *r);

/* Return the options of sample i, of which *sampling becomes a part. The seed
 * of each sample but the first is derived from that of the first and i. */
struct qwick_generate_options request_options(const struct request *r, size_t i,
                                              struct qwick_sampling *sampling);

/* Begin to read the calls in the answer of sample i. */
void request_begin_calls(const struct request *r, size_t i,
                         struct tool_calls *out);

/* Append an id, a string or a number, as JSON; any other value, or NULL, is
 * none. Returns 0, or -1 when out of memory. */
int request_id(struct buf *out, const struct json_value *id);
/* Return the hash of an id; 0 if there is no id. */
uint64_t request_id_hash(const struct buf *id);

#endif
