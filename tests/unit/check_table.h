/* A program that runs a table of kernel checks on every level of this CPU:
 *
 *   PROGRAM [--seed N] [--filter TEXT] [--bench]
 *
 * The seed can also come from QWICK_TEST_SEED. --filter runs the tests whose
 * name contains TEXT. --bench times the kernels instead of checking them. */
#ifndef TESTS_CHECK_TABLE_H
#define TESTS_CHECK_TABLE_H

#include "check.h"

/* A check of a kernel, for each type from first to last, and its bench (NULL:
 * none). */
struct check_row {
    const char *name;
    enum dtype first, last;
    void (*check)(const struct kernels *k, enum dtype type);
    void (*bench)(const struct kernels *k, enum dtype type);
};

/* A row with one level and one type. */
struct test {
    char name[48]; /* "avx2/matmul_f32_BF16" */
    const struct kernels *k;
    enum dtype type;
    const struct check_row *row;
};

/* The test whose bench runs. */
static const struct test *benched;

/* Repeat body, and return the ms per call of the fastest of five rounds. */
#define TIME(ms, body)                                                    \
    do {                                                                  \
        size_t reps_ = 1;                                                 \
        (ms) = INFINITY;                                                  \
        for (int round_ = 0; round_ < 5;) {                               \
            double t0_ = clock_ms(), t_;                                  \
            for (size_t r_ = 0; r_ < reps_; r_++) {                       \
                body;                                                     \
            }                                                             \
            t_ = clock_ms() - t0_;                                        \
            if (t_ < 10) {                                                \
                reps_ *= 2;                                               \
                continue;                                                 \
            }                                                             \
            round_++;                                                     \
            (ms) = t_ / (double)reps_ < (ms) ? t_ / (double)reps_ : (ms); \
        }                                                                 \
    } while (0)

static __attribute__((unused)) void bench_line(const struct test *t,
                                               const char *shape, double ms,
                                               double amount, const char *unit)
{
    printf("%-28s %-30s %12.3f us %10.2f %s\n", t->name, shape, ms * 1e3,
           amount / ms * 1e-6, unit);
    fflush(stdout);
}

static void run_check(void **state)
{
    const struct test *t = *state;

    draws = 0; /* a test gets the same numbers alone and after others */
    t->row->check(t->k, t->type);
}

static void run_missing(void **state)
{
    const char *name = *state;

    printf("    SKIP: this CPU has no %s\n", name);
    skip();
}

/* Add the tests of a row on one level whose names contain the filter. Returns
 * their number. */
static size_t add_row(struct test *out, const struct check_row *row,
                      const struct kernels *k, const char *filter)
{
    const char *sep = row->last == row->first ? "" : "_";
    size_t n = 0;

    for (int type = (int)row->first; type <= (int)row->last; type++) {
        struct test *t = &out[n];

        snprintf(t->name, sizeof t->name, "%s/%s%s%s", isa_name(k->level),
                 row->name, sep, *sep ? dtype_name((enum dtype)type) : "");
        if (!strstr(t->name, filter))
            continue;
        t->k = k;
        t->type = (enum dtype)type;
        t->row = row;
        n++;
    }
    return n;
}

/* Run the benches of tests[0..n). */
static void run_benches(const struct test *tests, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (tests[i].row->bench) {
            benched = &tests[i];
            tests[i].row->bench(tests[i].k, tests[i].type);
        }
}

/* Long sweeps take each case, or each N-th if QWICK_TEST_EVERY is N: in an
 * emulator some take half an hour. */
static inline size_t sweep_step(void)
{
    const char *s = getenv("QWICK_TEST_EVERY");
    const int n = s ? atoi(s) : 1;

    return n > 1 ? (size_t)n : 1;
}

/* Whether the level is one of x86, from another level on. */
static inline bool x86_from(const struct kernels *k, enum isa level)
{
    return k->level >= level && k->level <= ISA_AMX;
}

/* Whether the level has products in bf16. */
static inline bool has_bf16(const struct kernels *k)
{
    return x86_from(k, ISA_AVX512BF16) || k->level == ISA_ARMBF16;
}

/* Do the work of main with a table of n_rows rows. Rows of `once` (n_once) run
 * once, with the reference kernels, under their plain names. */
static int check_main(int argc, char **argv, const char *group,
                      const struct check_row *rows, size_t n_rows,
                      const struct check_row *once, size_t n_once)
{
    enum { MAX_ROWS = 32, MAX_TESTS = MAX_ROWS * (ISA_COUNT + 1) * DT_N_FLOAT };
    static struct test tests[MAX_TESTS];
    static struct CMUnitTest units[MAX_TESTS + ISA_COUNT];
    const char *env = getenv("QWICK_TEST_SEED"), *filter = "";
    size_t n_tests = 0, n_units = 0;
    bool bench = false;

    if (env && *env)
        seed = strtoull(env, NULL, 0);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--bench")) {
            bench = true;
        } else if (!strcmp(argv[i], "--seed") && i + 1 < argc) {
            seed = strtoull(argv[++i], NULL, 0);
        } else if (!strcmp(argv[i], "--filter") && i + 1 < argc) {
            filter = argv[++i];
        } else {
            fprintf(stderr, "usage: %s [--seed N] [--filter TEXT] [--bench]\n",
                    argv[0]);
            return 2;
        }
    }
    if (n_rows > MAX_ROWS || n_once > MAX_ROWS) {
        fprintf(stderr, "%s: the table has too many rows\n", argv[0]);
        return 2;
    }
    printf("seed %llu\n", (unsigned long long)seed);
    ref = kernels_get(ISA_REF);
    for (int l = 0; l < ISA_COUNT; l++) {
        const char *level = isa_name((enum isa)l);
        const struct kernels *k = kernels_get((enum isa)l);

        if (!k) {
            units[n_units++] =
                (struct CMUnitTest){.name = level,
                                    .test_func = run_missing,
                                    .initial_state = (void *)(uintptr_t)level};
            continue;
        }
        for (size_t i = 0; i < n_rows; i++)
            n_tests += add_row(&tests[n_tests], &rows[i], k, filter);
    }
    for (size_t i = 0; i < n_once; i++)
        if (strstr(once[i].name, filter)) {
            struct test *t = &tests[n_tests++];
            snprintf(t->name, sizeof t->name, "%s", once[i].name);
            t->k = ref;
            t->row = &once[i];
        }
    if (bench) {
        run_benches(tests, n_tests);
        return 0;
    }
    for (size_t i = 0; i < n_tests; i++)
        units[n_units++] = (struct CMUnitTest){.name = tests[i].name,
                                               .test_func = run_check,
                                               .initial_state = &tests[i]};
    return _cmocka_run_group_tests(group, units, n_units, NULL, NULL);
}

#endif
