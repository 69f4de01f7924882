/* Constraints whose grammar names tokens. */
#include <stdlib.h>
#include <string.h>

#include "engine/generate/constraint_int.h"
#include "text/bpe/bpe.h"
#include "text/grammar/grammar.h"

static bool has_bit(const uint64_t *bits, int32_t id)
{
    return bits[id / 64] >> (id & 63) & 1;
}

static void put_bit(uint64_t *bits, int32_t id, bool on)
{
    uint64_t bit = 1ull << (id & 63);
    bits[id / 64] = on ? bits[id / 64] | bit : bits[id / 64] & ~bit;
}

int constraint_take_tokens(struct qwick_constraint *c, const struct grammar *g,
                           struct qwick_err *e)
{
    size_t n;
    const int32_t *tokens = grammar_tokens(g, &n);
    if (n == 0)
        return 0;
    c->tokens = malloc(n * sizeof *tokens);
    c->known = calloc(c->n_words, sizeof *c->known);
    c->foreign = calloc(c->n_words, sizeof *c->foreign);
    if (!c->tokens || !c->known || !c->foreign)
        return err_oom(e, c->n_words * sizeof *c->known);
    memcpy(c->tokens, tokens, n * sizeof *tokens);
    c->n_tokens = n;
    for (size_t i = 0; i < c->trie->n_vocab; i++) {
        int32_t id = (int32_t)i;
        size_t n_bytes;
        const char *p = bpe_token(c->trie->bpe, id, &n_bytes);
        put_bit(c->known, id, bpe_has(c->trie->bpe, id));
        put_bit(c->foreign, id, p && memchr(p, GRAMMAR_TOKEN_BYTE, n_bytes));
    }
    return 0;
}

/* The state after the code of a token; state: after GRAMMAR_TOKEN_BYTE. */
static uint32_t after_code(struct qwick_constraint *c, uint32_t state,
                           size_t code)
{
    if (state != AUTOMATON_DEAD)
        state = automaton_advance(c->a, state, (unsigned char)(code >> 8));
    return state == AUTOMATON_DEAD
               ? state
               : automaton_advance(c->a, state, (unsigned char)code);
}

uint32_t constraint_advance_token(struct qwick_constraint *c, uint32_t state,
                                  int32_t id)
{
    size_t code = 0;
    for (size_t i = 0; i < c->n_tokens; i++)
        if (c->tokens[i] == id)
            code = i + 1;
    return after_code(c, automaton_advance(c->a, state, GRAMMAR_TOKEN_BYTE),
                      code);
}

int constraint_add_tokens(struct qwick_constraint *c, uint32_t state,
                          uint64_t *mask, struct qwick_err *e)
{
    bool as_text[GRAMMAR_MAX_TOKENS];
    for (size_t i = 0; i < c->n_words; i++)
        mask[i] &= ~c->foreign[i];
    state = automaton_advance(c->a, state, GRAMMAR_TOKEN_BYTE);
    for (size_t i = 0; i < c->n_tokens; i++)
        as_text[i] = has_bit(mask, c->tokens[i]);
    if (after_code(c, state, 0) != AUTOMATON_DEAD)
        for (size_t i = 0; i < c->n_words; i++)
            mask[i] |= c->known[i];
    for (size_t i = 0; i < c->n_tokens; i++)
        put_bit(mask, c->tokens[i],
                as_text[i] || after_code(c, state, i + 1) != AUTOMATON_DEAD);
    return automaton_error(c->a, e);
}
