/* Memory nodes, simulated by trees like /sys/devices/system in a temporary
 * directory: reading them, the plan for the threads, binding, and the rows that
 * each thread copies. */
#include "test.h"

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/nodes.h"
#include "base/os.h"
#include "base/par.h"
#include "engine/core/engine.h"
#include "engines.h"
#include "few_cpus.h"
#include "log_lines.h"
#include "model/pass.h"
#include "tempdir.h"

/* ---- the system's description -------------------------------------------- */

#define SYSTEM "/sys/devices/system"

/* The library opens the files of temp_dir in place of the system's. */
static bool simulated;

int open(const char *path, int flags, ...)
{
    char other[1200];
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    if (simulated && strncmp(path, SYSTEM, strlen(SYSTEM)) == 0) {
        snprintf(other, sizeof other, "%s%s", temp_dir, path + strlen(SYSTEM));
        path = other;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

/* Write the list of a node's CPUs. */
static void put_node(int id, const char *cpus)
{
    char name[64];
    snprintf(name, sizeof name, "node/node%d/cpulist", id);
    temp_put(name, cpus);
}

/* Make CPUs a and b the threads of one core. */
static void put_siblings(int a, int b)
{
    char name[96], list[32];
    const int both[] = {a, b};
    snprintf(list, sizeof list, "%d,%d\n", a < b ? a : b, a < b ? b : a);
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "cpu/cpu%d/topology/thread_siblings_list",
                 both[i]);
        temp_put(name, list);
    }
}

/* The nodes as text, for CPUs [0, n) except those of a node that `without`
 * lists: "0:0,1,2,3/4" is node 0 with four CPUs on four cores. */
static const char *read_nodes(int n, const char *without)
{
    static char text[1024];
    int cpus[64];
    size_t n_cpus = 0, at = 0;
    struct os_nodes nodes;
    for (int i = 0; i < n; i++)
        if (!strchr(without, '0' + i))
            cpus[n_cpus++] = i;
    assert_int_equal(os_nodes_read(&nodes, temp_dir, cpus, n_cpus), 0);
    for (size_t i = 0; i < nodes.n; i++) {
        const struct os_node *node = &nodes.nodes[i];
        at += (size_t)sprintf(text + at, "%s%d", i ? " " : "", node->id);
        for (size_t k = 0; k < node->n_cpus; k++)
            at += (size_t)sprintf(text + at, "%c%d", k ? ',' : ':',
                                  node->cpus[k]);
        at += (size_t)sprintf(text + at, "/%zu", node->n_cores);
    }
    os_nodes_free(&nodes);
    return text;
}

static void nodes_of_two_sockets(void **state)
{
    temp_put("node/online", "0-1\n");
    put_node(0, "0-3\n");
    put_node(1, "4-7\n");
    assert_string_equal(read_nodes(8, ""), "0:0,1,2,3/4 1:4,5,6,7/4");
    /* the affinity mask covers parts of them, or one of them */
    assert_string_equal(read_nodes(8, "1237"), "0:0/1 1:4,5,6/3");
    assert_string_equal(read_nodes(8, "0123"), "1:4,5,6,7/4");
    assert_string_equal(read_nodes(4, ""), "0:0,1,2,3/4");
    /* the CPUs take turns, and each core runs two threads */
    put_node(0, "0,2,4,6");
    put_node(1, "1,3,5,7");
    for (int i = 0; i < 4; i++)
        put_siblings(i, i + 4);
    assert_string_equal(read_nodes(8, ""), "0:0,2,4,6/2 1:1,3,5,7/2");
    /* the lower sibling is not allowed */
    assert_string_equal(read_nodes(8, "0"), "0:2,4,6/2 1:1,3,5,7/2");
}

static void gaps_and_memory_without_cpus(void **state)
{
    temp_put("node/online", "0,2,5-6\n");
    put_node(0, "0-1,6\n");
    put_node(2, "\n"); /* memory only */
    put_node(5, "");
    put_node(6, "2-5,7-4000000000\n"); /* most of them are not online */
    assert_string_equal(read_nodes(8, ""), "0:0,1,6/3 6:2,3,4,5,7/5");
}

/* Contents that contradict themselves give one node with all CPUs. */
static void odd_contents_give_one_node(void **state)
{
    static const char *const lists[][3] = {
        /* online, node 0, node 1 */
        {NULL, NULL, NULL},
        {"", "0-1\n", "2-3\n"},
        {"\n", "0-1\n", "2-3\n"},
        {"0-1\n", "0-1\n", NULL},        /* the files of node 1 are missing */
        {"0-1\n", "0-1\n", "2\n"},       /* CPU 3 is nowhere */
        {"0-1\n", "0-2\n", "2-3\n"},     /* CPU 2 is on both */
        {"0-1\n", "0-1,1\n", "2-3\n"},   /* CPU 1 twice */
        {"0,0-1\n", "0-1\n", "2-3\n"},   /* node 0 twice */
        {"1-0\n", "0-1\n", "2-3\n"},     /* backwards */
        {"0-\n", "0-1\n", "2-3\n"},      /* cut */
        {"0-1,\n", "0-1\n", "2-3\n"},    /* cut */
        {"0-1\n", "0-1\n", "2-3,x\n"},   /* no number */
        {"0-1\n", "0-1\n", " 2-3\n"},    /* blanks */
        {"0-1\n", "-1\n", "2-3\n"},      /* below 0 */
        {"0-1\n", "0-1\n\n", "2-3\n"},   /* two lines */
        {"0-99999999\n", "0-1\n", "2-3\n"},
        {"0-1\n", "0-1\n", "2-18446744073709551616\n7\n"},
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        temp_clear();
        if (lists[i][0])
            temp_put("node/online", lists[i][0]);
        for (int id = 0; id < 2; id++)
            if (lists[i][id + 1])
                put_node(id, lists[i][id + 1]);
        assert_string_equal(read_nodes(4, ""), "0:0,1,2,3/4");
    }
}

static void long_lists_give_one_node(void **state)
{
    char text[20000] = "2-3";
    size_t at = strlen(text);
    while (at < sizeof text - 16)
        at += (size_t)sprintf(text + at, ",%zu", 1000 + 2 * at);
    temp_put("node/online", "0-1\n");
    put_node(0, "0-1\n");
    put_node(1, text);
    assert_string_equal(read_nodes(4, ""), "0:0,1,2,3/4");
    text[strcspn(text + 4000, ",") + 4000] = '\0';
    put_node(1, text);
    assert_string_equal(read_nodes(4, ""), "0:0,1/2 1:2,3/2");
}

static void this_machine_has_a_node(void **state)
{
    struct os_nodes nodes;
    size_t n = 0;
    assert_int_equal(os_nodes_read(&nodes, NULL, NULL, 0), 0);
    assert_true(nodes.n >= 1);
    for (size_t i = 0; i < nodes.n; i++) {
        const struct os_node *node = &nodes.nodes[i];
        assert_true(node->n_cores >= 1 && node->n_cores <= node->n_cpus);
        n += node->n_cpus;
    }
    assert_int_equal(n, os_cpus());
    os_nodes_free(&nodes);
    os_nodes_free(&nodes);
}

/* ---- the plan ------------------------------------------------------------ */

/* The threads of nodes with these cores and CPUs; "" if they are not bound. */
static const char *plan(int n_threads, size_t n, const size_t (*sizes)[2])
{
    static char text[64];
    struct os_node list[4] = {{0}};
    size_t threads[4], at = 0;
    struct os_nodes nodes = {list, n};
    for (size_t i = 0; i < n; i++) {
        list[i].n_cores = sizes[i][0];
        list[i].n_cpus = sizes[i][1];
    }
    text[0] = '\0';
    if (!nodes_plan(threads, &nodes, n_threads)) {
        for (size_t i = 0; i < n; i++)
            assert_int_equal(threads[i], 0);
        return text;
    }
    for (size_t i = 0; i < n; i++)
        at += (size_t)sprintf(text + at, "%s%zu", i ? " " : "", threads[i]);
    return text;
}

static void threads_are_divided_equally(void **state)
{
    const size_t even[][2] = {{4, 4}, {4, 4}};
    const size_t uneven[][2] = {{6, 6}, {2, 2}, {4, 4}};
    const size_t siblings[][2] = {{4, 8}, {2, 4}};
    assert_string_equal(plan(1, 2, even), "1 0");
    assert_string_equal(plan(3, 2, even), "2 1");
    assert_string_equal(plan(8, 2, even), "4 4");
    assert_string_equal(plan(9, 2, even), "");
    assert_string_equal(plan(6, 3, uneven), "2 2 2");
    assert_string_equal(plan(9, 3, uneven), "4 2 3");
    assert_string_equal(plan(12, 3, uneven), "6 2 4");
    assert_string_equal(plan(13, 3, uneven), "");
    /* one thread for each core, before a core gets two */
    assert_string_equal(plan(6, 2, siblings), "4 2");
    assert_string_equal(plan(7, 2, siblings), "4 3");
    assert_string_equal(plan(8, 2, siblings), "4 4");
    assert_string_equal(plan(11, 2, siblings), "7 4");
    assert_string_equal(plan(12, 2, siblings), "8 4");
    assert_string_equal(plan(13, 2, siblings), "");
}

/* ---- binding ------------------------------------------------------------- */

static cpu_set_t mask_now(void)
{
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    return set;
}

static cpu_set_t only(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    return set;
}

/* Pretend that the machine has a node for each of two CPUs that this process
 * may use; skips the test if there is only one. */
static void two_nodes(int cpus[2])
{
    char list[16];
    int n = 0;
    use_cpus(true);
    cpu_set_t set = mask_now();
    for (int cpu = 0; cpu < CPU_SETSIZE && n < 2; cpu++)
        if (CPU_ISSET((size_t)cpu, &set))
            cpus[n++] = cpu;
    if (n < 2)
        skip();
    CPU_ZERO(&set);
    temp_put("node/online", "0-1\n");
    for (int i = 0; i < 2; i++) {
        CPU_SET((size_t)cpus[i], &set);
        sprintf(list, "%d\n", cpus[i]);
        put_node(i, list);
    }
    assert_int_equal(sched_setaffinity(0, sizeof set, &set), 0);
}

static void keep_mask(void *ctx, struct par_team *team, int tid, int n_threads)
{
    cpu_set_t *masks = ctx;
    (void)team;
    (void)n_threads;
    sched_getaffinity(0, sizeof masks[tid], &masks[tid]);
}

static void move_to(void *ctx, struct par_team *team, int tid, int n_threads)
{
    const cpu_set_t *mask = ctx;
    (void)team;
    (void)n_threads;
    if (tid == 0)
        sched_setaffinity(0, sizeof *mask, mask);
}

static void threads_stay_on_their_nodes(void **state)
{
    const size_t threads[] = {1, 1};
    cpu_set_t masks[2];
    struct os_nodes nodes;
    int cpus[2];
    two_nodes(cpus);
    const cpu_set_t first = only(cpus[0]), second = only(cpus[1]);
    const cpu_set_t both = mask_now();
    assert_int_equal(os_nodes_read(&nodes, temp_dir, NULL, 0), 0);
    assert_int_equal(nodes.n, 2);
    struct par_pool *p = par_create(2);
    assert_int_equal(par_threads(p), 2);
    assert_true(par_bind(p, &nodes, threads));
    cpu_set_t now = mask_now();
    assert_true(CPU_EQUAL(&now, &both));
    for (int i = 0; i < 3; i++) {
        (i ? par_run : par_run_rarely)(p, keep_mask, masks);
        assert_true(CPU_EQUAL(&masks[0], &first));
        assert_true(CPU_EQUAL(&masks[1], &second));
        now = mask_now();
        assert_true(CPU_EQUAL(&now, &both));
    }
    /* a caller that may not use the first node stays where it is */
    assert_int_equal(sched_setaffinity(0, sizeof second, &second), 0);
    par_run(p, keep_mask, masks);
    assert_true(CPU_EQUAL(&masks[0], &second));
    now = mask_now();
    assert_true(CPU_EQUAL(&now, &second));
    /* CPUs that the region itself sets stay set */
    assert_int_equal(sched_setaffinity(0, sizeof both, &both), 0);
    par_run(p, move_to, (void *)(uintptr_t)&second);
    now = mask_now();
    assert_true(CPU_EQUAL(&now, &second));
    par_free(p);
    now = mask_now();
    assert_true(CPU_EQUAL(&now, &second));
    os_nodes_free(&nodes);
}

static void a_pool_of_one_thread_is_bound(void **state)
{
    const size_t threads[] = {0, 1};
    cpu_set_t mask;
    struct os_nodes nodes;
    int cpus[2];
    two_nodes(cpus);
    const cpu_set_t second = only(cpus[1]), both = mask_now();
    assert_int_equal(os_nodes_read(&nodes, temp_dir, NULL, 0), 0);
    struct par_pool *p = par_create(1);
    assert_true(par_bind(p, &nodes, threads));
    par_run(p, keep_mask, &mask);
    assert_true(CPU_EQUAL(&mask, &second));
    mask = mask_now();
    assert_true(CPU_EQUAL(&mask, &both));
    par_free(p);
    os_nodes_free(&nodes);
}

/* ---- engines ------------------------------------------------------------- */

static char notes[4096];

static void keep_line(void *ctx, enum qwick_log_level level, const char *line)
{
    size_t at = strlen(notes);
    keep_warning(ctx, level, line);
    snprintf(notes + at, sizeof notes - at, "%s\n", line);
}

static struct qwick_engine *open_engine(const char *model, int threads,
                                        enum qwick_numa numa, bool preload)
{
    forget_warnings();
    notes[0] = '\0';
    return engine_with(.model = model, .threads = threads, .numa = numa,
                       .preload = preload, .log = keep_line);
}

/* The logits after a few tokens, which the caller frees. */
static float *logits_of(struct qwick_engine *eng)
{
    const int32_t ids[] = {5, 6, 7, 8};
    size_t bytes = qwick_engine_info(eng)->vocab_size * sizeof(float);
    float *out = malloc(bytes);
    struct qwick_session *s = open_session(eng);
    for (size_t n = 1; n <= 4; n++)
        assert_int_equal(qwick_session_sync(s, ids, n, NULL), 0);
    memcpy(out, qwick_session_logits(s), bytes);
    qwick_session_free(s);
    return out;
}

/* Whether the pages of the copy of the weights come from all nodes in turn. */
static bool interleaved(const struct qwick_engine *eng)
{
    int mode = 0;
    return eng->model.preloaded &&
           !syscall(SYS_get_mempolicy, &mode, NULL, 0, eng->model.preloaded,
                    MPOL_F_ADDR) &&
           mode == MPOL_INTERLEAVE;
}

static void modes_change_no_result(void **state)
{
    const char *model = "tests/golden/models/tied-bf16";
    int cpus[2];
    two_nodes(cpus);
    const cpu_set_t both = mask_now();
    struct qwick_engine *eng = open_engine(model, 2, QWICK_NUMA_OFF, false);
    size_t bytes = qwick_engine_info(eng)->vocab_size * sizeof(float);
    float *want = logits_of(eng);
    qwick_engine_close(eng);
    simulated = true;
    for (int i = 0; i < 3; i++) {
        enum qwick_numa mode = i == 2 ? QWICK_NUMA_INTERLEAVE : QWICK_NUMA_BIND;
        eng = open_engine(model, 2, mode, i > 0);
        float *got = logits_of(eng);
        assert_memory_equal(got, want, bytes);
        free(got);
        cpu_set_t masks[2], now = mask_now();
        assert_true(CPU_EQUAL(&now, &both));
        par_run(eng->pool, keep_mask, masks);
        for (int t = 0; t < 2; t++) {
            const cpu_set_t one = only(cpus[t]);
            assert_true(CPU_EQUAL(&masks[t], i == 2 ? &both : &one));
        }
        /* a container may forbid it */
        bool refused =
            i == 2 && warning(0) && strstr(warning(0), "are not spread over");
        assert_true(interleaved(eng) == (i == 2 && !refused));
        qwick_engine_close(eng);
        now = mask_now();
        assert_true(CPU_EQUAL(&now, &both));
        if (i == 2)
            assert_non_null(strstr(notes, "spread over"));
        else
            assert_non_null(strstr(notes, "numa: 2 threads on 2 memory nodes: "
                                          "1 on node 0, 1 on node 1\n"));
        assert_true((strstr(notes, "without preload") != NULL) == (i == 0));
        assert_true(refused || !warning(0));
    }
    simulated = false;
    free(want);
}

static void modes_without_effect_warn(void **state)
{
    const char *model = "tests/golden/models/tied-bf16";
    struct qwick_engine_options o = qwick_engine_defaults();
    struct qwick_engine *eng;
    struct qwick_err e;
    int cpus[2];
    two_nodes(cpus);
    const cpu_set_t both = mask_now(), first = only(cpus[0]);
    simulated = true;
    /* more threads than CPUs */
    eng = open_engine(model, 3, QWICK_NUMA_BIND, true);
    assert_string_equal(warning(0), "numa: 3 threads on 2 CPUs are not bound");
    cpu_set_t masks[3];
    par_run(eng->pool, keep_mask, masks);
    for (int t = 0; t < 3; t++)
        assert_true(CPU_EQUAL(&masks[t], &both));
    qwick_engine_close(eng);
    qwick_engine_close(open_engine(model, 2, QWICK_NUMA_INTERLEAVE, false));
    assert_string_equal(warning(0),
                        "numa: interleave has no effect without preload");
    /* only one node is allowed */
    assert_int_equal(sched_setaffinity(0, sizeof first, &first), 0);
    for (int mode = QWICK_NUMA_INTERLEAVE; mode <= QWICK_NUMA_BIND; mode++) {
        qwick_engine_close(open_engine(model, 1, (enum qwick_numa)mode, true));
        assert_string_equal(warning(0), "numa: has no effect, all CPUs that "
                                        "can be used are on one memory node");
    }
    simulated = false;
    o.numa = (enum qwick_numa)3;
    assert_int_equal(qwick_engine_open(&eng, &o, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    assert_string_equal(e.msg, "numa: 3: is no mode");
}

/* ---- rows ---------------------------------------------------------------- */

enum { MAX_MATRICES = 1024, MAX_ROWS = 4096 };

/* Operations of a model that note which thread multiplies which row. */
static struct {
    const struct model *m;
    const struct format_ops *real[MAX_MATRICES];
    struct format_ops ops[MAX_MATRICES];
    unsigned char by[MAX_MATRICES][MAX_ROWS]; /* thread + 1; 0: nobody */
} noted;
static _Thread_local int this_thread;

static const struct format_ops *note(const struct row_product *p)
{
    const struct model *m = noted.m;
    const struct matrix *w =
        p->w == &m->head && m->config.tied_head ? &m->embed : p->w;
    for (size_t j = 0; j < m->weights.n_matrices; j++) {
        if (m->weights.matrices[j] != w)
            continue;
        memset(noted.by[j] + p->row, this_thread + 1, p->n_rows);
        return noted.real[j];
    }
    abort();
}

static void mul_f32(const struct kernels *k, const struct row_product *p,
                    const float *x, size_t ldx)
{
    note(p)->mul_f32(k, p, x, ldx);
}

static void mul_i8(const struct kernels *k, const struct row_product *p,
                   const struct q8 *x)
{
    note(p)->mul_i8(k, p, x);
}

static void set_thread(void *ctx, struct par_team *team, int tid, int n_threads)
{
    (void)ctx;
    (void)team;
    (void)n_threads;
    this_thread = tid;
}

static void note_rows_of(struct model *m)
{
    const struct weights *w = &m->weights;
    memset(&noted, 0, sizeof noted);
    noted.m = m;
    assert_true(w->n_matrices <= MAX_MATRICES);
    for (size_t j = 0; j < w->n_matrices; j++) {
        assert_true(w->matrices[j]->rows <= MAX_ROWS);
        noted.real[j] = w->matrices[j]->ops;
        noted.ops[j] = *noted.real[j];
        noted.ops[j].mul_f32 = mul_f32;
        if (noted.ops[j].mul_i8)
            noted.ops[j].mul_i8 = mul_i8;
        w->matrices[j]->ops = &noted.ops[j];
    }
    if (m->config.tied_head)
        m->head.ops = m->embed.ops;
    par_run(m->pool, set_thread, NULL);
}

/* Whether the experts of a step decide which thread reads which rows. */
static bool of_experts(const struct model *m, const struct matrix *w)
{
    for (size_t i = 0; i < m->config.n_layers; i++) {
        const struct experts *x = &m->layers[i].experts;
        for (size_t k = 0; k < x->n; k++)
            if (w == &x->gate[k] || w == &x->up[k])
                return true;
    }
    return false;
}

static void threads_copy_what_they_multiply(void **state)
{
    static const char *const models[] = {
        "tied-bf16",   "head128-untied-bf16", "mlx4",      "mlx8",
        "gemma3-tied", "qwen35-tied",         "qwen35-moe",
        "../families/qwen3next-odd"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char path[96];
        snprintf(path, sizeof path, "tests/golden/models/%s", models[i]);
        for (int n = 2; n <= 5; n++) {
            struct qwick_engine *eng =
                open_engine(path, n, QWICK_NUMA_OFF, true);
            struct model *m = &eng->model;
            size_t compared = 0;
            note_rows_of(m);
            free(logits_of(eng));
            for (size_t j = 0; j < m->weights.n_matrices; j++) {
                if (of_experts(m, m->weights.matrices[j]))
                    continue;
                for (int t = 0; t < n; t++) {
                    size_t begin, end;
                    model_preload_rows(m, j, t, n, &begin, &end);
                    for (size_t r = begin; r < end; r++) {
                        if (!noted.by[j][r])
                            continue; /* an expert that no token chose */
                        compared++;
                        if (noted.by[j][r] != t + 1)
                            fail_msg("%s: row %zu of matrix %zu is copied by "
                                     "thread %d of %d, and read by %d",
                                     models[i], r, j, t, n,
                                     noted.by[j][r] - 1);
                    }
                }
            }
            assert_true(compared > 1000);
            qwick_engine_close(eng);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(nodes_of_two_sockets, fresh),
        cmocka_unit_test_setup(gaps_and_memory_without_cpus, fresh),
        cmocka_unit_test_setup(odd_contents_give_one_node, fresh),
        cmocka_unit_test_setup(long_lists_give_one_node, fresh),
        cmocka_unit_test(this_machine_has_a_node),
        cmocka_unit_test(threads_are_divided_equally),
        cmocka_unit_test_setup(threads_stay_on_their_nodes, fresh),
        cmocka_unit_test_setup(a_pool_of_one_thread_is_bound, fresh),
        cmocka_unit_test_setup(modes_change_no_result, fresh),
        cmocka_unit_test_setup(modes_without_effect_warn, fresh),
        cmocka_unit_test(threads_copy_what_they_multiply),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
