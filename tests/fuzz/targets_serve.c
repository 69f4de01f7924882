/* Requests of the server. */
#include <string.h>

#include "cli/serve/http_head.h"
#include "targets.h"

static void check_span(struct http_span s, const struct http_head *h)
{
    CHECK(s.at <= h->n && s.n <= h->n - s.at);
}

/* What two programs could read in two ways is not in a head that is taken. */
static void check_head(const char *in, size_t n, const struct http_head *h)
{
    CHECK(h->n >= 4 && h->n <= n);
    CHECK(memcmp(in + h->n - 4, "\r\n\r\n", 4) == 0);
    CHECK(!memchr(in, 0, h->n));
    for (size_t i = 0; i < h->n; i++)
        CHECK((in[i] == '\n') == (i > 0 && in[i - 1] == '\r'));
    check_span(h->method, h);
    check_span(h->target, h);
    check_span(h->path, h);
    check_span(h->host, h);
    CHECK(h->method.n > 0 && h->target.n > 0);
    CHECK(h->n_fields <= HTTP_MAX_FIELDS && !(h->chunked && h->length));
    for (size_t i = 0; i < h->n_fields; i++) {
        check_span(h->names[i], h);
        check_span(h->values[i], h);
        CHECK(h->names[i].n > 0);
    }
}

/* Bytes of a connection: a head is the same in whatever pieces it comes. */
int fuzz_http(const char *in, size_t n, struct qwick_err *e)
{
    struct http_head head, part;
    const char *why = NULL;
    int status = http_head_check(in, n, &head, &why);
    CHECK(status == 0 || status == 200 || (status >= 400 && why));
    if (status == 200)
        check_head(in, n, &head);
    for (size_t m = 0; m < n; m += n < 512 ? 1 : n / 64) {
        int s = http_head_check(in, m, &part, &why);
        CHECK(s == 0 || s == status);
        CHECK(s != 200 || part.n == head.n);
        CHECK(status != 200 || (s == 200) == (m >= head.n));
    }
    return status >= 400 ? err_set(e, QWICK_ERR_USAGE, "%s", why) : 0;
}
