/* The safetensors container: unusual but valid files, one broken file per kind
 * of fault, indexes, and the writer. The tests make their files in a temporary
 * directory. */
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "file/safetensors.h"
#include "tempdir.h"

static char path[128];

static int setup(void **state)
{
    if (temp_setup(state))
        return -1;
    snprintf(path, sizeof path, "%s", temp_path("model.safetensors"));
    return 0;
}

static size_t n_files(void)
{
    size_t n = 0;
    DIR *d = opendir(temp_dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* Write a file: length, header, then n_data bytes 0, 1, 2 … */
static void put_raw(const char *p, uint64_t length, const char *header,
                    size_t n_header, size_t n_data)
{
    unsigned char *s = malloc(8 + n_header + n_data);
    assert_non_null(s);
    for (int i = 0; i < 8; i++)
        s[i] = (unsigned char)(length >> 8 * i);
    if (n_header > 0)
        memcpy(s + 8, header, n_header);
    for (size_t i = 0; i < n_data; i++)
        s[8 + n_header + i] = (unsigned char)i;
    put_file(p, s, 8 + n_header + n_data);
    free(s);
}

static void put(const char *p, const char *header, size_t n_data)
{
    put_raw(p, strlen(header), header, strlen(header), n_data);
}

static struct st_set *must_open(const char *p)
{
    struct qwick_err e = {0};
    struct st_set *set;
    assert_ok(st_open_file(&set, p, &e), &e);
    return set;
}

/* Check that the message is one line, begins with the file, and has all of the
 * words. */
static void check_message(const struct qwick_err *e, const char *file,
                          const char *a, const char *b, const char *c)
{
    assert_int_equal(e->code, QWICK_ERR_MODEL);
    const char *words[] = {a, b, c};
    bool ok = strncmp(e->msg, file, strlen(file)) == 0 && !strchr(e->msg, '\n');
    for (int i = 0; i < 3; i++)
        ok = ok && (!words[i] || strstr(e->msg, words[i]));
    if (!ok)
        fail_msg("%s\n(wanted: %s | %s | %s)", e->msg, a, b ? b : "",
                 c ? c : "");
}

#define TENSOR(name, dtype, shape, offsets)                  \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape \
    ",\"data_offsets\":" offsets "}"
/* A row of a table of files that are refused. */
#define BAD_SHAPE(shape)                                     \
    {                                                        \
        "{" TENSOR("aa", "F32", shape, "[0,8]") "}", 8,      \
        {                                                    \
            "tensor aa: shape: must be an array of integers" \
        }                                                    \
    }

static void test_good(void **state)
{
    /* Any order of entries and fields, other fields, metadata, rank 0, empty
     * tensors, odd alignment, white space on both sides. */
    static const char header[] = " \n{" TENSOR(
        "odd", "F32", "[2]",
        "[3,11]") ","
                  "\"__metadata__\":{\"format\":\"pt\",\"a\\\"b\":\"\\u0000\"},"
                  "\"first\":{\"data_offsets\":[0,3],\"extra\":{\"x\":[1,[2,{}]"
                  "],"
                  "\"dtype\":7},\"more\":[[],{\"a\":null}],\"note\":\"n\","
                  "\"k\":1.5,"
                  "\"shape\":[3,1],\"dtype\":\"U8\"}," TENSOR("scalar", "BF16", "[]", "[11,13]") "," TENSOR(
                      "empty", "F32", "[0,4]",
                      "[13,13]") "," TENSOR("empty first", "I64", "[7,0,3]",
                                            "[0,0]") "," TENSOR("rank8", "F16",
                                                                "[1,1,1,1,1,1,"
                                                                "1,2]",
                                                                "[13,17]") "," TENSOR("a\\u00e9\\n\\u0000z",
                                                                                      "BOOL",
                                                                                      "[1]",
                                                                                      "[17,18]") "," TENSOR("",
                                                                                                            "F8_E4M3",
                                                                                                            "[2]",
                                                                                                            "[18,20]") "} \t ";
    static const char *const order[] = {"empty first", "first", "odd",
                                        "scalar",      "empty", "rank8",
                                        "a\xc3\xa9\n", ""};
    put(path, header, 20);
    struct st_set *set = must_open(path);
    assert_int_equal(st_count(set), 8);
    assert_int_equal(st_file_bytes(set), 8 + strlen(header) + 20);
    for (size_t i = 0; i < 8; i++) {
        assert_string_equal(st_at(set, i)->name, order[i]);
        assert_string_equal(st_at(set, i)->file, "model.safetensors");
    }
    assert_null(st_at(set, 8));
    assert_null(st_at(set, SIZE_MAX));
    const struct st_tensor *t = st_find(set, "odd");
    assert_non_null(t);
    assert_int_equal(t->dtype, DT_F32);
    assert_int_equal(t->rank, 1);
    assert_int_equal(t->shape[0], 2);
    assert_int_equal(t->n_bytes, 8);
    assert_int_equal(t->data[0], 3);
    t = st_find(set, "scalar");
    assert_int_equal(t->rank, 0);
    assert_int_equal(t->n_bytes, 2);
    t = st_find(set, "empty");
    assert_int_equal(t->n_bytes, 0);
    assert_int_equal(t->shape[1], 4);
    assert_int_equal(st_find(set, "rank8")->shape[7], 2);
    assert_int_equal(st_find(set, "")->data[0], 18);
    /* A name with NUL is not found by the part before it. */
    assert_null(st_find(set, "a\xc3\xa9\n"));
    assert_int_equal(st_at(set, 6)->name_len, 6);
    assert_memory_equal(st_at(set, 6)->name, "a\xc3\xa9\n\0z", 7);
    assert_null(st_find(set, "__metadata__"));
    assert_null(st_find(set, "missing"));
    st_close(set);
    st_close(NULL);

    put(path, "{}", 0);
    set = must_open(path);
    assert_int_equal(st_count(set), 0);
    assert_null(st_find(set, "x"));
    st_close(set);
    put(path, "{\"__metadata__\":{}}", 0);
    st_close(must_open(path));
}

static void test_broken(void **state)
{
#define A TENSOR("aa", "F32", "[2]", "[0,8]")
    static const struct {
        const char *header;
        size_t n_data;
        const char *words[3];
    } cases[] = {
        /* the header is not an object */
        {"[]", 0, {"header is not a JSON object"}},
        {"\"x\"", 0, {"header is not a JSON object"}},
        {"12", 0, {"header is not a JSON object"}},
        {"null", 0, {"header is not a JSON object"}},
        {"{} x", 0, {"header: offset 3", "text after the value"}},
        {"{\"aa\":", 0, {"header: offset"}},
        {"{\"\xff\":1}", 0, {"header: offset 2", "UTF-8"}},
        {"{\"a\\ud800\":1}", 0, {"header: offset 3", "surrogate"}},
        {"{" A "}\0", 8, {0}}, /* the string ends there, so this is valid */
        /* __metadata__ */
        {"{\"__metadata__\":1}", 0, {"__metadata__", "object of strings"}},
        {"{\"__metadata__\":[]}", 0, {"__metadata__", "object of strings"}},
        {"{\"__metadata__\":{\"a\":1}}", 0, {"__metadata__", "strings"}},
        {"{\"__metadata__\":{\"a\":null}}", 0, {"__metadata__", "strings"}},
        {"{\"__metadata__\":{\"a\":{}}}", 0, {"__metadata__", "strings"}},
        {"{\"__metadata__\":{\"a\":[\"x\"]}}", 0, {"__metadata__", "strings"}},
        {"{\"__metadata__\":{},\"__metadata__\":{}}",
         0,
         {"repeated __metadata__"}},
        /* fields */
        {"{\"aa\":1}", 0, {"tensor aa: must be an object"}},
        {"{\"aa\":[]}", 0, {"tensor aa: must be an object"}},
        {"{\"aa\":null}", 0, {"tensor aa: must be an object"}},
        {"{\"aa\":{}}", 0, {"tensor aa: dtype is missing"}},
        {"{\"aa\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}",
         4,
         {"tensor aa: shape is missing"}},
        {"{\"aa\":{\"dtype\":\"F32\",\"shape\":[]}}",
         4,
         {"tensor aa: data_offsets is missing"}},
        {"{\"aa\":{\"dtype\":1,\"shape\":[],\"data_offsets\":[0,4]}}",
         4,
         {"tensor aa: dtype: must be a string"}},
        {"{\"aa\":{\"dtype\":[\"F32\"]}}",
         4,
         {"tensor aa: dtype: must be a string"}},
        {"{\"aa\":{\"dtype\":{}}}", 4, {"tensor aa: dtype: must be a string"}},
        {"{\"aa\":{\"dtype\":null}}",
         4,
         {"tensor aa: dtype: must be a string"}},
        {"{\"aa\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}",
         4,
         {"tensor aa: repeated dtype"}},
        {"{\"aa\":{\"shape\":[],\"shape\":[]}}",
         4,
         {"tensor aa: repeated shape"}},
        {"{\"aa\":{\"data_offsets\":[0,1],\"data_offsets\":[0,1]}}",
         4,
         {"tensor aa: repeated data_offsets"}},
        {"{" TENSOR("aa", "F4", "[2]", "[0,1]") "}",
         1,
         {"tensor aa", "unknown dtype F4"}},
        {"{" TENSOR("aa", "f32", "[1]", "[0,4]") "}",
         4,
         {"tensor aa", "unknown dtype f32"}},
        {"{" TENSOR("aa", "F32\\u0000", "[1]", "[0,4]") "}",
         4,
         {"tensor aa", "unknown dtype F32\\x00"}},
        {"{" TENSOR("aa", "", "[1]", "[0,4]") "}",
         4,
         {"tensor aa", "unknown dtype"}},
        /* shapes */
        BAD_SHAPE("2"),
        BAD_SHAPE("{}"),
        BAD_SHAPE("[-2]"),
        {"{" TENSOR("aa", "F32", "[-0]", "[0,0]") "}",
         0,
         {"tensor aa: shape: must be an array of integers"}},
        BAD_SHAPE("[2.0]"),
        BAD_SHAPE("[2e0]"),
        BAD_SHAPE("[\"2\"]"),
        BAD_SHAPE("[[2]]"),
        BAD_SHAPE("[{}]"),
        BAD_SHAPE("[null]"),
        BAD_SHAPE("[18446744073709551618]"),
        {"{" TENSOR("aa", "F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]") "}",
         8,
         {"tensor aa", "more than 8 dimensions"}},
        {"{" TENSOR("aa", "F32", "[4611686018427387905]", "[0,4]") "}",
         4,
         {"tensor aa", "overflow"}},
        {"{" TENSOR("aa", "U8", "[4294967296,4294967296]", "[0,0]") "}",
         0,
         {"tensor aa", "overflow"}},
        {"{" TENSOR("aa", "U8", "[0,4294967296,4294967297]", "[0,0]") "}",
         0,
         {"tensor aa", "overflow"}},
        {"{" TENSOR("aa", "F32", "[3]", "[0,8]") "}",
         8,
         {"tensor aa", "shape [3] of F32 is 12 bytes", "data_offsets are 8"}},
        {"{" TENSOR("aa", "F32", "[2,0]", "[0,8]") "}",
         8,
         {"tensor aa", "shape [2, 0] of F32 is 0 bytes", "8"}},
        {"{" TENSOR("aa", "F16", "[]", "[0,4]") "}",
         4,
         {"tensor aa", "shape [] of F16 is 2 bytes", "4"}},
        /* offsets */
        {"{" TENSOR("aa", "F32", "[2]", "8") "}",
         8,
         {"tensor aa: data_offsets: must be two integers"}},
        {"{" TENSOR("aa", "F32", "[2]", "[]") "}",
         8,
         {"tensor aa: data_offsets: must be two integers"}},
        {"{" TENSOR("aa", "F32", "[2]", "[0]") "}",
         8,
         {"tensor aa: data_offsets: must be two integers"}},
        {"{" TENSOR("aa", "F32", "[2]", "[0,8,8]") "}",
         8,
         {"tensor aa: data_offsets: must be two integers"}},
        {"{" TENSOR("aa", "F32", "[2]", "[0,8.0]") "}",
         8,
         {"tensor aa: data_offsets: must be two integers"}},
        {"{" TENSOR("aa", "F32", "[2]", "[-8,0]") "}",
         8,
         {"tensor aa: data_offsets: must be two integers"}},
        {"{" TENSOR("aa", "F32", "[2]", "[0,\"8\"]") "}",
         8,
         {"tensor aa: data_offsets: must be two integers"}},
        {"{" TENSOR("aa", "F32", "[2]",
                    "[18446744073709551616,18446744073709551624]") "}",
         8,
         {"tensor aa: data_offsets: must be two integers"}},
        {"{" TENSOR("aa", "F32", "[2]", "[8,0]") "}",
         8,
         {"tensor aa", "end 0 before begin 8"}},
        /* places */
        {"{" TENSOR("aa", "F32", "[2]", "[4,12]") "}",
         12,
         {"tensor aa: begins at 4, 4 bytes after"}},
        {"{" A "," TENSOR("bb", "U8", "[4]", "[9,13]") "}",
         13,
         {"tensor bb: begins at 9, 1 bytes after"}},
        {"{" A "," TENSOR("bb", "U8", "[4]", "[4,8]") "}",
         8,
         {"tensor bb", "overlaps tensor aa, which ends at 8"}},
        {"{" A "," TENSOR("bb", "F32", "[2]", "[0,8]") "}",
         8,
         {"tensor bb", "overlaps tensor aa"}},
        {"{" A "," TENSOR("bb", "U8", "[0]", "[4,4]") "}",
         8,
         {"tensor bb", "overlaps tensor aa"}},
        {"{" TENSOR("bb", "U8", "[8]", "[8,16]") "," TENSOR("aa", "U8", "[9]",
                                                            "[0,9]") "}",
         16,
         {"tensor bb", "overlaps tensor aa, which ends at 9"}},
        {"{" A "}", 7, {"truncated: tensor aa", "incomplete download"}},
        {"{" A "}", 0, {"truncated: tensor aa", "incomplete download"}},
        {"{" A "}", 9, {"1 bytes after the end of the last tensor aa"}},
        {"{}", 1, {"1 bytes after the end"}},
        {"{" TENSOR("aa", "U8", "[18446744073709551615]",
                    "[0,18446744073709551615]") "}",
         8,
         {"tensor aa", "outside any file"}},
        /* names */
        {"{" A "," A "}", 8, {"tensor aa: repeated"}},
        {"{" A "," TENSOR("aa", "F32", "[2]", "[8,16]") "}",
         16,
         {"tensor aa: repeated"}},
        {"{" A "," TENSOR("\\u0061a", "F32", "[2]", "[8,16]") "}",
         16,
         {"tensor aa: repeated"}},
        {"{" TENSOR("e", "U8", "[0]", "[0,0]") "," TENSOR("e", "U8", "[0]",
                                                          "[0,0]") "}",
         0,
         {"tensor e: repeated"}},
        {"{\"a\\n\\u0000\\u001bb\":1}", 0, {"tensor a\\x0a\\x00\\x1bb: must"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct qwick_err e = {0};
        struct st_set *set;
        put(path, cases[i].header, cases[i].n_data);
        int rc = st_open_file(&set, path, &e);
        if (!cases[i].words[0]) {
            assert_int_equal(rc, 0);
            st_close(set);
            continue;
        }
        if (rc == 0)
            fail_msg("accepted: %s", cases[i].header);
        assert_null(set);
        check_message(&e, path, cases[i].words[0], cases[i].words[1],
                      cases[i].words[2]);
        assert_int_equal(st_open_file(&set, path, NULL), -1);
    }
    /* Truncated at several sizes. */
    struct qwick_err e;
    struct st_set *set;
    char want[80];
    put(path, "{" A "}", 5);
    assert_int_equal(st_open_file(&set, path, &e), -1);
    size_t head = 8 + strlen("{" A "}");
    snprintf(want, sizeof want, "needs %zu bytes of file, there are %zu",
             head + 8, head + 5);
    check_message(&e, path, want, NULL, NULL);
}

static void test_broken_length(void **state)
{
    static const char good[] = "{" A "}";
    static const struct {
        uint64_t length;
        const char *word;
    } cases[] = {
        {0, "too short"},
        {1, "too short"},
        {sizeof good - 2, "header: offset"},
        {sizeof good - 1 + 9, "incomplete download"},
        {100000000, "incomplete download"},
        {100000001, "above the limit of 100000000"},
        {UINT64_MAX, "18446744073709551615 is above"},
        {UINT64_MAX - 7, "above the limit"},
        {(uint64_t)INT64_MAX + 1, "above the limit"},
    };
    struct qwick_err e;
    struct st_set *set;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_raw(path, cases[i].length, good, sizeof good - 1, 8);
        if (st_open_file(&set, path, &e) == 0)
            fail_msg("length %zu accepted", (size_t)cases[i].length);
        check_message(&e, path, cases[i].word, NULL, NULL);
    }
    for (size_t n = 0; n < 8; n++) {
        put_file(path, "\2\0\0\0\0\0\0\0", n);
        assert_int_equal(st_open_file(&set, path, &e), -1);
        check_message(&e, path, "too few", "incomplete download", NULL);
    }
    put_file(path, "\2\0\0\0\0\0\0\0{", 9);
    assert_int_equal(st_open_file(&set, path, &e), -1);
    check_message(&e, path, "truncated: a header of 2 bytes", "file has 9",
                  NULL);
    /* A byte order mark, which other JSON files may have. */
    static const char marked[] = "\xef\xbb\xbf{" A "}";
    put_raw(path, sizeof marked - 1, marked, sizeof marked - 1, 8);
    assert_int_equal(st_open_file(&set, path, &e), -1);
    check_message(&e, path, "byte order mark", NULL, NULL);
    /* Not a model at all: an HTML page. */
    put_file(path, "<!DOCTYPE html><html>", 21);
    assert_int_equal(st_open_file(&set, path, &e), -1);
    check_message(&e, path, "not a safetensors file", NULL, NULL);
    assert_int_equal(st_open_file(&set, temp_dir, &e), -1);
    check_message(&e, temp_dir, "is a directory", NULL, NULL);
}

/* Every prefix of a good file is refused, every flipped byte of its header is
 * refused or harmless. */
static void test_mutations(void **state)
{
    static const char header[] = "{\"__metadata__\":{\"f\":\"pt\"}," A
                                 "," TENSOR("bb", "U8", "[2,2]", "[8,12]") "}";
    size_t n = 8 + sizeof header - 1 + 12;
    unsigned char file[400];
    put(path, header, 12);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(file, 1, sizeof file, f), n);
    fclose(f);
    struct st_set *set;
    struct qwick_err e;
    for (size_t k = 0; k < n; k++) {
        put_file(path, file, k);
        assert_int_equal(st_open_file(&set, path, &e), -1);
    }
    static const unsigned char values[] = {0,   0x20, '"',  '{',  '}', ',',
                                           '0', '9',  0x7f, 0x80, 0xff};
    for (size_t k = 0; k < n - 12; k++) {
        unsigned char was = file[k];
        for (size_t i = 0; i < sizeof values; i++) {
            file[k] = values[i];
            put_file(path, file, n);
            if (st_open_file(&set, path, &e) == 0) {
                size_t sum = 0;
                for (size_t t = 0; t < st_count(set); t++)
                    for (size_t b = 0; b < st_at(set, t)->n_bytes; b++)
                        sum += st_at(set, t)->data[b];
                assert_int_equal(sum, 66);
                st_close(set);
            } else {
                check_message(&e, path, ":", NULL, NULL);
            }
        }
        file[k] = was;
    }
}

/* Reading all of a sparse file would take hours. */
static void test_sparse(void **state)
{
    struct qwick_err e;
    struct st_set *set;
    off_t size = (off_t)8 << 40;
    put(path,
        "{" TENSOR("big", "F32", "[2097152,1048576]", "[0,8796093022208]") "}",
        0);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    if (truncate(path, st.st_size + size)) {
        print_message("SKIP: no 8 TB sparse files here: %s\n", strerror(errno));
        skip();
    }
    if (st_open_file(&set, path, &e) == 0) {
        assert_int_equal(st_find(set, "big")->data[4096], 0);
        st_close(set);
    } else {
        assert_int_equal(e.code, QWICK_ERR_MEMORY);
    }
    /* A sparse file of zeros only. */
    put_file(path, "", 0);
    assert_int_equal(truncate(path, size), 0);
    assert_int_equal(st_open_file(&set, path, &e), -1);
}

/* ---- checkpoints of several files ---------------------------------------- */

static int open_dir(struct st_set **set, struct qwick_err *e)
{
    struct checkpoint *ck;
    assert_ok(checkpoint_open(&ck, temp_dir, e), e);
    int rc = st_open(set, ck, e);
    checkpoint_close(ck); /* the set does not need the checkpoint */
    return rc;
}

static void put_index(const char *map)
{
    struct buf b = {0};
    assert_int_equal(buf_printf(&b,
                                "{\"metadata\":{\"total_size\":12.5,"
                                "\"weight_map\":[{}]},"
                                "\"weight_map\":%s}",
                                map),
                     0);
    put_file(temp_path("model.safetensors.index.json"), b.data, b.len);
    buf_free(&b);
}

static void put_shards(void)
{
    put(temp_path("s1.safetensors"),
        "{" TENSOR("b", "U8", "[2]", "[1,3]") "," TENSOR("a", "U8", "[1]",
                                                         "[0,1]") "}",
        3);
    put(temp_path("s2.safetensors"), "{" TENSOR("c", "U8", "[4]", "[0,4]") "}",
        4);
}

static void test_index(void **state)
{
    struct qwick_err e = {0};
    struct st_set *set;
    put_shards();
    /* The index does not list "a": it is an extra tensor. */
    put_index("{\"c\":\"s2.safetensors\",\"b\":\"s1.safetensors\"}");
    assert_ok(open_dir(&set, &e), &e);
    assert_int_equal(st_count(set), 3);
    assert_string_equal(st_at(set, 0)->name, "a");
    assert_string_equal(st_at(set, 1)->name, "b");
    assert_string_equal(st_at(set, 2)->name, "c");
    assert_string_equal(st_at(set, 2)->file, "s2.safetensors");
    assert_int_equal(st_find(set, "b")->data[0], 1);
    st_close(set);

    static const struct {
        const char *map, *words[3];
    } cases[] = {
        {"{\"b\":\"/etc/passwd\"}", {"tensor b", "\"/etc/passwd\"", "plain"}},
        {"{\"b\":\"../s1.safetensors\"}", {"tensor b", "../s1", "plain"}},
        {"{\"b\":\"x/s1.safetensors\"}", {"tensor b", "x/s1", "plain"}},
        {"{\"b\":\"..\"}", {"tensor b", "\"..\"", "plain"}},
        {"{\"b\":\".\"}", {"tensor b", "\".\"", "plain"}},
        {"{\"b\":\"\"}", {"tensor b", "plain"}},
        {"{\"b\":\"s1.safetensors\\u0000x\"}", {"tensor b", "plain"}},
        {"{\"b\":\"config.json\"}",
         {"tensor b", "\"config.json\"", "not named *.safetensors"}},
        {"{\"b\":\".safetensors\"}", {"tensor b", "not named"}},
        {"{\"b\":\"s3.safetensors\"}", {"shard s3.safetensors is missing"}},
        {"{\"b\":\"s2.safetensors\"}", {"tensor b", "not in the shard s2"}},
        {"{\"c\":\"s1.safetensors\",\"b\":\"s1.safetensors\",\"d\":"
         "\"s2.safetensors\"}",
         {"tensor c", "not in the shard s1.safetensors",
          "but in s2.safetensors"}},
        {"{\"d\":\"s2.safetensors\"}", {"tensor d", "not in the shard s2"}},
        {"{\"b\":\"s1.safetensors\",\"b\":\"s1.safetensors\"}",
         {"tensor b: repeated"}},
        {"{\"b\":1}", {"weight_map: must be an object of strings"}},
        {"{\"b\":null}", {"weight_map: must be an object of strings"}},
        {"{\"b\":true}", {"weight_map: must be an object of strings"}},
        {"{\"b\":[\"s1.safetensors\"]}", {"weight_map: must be"}},
        {"{\"b\":{}}", {"weight_map: must be an object of strings"}},
        {"[]", {"weight_map: must be an object of strings"}},
        {"\"x\"", {"weight_map: must be an object of strings"}},
        {"{}", {"weight_map is empty"}},
        {"{},\"weight_map\":{}", {"repeated weight_map"}},
        {"{},", {"offset"}},
    };
    const char *index = temp_path("model.safetensors.index.json");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_index(cases[i].map);
        if (open_dir(&set, &e) == 0)
            fail_msg("accepted: %s", cases[i].map);
        assert_null(set);
        check_message(&e, index, cases[i].words[0], cases[i].words[1],
                      cases[i].words[2]);
    }
    const char *texts[] = {"", "[]", "1", "{}", "\"weight_map\"", "null"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        put_file(index, texts[i], strlen(texts[i]));
        assert_int_equal(open_dir(&set, &e), -1);
        check_message(&e, index, ":", NULL, NULL);
    }
    /* A sparse index is refused at once. */
    put_file(index, "", 0);
    if (truncate(index, (off_t)1 << 40) == 0) {
        assert_int_equal(open_dir(&set, &e), -1);
        check_message(&e, index, "above the limit of 16777216", NULL, NULL);
    }
    /* A fault inside a shard names the shard. */
    put_index("{\"c\":\"s2.safetensors\",\"b\":\"s1.safetensors\"}");
    assert_int_equal(truncate(temp_path("s2.safetensors"), 63), 0);
    assert_int_equal(open_dir(&set, &e), -1);
    check_message(&e, temp_path("s2.safetensors"), "tensor c", "incomplete",
                  NULL);
    /* One name in two shards: the index decides, whichever comes first. */
    put(temp_path("s2.safetensors"),
        "{" TENSOR("c", "U8", "[1]", "[0,1]") "," TENSOR("a", "U8", "[1]",
                                                         "[1,2]") "}",
        2);
    for (int second = 0; second < 2; second++) {
        put_index(second
                      ? "{\"c\":\"s2.safetensors\",\"a\":\"s2.safetensors\","
                        "\"b\":\"s1.safetensors\"}"
                      : "{\"c\":\"s2.safetensors\",\"a\":\"s1.safetensors\"}");
        assert_ok(open_dir(&set, &e), &e);
        const struct st_tensor *t = st_find(set, "a");
        assert_int_equal(st_count(set), 3);
        assert_string_equal(t->file,
                            second ? "s2.safetensors" : "s1.safetensors");
        assert_int_equal(t->data[0], second ? 1 : 0);
        assert_int_equal(st_find(set, "b")->data[0], 1);
        assert_int_equal(st_find(set, "c")->data[0], 0);
        st_close(set);
    }
    put_index("{\"c\":\"s2.safetensors\",\"b\":\"s1.safetensors\"}");
    assert_int_equal(open_dir(&set, &e), -1);
    check_message(&e, temp_path("s2.safetensors"), "tensor a",
                  "s1.safetensors as well", NULL);
}

static void test_without_index(void **state)
{
    struct qwick_err e = {0};
    struct st_set *set;
    assert_int_equal(open_dir(&set, &e), -1);
    check_message(&e, temp_dir, "no weights", "model.safetensors.index.json",
                  "*.safetensors");
    /* All shards, in the order of their names. */
    put_shards();
    put(temp_path("a0.safetensors"), "{" TENSOR("z", "U8", "[1]", "[0,1]") "}",
        1);
    put_file(temp_path("._s1.safetensors"), "junk", 4);
    put_file(temp_path("s1.safetensors.tmp"), "junk", 4);
    assert_ok(open_dir(&set, &e), &e);
    assert_int_equal(st_count(set), 4);
    assert_string_equal(st_at(set, 0)->name, "z");
    assert_string_equal(st_at(set, 1)->name, "a");
    assert_string_equal(st_at(set, 3)->name, "c");
    st_close(set);
    /* model.safetensors has priority over other files. */
    put(path, "{" A "}", 8);
    assert_int_equal(open_dir(&set, &e), 0);
    assert_int_equal(st_count(set), 1);
    st_close(set);
    /* But an index wins over it. */
    put_index("{\"c\":\"s2.safetensors\"}");
    assert_int_equal(open_dir(&set, &e), 0);
    assert_string_equal(st_at(set, 0)->name, "c");
    st_close(set);
    /* If it is faulty, other files are not tried. */
    unlink(temp_path("model.safetensors.index.json"));
    put_file(path, "", 0);
    assert_int_equal(open_dir(&set, &e), -1);
    check_message(&e, path, "incomplete download", NULL, NULL);
    unlink(path);
    assert_int_equal(symlink("gone", path), 0);
    assert_int_equal(open_dir(&set, &e), -1);
    check_message(&e, path, "symbolic link", "missing", NULL);
}

/* 3000 shards with 32 descriptors. One header has so many tensors that
 * quadratic time would exceed the time limit of this file. */
static void test_many(void **state)
{
    enum { SHARDS = 3000, TENSORS = 500000 };
    struct qwick_err e = {0};
    struct st_set *set;
    struct buf map = {0}, head = {0};
    char name[64], header[128];
    struct rlimit was, few;
    for (int i = 0; i < SHARDS; i++) {
        snprintf(name, sizeof name, "m-%05d.safetensors", i);
        snprintf(header, sizeof header,
                 "{" TENSOR("t%d", "U8", "[1]", "[0,1]") "}", i);
        put(temp_path(name), header, 1);
        assert_int_equal(
            buf_printf(&map, "%c\"t%d\":\"%s\"", i ? ',' : '{', i, name), 0);
    }
    assert_int_equal(buf_putc(&map, '}'), 0);
    put_index(map.data);
    buf_free(&map);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    few = was;
    few.rlim_cur = 32;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    int rc = open_dir(&set, &e);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_ok(rc, &e);
    assert_int_equal(st_count(set), SHARDS);
    assert_string_equal(st_find(set, "t2999")->file, "m-02999.safetensors");
    st_close(set);

    for (int i = 0; i < TENSORS; i++)
        assert_int_equal(
            buf_printf(&head,
                       "%c\"model.layers.%d.mlp.experts.%d.gate_proj."
                       "weight\":{\"dtype\":\"BF16\",\"shape\":[1,1],"
                       "\"data_offsets\":[%d,%d]}",
                       i ? ',' : '{', i / 384, i % 384, 2 * i, 2 * i + 2),
            0);
    assert_int_equal(buf_putc(&head, '}'), 0);
    put_raw(path, head.len, head.data, head.len, 2 * TENSORS);
    buf_free(&head);
    set = must_open(path);
    assert_int_equal(st_count(set), TENSORS);
    for (int i = 0; i < TENSORS; i++) {
        snprintf(header, sizeof header,
                 "model.layers.%d.mlp.experts.%d.gate_proj.weight", i / 384,
                 i % 384);
        assert_ptr_equal(st_find(set, header), st_at(set, (size_t)i));
    }
    st_close(set);
}

static void test_builtin(void **state)
{
    struct qwick_err e = {0};
    struct checkpoint *ck;
    struct st_set *set;
    assert_int_equal(checkpoint_open(&ck, NULL, &e), 0);
    assert_ok(st_open(&set, ck, &e), &e);
    checkpoint_close(ck);
    const struct st_tensor *t = st_find(set, "model.embed_tokens.weight");
    assert_non_null(t);
    assert_int_equal(t->dtype, DT_BF16);
    assert_int_equal(t->shape[0], 6144);
    assert_int_equal(t->shape[1], 256);
    st_close(set);
}

/* ---- the writer ---------------------------------------------------------- */

static void test_write(void **state)
{
    float logits[6] = {0, 1, 2, 3, 4, 5};
    int32_t ids[3] = {7, 8, 9};
    unsigned char *big = malloc(200000);
    assert_non_null(big);
    for (size_t i = 0; i < 200000; i++)
        big[i] = (unsigned char)(i * 7);
    const struct st_out_tensor tensors[] = {
        {"logits", DT_F32, 2, {2, 3}, NULL},
        {"ids \"q\"\n", DT_I32, 1, {3}, ids},
        {"empty", DT_F32, 2, {0, 3}, NULL},
        {"one", DT_U8, 0, {0}, "x"},
        {"big", DT_U8, 1, {200000}, NULL},
        {"last", DT_U8, 1, {1}, NULL},
    };
    struct qwick_err e = {0};
    struct st_writer *w;
    struct st_set *set;
    /* A file of this name, and a temporary file of a killed run, already
     * exist. */
    char stale[160];
    snprintf(stale, sizeof stale, "%s.tmp.%ld", path, (long)getpid());
    put_file(path, "old", 3);
    put_file(stale, "stale", 5);
    assert_ok(st_writer_open(&w, path, tensors, 6, &e), &e);
    /* Until the writer is closed, the old file stays. */
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 3);
    /* In pieces of arbitrary sizes. */
    unsigned char *all = malloc(24 + 200000 + 1);
    assert_non_null(all);
    memcpy(all, logits, 24);
    memcpy(all + 24, big, 200000);
    all[200024] = 'l';
    size_t at = 0;
    const size_t steps[] = {5, 1, 18 + 70000, 0, 66000, 1000};
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(st_writer_data(w, all + at, steps[i], &e), 0);
        at += steps[i];
    }
    assert_int_equal(st_writer_data(w, all + at, 200025 - at, &e), 0);
    assert_ok(st_writer_close(w, &e), &e);
    free(all);
    assert_int_equal(n_files(), 2);
    unlink(stale);

    set = must_open(path);
    assert_int_equal(st_count(set), 6);
    const struct st_tensor *t = st_find(set, "logits");
    assert_int_equal(t->n_bytes, 24);
    assert_memory_equal(t->data, logits, 24);
    assert_int_equal((uintptr_t)t->data % 8, 0);
    t = st_find(set, "ids \"q\"\n");
    assert_memory_equal(t->data, ids, 12);
    assert_int_equal(st_find(set, "one")->data[0], 'x');
    assert_int_equal(st_find(set, "one")->rank, 0);
    assert_int_equal(st_find(set, "empty")->shape[1], 3);
    assert_memory_equal(st_find(set, "big")->data, big, 200000);
    assert_int_equal(st_find(set, "last")->data[0], 'l');
    st_close(set);
    free(big);

    /* No tensors at all. */
    assert_int_equal(st_writer_open(&w, path, NULL, 0, &e), 0);
    assert_int_equal(st_writer_close(w, &e), 0);
    set = must_open(path);
    assert_int_equal(st_count(set), 0);
    st_close(set);
}

static void test_write_faults(void **state)
{
    const struct st_out_tensor one = {"t", DT_F32, 1, {2}, NULL};
    struct st_out_tensor bad = {"t", DT_F32, 2, {SIZE_MAX, 2}, NULL};
    unsigned char data[16] = {0};
    struct qwick_err e = {0};
    struct st_writer *w;
    put_file(path, "old", 3);

    assert_int_equal(st_writer_open(&w, path, &one, 1, &e), 0);
    assert_int_equal(n_files(), 2);
    st_writer_abort(w);
    st_writer_abort(NULL);
    assert_int_equal(n_files(), 1);
    /* Too little data, too much. */
    assert_int_equal(st_writer_open(&w, path, &one, 1, &e), 0);
    assert_int_equal(st_writer_data(w, data, 5, &e), 0);
    assert_int_equal(st_writer_close(w, &e), -1);
    assert_non_null(strstr(e.msg, "3 bytes of data did not come"));
    assert_int_equal(n_files(), 1);
    assert_int_equal(st_writer_open(&w, path, &one, 1, &e), 0);
    assert_int_equal(st_writer_data(w, data, 9, &e), -1);
    assert_non_null(strstr(e.msg, "1 bytes more"));
    st_writer_abort(w);
    assert_int_equal(n_files(), 1);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 3);

    assert_int_equal(st_writer_open(&w, path, &bad, 1, &e), -1);
    assert_null(w);
    assert_non_null(strstr(e.msg, "overflow"));
    bad.rank = 9;
    assert_int_equal(st_writer_open(&w, path, &bad, 1, &e), -1);
    assert_non_null(strstr(e.msg, "more than 8"));
    assert_int_equal(st_writer_open(&w, temp_path("no/such"), &one, 1, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_RUNTIME);
    assert_non_null(strstr(e.msg, "No such file or directory"));
    assert_int_equal(st_writer_open(&w, temp_dir, &one, 1, &e), -1);
    assert_non_null(strstr(e.msg, "directory"));
    assert_int_equal(n_files(), 1);

    /* A full device stays a device. */
    assert_int_equal(st_writer_open(&w, "/dev/full", &one, 1, &e), 0);
    assert_int_equal(st_writer_data(w, data, 8, &e), 0);
    assert_int_equal(st_writer_close(w, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_RUNTIME);
    assert_string_equal(e.msg,
                        "/dev/full: cannot write: No space left on device");
    assert_int_equal(stat("/dev/full", &st), 0);
    assert_true(S_ISCHR(st.st_mode));

    /* If path is a link, its target is written, and the link stays. */
    const char *link_path = temp_path("link");
    assert_int_equal(symlink("model.safetensors", link_path), 0);
    assert_int_equal(st_writer_open(&w, link_path, &one, 1, &e), 0);
    assert_int_equal(st_writer_data(w, data, 8, &e), 0);
    assert_int_equal(st_writer_close(w, &e), 0);
    assert_int_equal(lstat(link_path, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    st_close(must_open(path));

    /* A pipe: /dev/stdout of a pipeline. */
    int p[2];
    unsigned char got[200];
    char fd_path[32];
    assert_int_equal(pipe(p), 0);
    snprintf(fd_path, sizeof fd_path, "/dev/fd/%d", p[1]);
    assert_int_equal(st_writer_open(&w, fd_path, &one, 1, &e), 0);
    assert_int_equal(st_writer_data(w, data, 8, &e), 0);
    assert_int_equal(st_writer_close(w, &e), 0);
    close(p[1]);
    ssize_t n = read(p[0], got, sizeof got);
    close(p[0]);
    assert_true(n > 16 && n % 8 == 0);
    assert_int_equal(got[0], n - 16);
    assert_int_equal(got[8], '{');
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, temp_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_good),          TEST(test_broken),
        TEST(test_broken_length), TEST(test_mutations),
        TEST(test_sparse),        TEST(test_index),
        TEST(test_without_index), TEST(test_many),
        TEST(test_builtin),       TEST(test_write),
        TEST(test_write_faults),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
