/* The verbs: one const entry each, in the order in which help lists them. */
#ifndef CLI_VERBS_H
#define CLI_VERBS_H

#include "cli/opt.h"

extern const struct verb verb_generate, verb_embed, verb_rerank, verb_logits,
    verb_tokenize, verb_detokenize, verb_count, verb_render, verb_inspect,
    verb_bench, verb_quantize, verb_cache, verb_batch, verb_score, verb_choose;

extern const struct verb *const verbs[]; /* NULL at the end */

#endif
