#include "cli/opt/verbs.h"

#include <string.h>

const char *const verb_groups[N_VERB_GROUPS] = {
    [VERBS_ANSWER] = "Answer",
    [VERBS_MODELS] = "Get and keep models",
    [VERBS_DECIDE] = "Decide and search",
    [VERBS_TOKENS] = "Look at tokens",
    [VERBS_MACHINE] = "Check the machine",
    [VERBS_SHELL] = "Shell",
};

const struct verb *const verbs[] = {
    &verb_generate, &verb_chat,     &verb_batch,    &verb_serve,
    &verb_log,      &verb_pull,     &verb_models,   &verb_plan,
    &verb_inspect,  &verb_quantize, &verb_choose,   &verb_score,
    &verb_embed,    &verb_similar,  &verb_rerank,   &verb_count,
    &verb_tokenize, &verb_detokenize, &verb_render, &verb_logits,
    &verb_bench,    &verb_selftest, &verb_cache,    &verb_help,
    &verb_completion, &verb_version,
    NULL,
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

/* Verbs of other programs for language models, and the verb of qwick that does
 * the same; NULL: none does. Names of shell commands, such as ls, are left out:
 * they are likely prompts. */
static const struct {
    const char *word, *verb;
} foreign[] = {
    {"list", "models"},      {"show", "inspect"},  {"info", "inspect"},
    {"convert", "quantize"}, {"download", "pull"}, {"create", NULL},
    {"push", NULL},          {"unload", NULL},     {"launch", NULL},
    {"login", NULL},         {"logout", NULL},     {"signin", NULL},
    {"signout", NULL},
};

enum { N_FOREIGN = sizeof(foreign) / sizeof(*foreign) };

static size_t find_foreign(const char *word)
{
    size_t i = 0;
    while (i < N_FOREIGN && strcmp(foreign[i].word, word) != 0)
        i++;
    return i;
}

bool verb_is_foreign(const char *word)
{
    return find_foreign(word) < N_FOREIGN;
}

const char *verb_near(const char *word)
{
    size_t k = find_foreign(word);
    if (k < N_FOREIGN)
        return foreign[k].verb;
    const char *near = NULL;
    for (size_t i = 0; verbs[i]; i++) {
        size_t least = 2; /* for each verb: of equals, the last one counts */
        word_nearest(word, verbs[i]->name, &least, &near);
        if (least == 0)
            return NULL;
    }
    return near;
}
