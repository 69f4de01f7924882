#include "cli/verbs.h"

#include <string.h>

const struct verb *const verbs[] = {
    &verb_generate, &verb_batch,    &verb_tokenize, &verb_detokenize,
    &verb_count,    &verb_render,   &verb_embed,    &verb_rerank,
    &verb_logits,   &verb_score,    &verb_choose,   &verb_inspect,
    &verb_models,   &verb_pull,     &verb_plan,     &verb_bench,
    &verb_selftest, &verb_quantize, &verb_cache,    &verb_help,
    &verb_version,  NULL,
};

static const char *const reserved[] = {
    "chat",
    "completion",
};

#define N_RESERVED (sizeof(reserved) / sizeof(*reserved))

const struct verb *verb_find(const char *name)
{
    if (strcmp(name, "run") == 0)
        return &verb_generate;
    for (size_t i = 0; verbs[i]; i++)
        if (strcmp(verbs[i]->name, name) == 0)
            return verbs[i];
    return NULL;
}

bool verb_is_reserved(const char *name)
{
    for (size_t i = 0; i < N_RESERVED; i++)
        if (strcmp(reserved[i], name) == 0)
            return true;
    return false;
}

enum { MAX_WORD = 40 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Optimal string alignment: Levenshtein distance plus swaps of neighbours. */
size_t word_distance(const char *a, const char *b)
{
    size_t rows[3][MAX_WORD + 1], m = strlen(a), n = strlen(b);
    if (m >= MAX_WORD || n >= MAX_WORD)
        return MAX_WORD;
    for (size_t j = 0; j <= n; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= m; i++) {
        size_t *row = rows[i % 3], *up = rows[(i + 2) % 3];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t d = up[j - 1] + (a[i - 1] != b[j - 1]);
            d = least(d, least(up[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d = least(d, rows[(i + 1) % 3][j - 2] + 1);
            row[j] = d;
        }
    }
    return rows[m % 3][n];
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
