/* The parts of the schema compiler that its files share.
 *
 * The compiler first reads all schemas that the root reaches into nodes, and
 * resolves references. With allOf and $ref, a value must satisfy several
 * schemas at once. So the compiler works on sets of nodes, and each set becomes
 * one rule of the grammar. If a set has an anyOf or oneOf, its rule is a choice
 * among one set for each branch. */
#ifndef TEXT_SCHEMA_INT_H
#define TEXT_SCHEMA_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/hashmap.h"
#include "file/json.h"
#include "text/grammar/dfa.h"
#include "text/grammar/dfa_text.h"
#include "text/grammar/grammar.h"
#include "text/schema/schema.h"
#include "text/schema/schema_decimal.h"

/* Types of values. Integers are numbers that have no fraction; T_NUMBER stands
 * for all other numbers, so the type "number" is both. */
enum {
    T_NULL = 1,
    T_BOOLEAN = 2,
    T_INTEGER = 4,
    T_NUMBER = 8,
    T_STRING = 16,
    T_ARRAY = 32,
    T_OBJECT = 64,
    T_ALL = 127
};

enum {
    MAX_NODES = 100000,  /* schemas inside a schema */
    MAX_SETS = 20000,    /* sets that are compiled */
    MAX_WORK = SCHEMA_MAX_WORK, /* steps of the compiler */
    MAX_EXTRAS = 500,    /* languages of names that a schema does not list */
    MAX_PREFIX = 256,    /* prefixItems */
    MAX_CONTAINS = 4,    /* contains of one array */
    MAX_NAME = 192,      /* code points of names that a schema does not list */
    MAX_DEPTH = 8,       /* levels that are compared for oneOf */
    MAX_PROBLEMS = 1000, /* reasons to refuse one schema */
    NEAR_DEPTH = 2,      /* and to find branches that are empty */
    WHAT_BYTES = 300     /* a JSON pointer in a message */
};

/* A keyword whose value is a list of schemas, or a list of values. */
struct node_list {
    struct schema_node **v;
    size_t n;
};
struct value_list {
    const struct json_value **v;
    size_t n;
};

/* One schema. Absent keywords are NULL or 0, unless the comment names another
 * value. */
struct schema_node {
    const struct json_value *at; /* its place in the text */
    uint32_t id;
    uint32_t outer;    /* see schema_resource_at */
    uint32_t resource; /* where its "$ref" starts; see schema_resource_in */
    bool never;        /* the schema false */
    bool plain; /* has only $ref and allOf, or nothing: constrains nothing by
                   itself */
    unsigned types;                       /* T_ALL: any */
    const struct json_value *enumeration; /* an array */
    const struct json_value *constant;
    struct value_list excluded; /* not: const and enum */
    struct schema_node *ref;
    struct node_list all, any, one;
    size_t self_order, ref_order, all_order; /* ranks that decide the order of
                                                properties */
    struct decimal *min, *max, *above, *below;
    struct decimal *above_next, *below_next; /* the doubles next to above and
                                                below, inside them */
    struct multiple multiple_of;
    int64_t min_length, max_length; /* max: -1 without */
    const struct json_value *pattern;
    const struct dfa *pattern_dfa;
    const struct schema_format *format;
    struct node_list prefix;
    struct schema_node *items;
    int64_t min_items, max_items;   /* max: -1 without */
    const struct json_value *names; /* [n_props] keys of properties */
    struct node_list props;
    struct value_list required;        /* strings */
    const struct json_value *patterns; /* keys of patternProperties */
    struct node_list pattern_props;
    const struct dfa **patterns_points; /* [pattern_props.n] */
    struct schema_node *additional;
    /* keywords that are read, and that schema_unheld names while no part of
       the compiler holds them */
    struct schema_node *negated; /* not, beyond `excluded` */
    struct schema_node *condition, *then, *otherwise; /* if, then, else */
    struct schema_node *contains;
    int64_t min_contains, max_contains; /* -1: without */
    bool unique_items;
    int64_t min_props, max_props; /* max: -1 without */
    struct schema_node *prop_names;
    struct schema_node *other_items, *other_props; /* unevaluated… */
    const struct json_value *dependent; /* dependentRequired: an object of
                                           arrays of strings */
    const struct json_value *dependent_names; /* keys of dependentSchemas */
    struct node_list dependents;
    /* what schema_rewrite and schema_opposite make; see schema_rewrite.c */
    bool made;                     /* it is no schema of the text */
    bool rewritten;                /* `derived` is known */
    struct node_list derived;      /* schemas that the value satisfies, too */
    struct schema_node *opposite;  /* {"not": this} */
    const struct dfa *not_pattern; /* no string of it */
    const struct schema_node *not_multiple;  /* no multipleOf of it */
    struct schema_node *unevaluated; /* the keywords of this schema, which are
                                        held when the set has no choice left */
    bool prepared;                   /* for that */
    bool unclear; /* it is not known what the schema evaluates */
    struct schema_some *some, *others; /* see schema_some; others: the member is
                                          one that no schema names */
    bool weak;             /* a keyword of it cannot be held */
    uint32_t stamp, visit; /* of the last walks that met it */
    unsigned char color;
};

/* Drafts of JSON Schema. Without a known "$schema", it is the latest one.
 * Keywords of older drafts keep their meaning where the latest one has no
 * other, because many schemas do not name their draft. */
enum schema_draft {
    DRAFT_4 = 4,
    DRAFT_6 = 6,
    DRAFT_7 = 7, /* and before: keywords beside "$ref" have no effect */
    DRAFT_2019 = 2019,
    DRAFT_2020 = 2020
};

/* The demand that some member of an object has a name of a language and a value
 * that satisfies a schema. */
struct schema_some {
    const struct dfa *names;
    struct schema_node *value, *unnamed; /* unnamed: names is not made yet, of
                                            the names that do not satisfy it */
};

/* A resource: the whole schema, or a schema in it with an "$id". */
struct schema_resource {
    const struct json_value *root;
    const char *uri;
    size_t n_uri;
    enum schema_draft draft;
};

/* A name of a schema: the URI of a resource, or an anchor. */
struct schema_name {
    uint32_t resource; /* whose anchor it is; UINT32_MAX: it is a URI */
    const char *text;
    size_t n;
    const struct json_value *at; /* what it names */
    uint32_t in;                 /* the resource around that */
    bool dynamic;                /* it is a "$dynamicAnchor" */
    bool twice;                  /* another schema has the same name */
};

/* Which parts of a keyword's value are schemas. */
enum schema_parts {
    PARTS_NONE,
    PARTS_ONE,  /* the value */
    PARTS_LIST, /* its items */
    PARTS_MAP   /* the values of its members */
};

/* Levels of a set below 0, for SCHEMA_PARAMETERS: an object that is written as
 * parameters, and the text of a parameter. That is LEVEL_TEXT minus the types
 * that tool_value_json takes such a text for, see tool_value.h. */
enum { LEVEL_PARAMETERS = -1, LEVEL_TEXT = -2 };

/* A set of nodes, in the order of their properties. An item is 4 * id of a
 * node, plus 1 if its anyOf, plus 2 if its oneOf was replaced by a branch. */
struct schema_set {
    const uint32_t *items;
    size_t n;
    int level; /* nesting of the value; 0 for all of them without an indent;
                  below 0: see LEVEL_TEXT */
    uint32_t rule;
};

/* The names of a language that some members do not have: made once. */
struct schema_others {
    uint64_t hash;
    const struct json_value **v; /* [n] the members' names, sorted */
    size_t n;
    const struct dfa *all, *out;
    struct schema_others *next;
};

/* What dfa_combine made. */
struct schema_product {
    const struct dfa *a, *b, *out;
    bool minus;
    struct schema_product *next;
};

/* The node of members' names. */
struct schema_name_node {
    const struct dfa *names;
    uint32_t node;
    struct schema_name_node *next;
};

enum { SCHEMA_BUCKETS = 256 }; /* lists by a hash */

enum { SCHEMA_SPARE_CLASSES = 27 }; /* powers of two up to MAX_BYTES */

struct schema {
    struct arena mem;
    size_t used;       /* bytes of mem */
    size_t steps_left; /* see MAX_WORK */
    struct qwick_err *e;
    bool refused;       /* *e is of schema_refuse */
    bool bad;           /* schema_go_on took one: nodes lack parts */
    uint64_t *problems; /* [n_problems] hashes of places, for
                           schema_cannot_hold */
    size_t n_problems;
    size_t n_reports; /* calls of schema_cannot_hold */
    struct grammar *g;
    const char *where; /* see schema_options */
    bool lenient; /* see schema_options */
    bool exhausted; /* a limit of work, memory or sets was met */
    bool simple; /* weaken what multiplies choices: the second try of a lenient
                    schema that met such a limit */
    bool checks;  /* only reads the schema, to check documents: everything can
                     be held */
    int indent; /* 0 also with SCHEMA_FREE */
    bool free_space, spaced, any_order; /* see struct schema_options */
    enum schema_form form;
    const struct call_form *call; /* see struct schema_options */
    const struct json_value *root;
    struct schema_node **nodes;
    size_t n_nodes, cap_nodes;
    struct hashmap by_place;           /* of nodes */
    struct schema_resource *resources; /* the first one is the whole schema */
    size_t n_resources, cap_resources;
    struct hashmap by_root; /* of resources */
    struct schema_name *names;
    size_t n_names, cap_names;
    struct hashmap by_name; /* of names */
    struct schema_set *sets;
    size_t n_sets, cap_sets;
    struct hashmap by_items; /* of sets */
    uint32_t stamp, visits;
    uint32_t *list; /* the set that is being collected */
    size_t n_list, cap_list;
    struct walk {
        struct schema_node *node;
        bool self; /* put the node itself, its parts are done */
    } * stack;     /* of schema_collect */
    size_t cap_stack;
    const struct dfa *formats[20];
    const struct dfa *any_text;       /* NULL: not made yet */
    const struct dfa *unreadable[64]; /* see schema_unreadable */
    /* shared nodes; 0: not made yet */
    uint32_t string, number, integer, space;
    void *spare[SCHEMA_SPARE_CLASSES]; /* lists of memory that was given back,
                                          see schema_borrow */
    struct schema_others *others[SCHEMA_BUCKETS];
    struct schema_name_node *name_nodes[SCHEMA_BUCKETS];
    struct schema_product *products[SCHEMA_BUCKETS];
    struct schema_node *of_types[T_ALL + 1]; /* nodes that schema_not makes */
    struct hashmap by_missing;               /* the same, by forbidden names */
    struct schema_node *always, *none; /* schemas true and false; NULL: not made
                                          yet */
    const struct dfa *fractions;       /* see schema_number_points */
    const struct schema_node *culprit; /* why a set was found to be empty */
    const char *reason;
};

/* ---- memory, errors and work (schema.c) ---- */

/* Return zeroed memory for n elements that lives until the compiler ends, or
 * NULL with the error set. */
void *schema_alloc(struct schema *s, size_t n, size_t size);

/* The same for memory that is given back, with the same n and size, when it is
 * not needed any more. */
void *schema_borrow(struct schema *s, size_t n, size_t size);
void schema_give_back(struct schema *s, void *p, size_t n, size_t size);

/* Set the error "#/POINTER/KEYWORD: …", and return -1. at is a value of the
 * schema's text, keyword a member of it or NULL. */
int schema_refuse(struct schema *s, const struct json_value *at,
                  const char *keyword, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Turn an error of another module, which has no place yet, into one of the
 * schema. Returns -1. */
int schema_refuse_err(struct schema *s, const struct json_value *at,
                      const char *keyword, const struct qwick_err *e);

/* Count n steps of work. Returns -1 with the error set when it is too much. */
int schema_step(struct schema *s, size_t n);

/* The steps that a schema with these options may take. */
size_t schema_work(const struct schema_options *o);

/* Read a schema. Returns 0 with *root set, or -1 with the error set. Free the
 * memory of a schema in any case. */
int schema_read_root(struct schema *s, struct schema_node **root);
void schema_free(struct schema *s);

/* Write the JSON pointer "#/POINTER/KEYWORD" of a value below root. keyword: a
 * member of it or NULL. */
void schema_pointer(const struct json_value *root, const struct json_value *at,
                    const char *keyword, char out[WHAT_BYTES]);

/* ---- reading (schema_read.c, schema_ref.c) ---- */

/* Return the node of a schema, which is read later, or NULL with the error set.
 * outer: the resource around it. */
struct schema_node *schema_node_of(struct schema *s,
                                   const struct json_value *at, uint32_t outer);

/* Return a new node without keywords, or NULL with the error set. */
struct schema_node *schema_new_node(struct schema *s,
                                    const struct json_value *at);

/* Return which parts of a keyword's value are schemas. */
enum schema_parts schema_parts_of(const struct json_value *keyword);

/* Return the draft of a resource that begins at v, inside one of the draft
 * `outer`. 0: one before draft 4. */
enum schema_draft schema_draft_at(const struct json_value *v,
                                  enum schema_draft outer);

const char *schema_draft_name(enum schema_draft draft);

/* Return whether a keyword that some draft has is one of this draft. */
bool schema_draft_has(enum schema_draft draft, const char *keyword);

/* Return the "$ref" of a schema if it hides the keywords beside it, or NULL. */
const struct json_value *schema_only_ref(const struct json_value *v,
                                         enum schema_draft draft);

/* Return the "$id", in draft 4 the "id", of a schema that has one. */
const struct json_value *schema_id_of(const struct json_value *v,
                                      enum schema_draft draft);

/* Find the resources and names of the whole schema. */
int schema_find_names(struct schema *s);

/* Return the resource that begins at a value; if none does, `outer`. Only
 * schemas where a keyword expects one begin resources. */
uint32_t schema_resource_at(const struct schema *s, const struct json_value *at,
                            uint32_t outer);

/* Return the resource of a schema inside `outer`, as schema_resource_at
 * returned it. A schema elsewhere with an "$id", to which a reference leads,
 * gets a new one without a name. UINT32_MAX with the error set. */
uint32_t schema_resource_in(struct schema *s, const struct json_value *at,
                            uint32_t outer);

/* Report a keyword that the compiler cannot hold exactly: "#/POINTER/KEYWORD:
 * …". Returns 0: the caller goes on as if the keyword were not there. The schema
 * is refused in the end; until then the compiler looks for other problems. With
 * the option lenient, the schema is not refused, so the caller must then admit
 * every value that the keyword admits, and more. -1 with the error set: the
 * compiler ends. at and keyword as in schema_refuse. */
int schema_cannot_hold(struct schema *s, const struct json_value *at,
                       const char *keyword, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Add the error of schema_refuse to the problems, and clear it, to find others.
 * Returns -1 if the error is another one. */
int schema_go_on(struct schema *s);

/* Return the i-th other schema that decides about the value of a node, or may
 * evaluate parts of it; with negated, "not" is one too. NULL after the last
 * one. */
struct schema_node *schema_same_value(const struct schema_node *node, size_t i,
                                      bool negated);

/* Read all nodes that can be reached, and refuse what is not supported. */
int schema_read_all(struct schema *s);

/* Return the value that a reference of a schema at `at` means, or NULL with the
 * error set. keyword: "$ref", "$dynamicRef" or "$recursiveRef". *in: the
 * resource of that schema; becomes the one around the value. For a reference
 * whose target depends on the way to it, returns NULL without an error, after
 * schema_cannot_hold. */
const struct json_value *
schema_resolve(struct schema *s, const struct json_value *at,
               const char *keyword, const struct json_value *ref, uint32_t *in);

/* ---- schemas that are made of others (schema_rewrite.c, schema_not.c) ----
 */

/* Make the schemas that stand for not, if, dependentRequired and
 * dependentSchemas of a node: node->derived. Returns 0 or -1. */
int schema_rewrite(struct schema *s, struct schema_node *node);

/* Return {"not": node}, or NULL with the error set. */
struct schema_node *schema_opposite(struct schema *s, struct schema_node *node);

/* Set *out to schemas of which a value satisfies one or more exactly if it does
 * not satisfy `node`. Returns 0; 1 if they cannot be held, and the compiler
 * goes on without them; -1 with the error set. */
int schema_not(struct schema *s, struct schema_node *node,
               struct node_list *out);

/* Return a node that no schema of the text has: an empty one, the schemas true
 * and false, one of a list, both of two (NULL if one of them is). NULL with the
 * error set. from: the schema that messages name. */
struct schema_node *schema_make(struct schema *s,
                                const struct schema_node *from);
struct schema_node *schema_always(struct schema *s);
struct schema_node *schema_none(struct schema *s);
struct schema_node *schema_make_any(struct schema *s,
                                    const struct schema_node *from,
                                    const struct node_list *list);

struct schema_node *schema_make_all(struct schema *s,
                                    const struct schema_node *from,
                                    struct schema_node *a,
                                    struct schema_node *b);

/* Make a node that demands (or forbids, with the schema false) a member. */
struct schema_node *schema_make_member(struct schema *s,
                                       const struct schema_node *from,
                                       const struct json_value *name,
                                       bool required,
                                       struct schema_node *value);

/* Set *out to the ways in which an object of v[0..n) has the member that `some`
 * asks for. Returns 0 or -1. */
int schema_some_ways(struct schema *s, struct schema_node *const *v, size_t n,
                     struct schema_some *some, struct node_list *out);

/* ---- unevaluatedItems and unevaluatedProperties (schema_unevaluated.c) ---- */

/* Return the schema for these keywords of a node, or NULL with the error set. It
 * is a choice that schema_unevaluated replaces. */
struct schema_node *schema_derive_unevaluated(struct schema *s,
                                              struct schema_node *of);

/* Set *out to the schema that holds the keywords of a node in a set that has no
 * other choice left. Returns 0 or -1. */
int schema_unevaluated(struct schema *s, const uint32_t *items, size_t n,
                       struct schema_node *of, struct node_list *out);

/* ---- values (schema_value.c) ---- */

/* Read a number. Returns 0 or -1. */
int schema_read_number(struct schema *s, const struct json_value *v,
                       struct decimal *out);

/* Return 1 if two values are equal for JSON schema (1 and 1.0 are, and the
 * order of members does not matter), 0 if not, -1 with the error set. */
int schema_equal(struct schema *s, const struct json_value *a,
                 const struct json_value *b);

/* Set *out to a hash of a value: equal values have equal hashes. Returns 0 or
 * -1. */
int schema_hash(struct schema *s, const struct json_value *v, uint64_t *out);

/* Return the node of a grammar with the one text of a value. */
uint32_t schema_literal(struct schema *s, const struct json_value *v,
                        int level);

/* Return the type of a value, a T_ constant. */
unsigned schema_type_of(struct schema *s, const struct json_value *v);

/* ---- whether a schema admits a value (schema_valid.c) ---- */

/* Return 1 if a node admits a value, 0 if not, -1 with the error set. Its $ref
 * and allOf do not count, and its anyOf and oneOf only with any and one (but
 * all of them where unevaluatedItems or unevaluatedProperties depends on
 * them). */
int schema_admits(struct schema *s, struct schema_node *node, bool any,
                  bool one, const struct json_value *v);

/* The first demand that a value does not satisfy. */
struct schema_failure {
    const struct schema_node *node;
    const char *keyword; /* NULL: the schema is false */
    const struct json_value *value;
};

/* Return 1 if a value satisfies a schema with all that it names, 0 with
 * *failure set, which may be NULL, if not, -1 with the error set. */
int schema_satisfies(struct schema *s, struct schema_node *node,
                     const struct json_value *v,
                     struct schema_failure *failure);

/* ---- sets (schema_set.c) ---- */

/* Collect the nodes that roots[0..n) consist of: s->list, appended to the items
 * old[0..n_old). Returns -1 with the error set. */
int schema_collect(struct schema *s, const uint32_t *old, size_t n_old,
                   struct schema_node *const *roots, size_t n);

/* Return the set s->list, with a rule that is defined later, or NULL with the
 * error set. */
const struct schema_set *schema_set_of(struct schema *s, int level);

/* Return the node of a grammar for a value that satisfies all of
 * roots[0..n). */
uint32_t schema_value_node(struct schema *s, struct schema_node *const *roots,
                           size_t n, int level);

/* Return 1 if no value satisfies items[0..n), 0 if some may, -1 with the error
 * set. */
int schema_never(struct schema *s, const uint32_t *items, size_t n, int depth);

/* Set *out to the strings that satisfy all of roots[0..n). Returns 0 or -1. */
int schema_texts_of(struct schema *s, struct schema_node *const *roots,
                    size_t n, const struct dfa **out);

/* Set *out to the different values that satisfy all of roots[0..n). Returns 1;
 * 0 if they are more than `most` or not known; -1 with the error set. */
int schema_few_values(struct schema *s, struct schema_node *const *roots,
                      size_t n, size_t most, struct value_list *out);

/* Return 1 and set *out, as schema_texts_of, if only strings satisfy all of
 * roots[0..n); 0 if other values may; -1 with the error set. */
int schema_only_strings(struct schema *s, struct schema_node *const *roots,
                        size_t n, const struct dfa **out);

/* Return 1 if no value satisfies all of roots[0..n), 0 if some may, -1 with the
 * error set. */
int schema_disjoint(struct schema *s, struct schema_node *const *roots,
                    size_t n);

/* Make the node of a set. */
int schema_define(struct schema *s, const struct schema_set *set,
                  uint32_t *node);

/* ---- the demands of a set (schema_facts.c, schema_strings.c) ---- */

/* A member of an object that a schema names. */
struct schema_member {
    const struct json_value *name;
    struct schema_node **all; /* [n_all] what its value must satisfy */
    size_t n_all;
    bool required;
    bool forbidden; /* one of them is false */
    bool met;       /* while its schemas are collected: by the current node */
};

/* Members that no schema names, with names of one language, of at most MAX_NAME
 * characters. */
struct schema_extra {
    const struct dfa *names;
    struct schema_node **all;
    size_t n_all;
};

struct schema_object {
    struct schema_member *members;
    struct schema_node **all; /* of all members */
    size_t n_members, cap_members, cap_all;
    struct hashmap by_name; /* of members, while they are collected */
    const struct dfa *names; /* that propertyNames admits; NULL: all */
    struct schema_extra *extras;
    size_t n_extras;
    size_t n_required;
    int64_t min, max; /* members; max: -1 without */
    const struct json_value *has_min, *has_max; /* the schemas that say so */
};

/* How many items of an array satisfy a schema. */
struct schema_contains {
    struct schema_node *schema;
    int64_t min, max; /* max: -1 without */
};

struct schema_array {
    int64_t min, max; /* max: -1 without */
    size_t n_prefix;  /* items with schemas of their own */
    const struct schema_node *contains; /* the last node with a contains that
                                           matters, or NULL */
    struct schema_contains counts[MAX_CONTAINS];
    size_t n_contains;
    const struct schema_node *again;    /* another one, or NULL */
    const struct schema_node *unique;   /* the node that has uniqueItems, or
                                           NULL */
};

unsigned schema_types(struct schema_node *const *v, size_t n);
int schema_object_of(struct schema *s, struct schema_node *const *v, size_t n,
                     struct schema_object *out, bool extras);

/* Give back the memory of an object's members. */
void schema_object_free(struct schema *s, struct schema_object *o);

/* Whether no object satisfies the demands on its names: a required member is
 * forbidden, or there are too many. */
bool schema_refuses_all(const struct schema_object *o);

struct schema_array schema_array_of(struct schema_node *const *v, size_t n);

/* Write the schemas of item i to out[n] and return their number. */
size_t schema_item_of(struct schema_node *const *v, size_t n, size_t i,
                      struct schema_node **out);

/* The strings of a set: texts of `points` with a length. */
struct schema_string {
    const struct dfa *points;
    struct text_length length;
    bool free_form; /* any text */
};

/* Set *out to the strings of a set that are no texts of `without`, which may be
 * NULL. Returns 0 or -1. */
int schema_string_of(struct schema *s, struct schema_node *const *v, size_t n,
                     const struct dfa *without, struct schema_string *out);

/* Return the automaton of a regular expression that matches whole texts, or
 * NULL with the error set. */
const struct dfa *schema_regex(struct schema *s, const char *re);

/* Return the automaton of all texts. NULL with the error set. */
const struct dfa *schema_any_text(struct schema *s);

/* dfa_combine, which is made once for each pair of automata. Sets that have the
 * same patterns in common, as branches of anyOf do, share the work. */
const struct dfa *schema_combine(struct schema *s, const struct dfa *a,
                                 const struct dfa *b, bool minus,
                                 const struct dfa_place *at);

/* Return the automaton of a pattern. NULL with *e set, which has no place yet.
 * Takes at most half of the steps that are left. */
const struct dfa *schema_pattern(struct schema *s, const struct json_value *re,
                                 struct qwick_err *e);

/* Return 1 if a text matches a pattern that may be too large for an automaton,
 * 0 if not, -1 with the error set. */
int schema_pattern_matches(struct schema *s, const struct json_value *re,
                           const char *text, size_t n);

/* Return the automaton of the texts that cannot be a string's text in a
 * parameter: they have a tag that ends it, or tool_value_json takes them for
 * another of these types (TOOL_ constants; 0: none, also for JSON inside of a
 * parameter). NULL with the error set. */
const struct dfa *schema_unreadable(struct schema *s, unsigned types);

/* Formats. schema_format_find returns NULL if no format has this name.
 * schema_format_points returns the automaton, or NULL with the error set.
 * Texts also have at most schema_format_most characters; -1: no limit. */
const struct schema_format *schema_format_find(const struct json_value *name);
const struct dfa *schema_format_points(struct schema *s,
                                       const struct schema_format *f);
int64_t schema_format_most(const struct schema_format *f);

/* Set *out to the double next to a number, above or below it. Leave it NULL for
 * zero and for numbers that are not finite as doubles. Most programs read
 * numbers as doubles, so they read a number very close to an exclusive bound as
 * the bound itself. Numbers with a fraction therefore stop at the next double.
 * Returns 0 or -1. */
int schema_next_double(struct schema *s, const struct json_value *v, bool above,
                       struct decimal **out);

/* Collect the limits of a set's numbers. */
struct number_form;
int schema_number_of(struct schema *s, struct schema_node *const *v, size_t n,
                     bool integer, struct number_form *out);

/* Return the automaton of the numbers of a set: integers, numbers that are no
 * integers, or both (T_ constants). f: what schema_number_of found; a multipleOf
 * that would make it too large may be dropped from it, see schema_cannot_hold.
 * NULL with the error set. */
const struct dfa *schema_number_points(struct schema *s,
                                       struct schema_node *const *v, size_t n,
                                       unsigned types,
                                       struct number_form *f);

/* ---- nodes of the grammar (schema_emit.c, schema_array.c, schema_object.c)
 * ---- */

/* Return the node of the values of a set without anyOf, oneOf, enum, const. */
uint32_t schema_emit(struct schema *s, struct schema_node *const *v, size_t n,
                     int level);

uint32_t schema_emit_array(struct schema *s, struct schema_node *const *v,
                           size_t n, int level);

/* Return the node of item i of an array. also[0..n_also): other schemas that it
 * satisfies. */
uint32_t schema_item_node(struct schema *s, struct schema_node *const *v,
                          size_t n, size_t i, struct schema_node *const *also,
                          size_t n_also, int level);

/* Report what cannot be held of contains, and forget it. Returns 0 or -1. */
int schema_check_contains(struct schema *s, struct schema_array *a);

/* Return the node of the items of an array with contains, one or more. */
uint32_t schema_counted_items(struct schema *s, struct schema_node *const *v,
                              size_t n, const struct schema_array *a,
                              int level);

uint32_t schema_emit_object(struct schema *s, struct schema_node *const *v,
                            size_t n, int level);

/* Return the node of what separates members and items at a level. */
uint32_t schema_comma(struct schema *s, int level);

/* Return the node of an array or object: brackets around `some` and, if
 * may_be_empty, empty brackets. some: a node of one part or more, or
 * GRAMMAR_NOTHING if no part can be written. */
uint32_t schema_container(struct schema *s, const char *brackets, uint32_t some,
                          bool may_be_empty, int level);

/* Whether values inside a value at this level may be written: with an indent,
 * each level needs rules of its own. */
bool schema_has_room(const struct schema *s, int level);

/* Set *without to the texts that no string has, or to NULL. */
int schema_unwritable(struct schema *s, const struct dfa **without);

/* Members of an object in their order. */
struct schema_members {
    uint32_t *plain, *follow; /* [n] without and with a comma before them */
    bool *required;           /* [n] */
    size_t n;
    uint32_t extra;        /* a member that no schema names */
    uint32_t follow_extra; /* with a comma before it */
    uint32_t demanded; /* that one of them is, or GRAMMAR_NOTHING */
    uint32_t extras, follow_extras; /* one or more of them; any number of them
                                       with commas before them. With `others`
                                       of a node, one is as that asks */
};

/* Return the node of the members of an object whose number matters.
 * may_be_empty: there may be none. */
uint32_t schema_counted_members(struct schema *s, const struct schema_object *o,
                                const struct schema_members *m,
                                bool may_be_empty);

/* Whether the limits of the number of members refuse objects that satisfy the
 * other demands. */
bool schema_counts_members(const struct schema_object *o,
                           const struct schema_members *m);

/* Return the node of the strings whose characters p accepts, with their quotes,
 * as text_string does. */
uint32_t schema_string_node(struct schema *s, const struct dfa *p,
                            enum text_escapes escapes,
                            struct text_length length);

/* Return the node of a member's name. */
uint32_t schema_name_literal(struct schema *s, const struct json_value *name);

/* Whether a name can be written in SCHEMA_BARE. */
bool schema_is_bare_name(const char *s, size_t n);

/* Return the node of a string with one value. */
uint32_t schema_emit_word(struct schema *s, const char *word, size_t n);

/* ---- parameters of a call (schema_call.c) ---- */

/* Return the node of an object that is written as parameters. */
uint32_t schema_emit_parameters(struct schema *s, struct schema_node *const *v,
                                size_t n);

/* Return the node of the strings of a set as the text of a parameter. */
uint32_t schema_emit_text(struct schema *s, struct schema_node *const *v,
                          size_t n, int level);

/* Return whether a text has a tag that ends a parameter. */
bool schema_has_tag(const struct schema *s, const char *text, size_t n);

/* Return those of the types (T_ constants) whose values can be the text of a
 * parameter. */
unsigned schema_text_types(unsigned types, int level);

/* Return the node of one value as the text of a parameter; GRAMMAR_NOTHING if
 * that would be read as another value. */
uint32_t schema_text_literal(struct schema *s, const struct json_value *v,
                             int level);

/* Append the white space before an item at a level: none, or a new line. With
 * SCHEMA_FREE it is the node schema_space instead. */
struct buf;
int schema_newline(const struct schema *s, struct buf *b, int level);
uint32_t schema_space(struct schema *s);

/* Return the node of a colon and what follows it. */
uint32_t schema_colon(struct schema *s);

#endif
