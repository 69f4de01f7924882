/* Probabilities of given answers: their tokens as a tree behind each prompt,
 * of which every inner node is evaluated once. */
#include <stdlib.h>

#include "base/buf.h"
#include "engine/core/options.h"
#include "engine/tasks/score_pass.h"

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
    struct prompt *prompts; /* under way */
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

static int next(struct runs *runs, struct qwick_err *e)
{
    struct choose *c = runs->ctx;
    runs->more = c->at < c->n_items;
    if (!runs->more)
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
    struct score_run *r = score_queue(runs, e);
    if (!r)
        return -1;
    r->run.tokens = p->item->prompt;
    r->run.n = p->item->n;
    r->run.first = r->run.n - 1;
    r->run.n_final = p->item->n;
    r->owner = p;
    p->n_runs = 1;
    return 0;
}

/* r->pos is the node that the row belongs to; the rows of a path follow each
 * other. */
static int row(struct runs *runs, struct run *run, size_t i,
               const float *logits, struct qwick_err *e)
{
    const struct choose *c = runs->ctx;
    const struct node *nodes = c->tree.nodes;
    struct score_run *r = (struct score_run *)run;
    struct prompt *p = r->owner;
    double log_sum;
    if (score_log_sum(runs->eng, logits, &log_sum, e))
        return -1;
    for (size_t at = nodes[r->pos].child; at; at = nodes[at].sibling)
        p->logprobs[at] = p->logprobs[r->pos] +
                          score_logprob(logits, log_sum, nodes[at].token);
    if (i + 1 < run->n)
        r->pos = only_inner(&c->tree, r->pos);
    return 0;
}

/* Queue the path that begins with a node and goes on as long as it does not
 * part. */
static int queue_path(struct runs *runs, struct prompt *p, size_t node,
                      struct qwick_session *s, struct qwick_err *e)
{
    const struct choose *c = runs->ctx;
    struct score_run *r = score_queue(runs, e);
    if (!r) {
        qwick_session_free(s);
        return -1;
    }
    r->run.session = s;
    r->run.origin = s->kv.n;
    r->owner = p;
    r->pos = node;
    p->n_runs++;
    for (size_t at = node; at; at = only_inner(&c->tree, at))
        r->run.n++;
    r->run.n_final = r->run.origin + r->run.n;
    r->own = malloc(r->run.n * sizeof *r->own);
    if (!r->own)
        return err_oom(e, r->run.n * sizeof *r->own);
    for (size_t k = 0, at = node; at; at = only_inner(&c->tree, at))
        r->own[k++] = c->tree.nodes[at].token;
    r->run.tokens = r->own;
    return 0;
}

static int done(struct runs *runs, struct run *run, bool *again,
                struct qwick_err *e)
{
    struct choose *c = runs->ctx;
    const struct tree *t = &c->tree;
    const struct score_run *r = (struct score_run *)run;
    struct prompt *p = r->owner;
    size_t at = inner(t, t->nodes[r->pos].child);
    (void)again;
    if (!r->own)
        runs->n_done += run->n;
    while (at) {
        size_t after = inner(t, t->nodes[at].sibling);
        struct qwick_session *s = run->session;
        if (!after) /* the last one goes on with the session itself */
            run->session = NULL;
        else if (qwick_session_fork(&s, run->session, e))
            return -1;
        if (queue_path(runs, p, at, s, e))
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

static int check_prompts(struct runs *runs, struct qwick_err *e)
{
    const struct choose *c = runs->ctx;
    size_t n_ctx = runs->n_ctx;
    size_t vocab_size = runs->eng->model.config.vocab_size;
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
        runs->n_total += it->n;
    }
    return 0;
}

/* Evaluate what all prompts begin with once, if that is worth a page. The last
 * token of each is left to it. */
static int share_begin(struct runs *runs, struct qwick_err *e)
{
    const struct choose *c = runs->ctx;
    const struct qwick_choose_item *a = c->items;
    if (c->n_items < 2)
        return 0;
    size_t n = a->n - 1;
    for (size_t i = 1; i < c->n_items; i++)
        n = tokens_in_common(a->prompt, n, c->items[i].prompt,
                             c->items[i].n - 1);
    return n < KV_BLOCK ? 0 : runs_set_base(runs, a->prompt, n, e);
}

static const struct run_task task = {JUDGE_TASK, .next = next, .row = row,
                                     .done = done};

int qwick_choose(struct qwick_engine *eng, struct qwick_choose_item *items,
                 size_t n, const struct qwick_answer *answers, size_t n_answers,
                 const struct qwick_score_options *given, struct qwick_err *e)
{
    struct qwick_score_options all = qwick_score_defaults(), *o = &all;
    struct choose c = {.items = items, .n_items = n, .n_answers = n_answers};
    struct runs runs = {0};
    int rc = -1;
    if (options_read(o, sizeof *o, given, "score", e))
        return -1;
    if (n_answers == 0)
        return err_set(e, QWICK_ERR_USAGE, "answers: at least one is needed");
    if (!tree_build(&c.tree, eng, answers, n_answers, e) &&
        !runs_open(&runs, eng, &task, &c, o->n_ctx, JUDGE_RUNS, e) &&
        !check_prompts(&runs, e)) {
        score_set_options(&runs, o);
        rc = share_begin(&runs, e) || runs_all(&runs, e) ? -1 : 0;
    }
    runs_close(&runs);
    while (c.prompts)
        prompt_free(&c, c.prompts);
    free(c.tree.nodes);
    free(c.tree.ends);
    return rc;
}
