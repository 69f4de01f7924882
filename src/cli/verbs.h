/* The table of verbs. */
#ifndef CLI_VERBS_H
#define CLI_VERBS_H

#include "cli/opt.h"
#include "cli/word_distance.h"

extern const struct verb verb_generate, verb_chat, verb_embed, verb_rerank,
    verb_logits, verb_tokenize, verb_detokenize, verb_count, verb_render,
    verb_inspect, verb_bench, verb_quantize, verb_cache, verb_models, verb_pull,
    verb_batch, verb_score, verb_choose, verb_plan, verb_selftest, verb_help,
    verb_version;

/* All verbs in the order of --help, with NULL at the end. */
extern const struct verb *const verbs[];

/* Return the verb of this name, or NULL. "run" is another name of generate. */
const struct verb *verb_find(const char *name);

/* Return whether this name is reserved for a verb of a later version. Such a
 * name is refused as a prompt, so that no script depends on it. */
bool verb_is_reserved(const char *name);

/* Return the name of the verb that is one typing error away from word: one
 * letter too many, missing or wrong, or two letters swapped. NULL if there is
 * none, or if word is a verb itself. */
const char *verb_near(const char *word);

#endif
