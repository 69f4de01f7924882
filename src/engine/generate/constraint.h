/* Constraints on texts: which tokens may follow. A constraint joins an
 * automaton over bytes (text/grammar) with the tokens of an engine. A matcher
 * is one text under the constraint.
 *
 * Masks. A walk over the trie of all tokens finds the tokens that a state
 * admits. It skips the subtrees below bytes that the state does not admit. A
 * state consists of groups (automaton.h). The tokens that a group admits inside
 * its rule do not depend on the place that refers to the rule, so they are
 * kept. Only tokens that leave the rule are looked up again: that walk begins
 * at the nodes of the trie where the rule can end. */
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

/* The most bytes that a constraint keeps for masks. */
#define CONSTRAINT_MASK_BYTES (8u << 20)

/* Make a constraint from a finished grammar, which is not needed afterwards.
 * trie is borrowed. name begins messages. QWICK_ERR_USAGE if the grammar is too
 * large, or if no token begins a text of it. */
int constraint_create(struct qwick_constraint **out, const struct grammar *g,
                      const char *name, struct token_trie *trie,
                      struct qwick_err *e);
/* There must be no matchers left. NULL is accepted. */
void constraint_free(struct qwick_constraint *c);

/* Say that texts may be free (tools_options.optional in
 * text/tools/tools_grammar.h). In free text all tokens are admitted, also
 * those without text. */
void constraint_set_free(struct qwick_constraint *c);
bool constraint_is_free(const struct qwick_constraint *c);

/* Say that what is not free in texts are calls of tools. */
void constraint_set_calls(struct qwick_constraint *c);

/* The check of finished answers, which the constraint owns; NULL: there is
 * none. */
struct answer_check;
void constraint_set_check(struct qwick_constraint *c,
                          struct answer_check *check);
const struct answer_check *
constraint_get_check(const struct qwick_constraint *c);

/* Bytes that the constraint keeps for states and masks, without the code of the
 * automaton. */
size_t constraint_bytes(const struct qwick_constraint *c);

/* Drop states that no matcher needs, and masks, as soon as either take n_bytes.
 * For tests. */
void constraint_limit(struct qwick_constraint *c, size_t n_bytes);

/* Begin a text under the constraint. */
int matcher_create(struct matcher **out, struct qwick_constraint *c,
                   struct qwick_err *e);
void matcher_free(struct matcher *m);

/* Return the ids that may come next, as bits: id i is bit i % 64 of word i
 * / 64. Stop ids and control tokens are not among them, but see
 * constraint_set_free. Sets *n_ids to the
 * number of set bits. The words are borrowed, valid until the next call on the
 * matcher. Returns NULL with *e set if the automaton failed (QWICK_ERR_RUNTIME
 * or QWICK_ERR_MEMORY). Equal texts always have equal masks. */
const uint64_t *matcher_mask(struct matcher *m, size_t *n_ids,
                             struct qwick_err *e);
size_t matcher_words(const struct matcher *m);

/* Append the bytes of a token. QWICK_ERR_RUNTIME if the constraint does not
 * admit them. */
int matcher_accept(struct matcher *m, int32_t id, struct qwick_err *e);

/* Whether the text is complete: it may end here. */
bool matcher_complete(const struct matcher *m);

/* Whether constraint_set_calls was called for the constraint. */
bool matcher_has_calls(const struct matcher *m);

/* Whether the text is free here: it may end, and go on with any byte. */
bool matcher_is_free(const struct matcher *m);

/* Whether the next byte of the text may be this one. */
bool matcher_admits_byte(const struct matcher *m, unsigned char byte);

/* Remember the text; and go back to the text that was remembered. One text at a
 * time, and not across matcher_forced. */
void matcher_hold(struct matcher *m);
void matcher_return(struct matcher *m);

/* Write to ids the tokens that must follow, at most max: one token after the
 * other, as long as only one may come next and the text may not end. Does not
 * change the text. */
int matcher_forced(struct matcher *m, int32_t *ids, size_t max, size_t *n,
                   struct qwick_err *e);

#endif
