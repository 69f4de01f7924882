#include <string.h>
#include <strings.h>

#include "cli/http/http_head.h"

/* A refusal of a head; status 0: none. */
struct refusal {
    int status;
    const char *why;
};

static bool refuse(struct refusal *r, int status, const char *why)
{
    r->status = status;
    r->why = why;
    return false;
}

/* Return whether c may be in a token: methods and names of fields (RFC 9110,
 * 5.6.2). */
static bool is_token_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z') || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static size_t token_len(const char *p, size_t n)
{
    size_t i = 0;

    while (i < n && is_token_char(p[i]))
        i++;
    return i;
}

bool http_equal(const char *a, size_t n_a, const char *b)
{
    return strlen(b) == n_a && strncasecmp(a, b, n_a) == 0;
}

static bool span_is(const char *p, struct http_span s, const char *text)
{
    return http_equal(p + s.at, s.n, text);
}

/* Find the end of the line that begins at `at`: *n is its length without CRLF.
 * Returns false if the line is not complete, or is refused. */
static bool line_end(const char *p, size_t n, size_t at, size_t *n_line,
                     struct refusal *r)
{
    for (size_t i = at; i < n; i++) {
        unsigned char c = (unsigned char)p[i];

        if (c == '\r' && i + 1 == n)
            return false;
        if (c == '\r' && p[i + 1] == '\n') {
            *n_line = i - at;
            return true;
        }
        if (c == '\r' || c == '\n')
            return refuse(r, 400, "a line of the head does not end in CR LF");
        if ((c < ' ' && c != '\t') || c == 0x7f)
            return refuse(r, 400, "the head has a control character");
    }
    return false;
}

/* Split the target p[t.at..): the path, and the host of an absolute one. */
static bool target_split(const char *p, struct http_head *h, struct refusal *r)
{
    static const char *const schemes[] = {"http://", "https://"};
    struct http_span t = h->target;
    size_t skip = 0, n_host;
    const char *end;

    for (size_t i = 0; i < t.n; i++) {
        unsigned char c = (unsigned char)p[t.at + i];

        if (c <= ' ' || c >= 0x7f)
            return refuse(r, 400,
                          "the target has a character that is not "
                          "printable ASCII");
    }
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (t.n > strlen(schemes[i]) &&
            http_equal(p + t.at, strlen(schemes[i]), schemes[i]))
            skip = strlen(schemes[i]);
    if (skip) {
        n_host = 0;
        while (skip + n_host < t.n && !strchr("/?#", p[t.at + skip + n_host]))
            n_host++;
        if (n_host == 0)
            return refuse(r, 400, "the target has no host");
        h->host = (struct http_span){t.at + skip, n_host};
        h->has_host = true;
        skip += n_host;
    } else if (p[t.at] != '/') {
        return refuse(r, 400, "the target is neither a path nor an URL");
    }
    h->path = (struct http_span){t.at + skip, t.n - skip};
    end = memchr(p + h->path.at, '?', h->path.n);
    if (end)
        h->path.n = (size_t)(end - (p + h->path.at));
    return true;
}

/* Read "METHOD TARGET HTTP/1.1", p[at..at + n). */
static bool request_line(const char *p, size_t at, size_t n,
                         struct http_head *h, struct refusal *r)
{
    size_t n_method = token_len(p + at, n);
    const char *target, *blank, *version;

    h->method = (struct http_span){at, n_method};
    if (n_method == 0 || n_method == n || p[at + n_method] != ' ')
        return refuse(r, 400, "the request does not begin with a method");
    target = p + at + n_method + 1;
    n -= n_method + 1;
    blank = memchr(target, ' ', n);
    if (!blank || blank == target)
        return refuse(r, 400, "the request line has no target or no version");
    h->target =
        (struct http_span){(size_t)(target - p), (size_t)(blank - target)};
    version = blank + 1;
    n -= h->target.n + 1;
    if (n != 8 || memcmp(version, "HTTP/", 5) != 0 || version[6] != '.' ||
        version[5] < '0' || version[5] > '9' || version[7] < '0' ||
        version[7] > '9')
        return refuse(r, 400, "the request line does not end in a version");
    if (version[5] != '1' || version[7] > '1')
        return refuse(r, 505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    h->http10 = version[7] == '0';
    return target_split(p, h, r);
}

/* Read "NAME: VALUE", p[at..at + n), as the next field. */
static bool field_line(const char *p, size_t at, size_t n, struct http_head *h,
                       struct refusal *r)
{
    size_t n_name = token_len(p + at, n), end = at + n;

    if (n_name == 0 || n_name == n || p[at + n_name] != ':')
        return refuse(r, 400, "a line of the head is no field");
    if (h->n_fields == HTTP_MAX_FIELDS)
        return refuse(r, 431, "the head has more than 100 fields");
    h->names[h->n_fields] = (struct http_span){at, n_name};
    at += n_name + 1;
    while (at < end && (p[at] == ' ' || p[at] == '\t'))
        at++;
    while (end > at && (p[end - 1] == ' ' || p[end - 1] == '\t'))
        end--;
    h->values[h->n_fields++] = (struct http_span){at, end - at};
    return true;
}

static bool parse_length(const char *p, struct http_span v, uint64_t *out,
                         struct refusal *r)
{
    uint64_t x = 0;

    for (size_t i = 0; i < v.n; i++) {
        char c = p[v.at + i];

        if (c < '0' || c > '9')
            return refuse(r, 400, "Content-Length is not a number");
        if (x > (UINT64_MAX - 9) / 10)
            return refuse(r, 413, "Content-Length is too large");
        x = x * 10 + (uint64_t)(c - '0');
    }
    if (v.n == 0)
        return refuse(r, 400, "Content-Length is not a number");
    *out = x;
    return true;
}

static size_t count_char(const char *p, struct http_span s, char c)
{
    size_t n = 0;

    for (size_t i = 0; i < s.n; i++)
        n += p[s.at + i] == c;
    return n;
}

/* Check the fields that say where the request ends and whom it is for. */
static bool fields_check(const char *p, struct http_head *h, struct refusal *r)
{
    size_t n_hosts = 0, n_lengths = 0, n_encodings = 0;
    size_t n_entries = h->n_fields + count_char(p, h->target, '&');

    for (size_t i = 0; i < h->n_fields; i++) {
        struct http_span name = h->names[i], v = h->values[i];

        if (span_is(p, name, "Host")) {
            if (n_hosts++ == 0 && !h->has_host)
                h->host = v;
        } else if (span_is(p, name, "Content-Length")) {
            n_lengths++;
            if (!parse_length(p, v, &h->length, r))
                return false;
        } else if (span_is(p, name, "Transfer-Encoding")) {
            n_encodings++;
            if (!span_is(p, v, "chunked"))
                return refuse(r, 501,
                              "the only Transfer-Encoding here is chunked");
        } else if (span_is(p, name, "Cookie")) {
            n_entries += count_char(p, v, ';') + 1;
        }
    }
    if (n_hosts > 1 || (n_hosts == 0 && !h->http10))
        return refuse(r, 400,
                      n_hosts ? "the head has more than one Host"
                              : "the head has no Host");
    if (n_lengths > 1)
        return refuse(r, 400, "the head has more than one Content-Length");
    if (n_encodings > 1 || (n_encodings && (n_lengths || h->http10)))
        return refuse(r, 400,
                      "Transfer-Encoding is repeated, beside Content-Length, "
                      "or in HTTP/1.0");
    if (n_entries > HTTP_MAX_FIELDS)
        return refuse(r, 431,
                      "the head has more than 100 fields, arguments "
                      "and cookies");
    h->has_host = h->has_host || n_hosts;
    h->chunked = n_encodings == 1;
    return true;
}

/* Read lines until the empty one. Returns whether it was found. */
static bool lines_read(const char *p, size_t n, struct http_head *h,
                       struct refusal *r)
{
    size_t at = 0, n_line;

    for (bool first = true; line_end(p, n, at, &n_line, r); first = false) {
        if (first) {
            if (!request_line(p, at, n_line, h, r))
                return false;
        } else if (n_line == 0) {
            h->n = at + 2;
            return true;
        } else if (!field_line(p, at, n_line, h, r)) {
            return false;
        }
        at += n_line + 2;
    }
    return false;
}

int http_head_check(const char *p, size_t n, struct http_head *out,
                    const char **why)
{
    struct refusal r = {0};

    memset(out, 0, sizeof *out);
    if (lines_read(p, n, out, &r) && fields_check(p, out, &r))
        return 200;
    *why = r.why;
    return r.status;
}
