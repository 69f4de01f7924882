/* Speed of the tokenizer: load time of tokenizer.json and MB/s of encoding and
 * decoding, one thread, medians with the spread.
 *
 *   bench_tokenizer [TOKENIZER.json [FILE]...]
 *
 * Without files it reads this project's own text and source, repeated to a few
 * megabytes. Encoding is also timed with an empty word cache, in a newly opened
 * tokenizer (cold). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "file/map.h"
#include "text/bpe/bpe.h"

#define RUNS 15

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of t, which is sorted. */
static double median(double *t, size_t n)
{
    qsort(t, n, sizeof *t, by_value);
    return n % 2 ? t[n / 2] : (t[n / 2 - 1] + t[n / 2]) / 2;
}

static void die(const struct qwick_err *e)
{
    fprintf(stderr, "bench_tokenizer: %s\n", e->msg);
    exit(1);
}

static struct bpe *open_tokenizer(const char *path, const struct map *m)
{
    struct bpe *b;
    struct qwick_err e;
    if (bpe_open(&b, path, (const char *)m->data, m->size, &e) < 0)
        die(&e);
    return b;
}

static void bench_load(const char *path, const struct map *m)
{
    double t[RUNS], first = 0;
    for (size_t i = 0; i < RUNS; i++) {
        double t0 = clock_ms();
        struct bpe *b = open_tokenizer(path, m);
        t[i] = clock_ms() - t0;
        if (i == 0)
            first = t[0];
        bpe_close(b);
    }
    double mid = median(t, RUNS);
    printf("%-28s %8.1f ms median  (%.1f to %.1f, first %.1f; %.1f MB)\n",
           "load", mid, t[0], t[RUNS - 1], first, (double)m->size / 1e6);
}

static size_t encode(struct bpe *b, const char *s, size_t n, int32_t **ids)
{
    struct qwick_err e;
    size_t n_ids = 0;
    if (bpe_encode(b, s, n, true, ids, &n_ids, &e) < 0)
        die(&e);
    return n_ids;
}

static void bench_text(const char *path, const struct map *m, const char *name,
                       const char *s, size_t n)
{
    double warm[RUNS], cold[RUNS], decode[RUNS];
    int32_t *ids = NULL;
    size_t n_ids = 0, n_bytes = 0;
    struct bpe *b = open_tokenizer(path, m);
    char *out = malloc(n * 4 + 1);
    if (!out)
        exit(1);
    for (size_t i = 0; i < RUNS + 1; i++) {
        double t0 = clock_ms();
        n_ids = encode(b, s, n, &ids);
        double t1 = clock_ms();
        n_bytes = 0;
        for (size_t k = 0; k < n_ids; k++) {
            size_t len;
            const char *p = bpe_token(b, ids[k], &len);
            memcpy(out + n_bytes, p, len);
            n_bytes += len;
        }
        if (i > 0) {
            warm[i - 1] = t1 - t0;
            decode[i - 1] = clock_ms() - t1;
        }
    }
    bpe_close(b);
    for (size_t i = 0; i < RUNS; i++) {
        b = open_tokenizer(path, m);
        double t0 = clock_ms();
        encode(b, s, n, &ids);
        cold[i] = clock_ms() - t0;
        bpe_close(b);
    }
    double mb = (double)n / 1e3; /* MB/s = bytes / ms / 1000 */
    double mid = median(warm, RUNS);
    printf("%-28s %8.1f MB/s median (%.1f to %.1f)  cold %.1f  decode %.1f  "
           "(%.1f MB, %zu tokens, %.2f bytes a token)\n",
           name, mb / mid, mb / warm[RUNS - 1], mb / warm[0],
           mb / median(cold, RUNS), mb / median(decode, RUNS), (double)n / 1e6,
           n_ids, (double)n / (double)(n_ids ? n_ids : 1));
    free(ids);
    free(out);
}

/* Join all files, and repeat them up to at least 2 MB. */
static void gather(struct buf *out, const char *const *paths, size_t n)
{
    struct qwick_err e;
    for (size_t i = 0; i < n; i++) {
        struct map m;
        if (map_open(&m, paths[i], &e) < 0)
            continue; /* the file is missing in this version of the tree */
        if (buf_append(out, m.data, m.size) < 0)
            exit(1);
        map_close(&m);
    }
    size_t once = out->len;
    while (once && out->len < 2000000) {
        if (buf_reserve(out, once) < 0 || buf_append(out, out->data, once) < 0)
            exit(1);
    }
}

/* Measure merging without the word cache: one long word of letters. */
static void fill_letters(struct buf *out, uint64_t seed, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        if (buf_putc(out, (char)('a' + (seed >> 33) % 26)) < 0)
            exit(1);
    }
}

int main(int argc, char **argv)
{
    static const char *const english[] = {
        "README.md", "LICENSE", "models/demo/README.md",
        "tests/data/qwen3-tokenizer/README.md", "man/qwick.1"};
    static const char *const code[] = {
        "src/text/bpe.c",          "src/text/bpe_load.c",
        "src/text/unicode.c",      "src/file/json.c",
        "src/model/attention.c",   "src/kernel/ref/k_ref.c",
        "src/kernel/k_f32_attn.h", "include/qwick.h"};
    const char *path =
        argc > 1 ? argv[1] : "build/testdata/qwen3-tokenizer/tokenizer.json";
    struct map m;
    struct qwick_err e;
    if (map_open(&m, path, &e) < 0)
        die(&e);
    printf("%s, %d runs each\n", path, RUNS);
    bench_load(path, &m);
    for (int i = 2; i < argc; i++) {
        struct buf b = {0};
        gather(&b, (const char *const *)&argv[i], 1);
        bench_text(path, &m, argv[i], b.data ? b.data : "", b.len);
        buf_free(&b);
    }
    if (argc <= 2) {
        struct buf b = {0};
        gather(&b, english, sizeof english / sizeof *english);
        bench_text(path, &m, "English text", b.data ? b.data : "", b.len);
        b.len = 0;
        gather(&b, code, sizeof code / sizeof *code);
        bench_text(path, &m, "source code (C)", b.data ? b.data : "", b.len);
        buf_free(&b);
    }
    struct buf b = {0};
    fill_letters(&b, 1, 1000000);
    bench_text(path, &m, "a word of random letters", b.data, b.len);
    memset(b.data, 'a', b.len);
    bench_text(path, &m, "a word of one letter", b.data, b.len);
    buf_free(&b);
    map_close(&m);
    return 0;
}
