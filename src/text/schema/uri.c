#include "text/schema/uri.h"

#include <stdbool.h>
#include <string.h>

#include "base/buf.h"

struct part {
    const char *s; /* NULL: the reference lacks it */
    size_t n;
};

struct uri {
    struct part scheme, authority, path, query; /* with their delimiters: "a:",
                                                   "//b", "/c", "?d" */
};

/* Cut n bytes off the front of p. */
static struct part part_cut(struct part *p, size_t n)
{
    struct part front = {p->s, n};
    p->s += n;
    p->n -= n;
    return front;
}

/* Return the length of p up to the first of these bytes. */
static size_t until(struct part p, const char *bytes)
{
    size_t n = 0;
    while (n < p.n && !strchr(bytes, p.s[n]))
        n++;
    return n;
}

static struct uri split(const char *s, size_t n)
{
    struct uri u = {0};
    struct part rest = {s, uri_fragment(s, n)};
    size_t colon = until(rest, ":/?");
    if (colon > 0 && colon < rest.n && rest.s[colon] == ':')
        u.scheme = part_cut(&rest, colon + 1);
    if (rest.n >= 2 && rest.s[0] == '/' && rest.s[1] == '/') {
        struct part after = {rest.s + 2, rest.n - 2};
        u.authority = part_cut(&rest, 2 + until(after, "/?"));
    }
    u.path = part_cut(&rest, until(rest, "?"));
    if (rest.n)
        u.query = rest;
    return u;
}

size_t uri_fragment(const char *ref, size_t n)
{
    const char *hash = n ? memchr(ref, '#', n) : NULL;
    return hash ? (size_t)(hash - ref) : n;
}

static bool begins(struct part p, const char *s)
{
    return p.n >= strlen(s) && memcmp(p.s, s, strlen(s)) == 0;
}

static bool uri_is(struct part p, const char *s)
{
    return p.n == strlen(s) && begins(p, s);
}

/* Append a path without its "." and ".." segments (section 5.2.4). base: where
 * the path begins in out. */
static int put_path(struct buf *out, size_t base, struct part p)
{
    while (p.n > 0) {
        if (begins(p, "../")) {
            part_cut(&p, 3);
        } else if (begins(p, "./")) {
            part_cut(&p, 2);
        } else if (uri_is(p, ".") || uri_is(p, "..")) {
            p.n = 0;
        } else if (begins(p, "/./")) {
            part_cut(&p, 2);
        } else if (uri_is(p, "/.")) {
            p = (struct part){"/", 1};
        } else if (begins(p, "/../") || uri_is(p, "/..")) {
            while (out->len > base && out->data[--out->len] != '/')
                ;
            p = p.n > 3 ? (struct part){p.s + 3, p.n - 3}
                        : (struct part){"/", 1};
        } else {
            struct part rest = {p.s + 1, p.n - 1};
            struct part segment = part_cut(&p, 1 + until(rest, "/"));
            if (buf_append(out, segment.s, segment.n))
                return -1;
        }
    }
    return 0;
}

/* Join a relative path to the directory of the base's path (section 5.2.3). */
static int put_merged(struct buf *out, const struct uri *base, struct part path)
{
    struct buf merged = {0};
    size_t n = base->path.n, at = out->len;
    while (n > 0 && base->path.s[n - 1] != '/')
        n--;
    int rc = n || !base->authority.s ? buf_append(&merged, base->path.s, n)
                                     : buf_putc(&merged, '/');
    if (rc == 0)
        rc = buf_append(&merged, path.s, path.n);
    if (rc == 0)
        rc = put_path(out, at, (struct part){merged.data, merged.len});
    buf_free(&merged);
    return rc;
}

static int part_put(struct buf *out, struct part p)
{
    return p.n ? buf_append(out, p.s, p.n) : 0;
}

int uri_resolve(struct buf *out, const char *base_text, size_t n_base,
                const char *ref, size_t n_ref)
{
    struct uri base = split(base_text, n_base), r = split(ref, n_ref);
    bool same_path = !r.scheme.s && !r.authority.s && r.path.n == 0;
    bool whole_path = r.scheme.s || r.authority.s || begins(r.path, "/");
    if (part_put(out, r.scheme.s ? r.scheme : base.scheme) ||
        part_put(out,
                 r.scheme.s || r.authority.s ? r.authority : base.authority))
        return -1;
    if (same_path    ? part_put(out, base.path)
        : whole_path ? put_path(out, out->len, r.path)
                     : put_merged(out, &base, r.path))
        return -1;
    return part_put(out, r.query.s || !same_path ? r.query : base.query);
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

int uri_decode(struct buf *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (c == '%' && i + 2 < n && hex_value(s[i + 1]) >= 0 &&
            hex_value(s[i + 2]) >= 0) {
            c = (char)(hex_value(s[i + 1]) << 4 | hex_value(s[i + 2]));
            i += 2;
        }
        if (buf_putc(out, c))
            return -1;
    }
    return 0;
}
