#include "file/blob_sum.h"

#include <nettle/base16.h>
#include <nettle/sha1.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/map.h"

enum {
    SHA1_DIGITS = 2 * SHA1_DIGEST_SIZE,
    SHA256_DIGITS = 2 * SHA256_DIGEST_SIZE,
    PIECE = 1 << 20
};

_Static_assert(SHA256_DIGITS < sizeof((struct blob_sum *)0)->hex,
               "hex has room for the digits");

/* Whether the last directory of a path is named "blobs". base is the name after
 * it. */
static bool in_blobs(const char *path, const char *base)
{
    static const char dir[] = "/blobs/";
    size_t n = sizeof dir - 1;
    return (size_t)(base - path) >= n && memcmp(base - n, dir, n) == 0;
}

void blob_sum_find(struct blob_sum *out, const char *path)
{
    static const char prefix[] = "sha256-";
    *out = (struct blob_sum){0};
    char *real = realpath(path, NULL);
    const char *name = real ? strrchr(real, '/') : NULL;
    if (!name || !in_blobs(real, name + 1)) {
        free(real);
        return;
    }
    name++;
    bool has_prefix = strncmp(name, prefix, sizeof prefix - 1) == 0;
    if (has_prefix)
        name += sizeof prefix - 1;
    size_t n = strlen(name);
    if (strspn(name, "0123456789abcdef") == n &&
        (n == SHA256_DIGITS || (n == SHA1_DIGITS && !has_prefix))) {
        out->known = true;
        out->is_git = n == SHA1_DIGITS;
        memcpy(out->hex, name, n + 1);
    }
    free(real);
}

/* The state of the hash of one file. */
struct sum_state {
    bool is_git;
    union {
        struct sha1_ctx sha1;
        struct sha256_ctx sha256;
    } of;
};

static void sum_begin(struct sum_state *s, bool is_git)
{
    s->is_git = is_git;
    if (is_git)
        sha1_init(&s->of.sha1);
    else
        sha256_init(&s->of.sha256);
}

static void sum_add(struct sum_state *s, const void *p, size_t n)
{
    if (s->is_git)
        sha1_update(&s->of.sha1, n, p);
    else
        sha256_update(&s->of.sha256, n, p);
}

/* Write the digits and a NUL. */
static void sum_end(struct sum_state *s, char hex[SHA256_DIGITS + 1])
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    size_t n = s->is_git ? SHA1_DIGEST_SIZE : SHA256_DIGEST_SIZE;
    if (s->is_git)
        sha1_digest(&s->of.sha1, n, digest);
    else
        sha256_digest(&s->of.sha256, n, digest);
    base16_encode_update(hex, n, digest);
    hex[2 * n] = 0;
}

int blob_sum_compute(const struct blob_sum *sum, const char *path, char hex[65],
                     blob_sum_fn fn, void *ctx, struct qwick_err *e)
{
    struct map m;
    struct sum_state s;
    char head[64];
    if (map_open(&m, path, e))
        return -1;
    sum_begin(&s, sum->is_git);
    if (sum->is_git) {
        int n = snprintf(head, sizeof head, "blob %zu", m.size);
        sum_add(&s, head, (size_t)n + 1); /* with its NUL */
    }
    int rc = 0;
    for (size_t at = 0; at < m.size && !rc; at += PIECE) {
        size_t n = m.size - at < PIECE ? m.size - at : PIECE;
        sum_add(&s, m.data + at, n);
        if (fn(ctx, at + n))
            rc = err_set(e, QWICK_ERR_INTERRUPTED, "interrupted");
    }
    map_close(&m);
    sum_end(&s, hex);
    return rc;
}
