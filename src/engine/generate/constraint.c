#include "engine/generate/constraint.h"
#include "engine/generate/answer_check.h"

#include <stdlib.h>
#include <string.h>

#include "engine/generate/constraint_int.h"
#include "text/bpe/bpe.h"

/* States that need more memory than this are tidied before the next mask. A
 * mask may make more; AUTOMATON_MAX_MEMORY limits that. */
#define TIDY_BYTES (10u << 20)

/* Tidy the automaton when its states need much memory: drop all except those of
 * the matchers. */
static int limit_states(struct qwick_constraint *c, struct qwick_err *e)
{
    size_t n = 0;
    if (automaton_bytes_used(c->a) <= c->tidy_bytes)
        return 0;
    for (struct matcher *m = c->matchers; m; m = m->next)
        n += 2;
    uint32_t *states = malloc((n + 1) * sizeof *states), *p = states;
    if (!states)
        return err_oom(e, n * sizeof *states);
    for (struct matcher *m = c->matchers; m; m = m->next) {
        *p++ = m->state;
        *p++ = m->held;
    }
    int rc = automaton_tidy(c->a, states, n, e);
    p = states;
    for (struct matcher *m = c->matchers; m; m = m->next) {
        m->state = *p++;
        m->held = *p++;
    }
    free(states);
    constraint_drop_masks(c);
    if (!rc && automaton_bytes_used(c->a) > AUTOMATON_MAX_MEMORY / 2)
        return err_set(e, QWICK_ERR_RUNTIME,
                       "%s: the texts are nested so deeply that their states "
                       "need more than %u MB",
                       c->name, AUTOMATON_MAX_MEMORY >> 21);
    return rc;
}

/* ---- free text ---- */

/* A byte of no call: it is not UTF-8. */
enum { FREE_BYTE = 0xff };

static bool is_free(const struct qwick_constraint *c, uint32_t state)
{
    unsigned char bytes[256];
    if (!c->free || !automaton_accepts(c->a, state))
        return false;
    automaton_bytes(c->a, state, bytes);
    return bytes[FREE_BYTE];
}

bool matcher_is_free(const struct matcher *m)
{
    return is_free(m->c, m->state);
}

bool matcher_has_calls(const struct matcher *m)
{
    return m->c->calls;
}

void constraint_set_calls(struct qwick_constraint *c)
{
    c->calls = true;
}

void constraint_set_free(struct qwick_constraint *c)
{
    c->free = true;
}

bool constraint_is_free(const struct qwick_constraint *c)
{
    return c->free;
}

/* ---- masks ---- */

/* Without an instruction for it, compilers turn only this into vector code. */
static size_t count_bits(const uint64_t *mask, size_t n)
{
    size_t bits = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t x = mask[i] - (mask[i] >> 1 & 0x5555555555555555u);
        x = (x & 0x3333333333333333u) + (x >> 2 & 0x3333333333333333u);
        x = (x + (x >> 4)) & 0x0F0F0F0F0F0F0F0Fu;
        x += x >> 8;
        x += x >> 16;
        bits += (x + (x >> 32)) & 0xFF;
    }
    return bits;
}

static int make_mask(struct matcher *m, struct qwick_err *e)
{
    struct qwick_constraint *c = m->c;
    if (limit_states(c, e) || constraint_mask(c, m->state, m->mask, e))
        return -1;
    if (c->n_tokens && constraint_add_tokens(c, m->state, m->mask, e))
        return -1;
    if (matcher_is_free(m))
        for (size_t i = 0; i < c->n_words; i++)
            m->mask[i] |= ~c->trie->listed[i];
    m->n_bits = count_bits(m->mask, c->n_words);
    m->has_mask = true;
    return 0;
}

const uint64_t *matcher_mask(struct matcher *m, size_t *n_ids,
                             struct qwick_err *e)
{
    *n_ids = 0;
    if (!m->has_mask && make_mask(m, e))
        return NULL;
    *n_ids = m->n_bits;
    return m->mask;
}

size_t matcher_words(const struct matcher *m)
{
    return m->c->n_words;
}

/* ---- texts ---- */

static uint32_t advance_bytes(struct qwick_constraint *c, uint32_t state,
                              const char *p, size_t n)
{
    for (size_t i = 0; i < n && state != AUTOMATON_DEAD; i++)
        state = automaton_advance(c->a, state, (unsigned char)p[i]);
    return state;
}

/* Advance by the bytes of a token. In free text it may be any, and special
 * tokens are no text. */
static uint32_t advance_text(struct qwick_constraint *c, uint32_t state,
                             int32_t id)
{
    size_t n;
    bool listed = token_trie_has(c->trie, id);
    const char *p = bpe_token(c->trie->bpe, id, &n);
    if (listed)
        return p && n ? advance_bytes(c, state, p, n) : AUTOMATON_DEAD;
    if (!is_free(c, state))
        return AUTOMATON_DEAD;
    if (!p || bpe_is_special(c->trie->bpe, id))
        return state;
    uint32_t to = advance_bytes(c, state, p, n);
    return to != AUTOMATON_DEAD ? to : state;
}

uint32_t constraint_advance(struct qwick_constraint *c, uint32_t state,
                            int32_t id)
{
    if (!c->n_tokens)
        return advance_text(c, state, id);
    if (id < 0 || (size_t)id >= c->trie->n_vocab)
        return AUTOMATON_DEAD;
    bool foreign = c->foreign[id / 64] >> (id & 63) & 1;
    return automaton_union(
        c->a, foreign ? AUTOMATON_DEAD : advance_text(c, state, id),
        constraint_advance_token(c, state, id));
}

int matcher_accept(struct matcher *m, int32_t id, struct qwick_err *e)
{
    struct qwick_constraint *c = m->c;
    if (limit_states(c, e))
        return -1;
    uint32_t to = constraint_advance(c, m->state, id);
    if (automaton_error(c->a, e))
        return -1;
    if (to == AUTOMATON_DEAD)
        return err_set(e, QWICK_ERR_RUNTIME,
                       "%s: token %d does not fit the text so far", c->name,
                       id);
    m->state = to;
    m->has_mask = false;
    return 0;
}

bool matcher_complete(const struct matcher *m)
{
    return automaton_accepts(m->c->a, m->state);
}

bool matcher_admits_byte(const struct matcher *m, unsigned char byte)
{
    unsigned char bytes[256];
    automaton_bytes(m->c->a, m->state, bytes);
    return bytes[byte];
}

/* The lowest id in a mask that is not empty. */
static int32_t first_id(const uint64_t *mask)
{
    size_t i = 0;
    while (!mask[i])
        i++;
    return (int32_t)(i * 64 + (size_t)__builtin_ctzll(mask[i]));
}

void matcher_hold(struct matcher *m)
{
    m->held = m->state;
}

void matcher_return(struct matcher *m)
{
    m->has_mask &= m->state == m->held;
    m->state = m->held;
    m->held = AUTOMATON_DEAD;
}

int matcher_forced(struct matcher *m, int32_t *ids, size_t max, size_t *n,
                   struct qwick_err *e)
{
    size_t n_ids;
    int rc = 0;
    *n = 0;
    matcher_hold(m);
    while (*n < max && !matcher_complete(m)) {
        const uint64_t *mask = matcher_mask(m, &n_ids, e);
        if (!mask || n_ids != 1) {
            rc = mask ? 0 : -1;
            break;
        }
        ids[*n] = first_id(mask);
        if ((rc = matcher_accept(m, ids[*n], e)) != 0)
            break;
        ++*n;
    }
    m->has_mask &= *n == 0;
    matcher_return(m);
    return rc;
}

int matcher_create(struct matcher **out, struct qwick_constraint *c,
                   struct qwick_err *e)
{
    struct matcher *m = calloc(1, sizeof *m);
    *out = NULL;
    if (m)
        m->mask = calloc(c->n_words, sizeof *m->mask);
    if (!m || !m->mask) {
        free(m);
        return err_oom(e, c->n_words * sizeof *m->mask);
    }
    m->c = c;
    m->state = automaton_start(c->a);
    m->next = c->matchers;
    m->prev = &c->matchers;
    if (m->next)
        m->next->prev = &m->next;
    c->matchers = m;
    *out = m;
    return 0;
}

void matcher_free(struct matcher *m)
{
    if (!m)
        return;
    *m->prev = m->next;
    if (m->next)
        m->next->prev = m->prev;
    free(m->mask);
    free(m);
}

/* ---- constraints ---- */

/* Whether a token can begin the text, or the text may be empty. */
static int check_start(struct qwick_constraint *c, struct qwick_err *e)
{
    struct matcher *m;
    size_t n_ids;
    if (matcher_create(&m, c, e))
        return -1;
    int rc = matcher_mask(m, &n_ids, e) ? 0 : -1;
    if (!rc && n_ids == 0 && !matcher_complete(m))
        rc = err_set(e, QWICK_ERR_USAGE,
                     "%s: the model has no token that begins such a text",
                     c->name);
    matcher_free(m);
    return rc;
}

int constraint_create(struct qwick_constraint **out, const struct grammar *g,
                      const char *name, struct token_trie *trie,
                      struct qwick_err *e)
{
    *out = NULL;
    struct qwick_constraint *c = calloc(1, sizeof *c);
    if (!c)
        return err_oom(e, sizeof *c);
    c->trie = trie;
    c->tidy_bytes = TIDY_BYTES;
    c->mask_bytes = CONSTRAINT_MASK_BYTES;
    c->n_words = trie->n_vocab / 64 + 1;
    c->name = strdup(name);
    size_t depth = 0;
    for (const struct token_trie *t = trie; t; t = t->next)
        if (t->max_depth > depth)
            depth = t->max_depth;
    c->cap_found = 2 * c->n_words;
    c->stack = malloc((depth + 1) * sizeof *c->stack);
    c->others = malloc((depth + 1) * sizeof *c->others);
    c->found = malloc(c->cap_found * sizeof *c->found);
    if (!c->name || !c->stack || !c->others || !c->found) {
        err_oom(e, c->cap_found * sizeof *c->found);
        goto fail;
    }
    if (constraint_take_tokens(c, g, e) || automaton_create(&c->a, g, e) ||
        check_start(c, e)) {
        if (e && e->code == QWICK_ERR_RUNTIME)
            e->code = QWICK_ERR_USAGE; /* nothing has run yet */
        goto fail;
    }
    *out = c;
    return 0;
fail:
    constraint_free(c);
    return -1;
}

void constraint_free(struct qwick_constraint *c)
{
    if (!c)
        return;
    constraint_drop_masks(c);
    automaton_free(c->a);
    answer_check_free(c->check);
    free(c->locals);
    hashmap_free(&c->by_state);
    free(c->name);
    free(c->tokens);
    free(c->known);
    free(c->foreign);
    free(c->stack);
    free(c->others);
    free(c->found);
    free(c->ends);
    free(c->quoted);
    free(c->notes);
    free(c->reached);
    free(c);
}

void constraint_set_check(struct qwick_constraint *c,
                          struct answer_check *check)
{
    answer_check_free(c->check);
    c->check = check;
}

const struct answer_check *
constraint_get_check(const struct qwick_constraint *c)
{
    return c->check;
}

size_t constraint_bytes(const struct qwick_constraint *c)
{
    return automaton_bytes_used(c->a) + c->local_bytes;
}

void constraint_limit(struct qwick_constraint *c, size_t n_bytes)
{
    c->tidy_bytes = c->mask_bytes = n_bytes;
}
