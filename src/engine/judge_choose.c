/* Probabilities of given answers: their tokens as a tree behind each prompt,
 * of which every inner node is evaluated once. */
#include <stdlib.h>

#include "base/buf.h"
#include "engine/judge.h"
#include "engine/options.h"

/* Node 0 is the end of the prompt; each other one is a token after its parent.
 * Children are a list. 0 as an index: none. */
struct node {
    int32_t token;
    size_t child, sibling;
};

struct tree {
    struct node *nodes;
    size_t n;
    size_t *ends; /* [n_answers] the node of each one's last token */
    size_t depth; /* evaluated at most: one less than the longest answer */
};

/* What is known of a prompt that is under way. */
struct prompt {
    struct qwick_choose_item *item;
    double *logprobs; /* [tree.n] of the path to each node */
    size_t n_runs;    /* not done */
    struct prompt *next, *prev;
};

struct choose {
    struct tree tree;
    struct qwick_choose_item *items;
    size_t n_items, at; /* the next item */
    size_t n_answers;
    struct prompt *prompts;      /* under way */
    struct qwick_session *begin; /* what all prompts begin with, or NULL */
    size_t n_begin;
};

/* ---- the tree ----------------------------------------------------------- */

static size_t child_of(struct tree *t, size_t parent, int32_t token)
{
    size_t *link = &t->nodes[parent].child;
    while (*link && t->nodes[*link].token != token)
        link = &t->nodes[*link].sibling;
    if (!*link) {
        *link = t->n;
        t->nodes[t->n++] = (struct node){.token = token};
    }
    return *link;
}

static int tree_build(struct tree *t, const struct qwick_engine *eng,
                      const struct qwick_answer *answers, size_t n,
                      struct qwick_err *e)
{
    size_t vocab_size = eng->model.config.vocab_size, most = 1;
    for (size_t i = 0; i < n; i++)
        if (size_add(most, answers[i].n, &most))
            return err_oom(e, SIZE_MAX);
    t->nodes = calloc(most, sizeof *t->nodes);
    t->ends = calloc(n, sizeof *t->ends);
    if (!t->nodes || !t->ends)
        return err_oom(e, most * sizeof *t->nodes);
    t->n = 1;
    for (size_t i = 0; i < n; i++) {
        size_t at = 0;
        if (answers[i].n == 0)
            return err_set(e, QWICK_ERR_USAGE, "answer %zu: has no tokens",
                           i + 1);
        for (size_t k = 0; k < answers[i].n; k++) {
            int32_t id = answers[i].tokens[k];
            if (id < 0 || (size_t)id >= vocab_size)
                return err_set(e, QWICK_ERR_USAGE,
                               "answer %zu: token id %d is out of range, the "
                               "vocabulary has %zu",
                               i + 1, id, vocab_size);
            at = child_of(t, at, id);
        }
        for (size_t k = 0; k < i; k++)
            if (t->ends[k] == at)
                return err_set(e, QWICK_ERR_USAGE,
                               "answer %zu: has the same tokens as answer %zu",
                               i + 1, k + 1);
        t->ends[i] = at;
        if (answers[i].n - 1 > t->depth)
            t->depth = answers[i].n - 1;
    }
    return 0;
}

/* The next child from `at` on that has children itself: it must be evaluated.
 */
static size_t inner(const struct tree *t, size_t at)
{
    while (at && !t->nodes[at].child)
        at = t->nodes[at].sibling;
    return at;
}

/* The only inner child of a node: no other path leaves there. */
static size_t only_inner(const struct tree *t, size_t node)
{
    size_t at = inner(t, t->nodes[node].child);
    return at && !inner(t, t->nodes[at].sibling) ? at : 0;
}

/* ---- prompts under way -------------------------------------------------- */

static void prompt_free(struct choose *c, struct prompt *p)
{
    if (p->prev)
        p->prev->next = p->next;
    else
        c->prompts = p->next;
    if (p->next)
        p->next->prev = p->prev;
    free(p->logprobs);
    free(p);
}

static int next(struct judge *j, bool *more, struct qwick_err *e)
{
    struct choose *c = j->ctx;
    *more = c->at < c->n_items;
    if (!*more)
        return 0;
    struct prompt *p = calloc(1, sizeof *p);
    if (!p)
        return err_oom(e, sizeof *p);
    p->next = c->prompts;
    if (p->next)
        p->next->prev = p;
    c->prompts = p;
    p->item = &c->items[c->at++];
    p->logprobs = calloc(c->tree.n, sizeof *p->logprobs);
    if (!p->logprobs)
        return err_oom(e, c->tree.n * sizeof *p->logprobs);
    struct judge_run *r = judge_queue(j, e);
    if (!r)
        return -1;
    r->tokens = p->item->prompt + c->n_begin;
    r->n = p->item->n - c->n_begin;
    r->kv_tokens = r->n + (c->begin ? KV_BLOCK : 0);
    r->first = r->n - 1;
    r->owner = p;
    p->n_runs = 1;
    return c->begin ? qwick_session_fork(&r->session, c->begin, e) : 0;
}

/* r->pos is the node that the row belongs to; the rows of a path follow each
 * other. */
static int row(struct judge *j, struct judge_run *r, size_t i,
               const float *logits, struct qwick_err *e)
{
    const struct choose *c = j->ctx;
    const struct node *nodes = c->tree.nodes;
    struct prompt *p = r->owner;
    double log_sum;
    if (judge_log_sum(j, logits, &log_sum, e))
        return -1;
    for (size_t at = nodes[r->pos].child; at; at = nodes[at].sibling)
        p->logprobs[at] = p->logprobs[r->pos] +
                          judge_logprob(logits, log_sum, nodes[at].token);
    if (i + 1 < r->n)
        r->pos = only_inner(&c->tree, r->pos);
    return 0;
}

/* Queue the path that begins with a node and goes on as long as it does not
 * part. */
static int queue_path(struct judge *j, struct prompt *p, size_t node,
                      struct qwick_session *s, size_t kv_tokens,
                      struct qwick_err *e)
{
    const struct choose *c = j->ctx;
    struct judge_run *r = judge_queue(j, e);
    if (!r) {
        qwick_session_free(s);
        return -1;
    }
    r->session = s;
    r->owner = p;
    r->pos = node;
    p->n_runs++;
    for (size_t at = node; at; at = only_inner(&c->tree, at))
        r->n++;
    r->kv_tokens = r->n + kv_tokens;
    r->own = malloc(r->n * sizeof *r->own);
    if (!r->own)
        return err_oom(e, r->n * sizeof *r->own);
    for (size_t k = 0, at = node; at; at = only_inner(&c->tree, at))
        r->own[k++] = c->tree.nodes[at].token;
    r->tokens = r->own;
    return 0;
}

static int done(struct judge *j, struct judge_run *r, bool *again,
                struct qwick_err *e)
{
    struct choose *c = j->ctx;
    const struct tree *t = &c->tree;
    struct prompt *p = r->owner;
    size_t at = inner(t, t->nodes[r->pos].child);
    (void)again;
    if (!r->own)
        j->n_done += r->n;
    while (at) {
        size_t after = inner(t, t->nodes[at].sibling);
        struct qwick_session *s;
        size_t kv_tokens = KV_BLOCK; /* the page that it parts in is copied */
        if (after) {
            if (qwick_session_fork(&s, r->session, e))
                return -1;
        } else { /* the last one goes on with the session itself */
            s = r->session;
            r->session = NULL;
            kv_tokens = r->kv_tokens;
        }
        if (queue_path(j, p, at, s, kv_tokens, e))
            return -1;
        at = after;
    }
    if (--p->n_runs)
        return 0;
    for (size_t i = 0; i < c->n_answers; i++)
        p->item->logprobs[i] = p->logprobs[t->ends[i]];
    prompt_free(c, p);
    return 0;
}

static int check_prompts(struct judge *j, const struct choose *c,
                         struct qwick_err *e)
{
    size_t n_ctx, vocab_size = j->eng->model.config.vocab_size;
    if (judge_limit(j->eng, j->o, &n_ctx, e))
        return -1;
    for (size_t i = 0; i < c->n_items; i++) {
        const struct qwick_choose_item *it = &c->items[i];
        if (it->n == 0)
            return err_set(e, QWICK_ERR_USAGE, "prompt %zu: has no tokens",
                           i + 1);
        for (size_t k = 0; k < it->n; k++)
            if (it->prompt[k] < 0 || (size_t)it->prompt[k] >= vocab_size)
                return err_set(e, QWICK_ERR_USAGE,
                               "prompt %zu: token id %d is out of range, the "
                               "vocabulary has %zu",
                               i + 1, it->prompt[k], vocab_size);
        if (c->tree.depth > n_ctx || it->n > n_ctx - c->tree.depth)
            return err_set(e, QWICK_ERR_CONTEXT,
                           "prompt: %zu tokens and an answer's %zu do not fit "
                           "the context of %zu",
                           it->n, c->tree.depth, n_ctx);
        j->n_total += it->n;
    }
    return 0;
}

/* Evaluate what all prompts begin with once, if that is worth a page. The last
 * token of each is left to it. */
static int share_begin(struct judge *j, struct choose *c, struct qwick_err *e)
{
    const struct qwick_choose_item *a = &c->items[0];
    size_t n = a->n - 1;
    if (c->n_items < 2)
        return 0;
    for (size_t i = 1; i < c->n_items; i++) {
        const struct qwick_choose_item *b = &c->items[i];
        size_t k = 0;
        while (k < n && k + 1 < b->n && a->prompt[k] == b->prompt[k])
            k++;
        n = k;
    }
    if (n < KV_BLOCK)
        return 0;
    if (qwick_session_create(&c->begin, j->eng, j->o->n_ctx, e))
        return -1;
    qwick_session_interrupt(c->begin, j->o->interrupt);
    c->n_begin = n;
    return qwick_session_sync(c->begin, a->prompt, n, e);
}

int qwick_choose(struct qwick_engine *eng, struct qwick_choose_item *items,
                 size_t n, const struct qwick_answer *answers, size_t n_answers,
                 const struct qwick_judge_options *given, struct qwick_err *e)
{
    static const struct judge_work work = {next, row, done};
    struct qwick_judge_options all = qwick_judge_defaults(), *o = &all;
    struct choose c = {.items = items, .n_items = n, .n_answers = n_answers};
    struct judge j = {.eng = eng, .o = o, .work = &work, .ctx = &c};
    int rc = -1;
    if (options_read(o, sizeof *o, given, "judge", e))
        return -1;
    if (n_answers == 0)
        return err_set(e, QWICK_ERR_USAGE, "answers: there are none");
    if (tree_build(&c.tree, eng, answers, n_answers, e) == 0 &&
        check_prompts(&j, &c, e) == 0 &&
        (n == 0 || share_begin(&j, &c, e) == 0))
        rc = judge_run_all(&j, e);
    while (c.prompts)
        prompt_free(&c, c.prompts);
    qwick_session_free(c.begin);
    free(c.tree.nodes);
    free(c.tree.ends);
    return rc;
}
