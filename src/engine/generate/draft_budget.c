#include "engine/generate/draft_budget.h"

#include <string.h>

/* Upper limits of the classes, and the probability that we assume for each
 * before the first results. Two models that agree well also do so where neither
 * is sure. */
static const struct {
    double below, prior;
} classes[] = {{0.2, 0.5},   {0.4, 0.55}, {0.6, 0.65},  {0.75, 0.75},
               {0.87, 0.85}, {0.95, 0.9}, {0.99, 0.95}, {2, 0.98}};
_Static_assert(sizeof classes / sizeof *classes == DRAFT_CLASSES,
               "each class has a row");

/* A guess that we know nothing about is right with probability PRIOR. A prior
 * has the weight of WEIGHT guesses, and only about the last MEMORY guesses
 * count. */
#define PRIOR  0.75
#define WEIGHT 4.0
#define MEMORY 48.0

/* A pass with guesses must be faster than one without by this factor, by our
 * estimate. */
#define LEAST_GAIN 1.05

/* The budget begins with OPENING and SHARE of the prompt's cost. Each token
 * adds SHARE, up to LIMIT. So wrong guesses never cost more than OPENING and
 * the shares, if the costs are right. */
#define OPENING 2.0
#define SHARE   0.01
#define LIMIT   16.0

/* The cost of a pass with guesses, besides that of its rows: drawing guesses,
 * and going back. Each answer of a batch has it. */
#define OVERHEAD 0.03

/* Passes from one attempt to the next while guesses do not pay, and the number
 * of guesses in an attempt. */
enum { WAIT = 64, ATTEMPT = 2 };

static double rate_of(const struct draft_rate *r, double prior)
{
    return (r->right + WEIGHT * prior) / (r->made + WEIGHT);
}

static void note(struct draft_rate *r, bool right)
{
    if (r->made >= MEMORY) {
        r->right *= (MEMORY - 1) / MEMORY;
        r->made *= (MEMORY - 1) / MEMORY;
    }
    r->made += 1;
    r->right += right;
}

/* The probability that guess i is right if those before it are. */
static double chance(const struct draft_budget *a, size_t i)
{
    return rate_of(&a->at[i], rate_of(&a->all, PRIOR));
}

static size_t class_of(double sure)
{
    size_t i = 0;
    while (sure >= classes[i].below)
        i++;
    return i;
}

/* The cost of n guesses, n >= 1, if the draft model is not behind. */
static double cost_of(const struct draft_budget *a, size_t n)
{
    return (a->step + a->row) * (double)n + a->overhead;
}

/* The cost of what the draft model lacks. */
static double catch_up(const struct draft_budget *a, size_t n_behind)
{
    return a->back * (double)(n_behind - 1);
}

void budget_open(struct draft_budget *a, double step, double row, double back,
                  double credit)
{
    *a = (struct draft_budget){.alone = {step, row, back},
                                .balance = OPENING + SHARE * credit};
    budget_share(a, 1, 1);
}

void budget_follow(struct draft_budget *a, const struct draft_budget *last)
{
    a->all = last->all;
    memcpy(a->at, last->at, sizeof a->at);
    memcpy(a->by_class, last->by_class, sizeof a->by_class);
    if (last->balance < OPENING)
        a->balance -= OPENING - last->balance;
}

void budget_share(struct draft_budget *a, size_t n_pass, size_t n_drafting)
{
    double pass = (double)n_pass, drafting = (double)n_drafting;
    double share = (1 + a->alone.row * (pass - 1)) / pass;
    double step = (a->alone.step + a->alone.back * (drafting - 1)) / drafting;
    a->step = step / share;
    a->row = a->alone.row / share;
    a->back = a->alone.back / share;
    a->overhead = OVERHEAD / share;
}

size_t budget_affords(const struct draft_budget *a)
{
    double left = a->balance - cost_of(a, 1);
    if (left < 0)
        return 0;
    return a->back > 0 && left / a->back < 1e9 ? 1 + (size_t)(left / a->back)
                                               : (size_t)1e9;
}

/* The most guesses that a balance can pay after a part of it was spent. */
static size_t payable(const struct draft_budget *a, size_t max, double spent,
                      double balance)
{
    size_t n = 0;
    while (n < max && n < DRAFT_MAX && spent + cost_of(a, n + 1) <= balance)
        n++;
    return n;
}

/* The best rate with up to n guesses; LEAST_GAIN if none is better. */
static double best_rate(const struct draft_budget *a, size_t n)
{
    double best = LEAST_GAIN, tokens = 1, p = 1;
    for (size_t i = 0; i < n; i++) {
        p *= chance(a, i);
        tokens += p;
        double rate = tokens / (1 + cost_of(a, i + 1));
        best = rate > best ? rate : best;
    }
    return best;
}

double budget_expects(const struct draft_budget *a, size_t max)
{
    double rate = best_rate(a, payable(a, max, 0, a->balance));
    return rate > LEAST_GAIN ? rate : 1;
}

static double limited(double balance)
{
    return balance < LIMIT ? balance : LIMIT;
}

/* A plan for the next pass. */
struct plan {
    size_t max; /* most guesses; 0: do not draft */
    double rate;
    bool attempt; /* make guesses in any case, to learn */
};

static struct plan plan(const struct draft_budget *a, double lacks, size_t max,
                        double balance)
{
    size_t most = payable(a, max, lacks, balance);
    struct plan p = {.max = most, .rate = best_rate(a, most)};
    if (p.rate > LEAST_GAIN)
        return p;
    p.attempt =
        !a->wait && most && lacks + 2 * cost_of(a, ATTEMPT) <= balance;
    p.max = !p.attempt ? 0 : most < ATTEMPT ? most : ATTEMPT;
    if (p.attempt)
        p.rate = 0;
    return p;
}

bool budget_wants(const struct draft_budget *a, size_t n_behind, size_t max)
{
    return plan(a, catch_up(a, n_behind), max, limited(a->balance + SHARE))
               .max > 0;
}

bool budget_plan(struct draft_budget *a, size_t n_behind, size_t max)
{
    double lacks = catch_up(a, n_behind);
    a->balance = limited(a->balance + SHARE);
    struct plan p = plan(a, lacks, max, a->balance);
    a->n = 0;
    a->refused = false;
    a->expected = 1;
    a->max = p.max;
    a->rate = p.rate;
    a->cost = p.max ? lacks + a->step + a->overhead : 0;
    if (p.attempt)
        a->wait = WAIT;
    else if (a->wait && p.rate <= LEAST_GAIN)
        a->wait--;
    return p.max > 0;
}

bool budget_take(struct draft_budget *a, double sure)
{
    size_t i = class_of(sure);
    double p = a->expected * rate_of(&a->by_class[i], classes[i].prior);
    a->cls[a->n] = (unsigned char)i;
    if (p <= a->rate * a->row) {
        /* forget a little, so that the class is tried again some time */
        a->by_class[i].right *= (MEMORY - 1) / MEMORY;
        a->by_class[i].made *= (MEMORY - 1) / MEMORY;
        a->max = a->n;
        a->refused = true;
        return false;
    }
    a->n++;
    a->expected = p;
    a->cost += a->row;
    return true;
}

bool budget_pays(const struct draft_budget *a)
{
    double cost = a->step + a->row;
    return a->n < a->max && a->cost + cost <= a->balance &&
           a->expected * chance(a, a->n) > a->rate * cost;
}

bool budget_more(struct draft_budget *a)
{
    if (!budget_pays(a))
        return false;
    a->cost += a->step;
    return true;
}

void budget_settle(struct draft_budget *a, size_t n_right, bool compared)
{
    size_t n = a->n + (a->refused && compared);
    for (size_t i = 0; i < n && i <= n_right; i++) {
        bool right = i < n_right;
        note(&a->all, right);
        note(&a->at[i], right);
        note(&a->by_class[a->cls[i]], right);
        a->balance += right && i < a->n;
    }
    a->balance = limited(a->balance - a->cost);
    a->n = a->max = 0;
    a->cost = 0;
}
