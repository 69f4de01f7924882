#include "cli/verbs.h"

#include <string.h>

const struct verb *const verbs[] = {
    &verb_generate,   &verb_chat,       &verb_batch,    &verb_tokenize,
    &verb_detokenize, &verb_count,      &verb_render,   &verb_embed,
    &verb_rerank,     &verb_logits,     &verb_score,    &verb_choose,
    &verb_inspect,    &verb_models,     &verb_pull,     &verb_plan,
    &verb_bench,      &verb_selftest,   &verb_quantize, &verb_cache,
    &verb_completion, &verb_help,       &verb_version,  NULL,
};

const struct verb_alias verb_aliases[] = {
    {"run", &verb_generate},
    {NULL, NULL},
};

const struct verb *verb_find(const char *name)
{
    for (size_t i = 0; verb_aliases[i].name; i++)
        if (strcmp(verb_aliases[i].name, name) == 0)
            return verb_aliases[i].verb;
    for (size_t i = 0; verbs[i]; i++)
        if (strcmp(verbs[i]->name, name) == 0)
            return verbs[i];
    return NULL;
}

const char *verb_near(const char *word)
{
    const char *near = NULL;
    for (size_t i = 0; verbs[i]; i++) {
        size_t d = word_distance(word, verbs[i]->name);
        if (d == 0)
            return NULL;
        if (d == 1)
            near = verbs[i]->name;
    }
    return near;
}
