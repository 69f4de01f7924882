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

static void allow(struct guide *g, int32_t id)
{
    g->allowed[id / 64] |= 1ull << (id & 63);
}

/* ---- messages ---- */

static int encode_header(struct guide_header *h, const struct qwick_engine *eng,
                         const char *text, struct qwick_err *e)
{
    const struct bpe_span all = {0, strlen(text)};
    return bpe_encode_spans(eng->bpe, text, all.end, &all, 1, true, 0, &h->ids,
                            &h->n, e);
}

/* Whether each text of the constraint begins with the header of a message. */
static bool begins_with_header(const struct guide *g, const uint64_t *mask)
{
    for (unsigned byte = 0; byte < 256; byte++)
        if (byte != '<' && matcher_admits_byte(g->matcher, (unsigned char)byte))
            return false;
    return mask[g->channels.channel / 64] >> (g->channels.channel & 63) & 1;
}

/* Begin in the middle of messages. */
static int begin_messages(struct guide *g, enum guide_phase phase,
                          const struct channels *ch, struct qwick_err *e)
{
    const uint64_t *mask;
    size_t n;
    g->channels = ch->ids;
    if (encode_header(&g->turn, g->eng, HARMONY_TURN, e) ||
        encode_header(&g->think, g->eng, HARMONY_THINKING, e) ||
        encode_header(&g->answer, g->eng, HARMONY_FINAL, e) ||
        !(mask = matcher_mask(g->matcher, &n, e)))
        return -1;
    g->headed = !g->free && begins_with_header(g, mask);
    g->message.may_think = phase == GUIDE_MAY_THINK;
    g->message.in_body = ch->place == CHANNELS_BODY;
    bool begins =
        ch->place == CHANNELS_HEADER &&
        !(ch->header.len && memmem(ch->header.data, ch->header.len,
                                   HARMONY_CHANNEL, strlen(HARMONY_CHANNEL)));
    g->phase = begins               ? GUIDE_HEADER
               : channels_think(ch) ? GUIDE_THINKING
               : g->free            ? GUIDE_MAY_THINK
                                    : GUIDE_TEXT;
    return 0;
}

void guide_stop_thinking(struct guide *g)
{
    g->message.may_think = false;
}

static void forbid(struct guide *g, int32_t id)
{
    if (id >= 0)
        g->allowed[id / 64] &= ~(1ull << (id & 63));
}

/* Forbid the tokens of headers, with which the model would leave a message. */
static void forbid_headers(struct guide *g)
{
    forbid(g, g->channels.start);
    forbid(g, g->channels.channel);
    forbid(g, g->channels.message);
    forbid(g, g->channels.constrain);
}

/* Prepare a token of GUIDE_TURN or GUIDE_HEADER. */
static int prepare_header(struct guide *g, struct qwick_err *e)
{
    const struct guide_message *m = &g->message;
    size_t n, n_bytes = g->n_words * sizeof *g->allowed;
    memset(g->allowed, 0, n_bytes);
    if (g->phase == GUIDE_TURN) {
        allow(g, g->turn.ids[m->k]);
        return 0;
    }
    if (m->k == 0) {
        allow(g, g->channels.channel);
        return 0;
    }
    if (g->free || (g->headed && m->writes)) {
        const uint64_t *mask = matcher_mask(g->matcher, &n, e);
        if (!mask)
            return -1;
        memcpy(g->allowed, mask, n_bytes);
        if (m->k == 1 && !m->may_think)
            forbid(g, g->think.ids[1]);
    }
    if (m->writes && !g->headed)
        allow(g, g->answer.ids[m->k]);
    if (m->thinks)
        allow(g, g->think.ids[m->k]);
    return 0;
}

/* In a header the tokens that end its parts are tokens; a text could also spell
 * them. In the message they are no text. */
static void prefer_header_tokens(struct guide *g)
{
    const int32_t ids[] = {g->channels.constrain, g->channels.message};
    size_t n_bytes = g->n_words * sizeof *g->allowed;
    if (matcher_is_free(g->matcher))
        return;
    if (g->message.in_body) {
        forbid_headers(g);
        return;
    }
    for (size_t i = 0; i < 2; i++)
        if (ids[i] >= 0 && (g->allowed[ids[i] / 64] >> (ids[i] & 63) & 1)) {
            memset(g->allowed, 0, n_bytes);
            allow(g, ids[i]);
            return;
        }
}

static void enter(struct guide *g, enum guide_phase phase)
{
    g->phase = phase;
    g->message.k = 0;
}

static int accept_header(struct guide *g, int32_t id, struct qwick_err *e)
{
    struct guide_message *m = &g->message;
    size_t k = m->k++;
    bool thinks = k == 0 ? m->may_think : m->thinks && id == g->think.ids[k];
    bool writes = k == 0      ? !g->free
                  : g->headed ? !thinks
                              : m->writes && id == g->answer.ids[k];
    bool for_text = g->free || (g->headed && (k == 0 ? !m->begun : writes));
    if (for_text && matcher_accept(g->matcher, id, e))
        return -1;
    m->begun |= for_text;
    m->in_body = false;
    m->thinks = thinks;
    m->writes = writes;
    if (thinks && m->k == g->think.n) {
        enter(g, GUIDE_THINKING);
        m->may_think &= g->free;
    } else if (writes && !g->headed && m->k == g->answer.n) {
        enter(g, GUIDE_TEXT);
        m->in_body = true;
    } else if (!thinks && (g->headed ? k > 0 : !writes)) {
        enter(g, g->free ? GUIDE_MAY_THINK : GUIDE_TEXT);
    }
    return 0;
}

/* Accept a token of messages. *done: it is no text of the constraint. */
static int accept_message(struct guide *g, int32_t id, bool *done,
                          struct qwick_err *e)
{
    struct guide_message *m = &g->message;
    *done = true;
    if (g->phase == GUIDE_HEADER)
        return accept_header(g, id, e);
    if (g->phase == GUIDE_TURN) {
        if (++m->k == g->turn.n)
            enter(g, GUIDE_HEADER);
    } else if (id == g->channels.end) {
        enter(g, GUIDE_TURN);
    } else {
        m->in_body |= id == g->channels.message;
        *done = g->phase == GUIDE_THINKING;
    }
    return 0;
}

/* ---- the answer ---- */

int guide_begin(struct guide *g, const struct qwick_engine *eng,
                struct qwick_constraint *c, enum guide_phase phase,
                const struct channels *ch, bool timed, struct qwick_err *e)
{
    *g = (struct guide){.eng = eng,
                        .phase = phase,
                        .timed = timed,
                        .free = constraint_is_free(c)};
    if (eng->think_open < 0 || eng->think_close < 0)
        g->phase = GUIDE_TEXT;
    if (matcher_create(&g->matcher, c, e) ||
        (ch && ch->on && begin_messages(g, phase, ch, e)))
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
    free(g->turn.ids);
    free(g->think.ids);
    free(g->answer.ids);
    *g = (struct guide){0};
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

bool guide_in_call(const struct guide *g)
{
    return matcher_has_calls(g->matcher) && !matcher_is_free(g->matcher);
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
        if (g->channels.found)
            forbid_headers(g);
        return 0;
    }
    if (g->phase == GUIDE_TURN || g->phase == GUIDE_HEADER)
        return prepare_header(g, e);
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
    if (g->channels.found)
        prefer_header_tokens(g);
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
    bool done = false;
    if (g->channels.found && accept_message(g, id, &done, e))
        return -1;
    if (done)
        return 0;
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
    default:
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
    g->held_message = g->message;
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
    g->message = g->held_message;
    matcher_return(g->matcher);
}
