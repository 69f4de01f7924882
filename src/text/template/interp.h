/* The evaluator: scopes, calls, and the tables of built-in functions. */
#ifndef TEXT_TEMPLATE_INTERP_H
#define TEXT_TEMPLATE_INTERP_H

#include "text/template/node.h"
#include "text/template/template.h"
#include "text/template/value.h"

/* ---- scopes ---- */

struct bind {
    const struct name *name;
    struct value v;
};

/* A scope: the variables of a loop's iteration, a macro's call, a block, or the
 * template. Lookup goes from the innermost scope outwards. Assignment always
 * writes to the innermost scope. */
struct env {
    struct env *parent;
    struct bind *bind;
    size_t n, cap;
};

struct env *env_new(struct rt *rt, struct env *parent);
int env_set(struct rt *rt, struct env *env, const struct name *name,
            struct value v);
/* Return the value of a name in env or a scope around it; V_UNDEFINED if no
 * scope has the name. */
int env_get(struct rt *rt, const struct env *env, const struct name *name,
            struct value *out);

struct macro {
    const struct macro_node *node;
    struct env *env; /* where it was defined */
};

/* A running loop: the fields of the variable `loop`. */
struct loop {
    const struct seq *items;
    bool outside; /* the number of items is from outside */
    size_t at;
    int depth;
    const struct node *node;
    struct env *env;      /* around the loop, for loop(...) */
    struct value changed; /* the last tuple of changed(), or ABSENT */
};

/* ---- evaluation ---- */

int eval(struct rt *rt, struct env *env, const struct node *n,
         struct value *out);
/* Evaluate a call. caller: the body of a call block, or V_ABSENT. */
int eval_call(struct rt *rt, struct env *env, const struct node *n,
              struct value caller, struct value *out);
/* Evaluate a chain of filters whose N_INPUT is `input`. */
int eval_filters(struct rt *rt, struct env *env, const struct node *n,
                 struct value input, struct value *out);
enum flow { FLOW_FAIL = -1, FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };
enum flow exec(struct rt *rt, struct env *env, const struct node *n);
/* Run a body and return what it prints. */
enum flow exec_capture(struct rt *rt, struct env *env, const struct node *n,
                       const struct str **out);
/* Call loop(items) of a recursive loop. */
int loop_recurse(struct rt *rt, struct loop *loop, struct value items,
                 struct value *out);
int binary_op(struct rt *rt, enum op op, struct value a, struct value b,
              struct value *out);
/* Evaluate `item in container`. */
int value_contains(struct rt *rt, struct value container, struct value item,
                   bool *out);
/* Get an attribute that is not a key: a method, or a field of a built-in
 * object. *out stays unchanged if v has none of this name. */
int get_own_attr(struct rt *rt, struct value v, const struct str *name,
                 struct value *out);
/* Evaluate v.name or v[key]. */
int get_attr(struct rt *rt, struct value v, const struct str *name,
             struct value *out);
int get_item(struct rt *rt, struct value v, struct value key,
             struct value *out);
int get_slice(struct rt *rt, struct value v, struct value start,
              struct value stop, struct value step, struct value *out);

/* ---- calls ---- */

struct keyword {
    const struct str *name;
    struct value v;
};

struct call {
    const struct value *pos;
    const struct keyword *kw;
    size_t n_pos, n_kw;
    bool outside; /* the number of arguments is from outside */
};

/* A call of a built-in function, with an argument for each of its
 * parameters. */
enum { MAX_PARAMS = 6 };
struct args {
    const struct builtin *row;
    struct value self;          /* of filters, tests and methods */
    struct value v[MAX_PARAMS]; /* V_ABSENT: not given */
    struct call raw;
};

struct builtin {
    const char *name;
    /* Names of parameters, separated by blanks; optional ones end in "?". "*":
     * the function reads args.raw itself. "!" comes before parameters that
     * choose parts of the input: if one is from outside, so is the result. */
    const char *params;
    int (*fn)(struct rt *rt, const struct args *a, struct value *out);
    int tag; /* tells the rows of one function apart */
    /* The result's text counts as from outside if any input is. False: the
     * function marks its result itself, byte by byte or item by item. The
     * result's own mark, as of a number, is set in both cases. */
    bool taints;
};

int builtin_call(struct rt *rt, const struct builtin *b, struct value self,
                 const struct call *c, struct value *out);
int value_call(struct rt *rt, struct value callee, const struct call *c,
               struct value *out);
bool value_callable(struct value v);

/* Find a filter or a test by its name; NULL if there is none. */
const struct builtin *filter_find(const char *name, size_t n);
const struct builtin *test_find(const char *name, size_t n);
/* Find a method of values of this type; NULL if there is none. */
const struct builtin *method_find(enum value_type type, const char *name,
                                  size_t n);
/* Define range, dict, namespace and the other global functions in env. */
int globals_define(struct rt *rt, struct env *env);

/* Find the row with this name in a table of n rows; NULL if there is none. */
const struct builtin *function_find(const struct builtin *table, size_t n_rows,
                                    const char *name, size_t n);

/* ---- shared by the built-in functions ---- */

/* Convert an argument to a type. what names the function and parameter for
 * messages. If the argument is absent, *out keeps its value. */
int arg_int(struct rt *rt, struct value v, const char *what, int64_t *out);
int arg_str(struct rt *rt, struct value v, const char *what,
            const struct str **out);
/* The tables of filters and tests, for filter_find. */
extern const struct builtin filters_text[], filters_number[], filters_seq[],
    filters_sort[];
extern const size_t n_filters_text, n_filters_number, n_filters_seq,
    n_filters_sort;

/* The key that a filter reads from each item. */
struct getter {
    struct value attribute; /* ABSENT or NONE: the item itself */
    struct value fallback;  /* ABSENT or NONE: none */
    bool ignore_case;
    bool listed; /* sort: "a,b" names two keys, and keys are in a list */
};
int get_key(struct rt *rt, const struct getter *g, struct value item,
            struct value *out);

/* Format as Python's "%" with a tuple, a dict or a single value, or as
 * str.format. */
int format_percent(struct rt *rt, const struct str *fmt, struct value args,
                   struct value *out);
int format_braces(struct rt *rt, const struct str *fmt, const struct call *c,
                  struct value *out);

/* Read a text without blanks as Python's float() does, in any locale; NaN if it
 * is not a number. */
double float_read(const char *text);

#endif
