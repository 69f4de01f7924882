/* The parts of sets that the files of sets share: choices among branches, lists
 * of values, and whether nothing satisfies a set. Items are those of struct
 * schema_set. What returns an int returns 0, or -1 with the error set, unless
 * the comment says more. */
#ifndef TEXT_SCHEMA_SET_H
#define TEXT_SCHEMA_SET_H

#include "text/schema/schema_int.h"

/* What is added to an item: its anyOf, or its oneOf, was replaced. */
enum { ANY_DONE = 1, ONE_DONE = 2 };

/* ---- collecting (schema_set.c) ---- */

/* Return a copy of s->list, or NULL with the error set. */
uint32_t *schema_copy_list(struct schema *s);

/* The nodes of items[0..n), or NULL with the error set. */
struct schema_node **schema_nodes(struct schema *s, const uint32_t *items,
                                  size_t n);

/* ---- choices (schema_choice.c) ---- */

/* An anyOf or oneOf that is not replaced by a branch yet. */
struct schema_choice {
    size_t item; /* index in the set */
    bool one;
    const struct node_list *branches; /* NULL: there is none */
};

/* Return the first choice of a set that is not done. */
struct schema_choice schema_find_choice(const struct schema *s,
                                        const uint32_t *items, size_t n);

/* Set *c to the next choice of a set. When there is no other one, unevaluated…
 * are choices, and then a member that may have any of many names. */
int schema_next_choice(struct schema *s, const uint32_t *items, size_t n,
                       struct schema_choice *c);

/* Mark choices of which the set implies a branch as done: all values of the set
 * satisfy them. */
int schema_settle(struct schema *s, uint32_t *items, size_t n);

/* Collect a set with branches of a choice in its place. */
int schema_collect_branches(struct schema *s, const uint32_t *items, size_t n,
                            const struct schema_choice *c,
                            struct schema_node *const *branches,
                            size_t n_branches);

/* Two branches of a oneOf that a value may satisfy together. */
struct schema_overlap {
    uint32_t i, k;
};

struct schema_overlaps {
    struct schema_overlap *v;
    size_t n, cap;
};

/* Find the branches of a oneOf that a value may satisfy together. Constants
 * with different hashes differ. Returns 1 if they are too many, and the oneOf
 * counts as an anyOf. */
int schema_find_overlaps(struct schema *s, const uint32_t *items, size_t n,
                         const struct schema_choice *c,
                         struct schema_overlaps *out);

/* Collect a set with branch i of a choice in its place and, for a oneOf, the
 * opposites of the branches that may admit the same value. */
int schema_collect_branch(struct schema *s, const uint32_t *items, size_t n,
                          const struct schema_choice *c,
                          const struct schema_overlaps *overlaps, size_t i);

/* ---- values of enum and const (schema_set.c) ---- */

/* Find the list of values, of an enum or const, that contains all values of a
 * set. Returns false if the set has no such list. */
bool schema_listed_values(struct schema_node *const *v, size_t n,
                          const struct json_value **values, size_t *n_values);

/* Return 1 if a value satisfies a set: each item by itself, because the schemas
 * to which it refers are items, too. */
int schema_all_admit(struct schema *s, const uint32_t *items, size_t n,
                     const struct json_value *value);

/* ---- sets that nothing satisfies (schema_never.c) ---- */

/* schema_never for s->list. */
int schema_never_list(struct schema *s, int depth);

/* schema_never for a value that satisfies all of v[0..n). */
int schema_never_value(struct schema *s, struct schema_node *const *v, size_t n,
                       int depth);

#endif
