/* Readers of the fields of an object in a configuration file. Every reader
 * checks type and range. Its error names the file, the field, the allowed
 * values and the value. */
#ifndef MODEL_SECTION_H
#define MODEL_SECTION_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "file/json.h"

/* The name of a field in another container. */
struct section_name {
    const char *field; /* "rope_scaling.factor" */
    const char *key;   /* "general.name", or ".name" behind the prefix */
};

struct section {
    const struct json_value *v;
    const char *path; /* of the file */
    const char *in;   /* before the field's name: "" or "rope_scaling." */
    /* The names of the fields in a GGUF file; the last row's field is NULL.
       NULL: the file is config.json */
    const struct section_name *names;
    const char *prefix; /* before keys that begin with "." */
    /* The object that has this one as its member text_config, or NULL */
    const struct json_value *whole;
};

/* Whether the metadata of a GGUF file take the place of config.json. */
static inline bool section_is_gguf(const struct section *s)
{
    return s->names != NULL;
}

/* A value (NULL: missing) as text for an error message, cut at 40 bytes. */
void section_describe(const struct json_value *v, char *out, size_t n);

/* Return the section of the object that is the value of key, in the same file.
 * in: as in struct section. */
struct section section_inner(const struct section *s, const char *key,
                             const char *in);

/* Set the error "PATH: IN+KEY: must be EXPECTED, is VALUE". Returns -1. */
int section_bad(const struct section *s, const char *key, const char *expected,
                struct qwick_err *e);

/* Whether the field is missing or null. */
bool section_absent(const struct section *s, const char *key);

/* Read a required field: an integer in [1, max], true or false, or a number in
 * [min, max]. */
int section_size(const struct section *s, const char *key, size_t max,
                 size_t *out, struct qwick_err *e);
int section_bool(const struct section *s, const char *key, bool *out,
                 struct qwick_err *e);
int section_double(const struct section *s, const char *key, double min,
                   double max, double *out, struct qwick_err *e);

/* Read a field that has a default, which transformers documents. */
int section_opt_size(const struct section *s, const char *key, size_t dflt,
                     size_t max, size_t *out, struct qwick_err *e);
int section_opt_double(const struct section *s, const char *key, double dflt,
                       double min, double max, double *out,
                       struct qwick_err *e);
int section_opt_bool(const struct section *s, const char *key, bool dflt,
                     bool *out, struct qwick_err *e);

#endif
