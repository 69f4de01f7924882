/* Indexes of vectors: what is committed, what damage is found, and exact
 * search. */
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/index/index.h"
#include "lcg.h"
#include "qwick_tools.h"
#include "tempdir.h"

static struct qwick_index_info info_of(size_t dim, bool f16)
{
    struct qwick_index_info o = qwick_index_info_defaults();
    o.model = "org/name";
    o.model_hash[0] = 0x123;
    o.model_hash[1] = 0xfedcba9876543210;
    o.prompt = "a \"prompt\"\n";
    o.dim = dim;
    o.f16 = f16;
    return o;
}

static struct qwick_index *append(size_t dim, bool f16)
{
    const struct qwick_index_info want = info_of(dim, f16);
    struct qwick_index *ix;
    struct qwick_err e;
    assert_ok(qwick_index_append(&ix, temp_dir, &want, &e), &e);
    return ix;
}

static struct qwick_index *reader(void)
{
    struct qwick_index *ix;
    struct qwick_err e;
    assert_ok(qwick_index_open(&ix, temp_dir, &e), &e);
    return ix;
}

static void add(struct qwick_index *ix, const char *id, const char *text,
                const float *v)
{
    const struct qwick_index_row row = {id, text, strlen(id), strlen(text)};
    struct qwick_err e;
    assert_ok(qwick_index_add(ix, &row, v, &e), &e);
}

static void commit(struct qwick_index *ix)
{
    struct qwick_err e;
    assert_ok(qwick_index_commit(ix, &e), &e);
}

/* A row of an index has this id and this text. */
static void assert_row(struct qwick_index *ix, size_t i, const char *id,
                       const char *text)
{
    struct qwick_index_row r;
    struct qwick_err e;
    size_t at;
    assert_ok(qwick_index_get_row(ix, i, &r, &e), &e);
    assert_int_equal(r.n_id, strlen(id));
    assert_int_equal(r.n_text, strlen(text));
    assert_memory_equal(r.id, id, r.n_id);
    assert_memory_equal(r.text, text, r.n_text);
    assert_ok(qwick_index_find(ix, id, strlen(id), &at, &e), &e);
    assert_int_equal(at, i);
}

static size_t find(struct qwick_index *ix, const char *id)
{
    struct qwick_err e;
    size_t at;
    assert_ok(qwick_index_find(ix, id, strlen(id), &at, &e), &e);
    return at;
}

/* ---- rows ---------------------------------------------------------------- */

static void rows_stay(void **state)
{
    const float v[][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {-1, 0.5f, 2}};
    struct qwick_index *ix = append(3, false), *r;
    struct qwick_err e;
    float out[3];
    add(ix, "a", "first", v[0]);
    add(ix, "b", "", v[1]);
    assert_row(ix, 0, "a", "first"); /* not committed yet */
    r = reader();
    assert_int_equal(qwick_index_get_info(r)->n_rows, 0);
    qwick_index_close(r);
    commit(ix);
    add(ix, "", "no id", v[2]);
    add(ix, "a", "changed", v[3]);
    assert_row(ix, 3, "a", "changed");
    commit(ix);
    assert_row(ix, 1, "b", "");
    add(ix, "lost", "lost", v[0]); /* never committed */
    qwick_index_close(ix);

    r = reader();
    const struct qwick_index_info *info = qwick_index_get_info(r);
    const struct qwick_index_info want = info_of(3, false);
    assert_int_equal(info->n_rows, 4);
    assert_int_equal(info->n_dead, 1);
    assert_int_equal(info->dim, 3);
    assert_true(info->normalized && !info->f16);
    assert_string_equal(info->model, want.model);
    assert_string_equal(info->prompt, want.prompt);
    assert_memory_equal(info->model_hash, want.model_hash, 16);
    assert_row(r, 1, "b", "");
    assert_row(r, 2, "", "no id");
    assert_row(r, 3, "a", "changed");
    assert_true(find(r, "lost") == SIZE_MAX);
    for (size_t i = 0; i < 4; i++) {
        assert_ok(qwick_index_get_vector(r, i, out, &e), &e);
        assert_memory_equal(out, v[i], sizeof out);
    }
    assert_int_equal(qwick_index_get_vector(r, 4, out, &e), -1);
    struct qwick_index_row row;
    assert_int_equal(qwick_index_get_row(r, 4, &row, &e), -1);
    assert_int_equal(qwick_index_add(r, &row, out, &e), -1);
    qwick_index_close(r);
}

static void many_rows(void **state)
{
    struct qwick_index *ix = append(1, true);
    float v = 1;
    char id[16], text[16];
    for (unsigned i = 0; i < 5000; i++) { /* the table of ids grows */
        snprintf(id, sizeof id, "%u", i % 3000);
        snprintf(text, sizeof text, "t%u", i);
        add(ix, id, text, &v);
        if (i % 700 == 0)
            commit(ix);
    }
    commit(ix);
    qwick_index_close(ix);
    ix = append(1, true);
    assert_int_equal(qwick_index_get_info(ix)->n_dead, 2000);
    assert_int_equal(find(ix, "1999"), 4999);
    assert_int_equal(find(ix, "2000"), 2000);
    assert_row(ix, 4000, "1000", "t4000");
    qwick_index_close(ix);
}

static void one_writer(void **state)
{
    const struct qwick_index_info want = info_of(2, false);
    struct qwick_index *ix = append(2, false), *other;
    struct qwick_err e;
    assert_int_equal(qwick_index_append(&other, temp_dir, &want, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_RUNTIME);
    assert_non_null(strstr(e.msg, "another process is writing"));
    qwick_index_close(ix);
    ix = append(2, false);
    qwick_index_close(ix);
}

static void refused(const struct qwick_index_info *want, const char *a,
                    const char *b)
{
    struct qwick_index *ix;
    struct qwick_err e;
    assert_int_equal(qwick_index_append(&ix, temp_dir, want, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    if (!strstr(e.msg, a) || !strstr(e.msg, b))
        fail_msg("%s: lacks %s or %s", e.msg, a, b);
}

static void others_are_refused(void **state)
{
    const float v[2] = {1, 0};
    struct qwick_index *ix = append(3, true);
    qwick_index_close(ix); /* no rows: it belongs to no model yet */
    ix = append(2, false);
    add(ix, "a", "b", v);
    commit(ix);
    qwick_index_close(ix);
    struct qwick_index_info w = info_of(3, false);
    refused(&w, "dim: is 2 in", "3 here");
    w = info_of(2, true);
    refused(&w, "type: is f32", "f16 here");
    w = info_of(2, false);
    w.normalized = false;
    refused(&w, "normalized: is true", "false here");
    w = info_of(2, false);
    w.prompt = "";
    refused(&w, "prompt: is \"a \"prompt\"", "\"\" here");
    w = info_of(2, false);
    w.model_hash[1]++;
    refused(&w, "0000000000000123fedcba9876543210",
            "0000000000000123fedcba9876543211");
    w = info_of(2, false);
    w.model = "elsewhere";
    struct qwick_err e;
    assert_ok(qwick_index_append(&ix, temp_dir, &w, &e), &e);
    qwick_index_close(ix);
}

static void other_directories_stay(void **state)
{
    const struct qwick_index_info want = info_of(2, false);
    struct qwick_index *ix;
    struct qwick_err e;
    temp_put("vectors.f32", "of somebody else");
    refused(&want, "is not empty", "vectors.f32");
    assert_int_equal(entries(temp_dir), 1);
    temp_remove("vectors.f32");
    assert_int_equal(qwick_index_open(&ix, temp_dir, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_RUNTIME);
    assert_int_equal(qwick_index_append(&ix, temp_dir, NULL, &e), -1);
    assert_int_equal(qwick_index_append(&ix, temp_path("none"), &want, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_RUNTIME);
}

static void numbers_that_do_not_fit(void **state)
{
    const struct qwick_index_row row = {"a", "b", 1, 1};
    struct qwick_index *ix = append(2, true);
    struct qwick_err e;
    const float bad[][2] = {{NAN, 0}, {0, INFINITY}, {0, -65520}};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(qwick_index_add(ix, &row, bad[i], &e), -1);
        assert_int_equal(e.code, QWICK_ERR_USAGE);
    }
    assert_int_equal(qwick_index_get_info(ix)->n_rows, 0);
    add(ix, "a", "b", (float[2]){65519, -65519});
    commit(ix);
    qwick_index_close(ix);
}

/* ---- damage -------------------------------------------------------------- */

/* An index of two rows, one of them dead. */
static void make_small(void)
{
    struct qwick_index *ix = append(2, false);
    add(ix, "id", "text", (float[2]){1, 0});
    add(ix, "id", "more", (float[2]){0, 1});
    commit(ix);
    qwick_index_close(ix);
}

static void cannot_open(const char *why)
{
    struct qwick_index *ix;
    struct qwick_err e;
    assert_int_equal(qwick_index_open(&ix, temp_dir, &e), -1);
    assert_null(ix);
    assert_int_equal(e.code, QWICK_ERR_RUNTIME);
    assert_null(strchr(e.msg, '\n'));
    if (!strstr(e.msg, why))
        fail_msg("%s: lacks %s", e.msg, why);
    assert_int_equal(qwick_index_append(&ix, temp_dir, NULL, &e), -1);
}

static void bad_manifests(void **state)
{
    static const char *const bad[][3] = {
        {"\"qwick index\"", "\"other\"", "format"},
        {"\"version\":1", "\"version\":2", "version: is 2"},
        {"\"version\":1,", "", "version"},
        {"\"org/name\"", "7", "model"},
        {"\"org/name\"", "\"a\\u0000b\"", "model"},
        {"0000000000000123", "000000000000012g", "model_hash"},
        {"0000000000000123", "", "model_hash"},
        {"\"normalized\":true", "\"normalized\":1", "normalized"},
        {"\"f32\"", "\"f64\"", "type"},
        {"\"dim\":2", "\"dim\":0", "dim: is 0"},
        {"\"dim\":2", "\"dim\":1048577", "dim"},
        {"\"dim\":2", "\"dim\":3", "vectors.f32: has 16 bytes"},
        {"\"rows\":2", "\"rows\":3", "has 16 bytes"},
        {"\"rows\":2", "\"rows\":2147483647", "rows"},
        {"\"rows\":2", "\"rows\":-1", "rows"},
        {"\"rows\":2", "\"rows\":1", "end at byte 2, in"},
        {"\"dead\":1", "\"dead\":3", "dead: is 3"},
        {"\"dead\":1", "\"dead\":2", "dead.u64: has 8 bytes"},
        {"\"id_bytes\":4", "\"id_bytes\":5", "ids.txt: has 4 bytes"},
        {"\"id_bytes\":4", "\"id_bytes\":3", "end at byte 4, in"},
        {"\"text_bytes\":8", "\"text_bytes\":1e3", "text_bytes"},
        {"\"text_bytes\":8", "\"text_bytes\":7", "end at byte 8, in"},
        {"}", "", "index.json"},
    };
    char text[1024], changed[1024];
    make_small();
    FILE *f = fopen(temp_path("index.json"), "rb");
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *at = strstr(text, bad[i][0]);
        assert_non_null(at);
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text,
                 bad[i][1], at + strlen(bad[i][0]));
        temp_put("index.json", changed);
        cannot_open(bad[i][2]);
    }
    temp_put("index.json", "");
    cannot_open("index.json");
    temp_put("index.json", "[]");
    cannot_open("is no object");
    temp_remove("index.json");
    mkdir(temp_path("index.json"), 0700);
    cannot_open("is a directory");
    rmdir(temp_path("index.json"));
    mkfifo(temp_path("index.json"), 0600);
    cannot_open("is a FIFO");
}

static void truncated_files(void **state)
{
    static const char *const names[] = {"vectors.f32", "offsets.u64", "ids.txt",
                                        "texts.txt", "dead.u64"};
    for (size_t i = 0; i < 5; i++) {
        struct stat st;
        fresh(NULL);
        make_small();
        assert_int_equal(stat(temp_path(names[i]), &st), 0);
        assert_int_equal(truncate(temp_path(names[i]), st.st_size - 1), 0);
        struct qwick_index *ix;
        struct qwick_err e;
        assert_int_equal(qwick_index_open(&ix, temp_dir, &e), -1);
        assert_non_null(strstr(e.msg, names[i]));
        temp_remove(names[i]);
        assert_int_equal(qwick_index_open(&ix, temp_dir, &e), -1);
        assert_non_null(strstr(e.msg, names[i]));
    }
}

static void bad_tables(void **state)
{
    const uint64_t dead[] = {2, 1}, ends[][4] = {{4, 4, 4, 8},
                                                 {5, 4, 4, 8},
                                                 {2, UINT64_MAX, 4, 8}};
    struct qwick_index_row row;
    struct qwick_err e;
    make_small();
    temp_write("dead.u64", &dead[0], 8);
    cannot_open("row 2: is not there");
    temp_write("dead.u64", &dead[1], 8);
    for (size_t i = 0; i < 3; i++) {
        temp_write("offsets.u64", ends[i], sizeof ends[i]);
        struct qwick_index *ix = reader();
        /* in the second row, bytes before the begin; in both, none of the
           file */
        assert_int_equal(qwick_index_get_row(ix, 1, &row, &e), i ? -1 : 0);
        qwick_index_close(ix);
    }
    float v[4] = {1, 0, NAN, 0};
    temp_write("vectors.f32", v, sizeof v);
    struct qwick_index *ix = reader();
    struct qwick_index_query q = qwick_index_query_defaults();
    struct qwick_index_hit hits[10];
    size_t n_hits;
    q.vectors = v;
    q.n = 1;
    assert_int_equal(qwick_index_search(ix, NULL, &q, hits, &n_hits, NULL, &e),
                     -1);
    assert_int_equal(e.code, QWICK_ERR_RUNTIME);
    assert_non_null(strstr(e.msg, "row 1"));
    qwick_index_close(ix);
}

static void rows_that_are_dead_twice(void **state)
{
    const uint64_t dead[] = {0, 0};
    make_small();
    struct qwick_index *ix = append(2, false);
    add(ix, "id", "last", (float[2]){1, 1});
    commit(ix);
    qwick_index_close(ix);
    qwick_index_close(reader());
    temp_write("dead.u64", dead, sizeof dead);
    cannot_open("row 0: is dead twice");
}

/* What a killed writer leaves is ignored, then dropped. */
static void tails_are_dropped(void **state)
{
    static const char *const names[] = {"vectors.f32", "offsets.u64", "ids.txt",
                                        "texts.txt", "dead.u64"};
    struct stat st;
    make_small();
    for (size_t i = 0; i < 5; i++) {
        FILE *f = fopen(temp_path(names[i]), "ab");
        fputs("tail that nobody committed", f);
        fclose(f);
    }
    temp_put("index.json.tmp-0123", "{");
    struct qwick_index *ix = reader();
    assert_row(ix, 1, "id", "more");
    qwick_index_close(ix);
    ix = append(2, false);
    add(ix, "x", "y", (float[2]){3, 4});
    commit(ix);
    qwick_index_close(ix);
    ix = reader();
    assert_row(ix, 1, "id", "more");
    assert_row(ix, 2, "x", "y");
    qwick_index_close(ix);
    assert_int_equal(stat(temp_path("vectors.f32"), &st), 0);
    assert_int_equal(st.st_size, 3 * 2 * 4);
    assert_false(exists(temp_path("index.json.tmp-0123")));
}

/* ---- search -------------------------------------------------------------- */

enum { DIM = 37, ROWS = 1500, QUERIES = 5, TOP = 20 };

/* Multiples of 1/8 below 1: products and their sums are exact in float32 and
 * float16, so that all kernels and types give equal scores, with many ties. */
static float eighths(void)
{
    return (float)below(17) / 8 - 1;
}

static struct {
    float rows[ROWS][DIM], queries[QUERIES][DIM];
    bool dead[ROWS];
} data;

static void fill(bool f16)
{
    below_state = 7;
    char id[16];
    struct qwick_index *ix = append(DIM, f16);
    for (size_t i = 0; i < ROWS; i++) {
        for (size_t k = 0; k < DIM; k++)
            data.rows[i][k] = eighths();
        /* each tenth row replaces the one before */
        data.dead[i] = i % 10 == 8;
        snprintf(id, sizeof id, "%zu", i % 10 == 9 ? i - 1 : i);
        add(ix, id, "text", data.rows[i]);
        if (i % 400 == 0)
            commit(ix);
    }
    for (size_t i = 0; i < QUERIES; i++)
        for (size_t k = 0; k < DIM; k++)
            data.queries[i][k] = eighths();
    commit(ix);
    qwick_index_close(ix);
}

/* The hits by definition: each is better than all that come later. */
static size_t expected(size_t query, const struct qwick_index_query *q,
                       struct qwick_index_hit *out)
{
    bool taken[ROWS] = {false};
    size_t n = 0;
    for (; n < q->top; n++) {
        struct qwick_index_hit best = {SIZE_MAX, 0};
        for (size_t i = 0; i < ROWS; i++) {
            float s = 0;
            for (size_t k = 0; k < DIM; k++)
                s += data.rows[i][k] * data.queries[query][k];
            if (!taken[i] && !data.dead[i] && i != q->skip &&
                (double)s >= q->min_score &&
                (best.row == SIZE_MAX || s > best.score))
                best = (struct qwick_index_hit){i, s};
        }
        if (best.row == SIZE_MAX)
            break;
        taken[best.row] = true;
        out[n] = best;
    }
    return n;
}

static void check_search(const struct qwick_index_query *q)
{
    struct qwick_index_hit *hits =
        malloc(QUERIES * (q->top + 1) * sizeof *hits);
    static struct qwick_index_hit want[ROWS];
    size_t n_hits[QUERIES];
    struct qwick_index *ix = reader();
    struct qwick_err e;
    assert_ok(qwick_index_search(ix, NULL, q, hits, n_hits, NULL, &e), &e);
    for (size_t i = 0; i < QUERIES; i++) {
        size_t n = expected(i, q, want);
        assert_int_equal(n_hits[i], n);
        for (size_t k = 0; k < n; k++) {
            assert_int_equal(hits[i * q->top + k].row, want[k].row);
            assert_true(hits[i * q->top + k].score == want[k].score);
        }
    }
    qwick_index_close(ix);
    free(hits);
}

static void search_is_exact(void **state)
{
    for (int f16 = 0; f16 < 2; f16++) {
        fresh(NULL);
        fill(f16);
        struct qwick_index_query q = qwick_index_query_defaults();
        q.vectors = data.queries[0];
        q.n = QUERIES;
        for (int threads = 1; threads <= 4; threads += 3) {
            q.threads = threads;
            q.top = TOP;
            check_search(&q);
            q.top = 1;
            check_search(&q);
            q.top = 4000; /* all that are not dead */
            check_search(&q);
            q.top = TOP;
            q.skip = 17;
            q.min_score = 4;
            check_search(&q);
            q.top = 4000; /* the score is that of some rows */
            check_search(&q);
            q.min_score = 1e9;
            check_search(&q);
            q.skip = SIZE_MAX;
            q.min_score = -INFINITY;
        }
    }
}

static void search_of_nothing(void **state)
{
    struct qwick_index_query q = qwick_index_query_defaults();
    struct qwick_index_hit hits[10];
    const float v[2] = {1, 0};
    size_t n_hits = 7;
    struct qwick_err e;
    qwick_index_close(append(2, false));
    struct qwick_index *ix = reader();
    assert_ok(qwick_index_search(ix, NULL, &q, hits, &n_hits, NULL, &e), &e);
    q.vectors = v;
    q.n = 1;
    assert_ok(qwick_index_search(ix, NULL, &q, hits, &n_hits, NULL, &e), &e);
    assert_int_equal(n_hits, 0);
    volatile int stop = 1;
    qwick_index_close(ix);
    fresh(NULL);
    make_small();
    ix = reader();
    q.interrupt = &stop;
    assert_int_equal(qwick_index_search(ix, NULL, &q, hits, &n_hits, NULL, &e),
                     -1);
    assert_int_equal(e.code, QWICK_ERR_INTERRUPTED);
    qwick_index_close(ix);
}

/* A reader keeps its state while a writer goes on. */
static void readers_see_one_state(void **state)
{
    make_small();
    struct qwick_index *r = reader(), *ix = append(2, false);
    add(ix, "id", "newest", (float[2]){5, 5});
    commit(ix);
    assert_row(r, 1, "id", "more");
    assert_int_equal(qwick_index_get_info(r)->n_rows, 2);
    qwick_index_close(ix);
    assert_row(r, 1, "id", "more");
    qwick_index_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(rows_stay, fresh),
        cmocka_unit_test_setup(many_rows, fresh),
        cmocka_unit_test_setup(one_writer, fresh),
        cmocka_unit_test_setup(others_are_refused, fresh),
        cmocka_unit_test_setup(other_directories_stay, fresh),
        cmocka_unit_test_setup(numbers_that_do_not_fit, fresh),
        cmocka_unit_test_setup(bad_manifests, fresh),
        cmocka_unit_test_setup(truncated_files, fresh),
        cmocka_unit_test_setup(bad_tables, fresh),
        cmocka_unit_test_setup(rows_that_are_dead_twice, fresh),
        cmocka_unit_test_setup(tails_are_dropped, fresh),
        cmocka_unit_test_setup(search_is_exact, fresh),
        cmocka_unit_test_setup(search_of_nothing, fresh),
        cmocka_unit_test_setup(readers_see_one_state, fresh),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
