#include "engine/generate/guide.h"

#include <stdlib.h>
#include <string.h>

#include "engine/core/engine.h"
#include "engine/generate/constraint.h"
#include "engine/generate/sampler.h"
#include "engine/generate/token_trie.h"

static double start_time(const struct guide *g)
{
    return g->timed ? clock_ms() : 0;
}

static void add_time(struct guide *g, double start)
{
    if (g->timed)
        g->ms += clock_ms() - start;
}

int guide_begin(struct guide *g, const struct qwick_engine *eng,
                struct qwick_constraint *c, enum guide_phase phase, bool timed,
                struct qwick_err *e)
{
    *g = (struct guide){.eng = eng,
                        .phase = phase,
                        .timed = timed,
                        .free = constraint_is_free(c)};
    if (eng->think_open < 0 || eng->think_close < 0)
        g->phase = GUIDE_TEXT;
    if (matcher_create(&g->matcher, c, e))
        return -1;
    g->n_words = matcher_words(g->matcher);
    g->allowed = calloc(g->n_words, sizeof *g->allowed);
    if (!g->allowed)
        return err_oom(e, g->n_words * sizeof *g->allowed);
    return guide_prepare(g, e);
}

void guide_free(struct guide *g)
{
    matcher_free(g->matcher);
    free(g->allowed);
    free(g->held);
    *g = (struct guide){0};
}

static void allow(struct guide *g, int32_t id)
{
    g->allowed[id / 64] |= 1ull << (id & 63);
}

static void allow_stops(struct guide *g, bool yes)
{
    const struct config *c = &g->eng->model.config;
    for (size_t i = 0; i < c->n_stop_ids; i++) {
        allow(g, c->stop_ids[i]);
        if (!yes)
            g->allowed[c->stop_ids[i] / 64] ^= 1ull << (c->stop_ids[i] & 63);
    }
}

bool guide_keeps_newlines(const struct guide *g)
{
    return !g->free && matcher_admits_byte(g->matcher, '\n');
}

/* Allow the tokens that are newlines only. */
static int allow_newlines(struct guide *g, struct token_trie *t,
                          struct qwick_err *e)
{
    if (token_trie_need(t, '\n', e))
        return -1;
    size_t i = t->parts['\n'].from, end = t->parts['\n'].to;
    while (i < end) {
        const struct trie_node *node = &t->nodes[i];
        if (node->byte != '\n') {
            i = node->skip;
            continue;
        }
        for (size_t k = 0; k < node->n_equal; k++)
            allow(g, t->ids[node->rank + k]);
        end = node->skip; /* on to the children */
        i++;
    }
    return 0;
}

static bool is_newlines(const struct guide *g, int32_t id)
{
    size_t n, i = 0;
    const char *p = bpe_token(g->eng->bpe, id, &n);
    while (i < n && p[i] == '\n')
        i++;
    return n > 0 && i == n;
}

/* Whether the next token belongs to the text. */
static bool is_in_text(const struct guide *g)
{
    return g->phase == GUIDE_TEXT || (g->free && g->phase == GUIDE_MAY_THINK);
}

static int prepare(struct guide *g, struct qwick_err *e)
{
    size_t n, n_bytes = g->n_words * sizeof *g->allowed;
    g->forced = false;
    if (g->phase == GUIDE_THINKING) {
        memset(g->allowed, 0xff, n_bytes);
        allow_stops(g, g->free);
        return 0;
    }
    const uint64_t *mask = matcher_mask(g->matcher, &n, e);
    bool complete = matcher_complete(g->matcher);
    if (!mask)
        return -1;
    if (n == 0 && !complete)
        return err_set(e, QWICK_ERR_RUNTIME,
                       "constraint: the model has no token that continues the "
                       "text");
    memcpy(g->allowed, mask, n_bytes);
    g->forced = is_in_text(g) && n == 1 && !complete;
    allow_stops(g, complete); /* a grammar may admit all tokens */
    if (g->phase == GUIDE_AFTER_THINK && !guide_keeps_newlines(g))
        for (struct token_trie *t = g->eng->trie; t; t = t->next)
            if (allow_newlines(g, t, e))
                return -1;
    return 0;
}

int guide_prepare(struct guide *g, struct qwick_err *e)
{
    double start = start_time(g);
    int rc = prepare(g, e);
    add_time(g, start);
    return rc;
}

void guide_look(struct guide *g, const struct sampler *s, const float *logits)
{
    if (g->phase != GUIDE_MAY_THINK || g->free ||
        sampler_find_larger(s, logits, g->eng->think_open) >= 0)
        return;
    memset(g->allowed, 0, g->n_words * sizeof *g->allowed);
    allow(g, g->eng->think_open);
}

static int accept(struct guide *g, int32_t id, struct qwick_err *e)
{
    enum guide_phase in_text = g->free ? GUIDE_MAY_THINK : GUIDE_TEXT;
    switch (g->phase) {
    case GUIDE_THINKING:
        if (id == g->eng->think_close)
            g->phase = GUIDE_AFTER_THINK;
        return 0;
    case GUIDE_MAY_THINK:
        g->phase = id == g->eng->think_open ? GUIDE_THINKING : in_text;
        if (g->phase == GUIDE_THINKING)
            return 0;
        break;
    case GUIDE_AFTER_THINK:
        g->phase = in_text;
        if (!guide_keeps_newlines(g) && is_newlines(g, id))
            return 0;
        break;
    case GUIDE_TEXT:
        break;
    }
    return matcher_accept(g->matcher, id, e);
}

int guide_accept(struct guide *g, int32_t id, struct qwick_err *e)
{
    double start = start_time(g);
    int rc = accept(g, id, e);
    add_time(g, start);
    return rc;
}

int guide_forced(struct guide *g, int32_t *ids, size_t max, size_t *n,
                 struct qwick_err *e)
{
    *n = 0;
    if (!is_in_text(g))
        return 0;
    double start = start_time(g);
    int rc = matcher_forced(g->matcher, ids, max, n, e);
    add_time(g, start);
    return rc;
}

int guide_hold(struct guide *g, struct qwick_err *e)
{
    size_t n_bytes = g->n_words * sizeof *g->held;
    if (!g->held && !(g->held = malloc(n_bytes)))
        return err_oom(e, n_bytes);
    memcpy(g->held, g->allowed, n_bytes);
    g->held_phase = g->phase;
    g->held_forced = g->forced;
    matcher_hold(g->matcher);
    return 0;
}

int guide_try(struct guide *g, int32_t id, struct qwick_err *e)
{
    return guide_accept(g, id, e) || guide_prepare(g, e) ? -1 : 0;
}

void guide_return(struct guide *g)
{
    memcpy(g->allowed, g->held, g->n_words * sizeof *g->held);
    g->phase = g->held_phase;
    g->forced = g->held_forced;
    matcher_return(g->matcher);
}
