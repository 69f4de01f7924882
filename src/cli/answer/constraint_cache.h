/* The constraints of a batch. Records with equal constraints share one. */
#ifndef CLI_CONSTRAINT_CACHE_H
#define CLI_CONSTRAINT_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/key.h"
#include "qwick.h"

/* A constraint in use. */
struct constraint_ref {
    struct constraint_ref *next;
    struct qwick_constraint *constraint;
    enum qwick_constraint_kind kind;
    struct buf text;
    struct buf tool; /* of the options, or empty */
    int json_indent;
    size_t n_users;
    uint64_t last_use;
};

/* A struct of all zeros is empty. */
struct constraint_cache {
    struct constraint_ref *first;
    uint64_t n_uses;
};

/* Get the constraint of these options, from the cache or compiled. Returns 0,
 * or -1 with *e set. Give each reference back with constraint_cache_put. */
int constraint_cache_get(struct constraint_cache *c, struct qwick_engine *eng,
                         const struct qwick_constraint_options *o,
                         struct constraint_ref **out, struct qwick_err *e);

/* Give a reference back; NULL is accepted. The constraint stays for a while:
 * the next record may have the same one. */
void constraint_cache_put(struct constraint_ref *r);

/* Free all constraints. No answer may use them afterwards. */
void constraint_cache_free(struct constraint_cache *c);

/* Add a constraint to the key of an answer. */
void constraint_add_key(struct key *k, const struct constraint_ref *r);

#endif
