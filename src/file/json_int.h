/* Functions that the files of the JSON reader share. */
#ifndef FILE_JSON_INT_H
#define FILE_JSON_INT_H

#include "file/json.h"

/* A text to parse. The first members are as in json_events and
 * json_parse_around. */
struct json_input {
    const char *name;
    const char *text;
    size_t n;
    const struct json_gap *gaps;
    size_t n_gaps;
    enum qwick_err_code code;
    struct qwick_err *e;
    size_t max_bytes; /* of a tree; 0: no limit */
    bool python;   /* NaN, Infinity and -Infinity are numbers */
    size_t key_at; /* out: offset of the key that a callback gets */
    size_t bad;    /* out: the offset that the error names */
};

/* Parse the text and call h's callbacks. Returns 0, or -1 with *in->e set. */
int json_read(struct json_input *in, const struct json_handler *h, void *ctx);

/* Set the error "NAME: offset N: WHY". Returns -1. */
int json_err_at(struct json_input *in, size_t offset, const char *why);

/* Whether a number has neither a fraction nor an exponent. */
bool json_is_integer(const struct json_value *number);

/* Read a number with the point as the decimal separator, in any locale. Returns
 * 0, or -1 if the text is not a number or memory is short. */
int json_read_double(const char *s, double *out);

#endif
