/* The constraints of requests. Requests with equal constraints share one. One
 * thread at a time may get constraints; any thread may give them back. */
#ifndef CLI_CONSTRAINT_CACHE_H
#define CLI_CONSTRAINT_CACHE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/key.h"
#include "qwick.h"

/* A constraint in use. */
struct constraint_ref {
    struct constraint_ref *next;
    struct constraint_cache *cache;
    struct qwick_constraint *constraint;
    enum qwick_constraint_kind kind;
    struct buf text;
    struct buf tool; /* of the options, or empty */
    int json_indent;
    bool lenient;
    bool json_any_order;
    size_t n_users; /* under the mutex of the cache */
    uint64_t last_use;
};

/* The most warnings that are printed. */
enum { MAX_CONSTRAINT_WARNINGS = 64 };

struct constraint_cache {
    struct constraint_ref *first;
    uint64_t warned[MAX_CONSTRAINT_WARNINGS]; /* [n_warned] hashes of the
                                                 warnings that were printed */
    size_t n_warned;
    uint64_t n_uses;
    pthread_mutex_t mutex;
};

void constraint_cache_init(struct constraint_cache *c);

/* Get the constraint of these options, from the cache or compiled. The library's
 * warnings are printed, each once. Returns 0, or -1 with *e set. Give each
 * reference back with constraint_cache_put. */
int constraint_cache_get(struct constraint_cache *c, struct qwick_engine *eng,
                         const struct qwick_constraint_options *o,
                         struct constraint_ref **out, struct qwick_err *e);

/* Return another reference to the constraint. */
struct constraint_ref *constraint_cache_share(struct constraint_ref *r);

/* Give a reference back; NULL is accepted. The constraint stays for a while:
 * the next request may have the same one. */
void constraint_cache_put(struct constraint_ref *r);

/* Free all constraints. No answer may use them afterwards. */
void constraint_cache_free(struct constraint_cache *c);

/* Add a constraint to the key of an answer. */
void constraint_add_key(struct key *k, const struct constraint_ref *r);

#endif
