/* The table of verbs. */
#ifndef CLI_VERBS_H
#define CLI_VERBS_H

#include <stdbool.h>

#include "base/word_distance.h"
#include "cli/opt/opt.h"

extern const struct verb verb_generate, verb_chat, verb_embed, verb_similar,
    verb_rerank,
    verb_logits, verb_tokenize, verb_detokenize, verb_count, verb_render,
    verb_inspect, verb_bench, verb_quantize, verb_cache, verb_models, verb_pull,
    verb_batch, verb_serve, verb_score, verb_choose, verb_plan, verb_selftest,
    verb_log, verb_completion, verb_help, verb_version;

/* The titles of the groups of verbs. */
extern const char *const verb_groups[N_VERB_GROUPS];

/* All verbs with NULL at the end. Within a group, they are in the order of
 * --help. */
extern const struct verb *const verbs[];

/* Other names of verbs, with an entry without a name at the end. */
struct verb_alias {
    const char *name;
    const struct verb *verb;
};
extern const struct verb_alias verb_aliases[];

/* Return the verb of this name or alias, or NULL. */
const struct verb *verb_find(const char *name);

/* Return the name of the verb that is one typing error away from word (one
 * letter too many, missing or wrong, or two letters swapped), or that does what
 * word does in other programs. NULL if there is none, or if word is a verb
 * itself. */
const char *verb_near(const char *word);

/* The end of a message, in two arguments: what the user probably meant; NULL:
 * nothing. */
#define DID_YOU_MEAN(near) (near) ? ", did you mean " : "", (near) ? (near) : ""

/* Return whether word is a verb of other programs for language models. */
bool verb_is_foreign(const char *word);

#endif
