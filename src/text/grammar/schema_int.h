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
#include "text/grammar/grammar.h"
#include "text/grammar/dfa.h"
#include "text/grammar/schema.h"
#include "text/grammar/schema_decimal.h"
#include "text/grammar/schema_text.h"

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
    MAX_WORK = 20000000, /* steps of the compiler */
    MAX_PATTERNS = 4,    /* patternProperties of one object */
    MAX_PREFIX = 256,    /* prefixItems */
    MAX_NAME = 64,       /* code points of names that a schema does not list */
    MAX_DEPTH = 8,       /* levels that are compared for oneOf */
    MAX_PROBLEMS = 1000, /* reasons to refuse one schema */
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
    unsigned multiple_of;
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
    const struct dfa *patterns_points[MAX_PATTERNS];
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
    uint32_t stamp; /* of the last walk that met it */
    unsigned char color;
};

/* A resource: the whole schema, or a schema in it with an "$id". */
struct schema_resource {
    const struct json_value *root;
    const char *uri;
    size_t n_uri;
};

/* A name of a schema: the URI of a resource, or an anchor. */
struct schema_name {
    uint32_t resource; /* whose anchor it is; UINT32_MAX: it is a URI */
    const char *text;
    size_t n;
    const struct json_value *at; /* what it names */
    uint32_t in;                 /* the resource around that */
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
    struct grammar *g;
    const char *where; /* see schema_options */
    bool lenient;      /* see schema_options */
    bool checks; /* only reads the schema, to check documents: everything can
                    be held */
    int indent;
    bool spaced;
    enum schema_form form;
    const struct call_form *call; /* of SCHEMA_PARAMETERS */
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
    uint32_t stamp;
    uint32_t *list; /* the set that is being collected */
    size_t n_list, cap_list;
    struct walk {
        struct schema_node *node;
        bool self; /* put the node itself, its parts are done */
    } * stack;     /* of schema_collect */
    size_t cap_stack;
    const struct dfa *formats[16];
    const struct dfa *any_text;       /* NULL: not made yet */
    const struct dfa *unreadable[64]; /* see schema_unreadable */
    /* shared nodes; 0: not made yet */
    uint32_t string, number, integer, name;
    const struct schema_node *culprit; /* why a set was found to be empty */
    const char *reason;
};

/* ---- memory, errors and work (schema.c) ---- */

/* Return zeroed memory for n elements that lives until the compiler ends, or
 * NULL with the error set. */
void *schema_alloc(struct schema *s, size_t n, size_t size);

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

/* Return which parts of a keyword's value are schemas. */
enum schema_parts schema_parts_of(const struct json_value *keyword);

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
 * …". Returns 0: the caller goes on as if the keyword were not there. The
 * schema is refused in the end; until then the compiler looks for other
 * problems. With the option lenient, the schema is not refused, so the caller
 * must then admit every value that the keyword admits, and more. -1 with the
 * error set: the compiler ends. at and keyword as in schema_refuse. */
int schema_cannot_hold(struct schema *s, const struct json_value *at,
                       const char *keyword, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Add the error of schema_refuse to the problems, and clear it, to find others.
 * Returns -1 if the error is another one. */
int schema_go_on(struct schema *s);

/* Read all nodes that can be reached, and refuse what is not supported. */
int schema_read_all(struct schema *s);

/* Return the value that the "$ref" of a schema at `at` means, or NULL with the
 * error set. *in: the resource of that schema; becomes the one around the
 * value. */
const struct json_value *schema_resolve(struct schema *s,
                                        const struct json_value *at,
                                        const struct json_value *ref,
                                        uint32_t *in);

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
    size_t n_members;
    struct hashmap by_name; /* of members, while they are collected */
    struct schema_extra extras[1 << MAX_PATTERNS];
    size_t n_extras;
};

struct schema_array {
    int64_t min, max; /* max: -1 without */
    size_t n_prefix;  /* items with schemas of their own */
};

unsigned schema_types(struct schema_node *const *v, size_t n);
int schema_object_of(struct schema *s, struct schema_node *const *v, size_t n,
                     struct schema_object *out, bool extras);
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

/* Return the automaton of all texts. NULL with the error set. */
const struct dfa *schema_any_text(struct schema *s);

/* Return the automaton of a pattern. */
const struct dfa *schema_pattern(struct schema *s,
                                    const struct json_value *at,
                                    const char *keyword,
                                    const struct json_value *re);

/* Return the automaton of the texts that cannot be a string's text in a
 * parameter: they have a tag that ends it, or tool_value_json takes them for
 * another of these types (TOOL_ constants; 0: none, also for JSON inside of a
 * parameter). NULL with the error set. */
const struct dfa *schema_unreadable(struct schema *s, unsigned types);

/* Formats. schema_format_find returns NULL if no format has this name.
 * schema_format_points returns the automaton, or NULL with the error set. */
const struct schema_format *schema_format_find(const struct json_value *name);
const struct dfa *schema_format_points(struct schema *s,
                                          const struct schema_format *f);

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

/* ---- nodes of the grammar (schema_emit.c) ---- */

/* Return the node of the values of a set without anyOf, oneOf, enum, const. */
uint32_t schema_emit(struct schema *s, struct schema_node *const *v, size_t n,
                     int level);

/* Return the node of a string with one value, or of all strings of p. */
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

/* Append the white space before an item at a level: none, or a new line. */
struct buf;
int schema_newline(const struct schema *s, struct buf *b, int level);

#endif
