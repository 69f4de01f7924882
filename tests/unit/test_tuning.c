/* Records of cores, the probe of a core without one, and the file that keeps its
 * result. Which choice is the fastest is not tested: tests measure no times. */
#include "test.h"
#include <math.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "engine/cache/tuning_file.h"
#include "engine/core/tuning.h"
#include "engines.h"
#include "kernel/blocks.h"
#include "qwick_tools.h"
#include "tempdir.h"

/* ---- the table ---------------------------------------------------------- */

static const struct core_knob *knob(const char *name)
{
    const struct core_knob *k;
    for (size_t i = 0; (k = core_knob(i)) != NULL; i++)
        if (!strcmp(k->name, name))
            return k;
    fail_msg("no choice %s", name);
    return NULL;
}

static void test_every_row_is_complete(void **state)
{
    const struct core_knob *k;
    for (size_t i = 0; i < n_cores; i++) {
        const struct core *c = &cores[i];
        assert_ptr_equal(core_named(c->name), c); /* names are unique */
        assert_true(c->guess && *c->guess);
        assert_int_equal(c->measured != NULL, c->machine != NULL);
        for (size_t j = 0; (k = core_knob(j)) != NULL; j++) {
            uint32_t v = core_get(&c->choices, k);
            if (v < k->least || v > k->limit)
                fail_msg("%s: %s is %u", c->name, k->name, (unsigned)v);
        }
    }
    assert_true(core_is_unknown(&cores[n_cores - 1]));
    assert_string_equal(cores[n_cores - 1].vendor, "");
}

static void test_measured_choices_exist(void **state)
{
    for (size_t i = 0; i < n_cores; i++) {
        char names[512], *save, *name;
        snprintf(names, sizeof names, "%s",
                 cores[i].measured ? cores[i].measured : "");
        for (name = strtok_r(names, " ", &save); name;
             name = strtok_r(NULL, " ", &save))
            assert_true(core_measured(&cores[i], knob(name)));
    }
    /* whole names count */
    struct core c = {.measured = "bf16_min sweep_l2"};
    assert_false(core_measured(&c, knob("bf16")));
    assert_true(core_measured(&c, knob("bf16_min")));
    assert_true(core_measured(&c, knob("sweep_l2")));
    assert_false(core_measured(&c, knob("sweep_ahead")));
}

static void test_variants_are_valid(void **state)
{
    const struct core_knob *k;
    for (size_t j = 0; (k = core_knob(j)) != NULL; j++) {
        assert_true(k->n_variants >= 2);
        assert_true(k->levels != 0);
        for (size_t i = 0; i < k->n_variants; i++) {
            assert_in_range(k->variants[i], k->least, k->limit);
            assert_true(i == 0 || k->variants[i] > k->variants[i - 1]);
        }
    }
}

static void test_each_model_has_at_most_one_row(void **state)
{
    for (size_t i = 0; i < n_cores; i++)
        for (unsigned model = 0; model < 256; model++) {
            const struct core *c = &cores[i];
            size_t n = 0;
            for (size_t j = 0; j < n_cores; j++) {
                const struct core *d = &cores[j];
                if (core_is_unknown(c) || c->family != d->family ||
                    strcmp(c->vendor, d->vendor) != 0)
                    continue;
                for (size_t r = 0; r < 12 && (!r || d->models[r].last); r++)
                    n += model >= d->models[r].first &&
                         model <= d->models[r].last;
            }
            if (n > 1)
                fail_msg("family %#x, model %#x: %zu rows", c->family, model,
                         n);
        }
}

static void test_known_cpus_have_their_rows(void **state)
{
    static const struct {
        const char *vendor;
        unsigned family, model;
        const char *name;
    } cpus[] = {
        {"AuthenticAMD", 0x17, 0x01, "Zen"},
        {"AuthenticAMD", 0x17, 0x31, "Zen 2"},
        {"AuthenticAMD", 0x17, 0x71, "Zen 2"},
        {"AuthenticAMD", 0x19, 0x01, "Zen 3"},
        {"AuthenticAMD", 0x19, 0x21, "Zen 3"},
        {"AuthenticAMD", 0x19, 0x50, "Zen 3"},
        {"AuthenticAMD", 0x19, 0x11, "Zen 4"},
        {"AuthenticAMD", 0x19, 0x61, "Zen 4"},
        {"AuthenticAMD", 0x19, 0xa0, "Zen 4"},
        {"AuthenticAMD", 0x1a, 0x02, "Zen 5"},
        {"AuthenticAMD", 0x1a, 0x44, "Zen 5"},
        {"GenuineIntel", 6, 0x3f, "Haswell, Broadwell"},
        {"GenuineIntel", 6, 0x4f, "Haswell, Broadwell"},
        {"GenuineIntel", 6, 0x9e, "Skylake, Comet Lake"},
        {"GenuineIntel", 6, 0x55, "Skylake-X, Cascade Lake"},
        {"GenuineIntel", 6, 0x6a, "Ice Lake, Tiger Lake"},
        {"GenuineIntel", 6, 0x8c, "Ice Lake, Tiger Lake"},
        {"GenuineIntel", 6, 0x8f, "Sapphire Rapids"},
        {"GenuineIntel", 6, 0xcf, "Emerald Rapids, Granite Rapids"},
        {"GenuineIntel", 6, 0x97, "Alder Lake to Arrow Lake"},
        {"GenuineIntel", 6, 0xb7, "Alder Lake to Arrow Lake"},
        {"GenuineIntel", 6, 0x0f, "unknown core of Intel"},
        {"GenuineIntel", 5, 0x8f, "unknown core of Intel"},
        {"GenuineIntel", 6, 0x18f, "unknown core of Intel"},
        {"AuthenticAMD", 0x15, 0x60, "unknown core of AMD"},
        {"AuthenticAMD", 0x1b, 0x02, "unknown core of AMD"},
        {"CentaurHauls", 6, 0x8f, "unknown core"},
        {"", 0, 0, "unknown core"},
    };
    if (!core_named("Zen"))
        skip(); /* the table is of another kind of CPU */
    for (size_t i = 0; i < sizeof cpus / sizeof *cpus; i++) {
        struct cpu_id id = {.family = cpus[i].family, .model = cpus[i].model};
        snprintf(id.vendor, sizeof id.vendor, "%s", cpus[i].vendor);
        assert_string_equal(core_find(&id)->name, cpus[i].name);
    }
    assert_null(core_named("Zen 9"));
}

/* These were chosen by the vendor before there were records. Zen 4 has other
 * choices since it was measured. */
static void test_measured_cores_keep_their_choices(void **state)
{
    if (!core_named("Zen 5"))
        skip();
    const struct core_choices *zen5 = &core_named("Zen 5")->choices;
    const struct core_choices *xeon = &core_named("Sapphire Rapids")->choices;
    assert_int_equal(xeon->sweep_ahead, 8192);
    assert_int_equal(xeon->sweep_l2, 1);
    assert_int_equal(xeon->blas, 0);
    assert_int_equal(zen5->sweep_ahead, 8192);
    assert_int_equal(zen5->sweep_l2, 0);
    assert_int_equal(zen5->blas, 1);
}

static void test_choices_reach_the_tables(void **state)
{
    struct core_choices c = kernels_core()->choices;
    const char *level;
    bool known;
    c.sweep_l2 = !c.sweep_l2;
    c.blas = !c.blas;
    c.bf16_min = 7;
    c.amx_affine_bf16_min = 99;
    kernels_choose(&c);
    assert_int_equal(kernel_core.sweep_l2, c.sweep_l2);
    for (size_t i = 0; (level = kernels_level(i)) != NULL; i++) {
        const struct kernels *k = kernels_named(level, &known);
        assert_int_equal(k->tune.bf16_min_tokens, 7);
        assert_int_equal(k->tune.affine_bf16_min_tokens, 99);
        if (!strcmp(level, "avx2"))
            assert_int_equal(k->tune.blas, c.blas);
    }
    kernels_choose(&kernels_core()->choices);
}

/* ---- prefetches --------------------------------------------------------- */

enum { ROWS = 40, COLS = 512, TOKENS = 5, MOST = ROWS * TOKENS };

struct products {
    _Alignas(64) unsigned char w[ROWS * COLS * 4];
    _Alignas(64) int8_t q[TOKENS * COLS];
    float x[TOKENS * COLS], scale[TOKENS * COLS / 32], sum[TOKENS * COLS / 32];
    _Alignas(64) float work[KERNEL_WORK + KERNEL_BLOCKS_WORK];
};

static void fill(struct products *p)
{
    for (size_t i = 0; i < sizeof p->w / 2; i++) {
        uint16_t v = (uint16_t)(0x3c00 + i * 31 % 251);
        memcpy(p->w + 2 * i, &v, 2);
    }
    for (size_t i = 0; i < TOKENS * COLS; i++)
        p->x[i] = (float)(i * 7 % 23) - 11;
}

/* All products of n tokens into y, one after the other. Returns their number. */
static size_t multiply(const struct kernels *k, struct products *p, size_t n,
                       float y[][MOST])
{
    struct q8 x8 = {.q = p->q,
                    .scale = p->scale,
                    .sum = p->sum,
                    .ldq = COLS,
                    .ldg = COLS / 32,
                    .group = 32};
    size_t m = 0;
    for (size_t t = 0; t < DT_N_FLOAT; t++)
        k->matmul_f32[t](y[m++], ROWS, p->w, COLS, p->x, COLS, ROWS, COLS, n,
                         p->work);
    k->to_q8(&x8, p->x, COLS, COLS, n);
    for (int bits = 2; bits <= 8; bits++) {
        struct affine w = {.q = p->w,
                           .q_stride = (size_t)bits * COLS / 8,
                           .scales = p->w,
                           .biases = p->w + 4096,
                           .s_stride = COLS / 32 * 2,
                           .s_type = DT_BF16,
                           .b_stride = COLS / 32 * 2,
                           .b_type = DT_BF16,
                           .bits = bits,
                           .group = 32};
        if (bits == 7)
            continue;
        k->gemm_q8_affine(y[m++], ROWS, &w, &x8, ROWS, COLS, n, false, p->work);
        k->matmul_f32_affine(y[m++], ROWS, &w, p->x, COLS, ROWS, COLS, n,
                             p->work);
    }
    for (size_t t = 0; t < DT_N_BLOCKS; t++) {
        enum dtype type = (enum dtype)(DT_BLOCKS + t);
        size_t stride = COLS / dtype_block(type) * dtype_bytes(type);
        k->gemm_q8_blocks[t](y[m++], ROWS, p->w, stride, &x8, ROWS, COLS, n,
                             false, p->work);
    }
    return m;
}

/* Prefetches must not change a bit of any product. */
static void test_prefetches_change_no_result(void **state)
{
    static struct products p;
    static float want[64][MOST], got[64][MOST];
    const struct core_knob *ahead = knob("sweep_ahead"), *l2 = knob("sweep_l2");
    struct core_choices c = kernels_core()->choices;
    const char *level;
    bool known;
    fill(&p);
    for (size_t i = 0; (level = kernels_level(i)) != NULL; i++) {
        const struct kernels *k = kernels_named(level, &known);
        for (size_t n = 1; n <= TOKENS; n += 2) {
            kernels_choose(&kernels_core()->choices);
            memset(want, 0, sizeof want);
            size_t m = multiply(k, &p, n, want);
            assert_in_range(m, 20, 64);
            for (size_t v = 0; v < ahead->n_variants * l2->n_variants; v++) {
                core_set(&c, ahead, ahead->variants[v / l2->n_variants]);
                core_set(&c, l2, l2->variants[v % l2->n_variants]);
                kernels_choose(&c);
                memset(got, 0, sizeof got);
                multiply(k, &p, n, got);
                for (size_t j = 0; j < m; j++)
                    if (memcmp(got[j], want[j], sizeof *got) != 0)
                        fail_msg("%s: product %zu of %zu tokens", level, j, n);
            }
        }
    }
    kernels_choose(&kernels_core()->choices);
}

/* ---- the probe ---------------------------------------------------------- */

static void test_a_probe_takes_a_variant(void **state)
{
    const struct core_choices *own = &kernels_core()->choices;
    struct core_choices c = *own;
    const struct core_knob *k;
    assert_int_equal(tuning_probe(&c, NULL), 0);
    for (size_t i = 0; (k = tuning_probed(i)) != NULL; i++) {
        bool found = false;
        for (size_t j = 0; j < k->n_variants; j++)
            found = found || k->variants[j] == core_get(&c, k);
        assert_true(found);
        core_set(&c, k, core_get(own, k));
    }
    assert_memory_equal(&c, own, sizeof c); /* nothing else has changed */
    kernels_choose(own);
}

/* ---- the file ----------------------------------------------------------- */

static struct tuning example(void)
{
    struct tuning t = {.core = kernels_core(), .date = "2026-11-24"};
    t.choices = t.core->choices;
    t.choices.sweep_ahead = 16384;
    t.choices.sweep_l2 = !t.core->choices.sweep_l2;
    return t;
}

/* The path of the only file in temp_dir. */
static const char *only_file(void)
{
    static char path[512];
    bool temporary;
    DIR *d = opendir(temp_dir);
    size_t n = 0;
    assert_non_null(d);
    for (struct dirent *f; (f = readdir(d)) != NULL;) {
        if (f->d_name[0] == '.')
            continue;
        assert_true(tuning_file_name(f->d_name, &temporary));
        assert_false(temporary);
        snprintf(path, sizeof path, "%s/%s", temp_dir, f->d_name);
        n++;
    }
    closedir(d);
    assert_int_equal(n, 1);
    return path;
}

static size_t get_file(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(text, 1, size - 1, f);
    fclose(f);
    text[n] = 0;
    return n;
}

static bool is_read(struct tuning *t)
{
    *t = (struct tuning){.core = kernels_core(),
                         .choices = kernels_core()->choices};
    return tuning_file_read(t, temp_dir);
}

static void test_the_file_keeps_the_choices(void **state)
{
    struct tuning t = example(), got;
    assert_false(is_read(&got));
    assert_int_equal(tuning_file_write(&t, temp_dir, NULL), 0);
    assert_true(is_read(&got));
    assert_memory_equal(&got.choices, &t.choices, sizeof t.choices);
    assert_string_equal(got.date, t.date);
    t.choices.sweep_ahead = 4096; /* a later probe replaces it */
    assert_int_equal(tuning_file_write(&t, temp_dir, NULL), 0);
    assert_true(is_read(&got));
    assert_int_equal(got.choices.sweep_ahead, 4096);
    (void)only_file();
}

static void test_a_damaged_file_is_ignored(void **state)
{
    struct tuning t = example(), got;
    char text[1024], bad[1100];
    assert_int_equal(tuning_file_write(&t, temp_dir, NULL), 0);
    const char *path = only_file();
    size_t n = get_file(path, text, sizeof text);
    for (size_t i = 0; i < n; i++) {
        memcpy(bad, text, n);
        bad[i] = (char)(bad[i] ^ 1);
        put_file(path, bad, n);
        assert_false(is_read(&got));
        put_file(path, text, i); /* cut */
        assert_false(is_read(&got));
    }
    memcpy(bad, text, n);
    bad[n] = 'x';
    put_file(path, bad, n + 1);
    assert_false(is_read(&got));
    put_file(path, text, n);
    assert_true(is_read(&got));
}

/* Replace a part of the file, and make its sum right again. */
static void replace(const char *path, const char *text, const char *old,
                    const char *new)
{
    char all[1024];
    const char *at = strstr(text, old);
    assert_non_null(at);
    int n = snprintf(all, sizeof all, "%.*s%s%s", (int)(at - text), text, new,
                     at + strlen(old));
    char *sum = strstr(all, "sum ");
    n = (int)(sum - all);
    n += snprintf(sum, sizeof all - (size_t)n, "sum %016llx\n",
                  (unsigned long long)hash_bytes(1, all, (size_t)n));
    put_file(path, all, (size_t)n);
}

static void test_a_file_of_another_machine_is_ignored(void **state)
{
    struct tuning t = example(), got;
    char text[1024], line[64], *end;
    assert_int_equal(tuning_file_write(&t, temp_dir, NULL), 0);
    const char *path = only_file();
    get_file(path, text, sizeof text);
    replace(path, text, "sweep_ahead 16384", "sweep_ahead 4096");
    assert_true(is_read(&got)); /* so the sum is right */
    assert_int_equal(got.choices.sweep_ahead, 4096);

    static const char *const lines[][2] = {
        {"sweep_ahead 16384", "sweep_ahead 12345"},
        {"sweep_ahead 16384", "sweep_ahead 016384"},
        {"version " QWICK_VERSION, "version 0.0.0"},
        {"tuning 1", "tuning 2"},
        {"2026-11-24", "2026-11-2x"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        replace(path, text, lines[i][0], lines[i][1]);
        assert_false(is_read(&got));
    }
    static const char *const heads[] = {"cpu ", "kernels "};
    for (size_t i = 0; i < 2; i++) {
        snprintf(line, sizeof line, "%s", strstr(text, heads[i]));
        end = strchr(line, '\n');
        assert_non_null(end);
        *end = 0;
        replace(path, text, line, i ? "kernels none" : "cpu Other 1 2");
        assert_false(is_read(&got));
    }
}

static void test_a_directory_that_cannot_be_used(void **state)
{
    struct tuning t = example();
    struct qwick_err e = {0};
    temp_put("file", "x");
    assert_int_equal(tuning_file_write(&t, temp_path("file"), &e), -1);
    assert_int_equal(e.code, QWICK_ERR_RUNTIME);
    assert_false(tuning_file_read(&t, temp_path("file")));
    assert_int_equal(tuning_file_write(&t, temp_path("file/b/c"), &e), -1);
    assert_int_equal(tuning_file_write(&t, temp_path("a/b"), &e), 0);
    assert_true(tuning_file_read(&t, temp_path("a/b")));
    /* others could have written it */
    assert_int_equal(chmod(temp_path("a/b"), 0777), 0);
    assert_false(tuning_file_read(&t, temp_path("a/b")));
}

static void test_names_of_files(void **state)
{
    static const struct {
        const char *name;
        bool ok, temporary;
    } names[] = {
        {"tuning-1-0123456789abcdef.txt", true, false},
        {"tuning-1-0123456789abcdef.txt.tmp-0123456789abcdef", true, true},
        {"tuning-1-0123456789abcdef.txt.tmp-0123456789abcde", false, false},
        {"tuning-1-0123456789abcdef.txt.bak", false, false},
        {"tuning-1-0123456789abcdef.bak", false, false},
        {"tuning-1-0123456789abcde.txt", false, false},
        {"tuning-2-0123456789abcdef.txt", false, false},
        {"tuning-1-0123456789ABCDEF.txt", false, false},
        {"", false, false},
    };
    bool temporary;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        bool ok = tuning_file_name(names[i].name, &temporary);
        assert_int_equal(ok, names[i].ok);
        if (ok)
            assert_int_equal(temporary, names[i].temporary);
    }
}

static void test_the_cache_knows_the_file(void **state)
{
    struct tuning t = example();
    struct qwick_cache_entry *v;
    size_t n, bytes;
    assert_int_equal(tuning_file_write(&t, temp_dir, NULL), 0);
    temp_put("tuning-1-mine.txt", "x"); /* not a name of ours */
    assert_int_equal(qwick_cache_list(temp_dir, &v, &n, NULL), 0);
    assert_int_equal(n, 1);
    assert_true(v->tuning);
    assert_true(v->n_bytes > 0);
    qwick_cache_list_free(v, n);
    assert_int_equal(qwick_cache_gc(temp_dir, 1, &n, &bytes, NULL), 0);
    assert_int_equal(n, 0); /* it is small, and not a prefix */
    assert_int_equal(qwick_cache_gc(temp_dir, 0, &n, &bytes, NULL), 0);
    assert_int_equal(n, 1);
    assert_true(exists(temp_path("tuning-1-mine.txt")));
    assert_int_equal(entries(temp_dir), 1);
}

/* ---- engines ------------------------------------------------------------ */

static int open_with(struct qwick_engine **eng, const char *core,
                     struct qwick_err *e)
{
    return try_open(eng, e, .core = core, .tuning_dir = temp_dir, .threads = 1);
}

/* One process has one set of choices, so this is one test. */
static void test_the_first_engine_decides(void **state)
{
    struct qwick_engine *eng, *next;
    struct qwick_tuning t;
    struct qwick_err e;
    size_t n_probed = 0;
    if (n_cores == 1)
        skip();
    assert_int_equal(open_with(&eng, "Zen 9", &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    assert_int_equal(open_with(&eng, "probe", &e), 0);
    for (size_t i = 0; !qwick_tuning_at(eng, i, &t, &e); i++)
        n_probed += !strcmp(t.evidence, "probe");
    assert_int_equal(n_probed, 3);
    assert_non_null(strstr(qwick_engine_info(eng)->core_evidence, "probe of 2"));
    (void)only_file();

    assert_int_equal(open_with(&next, "Zen 2", &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    assert_int_equal(open_with(&next, NULL, &e), 0);
    assert_int_equal(qwick_tuning_at(next, 0, &t, &e), 0);
    assert_string_equal(t.evidence, "probe");
    qwick_engine_close(next);
    qwick_engine_close(eng);
}

enum { VOCAB = 6144 }; /* of the demo model */

/* Logits after a prompt of 30 tokens and one decode step, with the first (or
 * last) variant of each choice. */
static void logits_with(float *out, size_t n_vocab, bool last, bool exact)
{
    struct core_choices c = kernels_core()->choices;
    const struct core_knob *k;
    int32_t ids[30];
    for (size_t i = 0; (k = core_knob(i)) != NULL; i++)
        core_set(&c, k, k->variants[last ? k->n_variants - 1 : 0]);
    kernels_choose(&c);
    struct qwick_engine *eng = engine_with(.exact = exact, .threads = 1);
    assert_int_equal(kernel_core.sweep_ahead, c.sweep_ahead);
    assert_int_equal(qwick_engine_info(eng)->vocab_size, n_vocab);
    for (size_t i = 0; i < 30; i++)
        ids[i] = (int32_t)(i * 37 % 1000);
    struct qwick_session *s = open_session(eng);
    assert_int_equal(qwick_session_sync(s, ids, 30, NULL), 0);
    assert_int_equal(qwick_session_decode(s, 5, NULL), 0);
    memcpy(out, qwick_session_logits(s), n_vocab * sizeof *out);
    qwick_session_free(s);
    qwick_engine_close(eng);
}

static void test_choices_change_no_bit_of_exact_mode(void **state)
{
    static float a[VOCAB], b[VOCAB];
    if (n_cores == 1)
        skip();
    logits_with(a, VOCAB, false, true);
    logits_with(b, VOCAB, true, true);
    assert_memory_equal(a, b, sizeof a);
    kernels_choose(&kernels_core()->choices);
}

/* In default mode each result may be 1.2e-2 from the truth (docs/accuracy.md), so
 * two may be twice that apart. */
static void test_each_choice_gives_an_answer(void **state)
{
    static float a[VOCAB], b[VOCAB];
    double error = 0, length = 0;
    if (n_cores == 1)
        skip();
    logits_with(a, VOCAB, false, false);
    logits_with(b, VOCAB, true, false);
    for (size_t i = 0; i < VOCAB; i++) {
        error += (double)(a[i] - b[i]) * (double)(a[i] - b[i]);
        length += (double)a[i] * (double)a[i];
    }
    assert_true(length > 0 && sqrt(error / length) < 2.4e-2);
    kernels_choose(&kernels_core()->choices);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_is_complete),
        cmocka_unit_test(test_measured_choices_exist),
        cmocka_unit_test(test_variants_are_valid),
        cmocka_unit_test(test_each_model_has_at_most_one_row),
        cmocka_unit_test(test_known_cpus_have_their_rows),
        cmocka_unit_test(test_measured_cores_keep_their_choices),
        cmocka_unit_test(test_choices_reach_the_tables),
        cmocka_unit_test(test_prefetches_change_no_result),
        cmocka_unit_test(test_a_probe_takes_a_variant),
        cmocka_unit_test_setup(test_the_file_keeps_the_choices, fresh),
        cmocka_unit_test_setup(test_a_damaged_file_is_ignored, fresh),
        cmocka_unit_test_setup(test_a_file_of_another_machine_is_ignored,
                               fresh),
        cmocka_unit_test_setup(test_a_directory_that_cannot_be_used, fresh),
        cmocka_unit_test(test_names_of_files),
        cmocka_unit_test_setup(test_the_cache_knows_the_file, fresh),
        cmocka_unit_test_setup(test_the_first_engine_decides, fresh),
        cmocka_unit_test(test_choices_change_no_bit_of_exact_mode),
        cmocka_unit_test(test_each_choice_gives_an_answer),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
