/* Who may ask: the rules about Host, Origin and keys. They keep web pages away
 * from a server on the reader's own machine, and clients without a key away
 * from one on a network. */
#ifndef CLI_ACCESS_H
#define CLI_ACCESS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "cli/io/strings.h"
#include "cli/http/listen.h"

struct access_options {
    struct strings hosts;         /* --allow-host: names and addresses */
    struct strings origins;       /* --allow-origin, exact */
    const struct listener *bound; /* [n_bound] */
    size_t n_bound;
    const char *key_file; /* NULL: none */
    bool no_auth;         /* --no-auth */
};

struct access;

/* Check the options, and read the key file. Borrows what *o points to. Returns
 * 0, or -1 with *e set: to QWICK_ERR_USAGE if an address other than loopback
 * has no keys, a wildcard address has no hosts, or the key file is readable by
 * others, has no key or a bad one. */
int access_open(struct access **out, const struct access_options *o,
                struct qwick_err *e);
void access_close(struct access *a);

/* Read the key file again. Returns 0, or -1 with *e set; the old keys then
 * stay. Not beside access_check. */
int access_reload(struct access *a, struct qwick_err *e);

/* What a head says about its sender. NULL: the field is not there. */
struct access_head {
    const char *method;
    const char *host;                    /* http_host */
    const char *origin, *fetch_site;     /* Origin, Sec-Fetch-Site */
    const char *authorization, *api_key; /* Authorization, x-api-key */
    bool open;                           /* the endpoint needs no key */
};

struct access_answer {
    int status;         /* 0: the request may go on; 204: answer without body */
    const char *why;    /* of status 401 and 403 */
    const char *origin; /* for Access-Control-Allow-Origin, with Vary: Origin,
                           on every answer; NULL: none */
};

struct access_answer access_check(const struct access *a,
                                  const struct access_head *h);

/* Values of fields on the answer with status 204 to OPTIONS. */
#define ACCESS_ALLOW_METHODS "GET, HEAD, POST"
#define ACCESS_MAX_AGE       "600"

/* Return whether the value of Access-Control-Request-Headers may be sent back
 * as Access-Control-Allow-Headers: it is a list of names. */
bool access_is_name_list(const char *s);

#endif
