#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "cli/http/access.h"
#include "file/fs.h"

/* A key has at least 16 characters, so that it cannot be guessed. The most is
 * what we compare. */
enum { MIN_KEY = 16, MAX_KEY = 512, MAX_KEYS = 1024 };
#define MAX_KEY_FILE ((size_t)MAX_KEYS * (MAX_KEY + 2))

/* A key, and zeros behind it. */
struct key {
    unsigned char bytes[MAX_KEY];
};

struct keys {
    struct key *v;
    size_t n, cap;
};

struct access {
    struct access_options o;
    struct keys keys; /* empty without a key file */
};

/* ---- keys ---- */

static void keys_free(struct keys *k)
{
    if (k->v)
        explicit_bzero(k->v, k->n * sizeof *k->v);
    free(k->v);
    *k = (struct keys){0};
}

/* Add the key in line `number` of a file. Messages do not show it. */
static int keys_add(struct keys *k, const char *path, size_t number,
                    const char *p, size_t n, struct qwick_err *e)
{
    if (n < MIN_KEY || n > MAX_KEY)
        return err_usage(e,
                         "%s: line %zu: a key has %d to %d characters, not %zu",
                         path, number, MIN_KEY, MAX_KEY, n);
    for (size_t i = 0; i < n; i++)
        if (p[i] <= ' ' || p[i] >= 0x7f)
            return err_usage(e,
                             "%s: line %zu: a key has only printable ASCII "
                             "characters without blanks",
                             path, number);
    if (k->n == MAX_KEYS)
        return err_usage(e, "%s: more than %d keys", path, MAX_KEYS);
    if (ARRAY_RESERVE(k->v, k->cap, k->n + 1, e) != 0)
        return -1;
    memset(&k->v[k->n], 0, sizeof *k->v);
    memcpy(k->v[k->n++].bytes, p, n);
    return 0;
}

/* Read the keys of a file's text, one a line. */
static int keys_parse(struct keys *k, const char *path, const char *p, size_t n,
                      struct qwick_err *e)
{
    const char *end = p + n;

    for (size_t number = 1; p < end; number++) {
        const char *line_end = memchr(p, '\n', (size_t)(end - p));
        size_t n_line = (size_t)((line_end ? line_end : end) - p);
        const char *next = line_end ? line_end + 1 : end;

        while (n_line && strchr(" \t\r", p[n_line - 1]) && p[n_line - 1])
            n_line--;
        if (n_line && keys_add(k, path, number, p, n_line, e) != 0)
            return -1;
        p = next;
    }
    if (k->n == 0)
        return err_usage(e, "%s: it has no key", path);
    return 0;
}

/* Read all of an open file. Returns the number of bytes, or -1. */
static ssize_t read_keys(int fd, char *to, size_t max)
{
    size_t n = 0;

    while (n < max) {
        ssize_t got = read(fd, to + n, max - n);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        n += (size_t)got;
    }
    return (ssize_t)n;
}

static int keys_read(struct keys *k, const char *path, struct qwick_err *e)
{
    int fd = fs_open(path, O_RDONLY, 0);
    char *text = malloc(MAX_KEY_FILE);
    struct stat st;
    ssize_t n = -1;
    int r;

    if (!text)
        r = err_oom(e, MAX_KEY_FILE);
    else if (fd < 0 || fstat(fd, &st) != 0 ||
             (n = read_keys(fd, text, MAX_KEY_FILE)) < 0)
        r = err_errno(e, path, "cannot read the keys");
    else if (st.st_mode & (S_IROTH | S_IWOTH))
        r = err_usage(e,
                      "%s: other users may read or write the keys (mode %03o); "
                      "chmod 600 it",
                      path, (unsigned)st.st_mode & 0777);
    else if ((size_t)n == MAX_KEY_FILE)
        r = err_usage(e, "%s: more than %zu bytes", path, MAX_KEY_FILE - 1);
    else
        r = keys_parse(k, path, text, (size_t)n, e);
    if (n > 0)
        explicit_bzero(text, (size_t)n);
    free(text);
    if (fd >= 0)
        close(fd);
    if (r != 0)
        keys_free(k);
    return r;
}

/* Compare with all keys. The time depends neither on the keys nor on where a
 * wrong one differs. */
static bool keys_have(const struct keys *k, const char *given)
{
    struct key padded = {{0}};
    size_t n = given ? strlen(given) : 0;
    unsigned found = 0;

    if (n < MIN_KEY || n > MAX_KEY)
        return false;
    memcpy(padded.bytes, given, n);
    for (size_t i = 0; i < k->n; i++) {
        volatile unsigned char differ = 0; /* no early end of the loop */

        for (size_t j = 0; j < MAX_KEY; j++)
            differ =
                (unsigned char)(differ | (k->v[i].bytes[j] ^ padded.bytes[j]));
        found |= differ == 0;
    }
    return found != 0;
}

/* ---- options ---- */

static int options_check(const struct access_options *o, struct qwick_err *e)
{
    for (size_t i = 0; i < o->n_bound; i++) {
        const struct listen_addr *a = &o->bound[i].a;

        if (listen_is_wildcard(a) && o->hosts.n == 0)
            return err_usage(e,
                             "%s: give the names of this machine with "
                             "--allow-host, against DNS rebinding",
                             LISTEN_SHOW(a));
        if (!listen_is_local(a) && !o->key_file && !o->no_auth)
            return err_usage(e,
                             "%s: other machines reach this address: give "
                             "--api-key-file or --no-auth",
                             LISTEN_SHOW(a));
    }
    for (size_t i = 0; i < o->origins.n; i++)
        if (strcmp(o->origins.v[i], "null") != 0 &&
            !strstr(o->origins.v[i], "://"))
            return err_usage(
                e,
                "--allow-origin %s: an origin is "
                "SCHEME://HOST[:PORT], as browsers send it",
                ERR_SHOW(o->origins.v[i], strlen(o->origins.v[i])));
    return 0;
}

int access_open(struct access **out, const struct access_options *o,
                struct qwick_err *e)
{
    struct access *a;

    *out = NULL;
    if (options_check(o, e) != 0)
        return -1;
    a = calloc(1, sizeof *a);
    if (!a)
        return err_oom(e, sizeof *a);
    a->o = *o;
    if (o->key_file && keys_read(&a->keys, o->key_file, e) != 0) {
        free(a);
        return -1;
    }
    *out = a;
    return 0;
}

void access_close(struct access *a)
{
    if (!a)
        return;
    keys_free(&a->keys);
    free(a);
}

int access_reload(struct access *a, struct qwick_err *e)
{
    struct keys fresh = {0};

    if (!a->o.key_file)
        return 0;
    if (keys_read(&fresh, a->o.key_file, e) != 0)
        return -1;
    keys_free(&a->keys);
    a->keys = fresh;
    return 0;
}

/* ---- requests ---- */

/* Copy the host of "HOST", "HOST:PORT" or "[IPv6]:PORT", without brackets.
 * Returns false if it has another form. */
static bool host_of(const char *s, char out[256])
{
    const char *end = *s == '[' ? strchr(s, ']') : strchr(s, ':');
    const char *port = end;
    size_t n;

    if (*s == '[') {
        if (!end)
            return false;
        s++;
        port = end + 1;
    }
    if (!end)
        end = port = s + strlen(s);
    if (*port && (*port != ':' || port[1 + strspn(port + 1, "0123456789")]))
        return false;
    n = (size_t)(end - s);
    if (n == 0 || n >= 256)
        return false;
    memcpy(out, s, n);
    out[n] = '\0';
    return true;
}

/* Return whether the host is a loopback address, or one that we are bound to.
 */
static bool is_own_address(const struct access *a, const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    bool is_v4 = inet_pton(AF_INET, host, &v4) == 1;
    bool is_v6 = !is_v4 && inet_pton(AF_INET6, host, &v6) == 1;

    if (is_v4 && ntohl(v4.s_addr) >> 24 == 127)
        return true;
    if (is_v6 && IN6_IS_ADDR_LOOPBACK(&v6))
        return true;
    for (size_t i = 0; i < a->o.n_bound; i++) {
        const struct listen_addr *b = &a->o.bound[i].a;

        if (b->kind != LISTEN_TCP || listen_is_wildcard(b))
            continue;
        if (is_v4 && b->addr.ss_family == AF_INET &&
            memcmp(&v4, &((const struct sockaddr_in *)&b->addr)->sin_addr,
                   sizeof v4) == 0)
            return true;
        if (is_v6 && b->addr.ss_family == AF_INET6 &&
            memcmp(&v6, &((const struct sockaddr_in6 *)&b->addr)->sin6_addr,
                   sizeof v6) == 0)
            return true;
    }
    return false;
}

/* A page can give our address another name (DNS rebinding), but it cannot
 * choose the Host that its browser sends. HTTP/1.0 clients without Host are no
 * browsers. */
static bool host_allowed(const struct access *a, const char *field)
{
    char host[256];

    if (!field)
        return true;
    if (!host_of(field, host))
        return false;
    if (strcasecmp(host, "localhost") == 0 || is_own_address(a, host))
        return true;
    for (size_t i = 0; i < a->o.hosts.n; i++)
        if (strcasecmp(host, a->o.hosts.v[i]) == 0)
            return true;
    return false;
}

static const char *find_origin(const struct access *a, const char *origin)
{
    for (size_t i = 0; i < a->o.origins.n; i++)
        if (strcmp(origin, a->o.origins.v[i]) == 0)
            return a->o.origins.v[i];
    return NULL;
}

static bool has_key(const struct access *a, const struct access_head *h)
{
    static const char scheme[] = "Bearer ";
    const char *bearer = h->authorization;

    if (bearer && strncasecmp(bearer, scheme, sizeof scheme - 1) == 0) {
        bearer += sizeof scheme - 1;
        if (keys_have(&a->keys, bearer + strspn(bearer, " ")))
            return true;
    }
    return keys_have(&a->keys, h->api_key);
}

struct access_answer access_check(const struct access *a,
                                  const struct access_head *h)
{
    struct access_answer r = {0};

    if (!host_allowed(a, h->host))
        return (struct access_answer){
            403,
            "the Host of the request is not one of this server's "
            "(--allow-host)",
            NULL};
    if (h->origin) {
        r.origin = find_origin(a, h->origin);
        if (!r.origin)
            return (struct access_answer){
                403, "requests of web pages are refused (--allow-origin)",
                NULL};
        if (strcmp(h->method, "OPTIONS") == 0) {
            r.status = 204; /* a browser asks without the key */
            return r;
        }
    } else if (h->fetch_site && strcasecmp(h->fetch_site, "cross-site") == 0) {
        return (struct access_answer){
            403, "requests of other sites' pages are refused", NULL};
    }
    if (a->keys.n && !h->open && !has_key(a, h)) {
        r.status = 401;
        r.why = h->authorization || h->api_key ? "the key is wrong"
                                               : "a key is needed";
    }
    return r;
}

bool access_is_name_list(const char *s)
{
    return s && *s &&
           s[strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                       "0123456789-_, ")] == '\0';
}
