/* The verbs: one const entry each, in the order in which help lists them. */
#ifndef CLI_VERBS_H
#define CLI_VERBS_H

#include "cli/opt.h"

extern const struct verb verb_generate, verb_embed, verb_rerank, verb_logits,
    verb_tokenize, verb_detokenize, verb_count, verb_render, verb_inspect,
    verb_bench, verb_quantize, verb_cache, verb_batch, verb_score, verb_choose,
    verb_help, verb_version;

extern const struct verb *const verbs[]; /* NULL at the end */

/* The verb of this name ("run" is generate); NULL: none. */
const struct verb *verb_find(const char *name);

/* Whether a later version will have a verb of this name. It is refused today,
 * so that no script comes to rely on it as a prompt. */
bool verb_is_reserved(const char *name);

/* The name of the verb that is one typing error away from word: a letter too
 * many, too few or wrong, or two letters swapped. NULL: none, or word is a verb
 * itself. */
const char *verb_near(const char *word);

/* Edits (insert, delete, replace, swap neighbours) from a to b; at least 40
 * where one of them has 40 bytes or more. */
size_t word_distance(const char *a, const char *b);

#endif
