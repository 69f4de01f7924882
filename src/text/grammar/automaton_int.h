/* Declarations that automaton.c, code.c and sets.c share. */
#ifndef TEXT_AUTOMATON_INT_H
#define TEXT_AUTOMATON_INT_H

#include "base/hashmap.h"
#include "text/grammar/automaton.h"

/* ---- code: a grammar as instructions for a set of places ---- */

enum op {
    OP_ACCEPT, /* the text ends here; only at CODE_ACCEPT */
    OP_RANGE,  /* a byte from lo to hi, then the next instruction */
    OP_SPLIT,  /* both the next instruction and arg */
    OP_JUMP,   /* arg */
    OP_CALL,   /* the text of rule arg, then the next instruction */
    OP_RETURN, /* the end of a rule */
    /* of a counted part */
    OP_COUNT,    /* if the count is below arg, add 1 and go on */
    OP_COUNT_UP, /* add 1 unless the count is arg, and go on */
    OP_LEAVE,    /* if the count is at least arg, set it to 0 and go on */
    /* of parts in any order: arg is their index in onces; the count is a number
       of a set in `taken` of the automaton */
    OP_FREE, /* go on if part code_part may come next */
    OP_TAKE, /* add it to the set, and go on */
    OP_DONE  /* if the set has enough parts, set the count to 0 and go on */
};

/* arg of an OP_RANGE in a part whose text is recorded */
enum { RANGE_RECORDS = 1 };

struct instr {
    uint8_t op, lo, hi;
    uint32_t arg;
};

#define CODE_ACCEPT 0u

/* Whether an instruction belongs to parts in any order. */
static inline bool code_is_once(const struct instr *i)
{
    return i->op >= OP_FREE;
}

/* The part of OP_FREE and OP_TAKE. */
static inline uint32_t code_part(const struct instr *i)
{
    return i->lo | (uint32_t)i->hi << 8;
}

/* Parts in any order; see struct grammar_once. */
struct code_once {
    uint32_t n, min, max;
    uint32_t n_required;
    unsigned char *required; /* [n] */
    bool differ;
};

/* Run an instruction of a counted part. Returns whether to go on. */
static inline bool code_count(const struct instr *i, uint32_t *count)
{
    if (i->op == OP_LEAVE) {
        bool enough = *count >= i->arg;
        *count = 0;
        return enough;
    }
    if (*count < i->arg)
        ++*count;
    else if (i->op == OP_COUNT)
        return false;
    return true;
}

/* A place at the beginning of a rule: a range that the first byte can match, or
 * a call. */
struct first {
    uint32_t rule; /* of a call */
    uint32_t pc;   /* of a call: the instruction after it */
    uint32_t count;
};

/* Rules are sorted: if texts of rule A can begin with rule B, A comes before
 * B. */
struct code_rule {
    uint32_t entry;
    bool nullable;
    uint32_t ranges, n_ranges; /* in first_ranges */
    uint32_t calls, n_calls;   /* in first_calls */
};

/* A counted part: the instructions from start to end. At least one byte is read
 * between two counts. */
struct code_counter {
    uint32_t start, end;
    uint32_t min; /* of OP_LEAVE */
    uint32_t max; /* the lowest one of OP_COUNT, or UINT32_MAX */
};

struct code {
    struct instr *v;
    size_t n, cap;
    struct code_counter *counters; /* in order of start, none inside another */
    size_t n_counters, cap_counters;
    struct code_once *onces;
    size_t n_onces;
    uint32_t *once_of; /* [n_rules] index in onces of the parts in any order
                          that a rule consists of, plus 1, or 0; NULL: all 0 */
    bool records;      /* there are instructions with RANGE_RECORDS */
    struct code_rule *rules;
    size_t n_rules;
    uint32_t root;
    struct first *first_ranges;
    size_t n_first_ranges, cap_first_ranges;
    struct first *first_calls;
    size_t n_first_calls, cap_first_calls;
    unsigned char class_of[256]; /* bytes of one class are never told apart */
    size_t n_classes;
};

/* Return the parts in any order that an instruction belongs to, or NULL. */
const struct code_once *code_once_at(const struct code *c, uint32_t pc);

/* Compile a finished grammar. On failure, too, code_free must be called. */
int code_build(struct code *c, const struct grammar *g, struct qwick_err *e);
void code_free(struct code *c);

/* ---- sets of places ---- */

struct place {
    uint32_t pc, frame;
    uint32_t count; /* in a counted part, or with parts in any order; elsewhere
                       0 */
};

/* Sets without duplicates, for states and frames. */
struct set {
    uint64_t hash;
    size_t off;
    uint32_t n;
    bool accepts;
};

struct sets {
    struct set *v;
    size_t n, cap;
    struct place *places;
    size_t n_places, cap_places;
    struct hashmap map;
    uint64_t seed;
};

/* Return the set of these places, or SETS_FAIL with *e set. */
#define SETS_FAIL UINT32_MAX
uint32_t sets_find(struct sets *s, const struct place *places, size_t n,
                   bool accepts, struct qwick_err *e);
void sets_free(struct sets *s);

/* ---- sets of parts ---- */

/* A set of parts that were taken is a set of struct place, too, so that equal
 * sets have one number. Number 0 is the empty set. Each place has 64 parts: pc
 * is the index of the first one / 64, frame and count are the bits. The parts
 * `other` are counted as far as it matters: pc is UINT32_MAX, count their
 * number. */

/* With `differ`, the set has the texts of the parts. A text is a chain of bytes:
 * pc is TAKEN_BYTE, frame the text before the byte, count the byte; number 0 is
 * the empty text. A set has one place for each text: pc is TAKEN_TEXT, frame the
 * text. Inside a part, a record has the set and the text so far: pc is
 * TAKEN_RECORD, frame the set, count the text; number 0 is the record of both
 * that are empty. A count of TAKEN_PLAIN or more has only the number of the
 * parts, as far as it matters: their texts may be equal. */
enum { TAKEN_RECORD = 1 << 30, TAKEN_TEXT, TAKEN_BYTE };
#define TAKEN_PLAIN 0x80000000u

/* Append a byte to the text of a record. Returns 0 or -1. */
int taken_record(struct sets *taken, uint32_t *count, unsigned char byte,
                 struct qwick_err *e);

/* Return the count with only the number of parts, or of those before the current
 * one. */
uint32_t taken_plain(const struct sets *taken, const struct code_once *o,
                     uint32_t count);

/* Set the set and the text of a count, one of which may be 0. */
void taken_open(const struct sets *taken, uint32_t count, uint32_t *set,
                uint32_t *text);

/* Append the bytes of a text after another one with which it begins to *out.
 * Returns 1; 0 if it does not begin with it; -1 when out of memory. */
struct buf;
int taken_rest(const struct sets *taken, uint32_t text, uint32_t begin,
               struct buf *out);

/* Copy the sets, records and texts to which keep[old->n] says so, and those to
 * which they refer, to `taken`, which is empty. Their new numbers replace the
 * entries of keep. Returns 0 or -1. */
int taken_copy(struct sets *taken, const struct sets *old, uint32_t *keep,
               struct qwick_err *e);

/* Run an instruction of parts in any order on the set *count. Returns 1 to go
 * on, 0 not to, -1 with *e set. */
int taken_run(struct sets *taken, const struct code *c, const struct instr *i,
              uint32_t *count, struct qwick_err *e);

struct caller {
    struct place back;
    uint32_t next;
};

#define NO_CALLER UINT32_MAX

/* The state of a text that is at one place. */
struct closed {
    struct place from;
    uint32_t state; /* AUTOMATON_DEAD: none */
};

enum { CLOSED_SLOTS = 1024 };

/* A growing list of places. */
struct places {
    struct place *v;
    size_t n, cap;
};

struct automaton {
    struct code code;
    struct sets states;  /* 0: dead */
    struct sets frames;  /* 0: the bottom, whose return is CODE_ACCEPT */
    struct sets taken;   /* sets of parts; see taken_run */
    uint32_t *next;      /* [cap_next, n_classes] state after a byte, plus 1; 0:
                            not known yet */
    unsigned char *ends; /* [cap_next] whether a state accepts */
    size_t cap_next;
    uint32_t start;
    size_t work; /* places visited */
    struct closed *closed; /* [CLOSED_SLOTS] by a hash of the place */
    struct qwick_err err;
    /* memory of close_places */
    struct places list; /* places reached without a byte */
    struct places out;  /* the places of list that wait for a byte */
    struct places back; /* returns of a frame while it is made */
    uint32_t *seen;     /* [cap_seen] indices in list, as a hash table */
    uint32_t *seen_at;  /* [cap_seen] epoch of the entry */
    size_t cap_seen;
    uint32_t epoch;
    bool accepts;
    uint32_t *heads; /* [n_rules] list of callers */
    struct caller *callers;
    size_t n_callers, cap_callers;
    uint32_t *heap; /* [n_rules] rules with callers, the first one on top */
    size_t n_heap;
};

#endif
