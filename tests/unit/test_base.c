/* The base layer: UTF-8, buffers, element types, random numbers, threads, names
 * of instruction sets, error messages. */
#include "test.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/dtype.h"
#include "base/err.h"
#include "base/os.h"
#include "base/par.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "file/json.h"

#define FFFD "\xEF\xBF\xBD"

/* ---- UTF-8 ---- */

/* Table 3-7 written as ranges of whole sequences: a second, slower decoder. */
static const struct {
    size_t n;
    unsigned char lo[4], hi[4];
} table_3_7[] = {
    {1, {0x00}, {0x7F}},
    {2, {0xC2, 0x80}, {0xDF, 0xBF}},
    {3, {0xE0, 0xA0, 0x80}, {0xE0, 0xBF, 0xBF}},
    {3, {0xE1, 0x80, 0x80}, {0xEC, 0xBF, 0xBF}},
    {3, {0xED, 0x80, 0x80}, {0xED, 0x9F, 0xBF}},
    {3, {0xEE, 0x80, 0x80}, {0xEF, 0xBF, 0xBF}},
    {4, {0xF0, 0x90, 0x80, 0x80}, {0xF0, 0xBF, 0xBF, 0xBF}},
    {4, {0xF1, 0x80, 0x80, 0x80}, {0xF3, 0xBF, 0xBF, 0xBF}},
    {4, {0xF4, 0x80, 0x80, 0x80}, {0xF4, 0x8F, 0xBF, 0xBF}},
};
enum { N_ROWS = sizeof table_3_7 / sizeof *table_3_7 };

/* The length of the character at p. 0: it is invalid; then *part is the length
 * of the maximal part that starts some character (at least 1), and *open is set
 * if the text ends with this part, so that more bytes could complete it. */
static size_t table_decode(const char *p, size_t n, size_t *part, bool *open)
{
    *part = 1;
    *open = false;
    for (size_t r = 0; r < N_ROWS; r++) {
        size_t i = 0;
        while (i < table_3_7[r].n && i < n &&
               (unsigned char)p[i] >= table_3_7[r].lo[i] &&
               (unsigned char)p[i] <= table_3_7[r].hi[i])
            i++;
        if (i == table_3_7[r].n)
            return i;
        if (i > 0 && i >= *part) {
            *part = i;
            *open |= i == n;
        }
    }
    return 0;
}

static void every_code_point_round_trips(void **state)
{
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
        char s[4];
        uint32_t back = 0;
        size_t n = utf8_encode(cp, s), bad = 0;
        size_t want = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
        assert_int_equal(n, want);
        if (cp >= 0xD800 && cp <= 0xDFFF) {
            assert_int_equal(utf8_decode(s, n, &back, &bad), 0);
            assert_int_equal(bad, 1);
            continue;
        }
        assert_int_equal(utf8_decode(s, n, &back, &bad), n);
        assert_int_equal(back, cp);
        assert_int_equal(utf8_decode(s, n, NULL, NULL), n);
        for (size_t k = 1; k < n; k++) {
            assert_int_equal(utf8_decode(s, k, NULL, &bad), 0);
            assert_int_equal(bad, k);
        }
    }
}

/* All pairs of bytes, and all triples and quadruples of the bytes at which
 * decisions change. */
static void decoding_follows_table_3_7(void **state)
{
    static const unsigned char edge[] = {
        0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1,
        0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3,
        0xF4, 0xF5, 0xF7, 0xF8, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF};
    enum { N = sizeof edge };
    size_t part, bad;
    bool open;
    for (unsigned i = 0; i < 65536; i++) {
        char s[2] = {(char)(i >> 8), (char)i};
        size_t want = table_decode(s, 2, &part, &open);
        bad = 0;
        assert_int_equal(utf8_decode(s, 2, NULL, &bad), want);
        if (!want)
            assert_int_equal(bad, part);
    }
    for (size_t i = 0; i < (size_t)N * N * N * N; i++) {
        char s[4] = {(char)edge[i / N / N / N % N], (char)edge[i / N / N % N],
                     (char)edge[i / N % N], (char)edge[i % N]};
        for (size_t n = 1; n <= 4; n++) {
            size_t want = table_decode(s, n, &part, &open);
            bad = 0;
            if (utf8_decode(s, n, NULL, &bad) != want || (!want && bad != part))
                fail_msg("%02x %02x %02x %02x, %zu bytes", s[0] & 255,
                         s[1] & 255, s[2] & 255, s[3] & 255, n);
        }
    }
}

static void sanitize_is(const char *in, size_t n, const char *want)
{
    struct buf b = {0};
    assert_int_equal(utf8_sanitize(&b, in, n), 0);
    if (b.len != strlen(want) || memcmp(b.data, want, b.len) != 0)
        fail_msg("%s instead of %s", b.data, want);
    buf_free(&b);
}

#define SANITIZES(in, want) sanitize_is(in, sizeof in - 1, want)

/* The kinds of damage that Kuhn's test file lists. The counts of replacements
 * follow Unicode's "substitution of maximal subparts". */
static void damage_is_replaced_by_maximal_parts(void **state)
{
    SANITIZES("", "");
    SANITIZES("plain", "plain");
    SANITIZES("\xCE\xBA\xE1\xBD\xB9\xCF\x83\xCE\xBC\xCE\xB5",
              "\xCE\xBA\xE1\xBD\xB9\xCF\x83\xCE\xBC\xCE\xB5");
    /* boundaries */
    SANITIZES("\xED\x9F\xBF", "\xED\x9F\xBF");
    SANITIZES("\xEE\x80\x80", "\xEE\x80\x80");
    SANITIZES("\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF");
    SANITIZES("\xF4\x90\x80\x80", FFFD FFFD FFFD FFFD);
    SANITIZES("\xEF\xBF\xBE\xEF\xBF\xBF", "\xEF\xBF\xBE\xEF\xBF\xBF");
    /* continuation bytes alone */
    SANITIZES("\x80", FFFD);
    SANITIZES("\xBF\x80\xBF", FFFD FFFD FFFD);
    /* lead bytes alone */
    SANITIZES("\xC2 \xDF ", FFFD " " FFFD " ");
    SANITIZES("\xE0 \xEF ", FFFD " " FFFD " ");
    SANITIZES("\xF0 \xF4 ", FFFD " " FFFD " ");
    SANITIZES("\xF8 \xFC \xFE \xFF ", FFFD " " FFFD " " FFFD " " FFFD " ");
    /* last byte missing, one after the other */
    SANITIZES("\xC2\xE1\x80\xF1\x80\x80", FFFD FFFD FFFD);
    SANITIZES("\xE1\x80", FFFD);
    SANITIZES("\xF1\x80\x80"
              "A",
              FFFD "A");
    /* five and six byte forms */
    SANITIZES("\xF8\x88\x80\x80\x80", FFFD FFFD FFFD FFFD FFFD);
    SANITIZES("\xFC\x84\x80\x80\x80\x80", FFFD FFFD FFFD FFFD FFFD FFFD);
    /* overlong */
    SANITIZES("\xC0\xAF", FFFD FFFD);
    SANITIZES("\xC1\xBF", FFFD FFFD);
    SANITIZES("\xE0\x80\xAF", FFFD FFFD FFFD);
    SANITIZES("\xE0\x9F\xBF", FFFD FFFD FFFD);
    SANITIZES("\xF0\x80\x80\xAF", FFFD FFFD FFFD FFFD);
    SANITIZES("\xF0\x8F\xBF\xBF", FFFD FFFD FFFD FFFD);
    SANITIZES("\xC0\x80", FFFD FFFD);
    /* surrogates, single and paired */
    SANITIZES("\xED\xA0\x80", FFFD FFFD FFFD);
    SANITIZES("\xED\xA0\x80\xED\xB0\x80", FFFD FFFD FFFD FFFD FFFD FFFD);
    /* the examples of Unicode 15, table 3-11 and its neighbours */
    SANITIZES("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64",
              "a" FFFD FFFD FFFD "b" FFFD "c" FFFD FFFD "d");
    SANITIZES("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", FFFD FFFD FFFD FFFD "A");
    struct buf small = {.max = 4};
    assert_int_equal(utf8_sanitize(&small, "ab\xFF", 3), -1);
    buf_free(&small);
}

/* The place where a text may be cut, found by the slow decoder from the
 * front. */
static size_t slow_complete(const char *p, size_t n)
{
    size_t i = 0, part;
    bool open;
    while (i < n) {
        size_t len = table_decode(p + i, n - i, &part, &open);
        if (!len && open)
            return i;
        i += len ? len : part;
    }
    return n;
}

static void complete_at_every_split(void **state)
{
    static const char *const texts[] = {
        "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z",
        "\xF0\x9F\x98\xF0\x9F\x98\x80\xE2\x82",
        "\xE0\x80\xE0\xA0\xED\xA0\xED\x9F\xF0\x80\xF0\x90\x80\xF4\x90",
        "\xC0\xC1\xC2\xF5\xFF\x80\x80\x80\x80\xE1\x80",
        "\x80\x80\x80\xF1\x80\x80",
    };
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++)
        for (size_t n = 0; n <= strlen(texts[t]); n++)
            assert_int_equal(utf8_complete(texts[t], n),
                             slow_complete(texts[t], n));
    uint64_t draw = 0;
    for (int round = 0; round < 50000; round++) {
        static const unsigned char set[] = {0x41, 0x80, 0x8F, 0x90, 0xA0, 0xBF,
                                            0xC0, 0xC2, 0xE0, 0xE1, 0xED, 0xF0,
                                            0xF1, 0xF4, 0xF5, 0xFF};
        char s[8];
        for (size_t i = 0; i < sizeof s; i++)
            s[i] = (char)set[(size_t)(rng_uniform(1, draw++) * 16)];
        for (size_t n = 0; n <= sizeof s; n++)
            assert_int_equal(utf8_complete(s, n), slow_complete(s, n));
    }
}

/* ---- buffers ---- */

static void buffers_grow_and_stay_terminated(void **state)
{
    struct buf b = {0};
    for (int i = 0; i < 10000; i++) {
        assert_int_equal(buf_putc(&b, (char)('a' + i % 26)), 0);
        assert_int_equal(b.len, i + 1);
        assert_int_equal(b.data[b.len], 0);
        assert_true(b.cap > b.len);
    }
    for (int i = 0; i < 10000; i++)
        assert_int_equal(b.data[i], 'a' + i % 26);
    assert_int_equal(buf_append(&b, "x\0y", 3), 0);
    assert_memory_equal(b.data + 10000, "x\0y", 4);
    assert_int_equal(buf_printf(&b, "%d-%s", 42, "z"), 0);
    assert_string_equal(b.data + 10003, "42-z");
    size_t n;
    char *p = buf_take(&b, &n);
    assert_int_equal(n, 10007);
    assert_int_equal(p[n], 0);
    assert_null(b.data);
    assert_int_equal(b.len, 0);
    free(p);
    assert_null(buf_take(&b, &n));
    assert_int_equal(n, 0);
    assert_null(buf_take(&b, NULL));
    assert_int_equal(buf_append(&b, NULL, 0), 0);
    assert_string_equal(b.data, "");
    buf_free(&b);
    buf_free(&b);
    /* a long printf */
    assert_int_equal(buf_printf(&b, "%5000d", 7), 0);
    assert_int_equal(b.len, 5000);
    assert_int_equal(strlen(b.data), 5000);
    buf_free(&b);
}

static void buffers_keep_their_maximum(void **state)
{
    struct buf b = {.max = 10};
    assert_int_equal(buf_puts(&b, "0123456789"), 0);
    assert_int_equal(buf_putc(&b, 'x'), -1);
    assert_int_equal(buf_printf(&b, "%s", "x"), -1);
    assert_int_equal(buf_json_cstr(&b, ""), -1);
    assert_string_equal(b.data, "0123456789");
    assert_int_equal(b.len, 10);
    char *p = buf_take(&b, NULL);
    free(p);
    assert_int_equal(b.max, 10);
    /* a JSON string that does not fit leaves nothing behind */
    for (size_t max = 1; max < 40; max++) {
        b = (struct buf){.max = max};
        assert_int_equal(buf_putc(&b, '>'), 0);
        int rc = buf_json_string(&b, "ab\"\x01\xFFz\n", 7);
        size_t want = 1 + strlen("\"ab\\\"\\u0001" FFFD "z\\n\"");
        assert_int_equal(rc, max < want ? -1 : 0);
        assert_int_equal(b.len, rc ? 1 : want);
        assert_int_equal(strlen(b.data), b.len);
        buf_free(&b);
    }
    b = (struct buf){0};
    assert_int_equal(buf_reserve(&b, SIZE_MAX), -1);
    assert_int_equal(buf_reserve(&b, SIZE_MAX / 2 + 1), -1);
    b.max = SIZE_MAX;
    assert_int_equal(buf_reserve(&b, SIZE_MAX), -1);
    assert_int_equal(buf_reserve(&b, SIZE_MAX - 100), -1);
    assert_int_equal(buf_puts(&b, "ok"), 0);
    assert_int_equal(buf_reserve(&b, SIZE_MAX - 1), -1);
    assert_string_equal(b.data, "ok");
    buf_free(&b);
}

/* Every byte, alone and before another byte, survives writing and reading
 * JSON. */
static void json_strings_round_trip(void **state)
{
    for (unsigned c = 0; c < 256; c++) {
        char in[3] = {'a', (char)c, 'b'};
        struct buf b = {0}, want = {0};
        assert_int_equal(buf_json_string(&b, in, 3), 0);
        assert_int_equal(utf8_sanitize(&want, in, 3), 0);
        for (size_t i = 0; i < b.len; i++)
            assert_true((unsigned char)b.data[i] >= 0x20 && b.data[i] != 0x7F);
        struct json_doc *doc;
        struct qwick_err e;
        assert_int_equal(
            json_parse(&doc, "x", b.data, b.len, QWICK_ERR_RUNTIME, &e), 0);
        const struct json_value *v = json_root(doc);
        assert_int_equal(v->type, JSON_STRING);
        assert_int_equal(v->len, want.len);
        assert_memory_equal(v->str, want.data, want.len);
        json_free(doc);
        buf_free(&b);
        buf_free(&want);
    }
    struct buf b = {0};
    assert_int_equal(
        buf_json_cstr(&b, "\"\\/\b\f\n\r\t\x1F\x7F\xC3\xA9\xF0\x9F\x98\x80"),
        0);
    assert_string_equal(b.data,
                        "\"\\\"\\\\/\\u0008\\u000c\\n\\r\\t\\u001f\\u007f"
                        "\xC3\xA9\xF0\x9F\x98\x80\"");
    b.len = 0;
    assert_int_equal(buf_json_string(&b, "", 0), 0);
    assert_string_equal(b.data, "\"\"");
    b.len = 0;
    assert_int_equal(buf_json_string(&b, "\xF0\x9F", 2), 0);
    assert_string_equal(b.data, "\"" FFFD "\"");
    buf_free(&b);
}

static void double_is(double v, const char *want)
{
    struct buf b = {0};
    assert_int_equal(buf_json_double(&b, v), 0);
    assert_string_equal(b.data, want);
    buf_free(&b);
}

static void doubles_round_trip(void **state)
{
    double_is(0, "0");
    double_is(1, "1");
    double_is(0.1, "0.1");
    double_is(-2.5, "-2.5");
    double_is(0.1 + 0.2, "0.30000000000000004");
    double_is(1e300 * 1e10, "null");
    double_is(-INFINITY, "null");
    double_is(NAN, "null");
    uint64_t bits = 88172645463325252u;
    for (int i = 0; i < 5000; i++) {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        double v, back;
        memcpy(&v, &bits, sizeof v);
        if (!isfinite(v))
            continue;
        struct buf b = {0};
        assert_int_equal(buf_json_double(&b, v), 0);
        struct json_doc *doc;
        assert_int_equal(
            json_parse(&doc, "x", b.data, b.len, QWICK_ERR_RUNTIME, NULL), 0);
        assert_int_equal(json_double(json_root(doc), &back), 0);
        assert_memory_equal(&back, &v, sizeof v);
        json_free(doc);
        buf_free(&b);
    }
}

static void sizes_do_not_wrap(void **state)
{
    size_t r = 0;
    assert_int_equal(size_mul(0, SIZE_MAX, &r), 0);
    assert_int_equal(r, 0);
    assert_int_equal(size_mul(SIZE_MAX, 1, &r), 0);
    assert_true(r == SIZE_MAX);
    assert_int_equal(size_mul((size_t)1 << 32, (size_t)1 << 32, &r), -1);
    assert_int_equal(size_mul((size_t)1 << 32, ((size_t)1 << 32) - 1, &r), 0);
    assert_int_equal(size_mul(SIZE_MAX / 2 + 1, 2, &r), -1);
    assert_int_equal(size_add(SIZE_MAX, 0, &r), 0);
    assert_int_equal(size_add(SIZE_MAX, 1, &r), -1);
    assert_int_equal(size_add(SIZE_MAX - 5, 5, &r), 0);
    assert_true(r == SIZE_MAX);
}

/* ---- element types, instruction sets ---- */

static void dtype_names(void **state)
{
    static const struct {
        const char *name;
        size_t bytes;
    } all[] = {{"F32", 4},  {"F16", 2},     {"BF16", 2},   {"F64", 8},
               {"I8", 1},   {"U8", 1},      {"I16", 2},    {"U16", 2},
               {"I32", 4},  {"U32", 4},     {"I64", 8},    {"U64", 8},
               {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
    enum dtype t;
    assert_int_equal(sizeof all / sizeof *all, DT_BLOCKS);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t n = strlen(all[i].name);
        assert_int_equal(dtype_parse(all[i].name, n, &t), 0);
        assert_string_equal(dtype_name(t), all[i].name);
        assert_int_equal(dtype_bytes(t), all[i].bytes);
        assert_int_equal(dtype_block(t), 1);
        assert_int_equal(dtype_parse(all[i].name, n - 1, &t), -1);
        assert_int_equal(dtype_parse(all[i].name, n + 1, &t), -1);
    }
    assert_int_equal(dtype_parse("", 0, &t), -1);
    assert_int_equal(dtype_parse("bf16", 4, &t), -1);
    assert_int_equal(dtype_parse("F4", 2, &t), -1);
    /* blocks are GGUF's: no safetensors file has them */
    assert_int_equal(dtype_parse("Q4_0", 4, &t), -1);
    assert_string_equal(dtype_name(DT_Q6_K), "Q6_K");
    assert_int_equal(dtype_bytes(DT_Q6_K), 210);
    assert_int_equal(dtype_block(DT_Q6_K), 256);
    for (int i = DT_BLOCKS; i < DT_COUNT; i++)
        assert_int_equal(dtype_block((enum dtype)i), i == DT_NVFP4  ? 64
                                                     : i < DT_Q2_K ? 32
                                                                   : 256);
}

static void isa_names_and_levels(void **state)
{
    static const char *const all[] = {"ref", "avx2", "avxvnni", "avx512",
                                      "avx512bf16", "amx", "neon", "dotprod",
                                      "i8mm", "bf16"};
    enum isa l;
    for (int i = 0; i < ISA_COUNT; i++) {
        assert_int_equal(isa_parse(all[i], &l), 0);
        assert_int_equal(l, i);
        assert_string_equal(isa_name(l), all[i]);
    }
    assert_int_equal(isa_parse("", &l), -1);
    assert_int_equal(isa_parse("AVX2", &l), -1);
    assert_int_equal(isa_parse("avx", &l), -1);
    assert_int_equal(isa_parse("avx5122", &l), -1);
    assert_true(cpu_has(ISA_REF));
    assert_true(cpu_has(cpu_best()));
    for (int i = (int)cpu_best() + 1; i < ISA_COUNT; i++)
        assert_false(cpu_has((enum isa)i));
    if (cpu_has(ISA_AMX))
        assert_true(cpu_has(ISA_AVX512BF16));
    if (cpu_has(ISA_AVX512BF16))
        assert_true(cpu_has(ISA_AVX512));
    if (cpu_has(ISA_AVX512) || cpu_has(ISA_AVXVNNI))
        assert_true(cpu_has(ISA_AVX2));
    for (int i = ISA_ARMBF16; i > ISA_NEON; i--)
        assert_true(!cpu_has((enum isa)i) || cpu_has((enum isa)(i - 1)));
    assert_true(os_default_threads() >= 1);
    assert_true(os_default_threads() <= os_cpus());
    assert_true(os_available_memory() > 0);
    double t = clock_ms();
    assert_true(clock_ms() >= t);
}

/* ---- affinity ---- */

/* Replaces the C library's function. With large_kernel it behaves like a kernel
 * for LARGE CPUs, which accepts no shorter mask. */
enum { LARGE = 8192 };
static bool large_kernel;

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set)
{
    static const size_t cpus[] = {3, 1023, 1024, 5000, LARGE - 1};
    if (!large_kernel)
        return syscall(SYS_sched_getaffinity, pid, bytes, set) < 0 ? -1 : 0;
    if (bytes < LARGE / 8) {
        errno = EINVAL;
        return -1;
    }
    memset(set, 0, bytes);
    for (size_t i = 0; i < sizeof cpus / sizeof *cpus; i++)
        CPU_SET_S(cpus[i], bytes, set);
    return 0;
}

static void more_cpus_than_a_cpu_set_holds(void **state)
{
    large_kernel = true;
    int n = os_cpus(), threads = os_default_threads();
    large_kernel = false;
    assert_int_equal(n, 5);
    /* siblings and a quota can reduce the number */
    assert_true(threads >= 1 && threads <= 5);
    if (os_default_threads() > 1)
        assert_true(threads > 1);
}

static void slurm_limits_the_default_threads(void **state)
{
    static const char *const bad[] = {"0",
                                      "-1",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "1x",
                                      "x",
                                      "1.5",
                                      "0x1",
                                      "99999999999",
                                      "99999999999999999999"};
    struct os_cpu_limits l;
    int n = 7, all;
    unsetenv("SLURM_CPUS_PER_TASK");
    all = os_default_threads();
    assert_null(os_slurm_cpus(&n));
    assert_int_equal(n, 0);
    os_cpu_limits(&l);
    assert_int_equal(l.slurm, 0);
    setenv("SLURM_CPUS_PER_TASK", "1", 1);
    assert_null(os_slurm_cpus(&n));
    assert_int_equal(n, 1);
    assert_int_equal(os_default_threads(), 1);
    os_cpu_limits(&l);
    assert_int_equal(l.slurm, 1);
    /* it never gives more */
    setenv("SLURM_CPUS_PER_TASK", "100000", 1);
    assert_null(os_slurm_cpus(&n));
    assert_int_equal(n, 100000);
    assert_int_equal(os_default_threads(), all);
    setenv("SLURM_CPUS_PER_TASK", "", 1);
    assert_null(os_slurm_cpus(&n));
    assert_int_equal(n, 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setenv("SLURM_CPUS_PER_TASK", bad[i], 1);
        assert_string_equal(os_slurm_cpus(&n), bad[i]);
        assert_int_equal(n, 0);
        assert_int_equal(os_default_threads(), all);
    }
    unsetenv("SLURM_CPUS_PER_TASK");
}

/* ---- random numbers ---- */

static void draws_depend_on_seed_and_counter_alone(void **state)
{
    enum { N = 1000 };
    double forward[N];
    for (uint64_t i = 0; i < N; i++)
        forward[i] = rng_uniform(42, i);
    for (uint64_t i = N; i-- > 0;)
        assert_true(rng_uniform(42, i) == forward[i]);
    size_t same = 0;
    for (uint64_t i = 0; i < N; i++)
        same += rng_uniform(43, i) == forward[i];
    assert_int_equal(same, 0);
    /* The values that every release must draw: a published seed is a promise.
     * Computed with Python's integers from the formula in rng.h. */
    assert_true(rng_uniform(0, 0) == 0x1.4e0dba5e9a32fp-1);
    assert_true(rng_uniform(7, 3) == 0x1.aea9e1a06a67ep-2);
    assert_true(rng_uniform(UINT64_MAX, UINT64_MAX) == 0x1.8c2450f99e91ep-2);
}

static void draws_are_uniform(void **state)
{
    enum { N = 200000, BINS = 64 };
    for (uint64_t seed = 0; seed < 5; seed++) {
        int count[BINS] = {0}, pairs[BINS] = {0};
        double sum = 0, last = 0, lag = 0;
        for (uint64_t i = 0; i < N; i++) {
            double u = rng_uniform(seed, i);
            assert_true(u >= 0 && u < 1);
            count[(int)(u * BINS)]++;
            pairs[(int)(u * 8) * 8 + (int)(last * 8)]++;
            sum += u;
            lag += (u - 0.5) * (last - 0.5);
            last = u;
        }
        /* five standard deviations: 1 in 1.7 million, and seeds are fixed */
        assert_true(fabs(sum / N - 0.5) < 5 / sqrt(12.0 * N));
        assert_true(fabs(lag / N) < 5 / (12 * sqrt((double)N)));
        double chi = 0, chi2 = 0, want = (double)N / BINS;
        for (int b = 0; b < BINS; b++) {
            chi += (count[b] - want) * (count[b] - want) / want;
            chi2 += (pairs[b] - want) * (pairs[b] - want) / want;
        }
        assert_true(chi < BINS - 1 + 5 * sqrt(2.0 * (BINS - 1)));
        assert_true(chi2 < BINS - 1 + 5 * sqrt(2.0 * (BINS - 1)));
    }
    /* first draws of neighbouring seeds */
    double sum = 0;
    for (uint64_t seed = 0; seed < N; seed++)
        sum += rng_uniform(seed, 0);
    assert_true(fabs(sum / N - 0.5) < 5 / sqrt(12.0 * N));
}

static void random_seeds_differ(void **state)
{
    uint64_t a = rng_random_seed(), b = rng_random_seed();
    assert_true(a != b);
    assert_true(a < (uint64_t)1 << 53 && b < (uint64_t)1 << 53);
}

/* ---- threads ---- */

static void splits_cover_everything_once(void **state)
{
    static const size_t ns[] = {0,  1,  2,   3,   7,   15,   16,   17,    63,
                                64, 65, 100, 127, 128, 1000, 4097, 151936};
    static const size_t aligns[] = {1, 2, 4, 16, 64, 4096};
    for (size_t i = 0; i < sizeof ns / sizeof *ns; i++) {
        for (size_t a = 0; a < sizeof aligns / sizeof *aligns; a++) {
            for (int p = 1; p <= 33; p++) {
                size_t n = ns[i], align = aligns[a], at = 0;
                size_t least = SIZE_MAX, most = 0;
                for (int t = 0; t < p; t++) {
                    size_t begin, end;
                    par_split(n, align, t, p, &begin, &end);
                    assert_int_equal(begin, at);
                    assert_true(end >= begin && end <= n);
                    assert_true(end == n || end % align == 0);
                    size_t units = (end - begin + align - 1) / align;
                    least = units < least ? units : least;
                    most = units > most ? units : most;
                    at = end;
                }
                assert_int_equal(at, n);
                assert_true(most - least <= 1);
            }
        }
    }
}

/* MOST: enough for a tree of four levels. */
enum { ROUNDS = 300, ITEMS = 997, MOST = 65 };

struct work {
    atomic_int calls, bad, n_threads;
    atomic_uchar seen[MOST]; /* by tid */
    size_t plain[MOST];      /* written by one thread, read by all */
    atomic_uchar done[ITEMS];
};

static void work_body(void *ctx, struct par_team *team, int tid, int n_threads)
{
    struct work *w = ctx;
    atomic_fetch_add(&w->calls, 1);
    atomic_fetch_add(&w->seen[tid], 1);
    w->n_threads = n_threads;
    for (size_t round = 1; round <= ROUNDS; round++) {
        /* writes of other threads before a barrier are visible after it */
        w->plain[tid] = round;
        par_barrier(team, tid);
        for (int t = 0; t < n_threads; t++)
            if (w->plain[t] != round)
                atomic_fetch_add(&w->bad, 1);
        size_t begin, end, grain = 1 + round % 50;
        while (par_next(team, ITEMS, grain, &begin, &end)) {
            if (begin >= end || end > ITEMS || end - begin > grain)
                atomic_fetch_add(&w->bad, 1);
            for (size_t i = begin; i < end; i++)
                atomic_fetch_add(&w->done[i], 1);
        }
        par_barrier(team, tid);
        if (tid == 0) {
            for (size_t i = 0; i < ITEMS; i++)
                if (atomic_exchange(&w->done[i], 0) != 1)
                    atomic_fetch_add(&w->bad, 1);
        }
        par_barrier(team, tid);
    }
}

static void teams_meet_and_share_work(void **state)
{
    /* trees of one to four levels, with full and short nodes */
    static const int numbers[] = {1, 2, 3, 4, 5, 6, 7, 8, 16, 17, 21, MOST};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct work *w = calloc(1, sizeof *w);
        struct par_pool *p = par_create(numbers[i]);
        int got = par_threads(p);
        assert_true(got >= 1 && got <= numbers[i]);
        par_run(p, work_body, w);
        par_free(p);
        assert_int_equal(w->calls, got);
        assert_int_equal(w->n_threads, got);
        for (int t = 0; t < MOST; t++)
            assert_int_equal(w->seen[t], t < got);
        assert_int_equal(w->bad, 0);
        free(w);
    }
    struct work *w = calloc(1, sizeof *w);
    par_run(NULL, work_body, w);
    assert_int_equal(w->calls, 1);
    free(w);
    struct par_pool *none = par_create(0);
    assert_int_equal(par_threads(none), 1);
    par_free(none);
    assert_int_equal(par_threads(NULL), 1);
    par_free(NULL);
}

/* Replaces the C library's function: fails after this many calls. */
static int creations_left = INT_MAX;

int pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                   void *(*fn)(void *), void *arg)
{
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *),
                       void *);
    if (creations_left <= 0)
        return EAGAIN;
    creations_left--;
    if (!real) {
        void *p = dlsym(RTLD_NEXT, "pthread_create");
        memcpy(&real, &p, sizeof real);
    }
    return real(thread, attr, fn, arg);
}

/* Half of the workers that could be started stay, and work. */
static void fewer_threads_than_asked_for(void **state)
{
    for (int left = 0; left <= 7; left++) {
        creations_left = left;
        struct par_pool *p = par_create(8);
        creations_left = 0; /* later calls need no new thread */
        int want = left == 7 ? 8 : left / 2 + 1;
        assert_int_equal(par_threads(p), want);
        for (int i = 0; i < 3; i++) {
            struct work *w = calloc(1, sizeof *w);
            par_run(p, work_body, w);
            assert_int_equal(w->calls, want);
            assert_int_equal(w->bad, 0);
            free(w);
        }
        par_free(p);
        creations_left = INT_MAX;
    }
}

static void *run_a_region(void *arg)
{
    struct par_pool *const *p = arg;
    struct work *w = calloc(1, sizeof *w);
    par_run(*p, work_body, w);
    int calls = w->bad ? -1 : w->calls;
    free(w);
    return (void *)(intptr_t)calls;
}

/* A pool belongs to no thread, and two pools do not affect each other. */
static void any_thread_may_call(void **state)
{
    struct par_pool *p[2] = {par_create(3), par_create(2)};
    for (int i = 0; i < 4; i++) {
        void *calls[2];
        pthread_t threads[2];
        for (int j = 0; j < 2; j++)
            assert_int_equal(
                pthread_create(&threads[j], NULL, run_a_region, &p[j]), 0);
        for (int j = 0; j < 2; j++) {
            pthread_join(threads[j], &calls[j]);
            assert_int_equal((intptr_t)calls[j], par_threads(p[j]));
        }
    }
    par_free(p[0]);
    par_free(p[1]);
}

static void note_signals(void *blocked, struct par_team *team, int tid, int n)
{
    sigset_t set;
    (void)team;
    (void)n;
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    if (tid && sigismember(&set, SIGINT) && sigismember(&set, SIGTERM) &&
        !sigismember(&set, SIGBUS))
        atomic_fetch_add((atomic_int *)blocked, 1);
}

/* Signals go to the program's own threads, and interrupt their waits. */
static void signals_go_elsewhere(void **state)
{
    atomic_int blocked = 0;
    sigset_t set;
    struct par_pool *p = par_create(3);
    par_run(p, note_signals, &blocked);
    assert_int_equal(atomic_load(&blocked), par_threads(p) - 1);
    par_free(p);
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    assert_false(sigismember(&set, SIGINT));
}

/* The late thread waits until the other one has used up its idle calls. */
enum { IDLE_CALLS = 3 };

static int count_idle(void *calls)
{
    return atomic_fetch_add((atomic_int *)calls, 1) + 1 < IDLE_CALLS;
}

static void come_late(void *calls, struct par_team *team, int tid, int n)
{
    while (tid == 0 && n == 2 && atomic_load((atomic_int *)calls) < IDLE_CALLS)
        ;
    par_barrier_idle(team, tid, tid == 0 ? NULL : count_idle, calls);
    par_barrier(team, tid);
}

static void waits_are_made_use_of(void **state)
{
    struct par_pool *p = par_create(2);
    if (par_threads(p) < 2) {
        par_free(p);
        printf("    SKIP: one thread is all that can be had\n");
        return;
    }
    for (int i = 0; i < 100; i++) {
        atomic_int calls = 0;
        par_run(p, come_late, &calls);
        /* called until it returned 0, and not again */
        assert_int_equal(atomic_load(&calls), IDLE_CALLS);
    }
}

static void pass_barriers(void *ctx, struct par_team *team, int tid, int n)
{
    (void)n;
    long *at = ctx;
    for (int i = 0; i < 20000; i++) {
        if (i % n == tid)
            *at += 1; /* one thread per turn: no race if barriers work */
        par_barrier(team, tid);
    }
}

static void many_barriers(void **state)
{
    for (int n = 1; n <= 2; n++) {
        long at = 0;
        struct par_pool *p = par_create(n);
        par_run(p, pass_barriers, &at);
        par_free(p);
        assert_int_equal(at, 20000);
    }
}

static void nothing_to_hand_out(void *ctx, struct par_team *team, int tid,
                                int n)
{
    (void)n;
    size_t begin, end;
    if (par_next(team, 0, 4, &begin, &end))
        *(int *)ctx = 1;
    par_barrier(team, tid);
    while (par_next(team, 3, SIZE_MAX / 4, &begin, &end))
        if (begin != 0 || end != 3)
            *(int *)ctx = 1;
}

static void empty_and_huge_grains(void **state)
{
    int bad = 0;
    struct par_pool *p = par_create(2);
    par_run(NULL, nothing_to_hand_out, &bad);
    par_run(p, nothing_to_hand_out, &bad);
    par_free(p);
    assert_int_equal(bad, 0);
}

/* ---- errors ---- */

static void messages_are_cut_between_characters(void **state)
{
    struct qwick_err e;
    assert_int_equal(err_set(NULL, QWICK_ERR_USAGE, "x"), -1);
    assert_int_equal(err_set(&e, QWICK_ERR_USAGE, "%s: %d", "a", 3), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    assert_string_equal(e.msg, "a: 3");
    assert_int_equal(err_oom(&e, 12345), -1);
    assert_int_equal(e.code, QWICK_ERR_MEMORY);
    assert_string_equal(e.msg, "out of memory: 12345 bytes");
    const size_t room = sizeof e.msg - 1;
    char *text = malloc(4 * room);
    for (size_t shift = 0; shift < 4; shift++) {
        size_t n = 0;
        while (n < shift)
            text[n++] = 'x';
        for (; n + 4 < 4 * room; n += 4)
            memcpy(text + n, "\xF0\x9F\x98\x80", 4);
        text[n] = '\0';
        err_set(&e, QWICK_ERR_MODEL, "%s", text);
        size_t want = shift + (room - shift) / 4 * 4;
        assert_int_equal(strlen(e.msg), want);
        assert_memory_equal(e.msg, text, want);
    }
    for (size_t n = room - 1; n <= room + 1; n++) {
        memset(text, 'y', n);
        text[n] = '\0';
        err_set(&e, QWICK_ERR_MODEL, "%s", text);
        assert_int_equal(strlen(e.msg), n < room ? n : room);
    }
    free(text);
}

static void kinds_stand_beside_messages(void **state)
{
    struct qwick_err e;
    assert_int_equal(err_incomplete(NULL, "x"), -1);
    assert_int_equal(err_incomplete(&e, "%s: %d bytes", "a/b", 3), -1);
    assert_int_equal(e.code, QWICK_ERR_MODEL);
    assert_int_equal(e.kind, QWICK_KIND_INCOMPLETE);
    assert_string_equal(e.msg, "a/b: 3 bytes: incomplete download?");
    assert_string_equal(err_without_name(&e, "a/b"),
                        "3 bytes: incomplete download?");
    assert_string_equal(err_without_name(&e, "a"),
                        "b: 3 bytes: incomplete download?");
    assert_ptr_equal(err_without_name(&e, "a/"), e.msg);
    assert_ptr_equal(err_without_name(&e, "b"), e.msg);
    char text[2 * sizeof e.msg];
    memset(text, 'y', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    err_incomplete(&e, "%s", text);
    assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
    assert_int_equal(e.kind, QWICK_KIND_INCOMPLETE);
    /* The next error has no kind. */
    err_set(&e, QWICK_ERR_MODEL, "incomplete download?");
    assert_int_equal(e.kind, QWICK_KIND_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point_round_trips),
        cmocka_unit_test(decoding_follows_table_3_7),
        cmocka_unit_test(damage_is_replaced_by_maximal_parts),
        cmocka_unit_test(complete_at_every_split),
        cmocka_unit_test(buffers_grow_and_stay_terminated),
        cmocka_unit_test(buffers_keep_their_maximum),
        cmocka_unit_test(json_strings_round_trip),
        cmocka_unit_test(doubles_round_trip),
        cmocka_unit_test(sizes_do_not_wrap),
        cmocka_unit_test(dtype_names),
        cmocka_unit_test(isa_names_and_levels),
        cmocka_unit_test(more_cpus_than_a_cpu_set_holds),
        cmocka_unit_test(slurm_limits_the_default_threads),
        cmocka_unit_test(draws_depend_on_seed_and_counter_alone),
        cmocka_unit_test(draws_are_uniform),
        cmocka_unit_test(random_seeds_differ),
        cmocka_unit_test(splits_cover_everything_once),
        cmocka_unit_test(teams_meet_and_share_work),
        cmocka_unit_test(fewer_threads_than_asked_for),
        cmocka_unit_test(any_thread_may_call),
        cmocka_unit_test(signals_go_elsewhere),
        cmocka_unit_test(waits_are_made_use_of),
        cmocka_unit_test(many_barriers),
        cmocka_unit_test(empty_and_huge_grains),
        cmocka_unit_test(messages_are_cut_between_characters),
        cmocka_unit_test(kinds_stand_beside_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
