#include "text/tools/tools_text.h"

#include <stdbool.h>
#include <string.h>

#include "base/buf.h"
#include "text/chat/call_forms.h"
#include "text/grammar/grammar_int.h"

/* A call as the whole answer begins with one of these, apart from white space.
 * The reader of calls takes the second one for a call when it has read
 * TYPE_START. */
#define NAME_START "{\"name\":"
#define TYPE_START "{\"type\":\"function\","
#define TYPE_NAME  TYPE_START "\"name\":"

/* A machine that looks for a mark. Its states: how many bytes of the tag the
 * text ends with; or how many bytes of NAME_START it has, then how many of
 * TYPE_NAME, then whether it is no call. The last state is after the mark. */
struct search {
    const char *tag; /* NULL: a call as the whole answer */
    uint32_t n;      /* length of the tag */
};

enum {
    N_NAME = sizeof NAME_START - 1,
    N_TYPE = sizeof TYPE_NAME - 1,
    FROM_TYPE = N_NAME, /* the states of TYPE_NAME begin here */
    IN_CALL = FROM_TYPE + sizeof TYPE_START - 1, /* no text from here on */
    NO_CALL = FROM_TYPE + N_TYPE,
    WHOLE_FOUND,
    SHARED = 2, /* bytes at the start of both */
    NO_STATE = 0xffff
};

static uint32_t found(const struct search *s)
{
    return s->tag ? s->n : WHOLE_FOUND;
}

/* The longest beginning of the tag that its first k bytes and then b end
 * with. */
static uint32_t tag_step(const struct search *s, uint32_t k, unsigned char b)
{
    for (uint32_t len = k + 1; len > 0; len--)
        if ((unsigned char)s->tag[len - 1] == b &&
            !memcmp(s->tag, s->tag + (k + 1 - len), len - 1))
            return len;
    return 0;
}

static uint32_t whole_step(uint32_t k, unsigned char b)
{
    bool type = k >= FROM_TYPE;
    uint32_t i = type ? k - FROM_TYPE : k;
    if (k == NO_CALL || (b && strchr(" \t\r\n", b)))
        return k;
    if (b == (type ? TYPE_NAME : NAME_START)[i])
        return ++i == (type ? N_TYPE : N_NAME) ? WHOLE_FOUND : k + 1;
    if (k == SHARED && b == TYPE_NAME[SHARED])
        return FROM_TYPE + SHARED + 1;
    return k < IN_CALL ? NO_CALL : NO_STATE;
}

static uint32_t search_step(const struct search *s, uint32_t k, unsigned char b)
{
    return s->tag ? tag_step(s, k, b) : whole_step(k, b);
}

/* Whether a text in state k can still be one of the texts of the node: up to
 * the mark, or without it. */
static bool is_state(const struct search *s, uint32_t k, bool to_mark)
{
    if (k == NO_STATE)
        return false;
    if (to_mark)
        return s->tag || k != NO_CALL;
    return s->tag ? k < s->n : k < IN_CALL || k == NO_CALL;
}

static int put_edge(struct buf *b, uint32_t from, uint32_t to, uint32_t lo,
                    uint32_t hi)
{
    const struct dfa_draft_edge edge = {from, lo, hi, to};
    return buf_append(b, &edge, sizeof edge);
}

/* Put the edges of state k, which is not the last one. */
static int put_state(struct buf *out, const struct search *s, uint32_t k,
                     bool to_mark)
{
    int rc = 0;
    for (uint32_t lo = 0, hi; lo < 256 && !rc; lo = hi) {
        uint32_t to = search_step(s, k, (unsigned char)lo);
        for (hi = lo + 1; hi < 256; hi++)
            if (search_step(s, k, (unsigned char)hi) != to)
                break;
        if (is_state(s, to, to_mark))
            rc = put_edge(out, k, to, lo, hi - 1);
    }
    return rc || (!to_mark && put_edge(out, k, k, DFA_END, 0)) ? -1 : 0;
}

static uint32_t search_node(struct grammar *g, const struct search *s,
                            bool to_mark)
{
    struct buf edges = {0};
    uint32_t end = found(s), node = GRAMMAR_NOTHING;
    int rc = 0;
    for (uint32_t k = 0; k < end && !rc; k++)
        if (is_state(s, k, to_mark))
            rc = put_state(&edges, s, k, to_mark);
    if (rc || (to_mark && put_edge(&edges, end, end, DFA_END, 0)))
        grammar_oom(g, edges.len);
    else
        node = grammar_node(g, NODE_DFA, edges.data, edges.len, 0);
    buf_free(&edges);
    return node;
}

static struct search search_of(const char *tag)
{
    return (struct search){tag, tag ? (uint32_t)strlen(tag) : 0};
}

uint32_t tools_any_text(struct grammar *g)
{
    static const struct dfa_draft_edge edges[] = {{0, 0, 255, 0},
                                                  {0, DFA_END, 0, 0}};
    return grammar_node(g, NODE_DFA, edges, sizeof edges, 0);
}

uint32_t tools_text_before(struct grammar *g, const struct call_form *form)
{
    const struct search s = search_of(form->open);
    return grammar_shared(g, "text", search_node(g, &s, false));
}

uint32_t tools_text_to_mark(struct grammar *g, const struct call_form *form)
{
    const struct search s = search_of(form->open);
    return grammar_shared(g, "text before a call", search_node(g, &s, true));
}

uint32_t tools_text_to_tag(struct grammar *g, const char *tag)
{
    const struct search s = search_of(tag);
    return grammar_shared(g, "text before a tag", search_node(g, &s, true));
}

size_t tools_mark_length(const struct call_form *form)
{
    return form->open ? strlen(form->open) : N_NAME;
}
