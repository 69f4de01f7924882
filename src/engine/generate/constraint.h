/* Constraints on texts: which tokens may follow. A constraint joins an
 * automaton over bytes (text/grammar) with the tokens of an engine. A matcher
 * is one text under the constraint.
 *
 * Masks. The tokens that a state admits are found by a walk over the trie of
 * all tokens, which skips the subtrees below bytes that the state does not
 * admit. A state is taken apart into groups (automaton.h). What a group admits
 * inside its rule is the same wherever the rule is used, so it is kept. Only
 * the tokens that leave the rule are looked up anew: the walk begins at the
 * nodes of the trie where the rule can end. */
#ifndef ENGINE_CONSTRAINT_H
#define ENGINE_CONSTRAINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct grammar;
struct matcher;
struct qwick_constraint;
struct token_trie;

/* Limit of the bytes that a constraint keeps for masks. */
#define CONSTRAINT_MASK_BYTES (16u << 20)

/* Make a constraint from a finished grammar, which is not needed afterwards.
 * trie is borrowed. name begins messages. QWICK_ERR_USAGE if the grammar is too
 * large, or if no token begins a text of it. */
int constraint_create(struct qwick_constraint **out, const struct grammar *g,
                      const char *name, struct token_trie *trie,
                      struct qwick_err *e);
/* There must be no matchers left. NULL is accepted. */
void constraint_free(struct qwick_constraint *c);

/* Bytes that the constraint keeps for states and masks, without the code of the
 * automaton. */
size_t constraint_bytes(const struct qwick_constraint *c);

/* Drop states that no text needs as soon as they take n_bytes. For tests. */
void constraint_limit(struct qwick_constraint *c, size_t n_bytes);

/* Begin a text. */
int matcher_create(struct matcher **out, struct qwick_constraint *c,
                   struct qwick_err *e);
void matcher_free(struct matcher *m);

/* The ids that may come next, as bits: id i is bit i % 64 of word i / 64. Stop
 * ids and control tokens are not among them. Borrowed, valid until the next
 * call on the matcher. Returns NULL with *e set if the automaton failed
 * (QWICK_ERR_RUNTIME or QWICK_ERR_MEMORY). *n_ids: number of bits that are set.
 * Equal texts always have equal masks. */
const uint64_t *matcher_mask(struct matcher *m, size_t *n_ids,
                             struct qwick_err *e);
size_t matcher_words(const struct matcher *m);

/* Append the bytes of a token. QWICK_ERR_RUNTIME if they do not fit the
 * constraint. */
int matcher_accept(struct matcher *m, int32_t id, struct qwick_err *e);

/* Whether the text is complete: it may end here. */
bool matcher_complete(const struct matcher *m);

/* Whether the next byte of the text may be this one. */
bool matcher_admits_byte(const struct matcher *m, unsigned char byte);

/* Write to ids the tokens that must follow: as long as exactly one token may
 * come next and the text may not end, at most max of them. The text stays
 * as it is. */
int matcher_forced(struct matcher *m, int32_t *ids, size_t max, size_t *n,
                   struct qwick_err *e);

#endif
