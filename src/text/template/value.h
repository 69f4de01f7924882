/* Values of templates, and the memory and bounds of one rendering. Everything
 * lives in the arena of struct rt until the rendering ends. */
#ifndef TEXT_TEMPLATE_VALUE_H
#define TEXT_TEMPLATE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

enum value_type {
    V_ABSENT, /* an argument that was not given; no value */
    V_UNDEFINED,
    V_NONE,
    V_BOOL,
    V_INT,
    V_BIG, /* an integer beyond 64 bits, as its decimal text */
    V_FLOAT,
    V_STR,
    V_LIST,
    V_TUPLE,
    V_RANGE,
    V_VIEW, /* keys, values or items of a dict */
    V_ITER, /* an iterator: used up by its first use */
    V_DICT,
    V_NAMESPACE,
    V_FUNCTION, /* built-in */
    V_METHOD,   /* built-in, with its object */
    V_MACRO,
    V_LOOP,
    V_CYCLER,
    V_JOINER,
    N_VALUE_TYPES
};

struct str;
struct seq;
struct dict;
struct builtin;
struct method;
struct macro;
struct loop;
struct cycler;

struct value {
    enum value_type type;
    bool outside; /* from outside. Strings have their own marks. Of containers:
                     the number of items; each item has its own mark */
    union {
        bool b;
        int64_t i;
        double f;
        const struct str *s; /* STR; BIG: its text; UNDEFINED: name or NULL */
        struct seq *seq;     /* LIST TUPLE RANGE VIEW ITER */
        struct dict *d;      /* DICT NAMESPACE */
        const struct builtin *fn;
        const struct method *method;
        const struct macro *macro;
        struct loop *loop;
        struct cycler *cycler; /* CYCLER JOINER */
    };
};

/* A string. p is UTF-8 and not terminated. */
struct str {
    const char *p;
    const uint8_t *mark; /* [n], 1: the byte is from outside; NULL: see next */
    size_t n;
    size_t n_chars; /* SIZE_MAX: not counted yet */
    bool outside;   /* of all bytes; with marks: some byte is from outside */
    bool fixed;     /* value_mark leaves it unmarked: a role of a message */
    bool safe;      /* Jinja's Markup: + escapes the other side for HTML */
};

struct seq {
    struct value *v;
    size_t n, cap;
    size_t at;                   /* ITER: the next one */
    int64_t start, stop, stride; /* RANGE */
    const char *what;            /* VIEW, ITER: Python's name of the type */
    bool outside; /* everything in it is from outside, except roles */
};

struct dict {
    struct value *k, *v; /* [n] in order of insertion */
    size_t n, cap;
    bool outside; /* as in struct seq */
};

struct method {
    struct value self;
    const struct builtin *fn;
};

struct cycler {
    const struct value *v; /* CYCLER: [n] items. JOINER: the separator */
    size_t n, at;
};

struct template;
struct sbuf;
struct env;
struct tm;

/* One rendering. */
struct rt {
    const struct template *t;
    struct arena arena;
    size_t used; /* bytes of the arena */
    uint64_t steps, next_clock; /* next_clock: when to read the clock */
    /* TEMPLATE_MAX_MEMORY and TEMPLATE_MAX_OUTPUT, or less */
    size_t max_memory, max_output;
    bool limited; /* exceeding a bound is an error of the caller's input */
    int depth;
    uint32_t line;    /* of the node being evaluated */
    struct sbuf *out; /* where output goes now */
    struct env *globals;
    const struct tm *now;
    struct qwick_err *e;
};

/* Set the error "NAME: line N: ..." with code USAGE. Returns -1. */
int rt_fail(struct rt *rt, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Set the error for an exceeded bound, with code MODEL. Returns -1. */
int rt_fail_bound(struct rt *rt, const char *what, uint64_t bound);

#ifdef ERR_FOR_ANALYSERS /* as in base/err.h */
#define rt_fail(...)             (rt_fail(__VA_ARGS__), -1)
#define rt_fail_bound(rt, w, b)  (rt_fail_bound((rt), (w), (b)), -1)
#endif

/* Allocate memory that lives until the end of the rendering. Counts against
 * TEMPLATE_MAX_MEMORY. NULL with the error set on failure. */
void *rt_alloc(struct rt *rt, size_t n);
void *rt_alloc_n(struct rt *rt, size_t n, size_t size);
/* Return v[0..n) with room for one more: v itself, or a larger copy, with its
 * capacity in *cap. size: bytes of an element. */
void *rt_reserve(struct rt *rt, void *v, size_t n, size_t *cap, size_t size);

/* Count n steps of work. -1 with the error set when the bound is exceeded. */
int rt_steps(struct rt *rt, size_t n);
/* Count the steps of work that is linear in n bytes. */
static inline int rt_bytes(struct rt *rt, size_t n)
{
    return rt_steps(rt, n / 32 + 1);
}
/* Enter a level of recursion. Each successful rt_enter needs a rt_leave. */
int rt_enter(struct rt *rt);
static inline void rt_leave(struct rt *rt)
{
    rt->depth--;
}

/* ---- constructors ---- */

static inline struct value value_none(void)
{
    return (struct value){.type = V_NONE};
}
static inline struct value value_bool(bool b)
{
    return (struct value){.type = V_BOOL, .b = b};
}
static inline struct value value_int(int64_t i)
{
    return (struct value){.type = V_INT, .i = i};
}
static inline struct value value_float(double f)
{
    return (struct value){.type = V_FLOAT, .f = f};
}
static inline struct value value_str(const struct str *s)
{
    return (struct value){.type = V_STR, .s = s};
}
/* Return an undefined value. name: the variable or attribute, for messages; may
 * be NULL. */
static inline struct value value_undefined(const struct str *name)
{
    return (struct value){.type = V_UNDEFINED, .s = name};
}
static inline struct value value_seq(enum value_type type, struct seq *seq)
{
    return (struct value){.type = type, .seq = seq};
}

/* Create an empty sequence or dict with room for n items; NULL with the error
 * set on failure. */
struct seq *seq_new(struct rt *rt, size_t n);
int seq_add(struct rt *rt, struct seq *s, struct value v);
struct dict *dict_new(struct rt *rt, size_t n);
/* Set a key, replacing its value. Fails for keys that Python cannot hash. */
int dict_set(struct rt *rt, struct dict *d, struct value k, struct value v);
/* Set *out to the value of a key, or to V_ABSENT. */
int dict_get(struct rt *rt, const struct dict *d, struct value k,
             struct value *out);
const struct value *dict_find(const struct dict *d, const char *key, size_t n);

/* A list of the keys, of the values, or of tuples of both. */
enum dict_part { DICT_KEYS, DICT_VALUES, DICT_ITEMS };
int dict_view(struct rt *rt, const struct dict *d, enum dict_part part,
              struct seq **out);

/* ---- meaning ---- */

bool value_is_number(struct value v); /* BOOL, INT, BIG, FLOAT */
bool value_is_seq(struct value v);    /* types with a struct seq */
/* Python's bool(). */
bool value_truth(struct value v);
/* Python's name of the type, for messages. */
const char *value_type_name(struct value v);
/* Convert INT or BOOL to an integer. Returns false for other types. */
bool value_as_int(struct value v, int64_t *i);
/* Convert INT, BOOL or FLOAT to a double. Returns false for other types. */
bool value_as_float(struct value v, double *f);
/* Whether anything in v is from outside. */
int value_outside(struct rt *rt, struct value v, bool *outside);
/* Whether v itself is: a number, a part of a string, the number of items. */
bool value_is_outside(struct value v);
/* Mark all of v as from outside, because something from outside chose it. */
int value_mark(struct rt *rt, struct value *v);

int value_equal(struct rt *rt, struct value a, struct value b, bool *equal);
/* Compare as Python does: *order < 0, 0 or > 0. *unordered: one of them is NaN.
 * Fails for types that Python does not order. */
int value_compare(struct rt *rt, struct value a, struct value b, int *order,
                  bool *unordered);

/* Set *out to a sequence with the items of an iterable value. It may be the
 * value's own sequence, so the caller must not change it. Uses up an
 * iterator. */
int value_items(struct rt *rt, struct value v, const struct seq **out);
/* Python's len(). */
int value_length(struct rt *rt, struct value v, size_t *n);

/* ---- strings ---- */

/* A buffer that remembers where its bytes come from. */
struct sbuf {
    char *p;
    uint8_t *mark; /* marks of the bytes; NULL while all are equal */
    size_t len, cap;
    bool has_own, has_outside;
    bool heap; /* memory of malloc instead of the arena; sbuf_free */
};

int sbuf_add(struct rt *rt, struct sbuf *b, const char *p, size_t n,
             bool outside);
int sbuf_add_str(struct rt *rt, struct sbuf *b, const struct str *s);
int sbuf_puts(struct rt *rt, struct sbuf *b, const char *s, bool outside);
int sbuf_fill(struct rt *rt, struct sbuf *b, char c, size_t n);
/* Return the content as a string. The buffer must not change afterwards. */
const struct str *sbuf_str(struct rt *rt, const struct sbuf *b);
void sbuf_free(struct sbuf *b);

/* Create a string over borrowed bytes; NULL with the error set on failure. */
const struct str *str_new(struct rt *rt, const char *p, size_t n, bool outside);
const struct str *str_literal(struct rt *rt, const char *s);
/* Bytes [begin, end) of s. */
const struct str *str_sub(struct rt *rt, const struct str *s, size_t begin,
                          size_t end);
/* Whether some byte of s is from outside. */
bool str_has_outside(const struct str *s);
bool str_equal(const struct str *a, const struct str *b);
bool str_is(const struct str *s, const char *literal);
size_t str_chars(const struct str *s);
/* Byte offset of character i <= str_chars(s). */
size_t str_offset(const struct str *s, size_t i);
/* Length of the character at byte i. */
size_t str_step(const struct str *s, size_t i);
/* Return the first position of needle in s at or after from; SIZE_MAX if there
 * is none. */
size_t str_find(const struct str *s, const struct str *needle, size_t from);
/* *out: the last position at or before `to`, or SIZE_MAX. */
int str_rfind(struct rt *rt, const struct str *s, const struct str *needle,
              size_t to, size_t *out);
int str_concat(struct rt *rt, const struct str *a, const struct str *b,
               const struct str **out);
int str_repeat(struct rt *rt, const struct str *s, int64_t n,
               const struct str **out);
/* Python's strip: sides is 1 for the left, 2 for the right, 3 for both; chars
 * NULL means white space. */
int str_strip(struct rt *rt, const struct str *s, const struct str *chars,
              int sides, const struct str **out);
/* Replace the first max occurrences; all if max < 0. */
int str_replace(struct rt *rt, const struct str *s, const struct str *old,
                const struct str *with, int64_t max, const struct str **out);
/* Python's split and rsplit; sep NULL means runs of white space. */
int str_split(struct rt *rt, const struct str *s, const struct str *sep,
              int64_t max, bool from_right, struct seq **out);
int str_splitlines(struct rt *rt, const struct str *s, bool keep_ends,
                   struct seq **out);
enum str_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITAL, CASE_SWAP };
int str_case(struct rt *rt, const struct str *s, enum str_case how,
             const struct str **out);
/* Python's isupper and islower. */
bool str_is_case(const struct str *s, bool upper);
bool char_is_space(uint32_t cp);
/* Escape & < > ' " for HTML, as markupsafe does. The result is safe. */
int str_escape(struct rt *rt, const struct str *s, const struct str **out);

/* ---- printing ---- */

/* Python's str() and repr(). */
int value_to_str(struct rt *rt, struct value v, const struct str **out);
int value_print(struct rt *rt, struct sbuf *b, struct value v);
int value_repr(struct rt *rt, struct sbuf *b, struct value v);
/* repr() of a double. */
int float_repr(struct rt *rt, struct sbuf *b, double f, bool outside);

/* Python's json.dumps. indent NULL: one line. */
struct json_style {
    const struct str *indent;
    const struct str *item_sep, *key_sep;
    bool ensure_ascii, sort_keys;
};
int value_to_json(struct rt *rt, struct sbuf *b, struct value v,
                  const struct json_style *style);

#endif
