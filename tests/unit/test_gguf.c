/* The GGUF container: good files, one broken file for each kind of fault, files
 * cut at every byte, random damage, and files in several parts. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/gguf.h"
#include "file/gguf_int.h"
#include "file/gguf_write.h"
#include "gguf_build.h"
#include "tempdir.h"

enum { F32 = 0, Q4_0 = 2, Q4_K = 12, BF16 = 30 };

static char path[128];

static int setup(void **state)
{
    if (temp_setup(state))
        return -1;
    snprintf(path, sizeof path, "%s", temp_path("model.gguf"));
    return 0;
}

static void write_build(const char *p, struct gguf_build *g)
{
    struct buf b = gb_done(g);
    put_file(p, b.data, b.len);
    buf_free(&b);
}

static struct gguf *must_open(const char *p)
{
    struct qwick_err e = {0};
    struct gguf *g;
    assert_ok(gguf_open(&g, p, &e), &e);
    return g;
}

/* The file is refused in one line that begins with `file` and has all words. */
static void refused(const char *file, const char *a, const char *b)
{
    struct qwick_err e = {0};
    struct gguf *g;
    if (gguf_open(&g, path, &e) == 0)
        fail_msg("opened, wanted: %s | %s", a, b);
    assert_null(g);
    assert_int_equal(e.code, QWICK_ERR_MODEL);
    if (strncmp(e.msg, file, strlen(file)) != 0 || strchr(e.msg, '\n') ||
        !strstr(e.msg, a) || !strstr(e.msg, b))
        fail_msg("%s\n(wanted: %s | %s)", e.msg, a, b);
}

static void refuses(struct gguf_build *g, const char *a, const char *b)
{
    write_build(path, g);
    refused(path, a, b);
}

/* Each type of value, and tensors of several types. */
static struct gguf_build sample(void)
{
    struct gguf_build g = GGUF_BUILD;
    static const unsigned char zeros[4096];
    gb_string(&g, "general.architecture", "qwen3");
    gb_uint(&g, "u32", 4000000000u);
    gb_value(&g, "i8", GGUF_I8, &(int8_t){-3}, 1);
    gb_value(&g, "u8", GGUF_U8, &(uint8_t){200}, 1);
    gb_value(&g, "i16", GGUF_I16, &(int16_t){-300}, 2);
    gb_value(&g, "u16", GGUF_U16, &(uint16_t){60000}, 2);
    gb_value(&g, "i32", GGUF_I32, &(int32_t){-70000}, 4);
    gb_value(&g, "i64", GGUF_I64, &(int64_t){INT64_MIN}, 8);
    gb_value(&g, "u64", GGUF_U64, &(uint64_t){UINT64_MAX}, 8);
    gb_float(&g, "f32", 1.5f);
    gb_value(&g, "f64", GGUF_F64, &(double){-0.25}, 8);
    gb_bool(&g, "bool", true);
    gb_array(&g, "strings", GGUF_STRING, 3);
    gb_text(&g.keys, "one", 3);
    gb_text(&g.keys, "", 0);
    gb_text(&g.keys, "a\0b", 3);
    gb_array(&g, "ints", GGUF_I32, 2);
    gb_raw(&g.keys, (int32_t[]){-5, 7}, 8);
    gb_array(&g, "none", GGUF_F32, 0);
    gb_tensor(&g, "vector", 1, (uint64_t[]){3}, F32, (float[]){1, 2, 3}, 12);
    gb_tensor(&g, "blocks", 2, (uint64_t[]){64, 3}, Q4_0, zeros, 18 * 6);
    gb_tensor(&g, "experts", 3, (uint64_t[]){256, 2, 2}, Q4_K, zeros, 144 * 4);
    gb_tensor(&g, "empty", 2, (uint64_t[]){0, 5}, BF16, zeros, 0);
    return g;
}

static const struct gguf_value *value(const struct gguf *g, const char *key)
{
    const struct gguf_value *v = gguf_find(g, key);
    assert_non_null(v);
    assert_int_equal(v->key_len, strlen(key));
    assert_memory_equal(v->key, key, v->key_len);
    return v;
}

static void check_sample(const struct gguf *g)
{
    assert_int_equal(value(g, "u32")->u, 4000000000u);
    assert_int_equal(value(g, "u8")->u, 200);
    assert_int_equal(value(g, "u16")->u, 60000);
    assert_true(value(g, "u64")->u == UINT64_MAX);
    assert_int_equal(value(g, "i8")->i, -3);
    assert_int_equal(value(g, "i16")->i, -300);
    assert_int_equal(value(g, "i32")->i, -70000);
    assert_true(value(g, "i64")->i == INT64_MIN);
    assert_true(value(g, "f32")->f == 1.5);
    assert_true(value(g, "f64")->f == -0.25);
    assert_int_equal(value(g, "bool")->u, 1);
    const struct gguf_value *v = value(g, "general.architecture");
    assert_int_equal(v->type, GGUF_STRING);
    assert_int_equal(v->n_bytes, 5);
    assert_memory_equal(v->data, "qwen3", 5);
    v = value(g, "strings");
    assert_int_equal(v->type, GGUF_ARRAY);
    assert_int_equal(v->element, GGUF_STRING);
    assert_int_equal(v->n, 3);
    assert_int_equal(v->n_bytes, 3 * 8 + 6);
    v = value(g, "ints");
    assert_int_equal(gguf_int_at(v, 0), -5);
    assert_int_equal(gguf_int_at(v, 1), 7);
    assert_int_equal(value(g, "none")->n, 0);
    assert_null(gguf_find(g, "missing"));
    assert_int_equal(gguf_count(g), 15);
    assert_ptr_equal(gguf_at(g, 14), value(g, "none"));
    assert_null(gguf_at(g, 15));
}

static void good_files(void **state)
{
    for (uint32_t version = 2; version <= 3; version++) {
        struct gguf_build b = sample();
        b.version = version;
        write_build(path, &b);
        struct gguf *g = must_open(path);
        assert_string_equal(gguf_path(g), path);
        check_sample(g);
        struct st_set *set = gguf_tensors(g);
        assert_int_equal(st_count(set), 4);
        const struct st_tensor *t = st_find(set, "blocks");
        assert_non_null(t);
        assert_string_equal(t->name, "blocks");
        assert_string_equal(t->file, "model.gguf");
        assert_int_equal(t->dtype, DT_Q4_0);
        assert_int_equal(t->rank, 2);
        assert_int_equal(t->shape[0], 3);
        assert_int_equal(t->shape[1], 64);
        assert_int_equal(t->n_bytes, 18 * 6);
        t = st_find(set, "vector");
        assert_memory_equal(t->data, ((float[]){1, 2, 3}), 12);
        t = st_find(set, "experts");
        assert_int_equal(t->shape[0], 2);
        assert_int_equal(t->shape[2], 256);
        assert_int_equal(st_find(set, "empty")->n_bytes, 0);
        gguf_close(g);
    }
}

/* Another alignment, the last tensor padded, entries in another order than
 * their data, and no tensors at all. */
static void good_layouts(void **state)
{
    struct gguf_build b = GGUF_BUILD;
    b.alignment = 64;
    gb_uint(&b, "general.alignment", 64);
    gb_entry(&b, "second", 1, (uint64_t[]){2}, F32, 64);
    gb_entry(&b, "first", 1, (uint64_t[]){2}, F32, 0);
    gb_raw(&b.data, (float[]){1, 2}, 8);
    gb_pad(&b.data, 64);
    gb_raw(&b.data, (float[]){3, 4}, 8);
    gb_pad(&b.data, 64);
    write_build(path, &b);
    struct gguf *g = must_open(path);
    assert_string_equal(st_at(gguf_tensors(g), 0)->name, "first");
    assert_memory_equal(st_find(gguf_tensors(g), "second")->data,
                        ((float[]){3, 4}), 8);
    gguf_close(g);
    b = GGUF_BUILD;
    gb_string(&b, "general.architecture", "qwen3");
    write_build(path, &b);
    g = must_open(path);
    assert_int_equal(st_count(gguf_tensors(g)), 0);
    gguf_close(g);
}

static void typed_look_ups(void **state)
{
    struct gguf_build b = sample();
    struct qwick_err e;
    bool found;
    write_build(path, &b);
    struct gguf *g = must_open(path);
    assert_non_null(gguf_need(g, "ints", GGUF_ARRAY, GGUF_I32, &found, &e));
    assert_null(gguf_need(g, "missing", GGUF_U32, 0, &found, &e));
    assert_false(found);
    assert_null(gguf_need(g, "f32", GGUF_U32, 0, &found, &e));
    assert_true(found);
    assert_non_null(strstr(e.msg, "f32: must be of type u32, is f32"));
    assert_null(gguf_need(g, "ints", GGUF_ARRAY, GGUF_STRING, &found, &e));
    assert_non_null(strstr(e.msg, "ints: must be an array of string, has i32"));
    gguf_close(g);
}

/* ---- faults ---- */

/* 24 bytes of header with these counts, and nothing else. */
static void counts(uint64_t n_tensors, uint64_t n_keys)
{
    struct buf b = {0};
    gb_raw(&b, "GGUF\3\0\0\0", 8);
    gb_u64(&b, n_tensors);
    gb_u64(&b, n_keys);
    put_file(path, b.data, b.len);
    buf_free(&b);
}

static void bad_headers(void **state)
{
    put_file(path, "", 0);
    refused(path, "truncated", "");
    put_file(path, "GGML\3\0\0\0", 8);
    refused(path, "not a GGUF file", "");
    put_file(path, "GGUF\1\0\0\0", 8);
    refused(path, "version 1 is not supported", "2 and 3");
    put_file(path, "GGUF\4\0\0\0", 8);
    refused(path, "version 4", "");
    put_file(path, "GGUF\0\0\0\3", 8);
    refused(path, "big-endian", "");
    static const uint64_t large[] = {1, 1 << 17, 1ull << 32, 1ull << 63,
                                     UINT64_MAX};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        counts(0, large[i]);
        refused(path, "metadata entries", "in 0 bytes");
        counts(large[i], 0);
        refused(path, "tensors", "in 0 bytes");
    }
    temp_remove("model.gguf");
    assert_int_equal(mkfifo(path, 0600), 0);
    refused(path, "FIFO", "");
    temp_remove("model.gguf");
}

/* A key whose value has these bytes. */
static void bad_value(enum gguf_type type, const void *p, size_t n,
                      const char *a, const char *b)
{
    struct gguf_build g = GGUF_BUILD;
    gb_value(&g, "the.key", type, p, n);
    /* so that counts alone do not give the fault away */
    gb_string(&g, "padding", "0123456789");
    refuses(&g, a, b);
}

static void array_head(unsigned char out[12], uint32_t element, uint64_t n)
{
    memcpy(out, &element, 4);
    memcpy(out + 4, &n, 8);
}

static void bad_values(void **state)
{
    unsigned char head[12];
    bad_value(GGUF_BOOL, "\2", 1, "the.key", "must be 0 or 1, is 2");
    bad_value((enum gguf_type)13, "", 0, "the.key",
              "unknown type of value, 13");
    static const uint64_t large[] = {1000, 1ull << 61, 1ull << 63, UINT64_MAX};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        bad_value(GGUF_STRING, &large[i], 8, "the.key", "truncated");
        static const enum gguf_type elements[] = {GGUF_U8, GGUF_F64,
                                                  GGUF_STRING};
        for (size_t k = 0; k < 3; k++) {
            array_head(head, elements[k], large[i]);
            bad_value(GGUF_ARRAY, head, 12, "the.key", "truncated");
        }
        struct gguf_build g = GGUF_BUILD;
        gb_u64(&g.keys, large[i]); /* a key's length */
        gb_raw(&g.keys, "0123456789", 10);
        g.n_keys = 1;
        refuses(&g, "truncated", "a key");
    }
    array_head(head, GGUF_ARRAY, 1);
    bad_value(GGUF_ARRAY, head, 12, "the.key", "array of arrays");
    array_head(head, 99, 1);
    bad_value(GGUF_ARRAY, head, 12, "the.key", "unknown type, 99");
    struct gguf_build g = sample();
    gb_uint(&g, "u32", 1);
    refuses(&g, "u32", "repeated key");
    /* control bytes of a key do not get out */
    g = GGUF_BUILD;
    gb_value(&g, "a\n\033[1m", GGUF_BOOL, "\7", 1);
    refuses(&g, "a\\x0a\\x1b[1m", "");
}

static void bad_alignments(void **state)
{
    static const uint32_t bad[] = {0, 1, 4, 7, 33, 96, 1u << 17, 1u << 31};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct gguf_build g = sample();
        gb_uint(&g, "general.alignment", bad[i]);
        refuses(&g, "general.alignment", "power of two");
    }
    struct gguf_build g = sample();
    gb_float(&g, "general.alignment", 32);
    refuses(&g, "general.alignment", "must be an integer, is of type f32");
    g = sample();
    gb_value(&g, "general.alignment", GGUF_I32, &(int32_t){-32}, 4);
    refuses(&g, "general.alignment", "is -32");
}

/* One tensor's entry, and 4 KiB of data. */
static void bad_entry(uint32_t rank, const uint64_t *dims, uint32_t type,
                      uint64_t offset, const char *a, const char *b)
{
    static const unsigned char zeros[4096];
    struct gguf_build g = GGUF_BUILD;
    gb_entry(&g, "it", rank, dims, type, offset);
    gb_raw(&g.data, zeros, sizeof zeros);
    refuses(&g, a, b);
}

static void bad_tensors(void **state)
{
    const uint64_t one[5] = {1024, 1, 1, 1, 1}, odd[2] = {1024, 3};
    bad_entry(5, one, F32, 0, "tensor it", "5 dimensions, 4 are the most");
    bad_entry(UINT32_MAX, one, F32, 0, "tensor it", "dimensions");
    bad_entry(1, one, 15, 0, "tensor it", "type Q8_K is not supported");
    bad_entry(1, one, 41, 0, "tensor it", "type Q1_0 is not supported");
    bad_entry(1, one, 4, 0, "tensor it", "unknown type 4");
    bad_entry(1, one, UINT32_MAX, 0, "tensor it", "unknown type 4294967295");
    bad_entry(1, one, F32, 32, "tensor it", "should begin at 0");
    bad_entry(1, one, F32, UINT64_MAX, "tensor it", "should begin at 0");
    bad_entry(2, odd, F32, 0, "truncated", "incomplete download?");
    bad_entry(0, one, F32, 0, "after the end of the last tensor", "");
    bad_entry(
        1, (uint64_t[]){48}, Q4_0, 0, "tensor it",
        "rows of 48 elements are not a multiple of the type's block of 32");
    bad_entry(1, (uint64_t[]){32}, Q4_K, 0, "tensor it", "block of 256");
    bad_entry(1, (uint64_t[]){UINT64_MAX}, F32, 0, "tensor it", "overflows");
    bad_entry(1, (uint64_t[]){1ull << 62}, F32, 0, "tensor it", "overflows");
    bad_entry(2, (uint64_t[]){1ull << 40, 1ull << 32}, Q4_0, 0, "tensor it",
              "overflows");
    bad_entry(3, (uint64_t[]){1ull << 40, 0, 1ull << 40}, F32, 0, "tensor it",
              "overflows");
    bad_entry(2, (uint64_t[]){1ull << 62, 8}, Q4_0, 0, "tensor it",
              "overflows");
    bad_entry(2, (uint64_t[]){1ull << 62, 2}, Q4_0, 0, "truncated", "");
    /* fits size_t, but not the file, and not with the bytes before it */
    bad_entry(1, (uint64_t[]){(1ull << 62) - 16}, F32, 0, "outside any file",
              "");
    struct gguf_build g = sample();
    gb_tensor(&g, "vector", 1, (uint64_t[]){3}, F32, (float[]){1, 2, 3}, 12);
    refuses(&g, "tensor vector", "repeated");
    g = GGUF_BUILD;
    gb_entry(&g, "a", 1, (uint64_t[]){16}, F32, 0);
    gb_entry(&g, "b", 1, (uint64_t[]){16}, F32, 32);
    gb_raw(&g.data, (float[32]){0}, 128);
    refuses(&g, "tensor b", "overlaps");
    g = GGUF_BUILD;
    gb_entry(&g, "a", 1, (uint64_t[]){8}, F32, 0);
    gb_entry(&g, "b", 1, (uint64_t[]){8}, F32, 96);
    gb_raw(&g.data, (float[32]){0}, 128);
    refuses(&g, "tensor b", "should begin at 32");
}

/* Of each type of blocks: a row of half a block more than whole blocks, a
 * tensor with one block more than the file has, and one that is whole. */
static void bad_blocks(void **state)
{
    for (enum dtype type = DT_BLOCKS; type < DT_COUNT; type++) {
        uint64_t n = dtype_block(type), has = 4096 / dtype_bytes(type);
        char why[64];
        snprintf(why, sizeof why, "rows of %d elements are not a multiple",
                 (int)(2 * n + n / 2));
        bad_entry(1, (uint64_t[]){2 * n + n / 2}, gguf_type_number(type), 0,
                  "tensor it", why);
        bad_entry(2, (uint64_t[]){n, has + 1}, gguf_type_number(type), 0,
                  "truncated", "");
        struct gguf_build g = GGUF_BUILD;
        gb_entry(&g, "it", 2, (uint64_t[]){n, has}, gguf_type_number(type), 0);
        gb_raw(&g.data, (unsigned char[4096]){0}, has * dtype_bytes(type));
        write_build(path, &g);
        gguf_close(must_open(path));
    }
}

/* ---- damage ---- */

static void cut_anywhere(void **state)
{
    struct gguf_build g = sample();
    struct buf b = gb_done(&g);
    struct qwick_err e;
    struct gguf *out;
    for (size_t n = 0; n < b.len; n++) {
        put_file(path, b.data, n);
        if (gguf_open(&out, path, &e) == 0)
            fail_msg("opened after %zu of %zu bytes", n, b.len);
        if (!strstr(e.msg, "truncated") && !strstr(e.msg, "says that it has"))
            fail_msg("%zu bytes: %s", n, e.msg);
    }
    buf_free(&b);
}

/* SplitMix64. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Change a few bytes: the file is refused, or it opens and can be
 * read. Sanitizers see the rest. */
static void random_damage(void **state)
{
    const char *rounds = getenv("GGUF_ROUNDS");
    size_t n_rounds = rounds ? strtoul(rounds, NULL, 10) : 3000, opened = 0;
    uint64_t seed = 20261123;
    struct gguf_build g = sample();
    struct buf b = gb_done(&g);
    char *copy = malloc(b.len);
    assert_non_null(copy);
    print_message("seed %llu, %zu rounds\n", (unsigned long long)seed,
                  n_rounds);
    for (size_t i = 0; i < n_rounds; i++) {
        memcpy(copy, b.data, b.len);
        size_t n = 1 + next_random(&seed) % 4;
        for (size_t k = 0; k < n; k++) {
            uint64_t v = next_random(&seed);
            size_t at = v % b.len;
            static const unsigned char edges[] = {0, 1, 0x7F, 0x80, 0xFF};
            copy[at] =
                (v >> 32) % 2 ? (char)edges[(v >> 40) % 5] : (char)(v >> 48);
        }
        put_file(path, copy, b.len);
        struct gguf *out;
        struct qwick_err e;
        if (gguf_open(&out, path, &e)) {
            assert_null(strchr(e.msg, '\n'));
            continue;
        }
        opened++;
        unsigned sum = 0;
        for (size_t k = 0; k < st_count(gguf_tensors(out)); k++) {
            const struct st_tensor *t = st_at(gguf_tensors(out), k);
            for (size_t j = 0; j < t->n_bytes; j++)
                sum += t->data[j];
        }
        for (size_t k = 0; k < gguf_count(out); k++) {
            const struct gguf_value *v = gguf_at(out, k);
            for (size_t j = 0; j < v->n_bytes; j++)
                sum += v->data[j];
        }
        assert_true(sum < UINT32_MAX);
        gguf_close(out);
    }
    /* the seed makes both kinds */
    assert_true(opened > 0 && opened < n_rounds);
    free(copy);
    buf_free(&b);
}

/* ---- several parts ---- */

static void put_part(const char *name, uint16_t no, uint16_t count,
                     const char *tensor)
{
    struct gguf_build g = GGUF_BUILD;
    gb_value(&g, "split.no", GGUF_U16, &no, 2);
    gb_value(&g, "split.count", GGUF_U16, &count, 2);
    gb_value(&g, "split.tensors.count", GGUF_I32, &(int32_t){3}, 4);
    if (no == 0)
        gb_string(&g, "general.architecture", "qwen3");
    gb_tensor(&g, tensor, 1, (uint64_t[]){1}, F32, &(float){(float)no}, 4);
    write_build(temp_path(name), &g);
}

static void three_parts(void)
{
    temp_clear();
    put_part("m-00001-of-00003.gguf", 0, 3, "a");
    put_part("m-00002-of-00003.gguf", 1, 3, "b");
    put_part("m-00003-of-00003.gguf", 2, 3, "c");
}

static void parts(void **state)
{
    char first[128], other[128];
    snprintf(first, sizeof first, "%s", temp_path("m-00001-of-00003.gguf"));
    snprintf(other, sizeof other, "%s", temp_path("m-00002-of-00003.gguf"));
    snprintf(path, sizeof path, "%s", first);
    three_parts();
    struct gguf *g = must_open(path);
    assert_int_equal(st_count(gguf_tensors(g)), 3);
    assert_string_equal(st_find(gguf_tensors(g), "b")->file,
                        "m-00002-of-00003.gguf");
    assert_memory_equal(st_find(gguf_tensors(g), "c")->data, &(float){2}, 4);
    assert_non_null(gguf_find(g, "general.architecture"));
    gguf_close(g);

    temp_remove("m-00003-of-00003.gguf");
    refused(temp_path("m-00003-of-00003.gguf"), "No such file", "");
    static const struct {
        bool in_second;
        uint16_t no, count;
        const char *tensor, *says[2];
    } rows[] = {
        {true,
         2,
         3,
         "b",
         {"split.no 2 and split.count 3", "should be 1 and 3"}},
        {true, 1, 3, "a", {"tensor a", "as well"}},
        {false, 0, 2, "a", {"is part 1 of 2", "-00001-of-00002.gguf"}},
        {false, 0, 5000, "a", {"split.count", "is 5000"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        three_parts();
        put_part(rows[i].in_second ? "m-00002-of-00003.gguf"
                                   : "m-00001-of-00003.gguf",
                 rows[i].no, rows[i].count, rows[i].tensor);
        refused(rows[i].in_second ? other : first, rows[i].says[0],
                rows[i].says[1]);
    }
    three_parts();
    struct gguf_build b = GGUF_BUILD;
    gb_value(&b, "split.no", GGUF_U16, &(uint16_t){0}, 2);
    gb_value(&b, "split.count", GGUF_U16, &(uint16_t){3}, 2);
    gb_value(&b, "split.tensors.count", GGUF_I32, &(int32_t){4}, 4);
    write_build(first, &b);
    refused(first, "split.tensors.count: 4", "have 2 tensors");
    three_parts();
    snprintf(path, sizeof path, "%s", other);
    refused(other, "is part 2 of 3: name the first part", first);
    temp_clear();
}

/* ---- writing --------------------------------------------------------------
 */

static void put_some_keys(struct gguf_out *o)
{
    gguf_put_string(o, "general.architecture", "qwen3", 5);
    gguf_put_u32(o, "a.u32", UINT32_MAX);
    gguf_put_i32(o, "a.i32", -7);
    gguf_put_f32(o, "a.f32", 1e-6);
    gguf_put_bool(o, "a.bool", true);
    gguf_put_array(o, "a.strings", GGUF_STRING, 2);
    gguf_put_element_string(o, "", 0);
    gguf_put_element_string(o, "x\0y", 3);
    gguf_put_array(o, "a.numbers", GGUF_I32, 3);
    for (int i = -1; i < 2; i++)
        gguf_put_element_i32(o, i);
}

/* Sizes that need padding, in an order of writing that is not the file's. */
static void written_files_are_read(void **state)
{
    static const struct st_out_tensor t[] = {
        {.name = "one", .dtype = DT_F32, .rank = 1, .shape = {3}},
        {.name = "two", .dtype = DT_Q4_0, .rank = 2, .shape = {3, 64}},
        {.name = "three", .dtype = DT_Q6_K, .rank = 3, .shape = {2, 1, 256}},
    };
    static const size_t sizes[] = {12, 3 * 36, 2 * 210};
    unsigned char data[512];
    struct gguf_out o = {0};
    struct st_writer *w;
    struct qwick_err e;
    bool found;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 37 + 1);
    put_some_keys(&o);
    assert_int_equal(gguf_writer_open(&w, path, &o, t, 3, &e), 0);
    gguf_out_free(&o);
    for (size_t i = 3; i-- > 0;) {
        assert_int_equal(st_writer_at(w, i, 5, data + 5, sizes[i] - 5, &e), 0);
        assert_int_equal(st_writer_at(w, i, 0, data, 5, &e), 0);
    }
    assert_int_equal(st_writer_close(w, &e), 0);
    struct gguf *g = must_open(path);
    struct st_set *set = gguf_tensors(g);
    assert_int_equal(st_count(set), 3);
    for (size_t i = 0; i < 3; i++) {
        const struct st_tensor *got = st_at(set, i);
        assert_string_equal(got->name, t[i].name);
        assert_int_equal(got->dtype, t[i].dtype);
        assert_int_equal(got->rank, t[i].rank);
        assert_memory_equal(got->shape, t[i].shape,
                            got->rank * sizeof *got->shape);
        assert_int_equal(got->n_bytes, sizes[i]);
        assert_memory_equal(got->data, data, sizes[i]);
        assert_int_equal((size_t)(got->data - st_at(set, 0)->data) % 32, 0);
    }
    assert_int_equal(gguf_count(g), 7);
    assert_int_equal(gguf_find(g, "a.u32")->u, UINT32_MAX);
    assert_int_equal(gguf_find(g, "a.i32")->i, -7);
    assert_true(gguf_find(g, "a.f32")->f == (double)1e-6f);
    assert_int_equal(gguf_find(g, "a.bool")->u, 1);
    const struct gguf_value *v =
        gguf_need(g, "a.strings", GGUF_ARRAY, GGUF_STRING, &found, &e);
    assert_int_equal(v->n, 2);
    assert_memory_equal(v->data + 16, "x\0y", 3);
    v = gguf_need(g, "a.numbers", GGUF_ARRAY, GGUF_I32, &found, &e);
    assert_int_equal(gguf_int_at(v, 0), -1);
    assert_int_equal(gguf_int_at(v, 2), 1);
    gguf_close(g);
}

static void writer_refuses(const struct st_out_tensor *t, const char *word)
{
    struct gguf_out o = {0};
    struct st_writer *w;
    struct qwick_err e = {0};
    put_some_keys(&o);
    assert_int_equal(gguf_writer_open(&w, path, &o, t, 1, &e), -1);
    assert_null(w);
    assert_non_null(strstr(e.msg, word));
    assert_int_equal(access(path, F_OK), -1);
    gguf_out_free(&o);
}

static void writing_what_gguf_has_not(void **state)
{
    struct st_out_tensor t = {
        .name = "odd", .dtype = DT_Q4_K, .rank = 2, .shape = {2, 128}};
    struct gguf_out o = {0};
    struct st_writer *w;
    struct qwick_err e = {0};
    (void)unlink(path); /* of other tests */
    writer_refuses(&t, "rows of 128 elements");
    t = (struct st_out_tensor){.name = "odd", .dtype = DT_F32, .rank = 5};
    writer_refuses(&t, "5 dimensions");
    t = (struct st_out_tensor){
        .name = "odd", .dtype = DT_F32, .rank = 2, .shape = {SIZE_MAX / 2, 8}};
    writer_refuses(&t, "overflows");
    /* bytes that did not come */
    t = (struct st_out_tensor){
        .name = "odd", .dtype = DT_F32, .rank = 1, .shape = {8}};
    assert_int_equal(gguf_writer_open(&w, path, &o, &t, 1, &e), 0);
    assert_int_equal(st_writer_at(w, 0, 0, "abcd", 4, &e), 0);
    assert_int_equal(st_writer_close(w, &e), -1);
    assert_non_null(strstr(e.msg, "28 bytes of data did not come"));
    assert_int_equal(access(path, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_files),
        cmocka_unit_test(good_layouts),
        cmocka_unit_test(typed_look_ups),
        cmocka_unit_test(bad_headers),
        cmocka_unit_test(bad_values),
        cmocka_unit_test(bad_alignments),
        cmocka_unit_test(bad_tensors),
        cmocka_unit_test(bad_blocks),
        cmocka_unit_test(cut_anywhere),
        cmocka_unit_test(random_damage),
        cmocka_unit_test(parts),
        cmocka_unit_test(written_files_are_read),
        cmocka_unit_test(writing_what_gguf_has_not),
    };
    return cmocka_run_group_tests(tests, setup, temp_teardown);
}
