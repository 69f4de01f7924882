/* What guesses of a draft model are worth: how many of them to make for a pass
 * of the target, the model that answers. Costs are times relative to a pass of
 * the target with one token. They come from the models' sizes, never from a
 * clock, so an answer can be repeated.
 *
 * A pass goes like this: budget_plan says whether to draft. The draft model
 * evaluates what it lacks. For each of its distributions, budget_take says
 * whether the guess gets a place in the pass, and budget_more whether one more
 * step of the draft model pays. After the pass, budget_settle learns how many
 * guesses were right.
 *
 * In a batch, several answers share a pass. Then the unit is an answer's share
 * of a pass in which each answer has one token. The more answers share it, the
 * less a share has of reading the weights, and the more a row costs in
 * comparison. The answers with guesses share the steps of the draft model.
 * budget_share sets the numbers. How many answers will draft depends on how
 * many take part, since they share the costs: budget_wants and budget_pays
 * ask without a change, so that the caller can find the number. */
#ifndef ENGINE_DRAFT_BUDGET_H
#define ENGINE_DRAFT_BUDGET_H

#include <stdbool.h>
#include <stddef.h>

/* Maximum number of guesses in a pass. */
#define DRAFT_MAX 16

/* Classes of guesses by the largest probability of their distribution. */
#define DRAFT_CLASSES 8

/* How often guesses were right. Old results fade. */
struct draft_rate {
    double right, made;
};

struct draft_budget {
    double step; /* cost of a step of the draft model with one token */
    double row;  /* cost of one more token in a pass of the target */
    double back; /* cost of one more token in a step of the draft model */
    double overhead; /* cost of guesses besides those */
    struct {
        double step, row, back;
    } alone; /* those costs if no other answer shares the pass */
    /* A budget for wrong guesses, in passes of the target. Work on guesses is
       paid from it; right guesses and each token add to it. */
    double balance;
    size_t wait; /* passes until guesses are tried again */
    struct draft_rate all, at[DRAFT_MAX], by_class[DRAFT_CLASSES];
    /* of the current pass */
    double rate;     /* expected tokens per time; at least 1 */
    double expected; /* probability that all guesses so far are right */
    double cost;
    size_t n, max;                /* guesses so far; and at most */
    bool refused;                 /* the guess after those has no place */
    unsigned char cls[DRAFT_MAX]; /* classes, also of the refused guess */
};

/* Begin an answer. credit: cost of the prompt's evaluation. */
void budget_open(struct draft_budget *a, double step, double row, double back,
                  double credit);

/* Let an answer that begins know what another one learned, which has ended. Its
 * budget is limited by what that one had left. So if guesses never pay, a batch
 * of many short answers does not spend an opening budget on each. */
void budget_follow(struct draft_budget *a, const struct draft_budget *last);

/* Set the costs for a pass of n_pass answers, 1 <= n_drafting <= n_pass of
 * which share the next steps of the draft model. */
void budget_share(struct draft_budget *a, size_t n_pass, size_t n_drafting);

/* Begin a pass. n_behind: tokens that the draft model must evaluate before it
 * can guess, at least 1. max: maximum number of guesses. Returns whether to
 * draft. */
bool budget_plan(struct draft_budget *a, size_t n_behind, size_t max);

/* Return what budget_plan would return. */
bool budget_wants(const struct draft_budget *a, size_t n_behind, size_t max);

/* Return the tokens that the next pass is expected to give in the time of a
 * pass with one token; 1 if guesses do not pay. */
double budget_expects(const struct draft_budget *a, size_t max);

/* Return how many tokens the draft model may evaluate before it guesses, with
 * what the budget holds. */
size_t budget_affords(const struct draft_budget *a);

/* Decide about the next guess of the pass. sure: the largest probability of its
 * distribution. Returns whether the guess gets a place. If not, the pass has no
 * further ones. */
bool budget_take(struct draft_budget *a, double sure);

/* Return whether another step of the draft model pays; the caller must then
 * make it. */
bool budget_more(struct draft_budget *a);

/* Return what budget_more would return. */
bool budget_pays(const struct draft_budget *a);

/* Record that the first n_right guesses of the pass were right. compared: a
 * guess that budget_take refused was compared as well, and counts among
 * them. */
void budget_settle(struct draft_budget *a, size_t n_right, bool compared);

#endif
