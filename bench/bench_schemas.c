/* Compile the schemas of a suite, and hold documents against them.
 *
 *   bench_schemas [--slow US] TOKENIZER_JSON FILE|DIRECTORY...
 *
 * A file is of MaskBench: {"schema": …, "tests": [{"valid": …, "data": …}]}.
 * Each schema is compiled. Each document is spelled as the constraint writes it
 * (tests/unit/any_order.h); it is refused if no such text exists. The texts of
 * valid documents are read token by token, with a mask before each one, as
 * sampling does.
 *
 * stdout has one JSON object a file: what was compiled, admitted and refused,
 * and times in microseconds. stderr has the totals. --slow lists on stderr the
 * masks that take longer. Times are of the processor, so that other programs
 * disturb them little. Bytes are those that malloc gave out. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../tests/unit/any_order.h"
#include "base/array.h"
#include "engine/generate/class_trie.h"
#include "engine/generate/constraint.h"
#include "engine/generate/token_trie.h"
#include "file/fs.h"
#include "file/json.h"
#include "file/json_writer.h"
#include "file/map.h"
#include "text/bpe/bpe.h"
#include "text/grammar/grammar.h"
#include "text/schema/schema.h"

/* ---- the heap ---- */

static int64_t heap_now, heap_peak;

#if defined __GLIBC__ && !defined __SANITIZE_ADDRESS__
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t alignment, size_t n);
void __libc_free(void *p);

static void *count_block(void *p)
{
    if (p)
        heap_now += (int64_t)malloc_usable_size(p);
    if (heap_now > heap_peak)
        heap_peak = heap_now;
    return p;
}

void *malloc(size_t n)
{
    return count_block(__libc_malloc(n));
}

void *calloc(size_t n, size_t size)
{
    return count_block(__libc_calloc(n, size));
}

void *aligned_alloc(size_t alignment, size_t n)
{
    return count_block(__libc_memalign(alignment, n));
}

void *realloc(void *p, size_t n)
{
    size_t old = p ? malloc_usable_size(p) : 0;
    void *q = __libc_realloc(p, n);
    if (q || n == 0)
        heap_now -= (int64_t)old;
    return count_block(q);
}

void free(void *p)
{
    if (p)
        heap_now -= (int64_t)malloc_usable_size(p);
    __libc_free(p);
}
#endif

/* ---- times ---- */

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

struct times {
    double *us;
    size_t n, cap;
};

static void add_time(struct times *t, double us)
{
    struct qwick_err e;
    if (ARRAY_RESERVE(t->us, t->cap, t->n + 1, &e))
        exit(1);
    t->us[t->n++] = us;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_times(const char *name, struct times *t)
{
    double sum = 0;
    for (size_t i = 0; i < t->n; i++)
        sum += t->us[i];
    if (t->n == 0)
        return;
    qsort(t->us, t->n, sizeof *t->us, ascending);
    fprintf(stderr,
            "%-8s %9zu  mean %9.1f  p50 %9.1f  p99 %9.1f  p99.9 %9.1f  "
            "max %9.1f us\n",
            name, t->n, sum / (double)t->n, t->us[t->n / 2],
            t->us[t->n * 99 / 100], t->us[t->n * 999 / 1000], t->us[t->n - 1]);
}

/* ---- totals ---- */

static struct {
    struct token_trie *trie;
    double slow_us;
    size_t n_files, n_compiled, n_passing;
    size_t valid, valid_refused, invalid, invalid_admitted;
    int64_t most_heap, most_compile_heap;
    struct times compiling, masks, largest;
} bench;

static void fail(const struct qwick_err *e)
{
    fprintf(stderr, "bench_schemas: %s\n", e->msg);
    exit(1);
}

static void print_totals(void)
{
    fprintf(stderr,
            "%zu files, %zu compiled, %zu pass all tests\n"
            "valid documents refused: %zu of %zu; invalid ones admitted: %zu "
            "of %zu\n"
            "heap: at most %.1f MB while compiling, %.1f MB for masks\n",
            bench.n_files, bench.n_compiled, bench.n_passing,
            bench.valid_refused, bench.valid, bench.invalid_admitted,
            bench.invalid, (double)bench.most_compile_heap / (1 << 20),
            (double)bench.most_heap / (1 << 20));
    print_times("compile", &bench.compiling);
    print_times("mask", &bench.masks);
    print_times("slowest", &bench.largest);
}

/* ---- one file ---- */

/* A test of a file. */
struct test {
    const struct json_value *data;
    bool valid, admitted;
    struct buf text; /* of a document that is admitted */
};

struct schema_file {
    const char *name;
    const struct json_value *schema;
    struct test *tests;
    size_t n_tests;
    double compile_us, mask_us, mask_max_us;
    size_t n_masks;
    int64_t heap, compile_heap;
    struct qwick_err e;
};

/* Whether the schema is of draft 4, where 1.0 is no integer. */
static bool is_draft_4(const struct json_value *schema)
{
    const struct json_value *draft = json_get(schema, "$schema");
    return json_is(draft, JSON_STRING) && strstr(draft->str, "draft-04");
}

/* An invalid document of draft 4 may have 1.0 where 1 would be valid. So its
 * numbers keep their spelling. */
static int spell_tests(struct schema_file *f, const struct grammar *g)
{
    bool draft_4 = is_draft_4(f->schema);
    for (size_t i = 0; i < f->n_tests; i++) {
        struct test *t = &f->tests[i];
        struct automaton *a;
        if (automaton_create(&a, g, &f->e))
            return -1;
        t->admitted =
            any_order_find(a, t->data, draft_4 && !t->valid, &t->text) > 0;
        automaton_free(a);
    }
    return 0;
}

/* Compile the schema and spell the tests. */
static int compile_file(struct schema_file *f, struct qwick_constraint **c)
{
    struct grammar *g;
    uint32_t root;
    int64_t heap = heap_now;
    heap_peak = heap_now;
    double start = now_us();
    if (grammar_create(&g, "schema", &f->e))
        return -1;
    int rc = schema_compile_value(g, f->schema, NULL, &root, &f->e) ||
                     grammar_finish(g, root, &f->e)
                 ? -1
                 : 0;
    f->compile_us = now_us() - start;
    f->compile_heap = heap_peak - heap;
    rc = rc ? rc : spell_tests(f, g);
    heap_peak = heap_now;
    start = now_us();
    if (!rc)
        rc = constraint_create(c, g, "schema", bench.trie, &f->e);
    f->compile_us += now_us() - start;
    if (heap_peak - heap > f->compile_heap)
        f->compile_heap = heap_peak - heap;
    grammar_free(g);
    return rc;
}

static bool in_mask(const uint64_t *mask, int32_t id)
{
    return mask[id / 64] >> (id & 63) & 1;
}

static void note_mask(struct schema_file *f, double us, const struct buf *text,
                      size_t at)
{
    size_t from = at > 50 ? at - 50 : 0;
    f->n_masks++;
    f->mask_us += us;
    if (us > f->mask_max_us)
        f->mask_max_us = us;
    add_time(&bench.masks, us);
    if (bench.slow_us > 0 && us > bench.slow_us)
        fprintf(stderr, "slow %.0f us: %s at %zu: %.*s\n", us, f->name, at,
                (int)(at - from), text->data + from);
}

/* Read a text token by token. */
static int follow_text(struct schema_file *f, struct matcher *m,
                       const struct buf *text)
{
    int32_t *ids = NULL;
    size_t n = 0, n_ids, n_bytes, at = 0;
    int rc = bpe_encode(bench.trie->bpe, text->data, text->len, false, &ids, &n,
                        &f->e);
    for (size_t i = 0; !rc && i < n; i++) {
        double start = now_us();
        const uint64_t *mask = matcher_mask(m, &n_ids, &f->e);
        note_mask(f, now_us() - start, text, at);
        if (mask && !in_mask(mask, ids[i]))
            err_set(&f->e, QWICK_ERR_RUNTIME,
                    "token %d at %zu is not in the mask", ids[i], at);
        rc = mask && in_mask(mask, ids[i]) ? matcher_accept(m, ids[i], &f->e)
                                           : -1;
        bpe_token(bench.trie->bpe, ids[i], &n_bytes);
        at += n_bytes;
    }
    free(ids);
    return rc || !matcher_complete(m) ? -1 : 0;
}

static void follow_tests(struct schema_file *f, struct qwick_constraint *c)
{
    for (size_t i = 0; i < f->n_tests; i++) {
        struct test *t = &f->tests[i];
        struct matcher *m;
        if (!t->valid || !t->admitted)
            continue;
        if (matcher_create(&m, c, &f->e))
            fail(&f->e);
        t->admitted = follow_text(f, m, &t->text) == 0;
        matcher_free(m);
    }
}

static void print_tests(struct schema_file *f, struct json_writer *w)
{
    size_t wrong = 0;
    for (int valid = 1; valid >= 0; valid--) {
        size_t n = 0;
        jw_array(w, valid ? "valid_refused" : "invalid_admitted");
        for (size_t i = 0; i < f->n_tests; i++) {
            const struct test *t = &f->tests[i];
            n += t->valid == valid;
            if (t->valid == valid && t->admitted != t->valid) {
                jw_uint(w, NULL, i);
                wrong++;
                if (valid)
                    bench.valid_refused++;
                else
                    bench.invalid_admitted++;
            }
        }
        jw_end_array(w);
        jw_uint(w, valid ? "valid" : "invalid", n);
        if (valid)
            bench.valid += n;
        else
            bench.invalid += n;
    }
    bench.n_passing += wrong == 0;
}

static void print_file(struct schema_file *f, bool compiled)
{
    struct buf line = {0};
    struct json_writer w = jw_line(&line);
    jw_cstr(&w, "file", f->name);
    jw_bool(&w, "compiled", compiled);
    if (f->e.code)
        jw_cstr(&w, "error", f->e.msg);
    jw_known_double(&w, "compile_us", f->compile_us, 6);
    jw_int(&w, "compile_heap", f->compile_heap);
    if (compiled) {
        print_tests(f, &w);
        jw_uint(&w, "masks", f->n_masks);
        jw_known_double(&w, "mask_us", f->mask_us, 6);
        jw_known_double(&w, "mask_max_us", f->mask_max_us, 6);
        jw_int(&w, "heap", f->heap);
    }
    if (jw_end_line(&w))
        exit(1);
    fwrite(line.data, 1, line.len, stdout);
    fflush(stdout);
    buf_free(&line);
}

static void measure_file(struct schema_file *f)
{
    struct qwick_constraint *c = NULL;
    bool compiled = compile_file(f, &c) == 0;
    bench.n_files++;
    if (compiled) {
        heap_peak = heap_now;
        follow_tests(f, c);
        constraint_free(c);
        f->heap = heap_peak - heap_now;
        bench.n_compiled++;
        add_time(&bench.compiling, f->compile_us);
        add_time(&bench.largest, f->mask_max_us);
        if (f->heap > bench.most_heap)
            bench.most_heap = f->heap;
        if (f->compile_heap > bench.most_compile_heap)
            bench.most_compile_heap = f->compile_heap;
    }
    print_file(f, compiled);
}

static int read_tests(struct schema_file *f, const struct json_value *root)
{
    const struct json_value *tests = json_get(root, "tests");
    f->schema = json_get(root, "schema");
    if (!f->schema || !json_is(tests, JSON_ARRAY))
        return err_usage(&f->e, "%s: has no schema and tests", f->name);
    f->tests = calloc(tests->len + 1, sizeof *f->tests);
    if (!f->tests)
        return err_oom(&f->e, tests->len);
    for (size_t i = 0; i < tests->len; i++) {
        const struct json_value *valid = json_get(&tests->items[i], "valid");
        f->tests[i].data = json_get(&tests->items[i], "data");
        f->tests[i].valid = json_is(valid, JSON_BOOL) && valid->boolean;
        if (!f->tests[i].data)
            return err_usage(&f->e, "%s: test %zu has no data", f->name, i);
    }
    f->n_tests = tests->len;
    return 0;
}

static void open_file(const char *path)
{
    struct schema_file f = {.name = path + dir_length(path)};
    struct json_doc *doc;
    struct map m;
    if (map_open(&m, path, &f.e))
        fail(&f.e);
    if (json_parse(&doc, path, (const char *)m.data, m.size, QWICK_ERR_USAGE,
                   &f.e)) {
        print_file(&f, false);
    } else {
        if (read_tests(&f, json_root(doc)))
            print_file(&f, false);
        else
            measure_file(&f);
        for (size_t i = 0; i < f.n_tests; i++)
            buf_free(&f.tests[i].text);
        free(f.tests);
        json_free(doc);
    }
    map_close(&m);
}

static void open_path(const char *path)
{
    struct dir_list l;
    struct stat st;
    struct qwick_err e;
    if (stat(path, &st) || !S_ISDIR(st.st_mode)) {
        open_file(path);
        return;
    }
    if (dir_list_read(&l, path, SIZE_MAX, &e))
        fail(&e);
    for (size_t i = 0; i < l.n; i++) {
        struct buf name = {0};
        buf_printf(&name, "%s/%s", path, l.v[i].name);
        if (name.failed)
            exit(1);
        if (ends_in(name.data, ".json"))
            open_file(name.data);
        buf_free(&name);
    }
    dir_list_free(&l);
}

/* Make all tries of the tokens, so that the times of masks do not depend on the
 * schemas before. */
static void make_tries(void)
{
    struct qwick_err e = {0};
    if (!token_trie_plain(bench.trie, 1, &e))
        fail(&e);
    for (struct token_trie *t = bench.trie; t; t = t->next)
        for (size_t i = 0; i < t->classes->n; i++)
            if (!class_trie_need(t, (unsigned char)i, &e))
                fail(&e);
}

static void open_tokens(const char *path)
{
    struct qwick_err e = {0};
    struct bpe *bpe;
    struct map m;
    if (map_open(&m, path, &e) ||
        bpe_open(&bpe, path, (const char *)m.data, m.size, &e))
        fail(&e);
    map_close(&m);
    double start = now_us();
    if (token_trie_create(&bench.trie, bpe, bpe_size(bpe), NULL, NULL, 0, &e))
        fail(&e);
    double listed = now_us();
    make_tries();
    fprintf(stderr, "%zu tokens, listed in %.1f ms, tries made in %.1f ms\n",
            bench.trie->n_ids, (listed - start) / 1000,
            (now_us() - listed) / 1000);
}

int main(int argc, char **argv)
{
    int i = 1;
    if (i + 1 < argc && strcmp(argv[i], "--slow") == 0) {
        bench.slow_us = atof(argv[i + 1]);
        i += 2;
    }
    if (argc - i < 2) {
        fprintf(stderr, "usage: bench_schemas [--slow US] TOKENIZER_JSON "
                        "FILE|DIRECTORY...\n");
        return 2;
    }
    open_tokens(argv[i++]);
    for (; i < argc; i++)
        open_path(argv[i]);
    print_totals();
    return 0;
}
