#include "file/blob_sum.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sha.h"
#include "file/map.h"

enum { SHA1_DIGITS = 40, SHA256_DIGITS = 64, PIECE = 1 << 20 };

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

int blob_sum_compute(const struct blob_sum *sum, const char *path, char hex[65],
                     blob_sum_fn fn, void *ctx, struct qwick_err *e)
{
    struct map m;
    struct sha s;
    char head[64];
    if (map_open(&m, path, e))
        return -1;
    sha_begin(&s, sum->is_git ? SHA_1 : SHA_256);
    if (sum->is_git) {
        int n = snprintf(head, sizeof head, "blob %zu", m.size);
        sha_add(&s, head, (size_t)n + 1); /* with its NUL */
    }
    int rc = 0;
    for (size_t at = 0; at < m.size && !rc; at += PIECE) {
        size_t n = m.size - at < PIECE ? m.size - at : PIECE;
        sha_add(&s, m.data + at, n);
        if (fn(ctx, at + n))
            rc = err_set(e, QWICK_ERR_INTERRUPTED, "interrupted");
    }
    map_close(&m);
    sha_end(&s, hex);
    return rc;
}
