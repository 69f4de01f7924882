/* Tokens in grammars. */
#include <string.h>

#include "base/array.h"
#include "text/grammar/grammar_int.h"

void grammar_set_tokens(struct grammar *g, size_t n, grammar_find_fn find,
                        void *ctx)
{
    g->n_ids = n;
    g->find = find;
    g->find_ctx = ctx;
}

void grammar_set_ends(struct grammar *g, const int32_t *ids, size_t n)
{
    g->ends = ids;
    g->n_ends = n;
}

const int32_t *grammar_tokens(const struct grammar *g, size_t *n)
{
    *n = g->n_tokens;
    return g->tokens;
}

/* Read "<[ID]>". Returns 1, or 0 if the text is something else. An id that is
 * too large becomes SIZE_MAX. */
static int read_id(const char *text, size_t n, size_t *id)
{
    if (n < 5 || memcmp(text, "<[", 2) != 0 ||
        memcmp(text + n - 2, "]>", 2) != 0)
        return 0;
    *id = 0;
    for (size_t i = 2; i < n - 2; i++) {
        if (text[i] < '0' || text[i] > '9')
            return 0;
        *id = *id > INT32_MAX ? SIZE_MAX : *id * 10 + (size_t)(text[i] - '0');
    }
    return 1;
}

/* Return the code of an id; 0 after a failure. */
static unsigned code_of(struct grammar *g, int32_t id)
{
    for (size_t i = 0; i < g->n_tokens; i++)
        if (g->tokens[i] == id)
            return (unsigned)i + 1;
    if (g->n_tokens == GRAMMAR_MAX_TOKENS) {
        grammar_fail(g, "names more than %d tokens", GRAMMAR_MAX_TOKENS);
        return 0;
    }
    if (ARRAY_RESERVE(g->tokens, g->cap_tokens, g->n_tokens + 1, &g->err))
        return 0;
    g->tokens[g->n_tokens++] = id;
    return (unsigned)g->n_tokens;
}

/* All codes but one: the first byte differs, or only the second one. */
static uint32_t other_codes(struct grammar *g, uint32_t hi, uint32_t lo)
{
    const struct dfa_draft_edge all[] = {
        {0, GRAMMAR_TOKEN_BYTE, GRAMMAR_TOKEN_BYTE, 1},
        {1, 0, hi - 1, 2}, /* if hi > 0 */
        {1, hi, hi, 3},
        {1, hi + 1, 255, 2},
        {2, 0, 255, 4},
        {3, 0, lo - 1, 4}, /* if lo > 0 */
        {3, lo + 1, 255, 4},
        {4, DFA_END, 0, 4},
    };
    struct dfa_draft_edge edges[sizeof all / sizeof *all];
    size_t n = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        bool none =
            (i == 1 && hi == 0) || (i == 5 && lo == 0) || (i == 6 && lo == 255);
        if (!none)
            edges[n++] = all[i];
    }
    return grammar_node(g, NODE_DFA, edges, n * sizeof *edges, 0);
}

uint32_t grammar_token(struct grammar *g, const char *at, const char *text,
                       size_t n, bool negated)
{
    size_t id = 0;
    if (g->err.code)
        return GRAMMAR_NOTHING;
    if (!g->find)
        return grammar_fail(g, "%sreferences to tokens are not supported", at);
    if (!read_id(text, n, &id)) {
        int32_t found = g->find(g->find_ctx, text, n);
        if (found == -2)
            return grammar_oom(g, n);
        if (found < 0)
            return grammar_fail(g, "%sthe model has no token \"%s\"", at,
                                ERR_SHOW(text, n));
        id = (size_t)found;
    }
    if (id >= g->n_ids)
        return grammar_fail(g, "%sthe model has no token %s: it has %zu", at,
                            ERR_SHOW(text, n), g->n_ids);
    for (size_t i = 0; i < g->n_ends && !negated; i++)
        if (g->ends[i] == (int32_t)id)
            return grammar_fail(g, "%s%s ends answers, leave it out", at,
                                ERR_SHOW(text, n));
    unsigned code = code_of(g, (int32_t)id);
    unsigned char bytes[3] = {GRAMMAR_TOKEN_BYTE, (unsigned char)(code >> 8),
                              (unsigned char)code};
    return negated ? other_codes(g, code >> 8, code & 255)
                   : grammar_bytes(g, bytes, sizeof bytes);
}
