/* The scheduler's task that answers many prompts. batch.c turns outputs into
 * tokens. batch_speculative.c lets draft models guess tokens. batch_keep.c puts
 * tokens of requests into the prefix caches, for later requests. */
#ifndef ENGINE_BATCH_H
#define ENGINE_BATCH_H

#include "engine/generate/generate.h"
#include "engine/generate/speculative.h"
#include "engine/runs/runs.h"

/* One request. run.tokens points to ids: the prompt, then the answer, then
 * guesses. */
struct seq {
    struct run run; /* first */
    void *tag;
    struct qwick_generate_options o;
    struct qwick_sampling sampling; /* o.sampling */
    int32_t *ids; /* [cap], the first run.n and the guesses are in use */
    size_t n_prompt, cap;
    bool begun; /* g has been started */
    struct generation g;
    struct speculative guesses;
    bool guessed; /* guesses for the next pass have been made, or none */
    struct qwick_result r;
    double start_ms; /* time of the first pass; 0: no pass yet */
    int32_t drawn;   /* token drawn in the current pass */
    bool failed;     /* e says why */
    struct qwick_err e;
};

struct qwick_batch {
    struct runs runs;
    struct qwick_batch_options o;
    /* `like` is the sequence of tokens of which beginnings go to disk: first
       o.common, then the first prompt that begins with it. NULL: nothing goes
       to disk. */
    int32_t *like; /* [n_like] */
    size_t n_like;
    bool like_prompt; /* `like` is a prompt */
    size_t n_stored;  /* tokens of `like` that are on disk; SIZE_MAX: store no
                         more */
    uint64_t n_generated;
    struct draft **drafts; /* [max_batch] for joint guesses */
    bool told_short;       /* that memory is short for draft models */
    /* The budget of the last answer with guesses that has ended. */
    struct draft_budget learned;
    /* The draft model of that answer; NULL: there was none. */
    const struct qwick_engine *learned_of;
};

/* Make room for n tokens in q->ids. */
int seq_reserve(struct seq *q, size_t n, struct qwick_err *e);

/* ---- batch_speculative.c ---- */

/* When an answer begins: it knows what the last one has learned about guesses.
 * When one ends: take notice of that. */
void batch_recall(const struct qwick_batch *b, struct seq *q);
void batch_learn(struct qwick_batch *b, struct seq *q);

/* See struct run_task. */
void batch_guess(struct runs *s);
bool batch_give_up_guesses(struct runs *s);

/* ---- batch_keep.c ---- */

/* Take notice of a new prompt, or of o.common: if the batch has no prompt in
 * `like` yet and this one begins with `like`, it replaces `like`. */
int batch_note_prompt(struct qwick_batch *b, const int32_t *tokens, size_t n,
                      struct qwick_err *e);

/* When q got a session: with recurrent layers, ask for snapshots where a later
 * prompt will probably part from this one. */
void batch_request_snapshots(const struct qwick_batch *b, const struct seq *q);

/* After the prompt of q has been evaluated: put it into the engine's prefix
 * cache in memory, and the beginning that it shares with `like` on disk. */
void batch_keep_prompt(struct qwick_batch *b, const struct seq *q);

/* After a sequence has ended: put all tokens of its session into the prefix
 * cache in memory, also the last, partly filled page, because a chat may go on
 * after the answer. */
void batch_keep_answer(struct qwick_batch *b, struct qwick_session *s);

#endif
