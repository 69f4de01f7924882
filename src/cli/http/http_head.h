/* The check of a request's head, before libmicrohttpd reads it. libmicrohttpd
 * is lenient: it takes NUL, bare line feeds and repeated fields. What another
 * program between the client and us could read in another way is refused. */
#ifndef CLI_HTTP_HEAD_H
#define CLI_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Fields of a head, and arguments of its target and cookies: libmicrohttpd
 * keeps an entry for each of them. */
#define HTTP_MAX_FIELDS 100

/* A part of the head's bytes. */
struct http_span {
    size_t at, n;
};

struct http_head {
    size_t n; /* bytes, with the empty line */
    struct http_span method, target;
    struct http_span path; /* of the target, without the query */
    struct http_span host; /* of an absolute target, else of the field Host */
    bool has_host;
    struct http_span names[HTTP_MAX_FIELDS], values[HTTP_MAX_FIELDS];
    size_t n_fields;
    uint64_t length; /* Content-Length; 0: none */
    bool chunked;
    bool http10;          /* the version is 1.0, not 1.1 */
};

/* Check the bytes p[0..n) that have come so far. Returns 0 if they are good,
 * and more must follow; 200 if the head is complete and good, with *out set; or
 * the status of a refusal, with *why set to a sentence without its stop. Does
 * not limit n. */
int http_head_check(const char *p, size_t n, struct http_head *out,
                    const char **why);

/* Return whether two texts are equal but for the case of ASCII letters. */
bool http_equal(const char *a, size_t n_a, const char *b);

#endif
