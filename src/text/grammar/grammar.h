/* The form of a constraint on text: a context-free grammar over bytes. The
 * compilers (regex.h, gbnf.h, schema.h, choices.h) build it, and automaton.h
 * runs it.
 *
 * A grammar has rules, and each rule has one node. Nodes are numbers. They are
 * built from the leaves up and are shared: the same arguments give the same
 * number, so using a node twice costs nothing.
 *
 * Errors are sticky. After the first failure every function does nothing and
 * returns GRAMMAR_NOTHING or 0. So a compiler can build a whole grammar and
 * call grammar_error once. Everything is bounded (see the limits below), so
 * text from a hostile file ends in an error, in bounded time and memory.
 *
 * Rules and masks. While a text is inside a rule, the set of legal tokens
 * depends mostly on the rule, and little on the place that refers to it. The
 * engine computes the expensive part once for each rule. So make one rule for
 * each part that accepts nearly any text (the body of a JSON string, a number,
 * white space), and refer to it instead of repeating its nodes. */
#ifndef TEXT_GRAMMAR_H
#define TEXT_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct grammar;

/* Limits of a grammar. */
#define GRAMMAR_MAX_NODES  262144
#define GRAMMAR_MAX_DEPTH  1000 /* levels of nodes inside nodes */
#define GRAMMAR_MAX_RULES  65536
#define GRAMMAR_MAX_BYTES  (1u << 20)       /* of all literals and names */
#define GRAMMAR_MAX_REPEAT (UINT32_MAX - 1) /* m and n of {m,n} */

/* The maximum of a repetition without end. */
#define GRAMMAR_UNBOUNDED UINT32_MAX

/* Two nodes that every grammar has. */
#define GRAMMAR_NOTHING 0u /* matches no text at all */
#define GRAMMAR_EMPTY   1u /* matches the empty text */

/* Code points from lo to hi, hi included, hi <= 0x10FFFF. */
struct grammar_range {
    uint32_t lo, hi;
};

/* Create a grammar without rules. name begins all messages of its errors
 * ("--regex", "FILE"); it is copied. grammar_free accepts NULL. */
int grammar_create(struct grammar **out, const char *name, struct qwick_err *e);
void grammar_free(struct grammar *g);

/* ---- nodes ---- */

/* The bytes p[0..n). They need not be valid UTF-8. n = 0: GRAMMAR_EMPTY. */
uint32_t grammar_bytes(struct grammar *g, const void *p, size_t n);

/* One code point of the n ranges or, with negated, one code point outside of
 * all of them. Ranges may overlap and come in any order. Surrogates never
 * match. The text holds the code point as UTF-8. */
uint32_t grammar_class(struct grammar *g, const struct grammar_range *ranges,
                       size_t n, bool negated);

/* nodes[0..n) one after the other. n = 0: GRAMMAR_EMPTY. */
uint32_t grammar_seq(struct grammar *g, const uint32_t *nodes, size_t n);
uint32_t grammar_seq2(struct grammar *g, uint32_t a, uint32_t b);

/* Any one of nodes[0..n). n = 0: GRAMMAR_NOTHING. */
uint32_t grammar_alt(struct grammar *g, const uint32_t *nodes, size_t n);
uint32_t grammar_alt2(struct grammar *g, uint32_t a, uint32_t b);

/* node repeated min to max times; max may be GRAMMAR_UNBOUNDED. max < min:
 * GRAMMAR_NOTHING. */
uint32_t grammar_repeat(struct grammar *g, uint32_t node, uint32_t min,
                        uint32_t max);

/* Parts in any order, with a comma between them. */
struct grammar_once {
    const uint32_t *parts; /* [n] each at most once */
    const bool *required;  /* [n] which ones must be there; NULL: none */
    size_t n;              /* at most GRAMMAR_MAX_ONCE */
    uint32_t other;        /* any number of times; GRAMMAR_NOTHING: never */
    uint32_t comma;
    uint32_t min, max; /* of all parts; max may be GRAMMAR_UNBOUNDED */
    bool differ; /* the texts of `other` differ from each other. Then it is
                    a finite automaton (text_string) of texts that end with
                    their second plain quote, and every beginning of them
                    goes on to any number of texts; n is 0. */
};
#define GRAMMAR_MAX_ONCE 65535

/* At least one of these parts. None of them matches the empty text. Which parts
 * were there is kept while the text is read: the grammar needs no alternative
 * for each order. */
uint32_t grammar_once(struct grammar *g, const struct grammar_once *o);

/* The text of a rule. The rule may be defined later, and may contain
 * references to itself. */
uint32_t grammar_ref(struct grammar *g, uint32_t rule);

/* ---- tokens ---- */

/* Tokens in a grammar are texts that UTF-8 does not have: GRAMMAR_TOKEN_BYTE
 * and a code of two bytes, high byte first. The code of the i-th token of
 * grammar_tokens is i + 1. All tokens that the grammar does not name share the
 * code 0. */
#define GRAMMAR_TOKEN_BYTE 0xFF
#define GRAMMAR_MAX_TOKENS 1000

/* Set the tokens that grammar_token can name: ids below n, and texts, of which
 * find returns the id, -1 if there is no such token, or -2 when out of memory.
 * Without this call grammars cannot name tokens. */
typedef int32_t (*grammar_find_fn)(void *ctx, const char *text, size_t n);
void grammar_set_tokens(struct grammar *g, size_t n, grammar_find_fn find,
                        void *ctx);

/* Set the tokens that end answers, ids[0..n), which the caller keeps. A grammar
 * cannot demand one: an answer ends where its text may end. */
void grammar_set_ends(struct grammar *g, const int32_t *ids, size_t n);

/* Return the node of a token, or with negated, of any other one. at begins
 * messages: "line 3: ". The text is "<[ID]>", or the token's own text. */
uint32_t grammar_token(struct grammar *g, const char *at, const char *text,
                       size_t n, bool negated);

/* The ids that the grammar names, [*n]. */
const int32_t *grammar_tokens(const struct grammar *g, size_t *n);

/* ---- rules ---- */

/* Return the number of the rule with this name, which is made if it is new. The
 * name appears in messages: a JSON pointer is a good name for a part of a
 * schema. */
uint32_t grammar_rule(struct grammar *g, const char *name, size_t n_name);

/* Make a rule that grammar_rule does not find. name is for messages only;
 * several rules may have it. */
uint32_t grammar_new_rule(struct grammar *g, const char *name, size_t n_name);

/* Give a rule its node. Defining a rule twice is an error. */
void grammar_define(struct grammar *g, uint32_t rule, uint32_t node);
bool grammar_is_defined(const struct grammar *g, uint32_t rule);

/* Return a reference to a new rule with this node. Use it for parts whose masks
 * should be computed once (see "Rules and masks"). */
uint32_t grammar_shared(struct grammar *g, const char *name, uint32_t node);

/* ---- errors ---- */

/* Record an error, unless there is one already. Returns GRAMMAR_NOTHING, so
 * that a function that builds a node can end in `return grammar_fail(…)`. Begin
 * the message with the position in the compiler's input: "line 3: …". The
 * grammar's name comes before it. */
uint32_t grammar_fail(struct grammar *g, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Return 0 if nothing has failed, or -1 with *e set to the problems, if there
 * are any, or to the first error: QWICK_ERR_USAGE, or QWICK_ERR_MEMORY. */
int grammar_error(const struct grammar *g, struct qwick_err *e);

/* ---- remarks ---- */

/* What a compiler says about its input besides the grammar. */
enum grammar_remark {
    GRAMMAR_IGNORED,  /* the name of a part that has no effect */
    GRAMMAR_WEAKENED, /* the name of a part that the grammar does not hold
                         exactly: it has texts that the part forbids */
    GRAMMAR_PROBLEM,  /* a reason to refuse the input */
    GRAMMAR_N_REMARKS
};

/* Limits: names, and problems, that are kept. */
#define GRAMMAR_MAX_NAMES    64
#define GRAMMAR_MAX_PROBLEMS 20

/* Add a remark, one line, unless the same line is there. After a problem the
 * compiler may go on to find others: grammar_error then reports all of them
 * with "; " between them. */
void grammar_remark(struct grammar *g, enum grammar_remark kind,
                    const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Return the remarks of a kind, each with a newline behind it. *n: their
 * number, also of those beyond the limit, which are left out. */
const char *grammar_remarks(const struct grammar *g, enum grammar_remark kind,
                            size_t *n);

/* Set the rule that the whole text matches, and check the grammar. Refuses,
 * with the names of the rules: rules without definition, left recursion (a rule
 * that reaches itself before the first byte, also through rules that match the
 * empty text), and a grammar that admits no text at all. Alternatives that can
 * never end count as GRAMMAR_NOTHING. Does not check rules that the root does
 * not reach. Afterwards the grammar can no longer change. */
int grammar_finish(struct grammar *g, uint32_t root, struct qwick_err *e);

#endif
