#include "engine/generate/lookup.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

/* Fewest matching tokens before a guess. The index hashes this many tokens. */
enum { GRAM = 2 };

/* Most earlier positions that a search tries, and most tokens that it compares
 * at each. */
enum { MOST_PLACES = 32, MOST_MATCH = 32 };

/* Classes of guesses: trust in a guess grows with the number of matching tokens
 * before it. */
static const struct {
    size_t match; /* least number of matching tokens */
    double prior; /* assumed probability before the first results */
} classes[] = {{GRAM, 0.2}, {3, 0.4},  {4, 0.5}, {5, 0.6},
               {7, 0.7},    {10, 0.8}, {16, 0.9}};
enum { CLASSES = sizeof classes / sizeof *classes };

/* The prior has the weight of PRIOR_WEIGHT guesses, and only about the last
 * MEMORY guesses count. We chose these and the priors by replaying prose,
 * source code, JSON lines and a file with edits at row costs from 0.06 to 0.4.
 * Half or twice of either changes the speed by about 1%. */
#define PRIOR_WEIGHT 4.0
#define MEMORY       32.0

/* A pass with guesses must be faster than one without by this factor, by our
 * estimate. */
#define LEAST_GAIN 1.05

/* A budget for wrong guesses, in passes of one token. It starts with OPENING.
 * Wrong guesses are paid from it; right ones add to it, and each token adds
 * ALLOWANCE, up to LIMIT. So wrong guesses never cost more than OPENING and the
 * allowances, if row_cost is right. */
#define ALLOWANCE 0.01
#define OPENING   1.0
#define LIMIT     16.0

#define NONE UINT32_MAX

struct lookup {
    size_t max;
    double row_cost;
    int32_t *tokens; /* [n], room for cap */
    size_t n, cap;
    /* Positions by the hash of the GRAM tokens that end there. */
    uint32_t *head; /* [cap] latest position of each hash */
    uint32_t *prev; /* [cap] the previous position with the same hash */
    size_t source;  /* the tokens after this position are the guess */
    size_t match;   /* tokens up to source that equal the last ones of the
                       context; 0: no guess */
    int32_t guess[LOOKUP_MAX + 1];
    size_t n_guess;
    size_t n_drafted;   /* guesses that were handed out to the caller */
    size_t guess_match; /* value of match when the guesses were made */
    size_t at;          /* index of the guess to check next */
    double balance;
    double right[CLASSES], made[CLASSES];
};

/* ---- the index ---------------------------------------------------------- */

static size_t slot(const struct lookup *l, size_t i)
{
    uint64_t h = 0;
    for (size_t j = 0; j < GRAM; j++)
        h = (h ^ (uint32_t)l->tokens[i - j]) * 0x9e3779b97f4a7c15u;
    return (size_t)(h >> 32) & (l->cap - 1);
}

/* Add the tokens that end at position i to the index. */
static void index_token(struct lookup *l, size_t i)
{
    if (i + 1 < GRAM)
        return;
    uint32_t *head = &l->head[slot(l, i)];
    l->prev[i] = *head;
    *head = (uint32_t)i;
}

/* Make room for n tokens. A larger index is rebuilt. */
static int reserve(struct lookup *l, size_t n, struct qwick_err *e)
{
    size_t cap = l->cap ? l->cap : 256, bytes;
    if (n <= l->cap)
        return 0;
    while (cap < n && cap <= SIZE_MAX / 2)
        cap *= 2;
    if (cap < n || cap > NONE || size_mul(cap, sizeof(int32_t), &bytes))
        return err_oom(e, SIZE_MAX);
    int32_t *tokens = malloc(bytes);
    uint32_t *head = malloc(bytes), *prev = malloc(bytes);
    if (!tokens || !head || !prev) {
        free(tokens);
        free(head);
        free(prev);
        return err_oom(e, bytes);
    }
    if (l->n)
        memcpy(tokens, l->tokens, l->n * sizeof *tokens);
    memset(head, 0xff, bytes); /* NONE */
    free(l->tokens);
    free(l->head);
    free(l->prev);
    l->tokens = tokens;
    l->head = head;
    l->prev = prev;
    l->cap = cap;
    for (size_t i = 0; i < l->n; i++)
        index_token(l, i);
    return 0;
}

/* How many tokens up to position i equal the last tokens of the context. */
static size_t matching(const struct lookup *l, size_t i)
{
    const int32_t *last = l->tokens + l->n - 1, *there = l->tokens + i;
    size_t k = 0;
    while (k < MOST_MATCH && k <= i &&
           there[-(ptrdiff_t)k] == last[-(ptrdiff_t)k])
        k++;
    return k;
}

/* Find the earlier position with the longest match: try the latest MOST_PLACES,
 * and keep the current source unless one is better. */
static void find(struct lookup *l)
{
    if (l->n < GRAM)
        return;
    uint32_t i = l->prev[l->n - 1];
    for (size_t tries = 0; i != NONE && tries < MOST_PLACES; tries++) {
        size_t k = matching(l, i);
        if (k >= GRAM && k > l->match) {
            l->match = k;
            l->source = i;
        }
        i = l->prev[i];
    }
}

/* ---- what guesses are worth --------------------------------------------- */

static size_t class_of(size_t match)
{
    size_t i = CLASSES - 1;
    while (i > 0 && match < classes[i].match)
        i--;
    return i;
}

static double probability(const struct lookup *l, size_t match)
{
    size_t i = class_of(match);
    return l->right[i] / l->made[i];
}

/* Compare the next guess with the token that came. */
static void check(struct lookup *l, int32_t id)
{
    if (l->at == l->n_guess)
        return;
    bool right = l->guess[l->at] == id;
    size_t i = class_of(l->guess_match + l->at);
    if (l->made[i] >= MEMORY) {
        l->right[i] *= (MEMORY - 1) / MEMORY;
        l->made[i] = MEMORY - 1;
    }
    l->made[i]++;
    l->right[i] += right;
    if (right && l->at < l->n_drafted)
        l->balance += 1;
    l->at = right ? l->at + 1 : l->n_guess;
}

/* Choose the number of guesses for the next pass, at most n: the number with
 * the most expected tokens per time, if that is more than `least` and the gain
 * is large enough, and if the budget can pay for it. */
static size_t worth(const struct lookup *l, size_t n, double least)
{
    double p = 1, tokens = 1, best_paid = least;
    double best = least > LEAST_GAIN ? least : LEAST_GAIN;
    size_t k = 0, paid = 0;
    for (size_t i = 1; i <= n; i++) {
        double cost = l->row_cost * (double)(i + 1);
        p *= probability(l, l->guess_match + i - 1);
        tokens += p;
        double rate = tokens / (1 + cost);
        if (rate > best) {
            best = rate;
            k = i;
        }
        if (cost <= l->balance && rate > best_paid) {
            best_paid = rate;
            paid = i;
        }
    }
    return k ? paid : 0;
}

/* ---- the interface ------------------------------------------------------ */

int lookup_create(struct lookup **out, size_t max, double row_cost,
                  struct qwick_err *e)
{
    struct lookup *l = calloc(1, sizeof *l);
    *out = l;
    if (!l)
        return err_oom(e, sizeof *l);
    l->max = max;
    l->row_cost = row_cost;
    l->balance = OPENING;
    for (size_t i = 0; i < CLASSES; i++) {
        l->made[i] = PRIOR_WEIGHT;
        l->right[i] = PRIOR_WEIGHT * classes[i].prior;
    }
    return 0;
}

void lookup_free(struct lookup *l)
{
    if (!l)
        return;
    free(l->tokens);
    free(l->head);
    free(l->prev);
    free(l);
}

int lookup_add(struct lookup *l, const int32_t *ids, size_t n,
               struct qwick_err *e)
{
    size_t end;
    if (size_add(l->n, n, &end))
        return err_oom(e, SIZE_MAX);
    if (reserve(l, end, e))
        return -1;
    for (size_t i = 0; i < n; i++) {
        check(l, ids[i]);
        l->tokens[l->n] = ids[i];
        if (l->match && l->tokens[l->source + 1] == ids[i]) {
            l->source++;
            l->match += l->match < MOST_MATCH;
        } else {
            l->match = 0;
        }
        index_token(l, l->n++);
    }
    return 0;
}

size_t lookup_guess(struct lookup *l, int32_t *drafts, size_t n)
{
    return lookup_guess_above(l, drafts, n, 1);
}

size_t lookup_guess_above(struct lookup *l, int32_t *drafts, size_t n,
                          double least)
{
    l->n_guess = l->n_drafted = l->at = 0;
    l->balance += ALLOWANCE;
    if (l->balance > LIMIT)
        l->balance = LIMIT;
    find(l);
    if (!l->match)
        return 0;
    n = n < l->max ? n : l->max;
    l->guess_match = l->match;
    l->n_drafted = worth(l, n, least);
    if (l->n_drafted)
        l->balance -= l->row_cost * (double)(l->n_drafted + 1);
    /* one guess more than is handed out, to learn from it */
    l->n_guess = l->n_drafted + 1;
    for (size_t i = 0, at = l->source + 1; i < l->n_guess; i++, at++)
        l->guess[i] = at < l->n ? l->tokens[at] : l->guess[at - l->n];
    memcpy(drafts, l->guess, l->n_drafted * sizeof *drafts);
    return l->n_drafted;
}
