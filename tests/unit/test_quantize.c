/* Quantizing checkpoints: compared bit by bit with a plain scalar quantizer
 * (plain_affine.h), and everything that must be refused or cleaned up. */
#include "test.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "file/json.h"
#include "file/map.h"
#include "file/safetensors.h"
#include "plain_affine.h"
#include "qwick_tools.h"
#include "tempdir.h"

#define MODELS "tests/golden/models/"

/* ---- checkpoints --------------------------------------------------------- */

/* Paths of the results and the sources of these tests. */
static char out_path[128], src_path[128];

static int setup(void **state)
{
    if (temp_setup(state))
        return -1;
    snprintf(out_path, sizeof out_path, "%s/out", temp_dir);
    snprintf(src_path, sizeof src_path, "%s/src", temp_dir);
    return 0;
}

static struct st_set *open_set(const char *dir)
{
    struct checkpoint *ck;
    struct st_set *set;
    struct qwick_err e;
    assert_ok(checkpoint_open(&ck, dir, &e), &e);
    assert_ok(st_open(&set, ck, &e), &e);
    checkpoint_close(ck);
    return set;
}

static const struct st_tensor *need(const struct st_set *set, const char *name)
{
    const struct st_tensor *t = st_find(set, name);
    if (!t)
        fail_msg("no tensor %s", name);
    return t;
}

/* Compare the three tensors of a module with the plain quantizer. */
static void check_module(const struct st_tensor *t, const struct st_set *got,
                         const char *module, size_t group, int bits)
{
    char name[300];
    size_t n = t->shape[0] * t->shape[1], bytes = dtype_bytes(t->dtype);
    const struct st_tensor *q = need(got, t->name);
    snprintf(name, sizeof name, "%s.scales", module);
    const struct st_tensor *s = need(got, name);
    snprintf(name, sizeof name, "%s.biases", module);
    const struct st_tensor *b = need(got, name);
    assert_true(q->dtype == DT_U32 && q->rank == 2);
    assert_int_equal(q->shape[0], t->shape[0]);
    assert_int_equal(q->shape[1], t->shape[1] * (size_t)bits / 32);
    for (int i = 0; i < 2; i++) {
        const struct st_tensor *x = i ? b : s;
        assert_true(x->dtype == t->dtype && x->rank == 2);
        assert_int_equal(x->shape[0], t->shape[0]);
        assert_int_equal(x->shape[1], t->shape[1] / group);
    }
    unsigned char *want_q = malloc(n), *want_s = malloc(n / group * bytes),
                  *want_b = malloc(n / group * bytes);
    assert_true(want_q && want_s && want_b);
    plain_quantize(want_q, want_s, want_b, t->data, n, t->dtype, group, bits);
    assert_memory_equal(q->data, want_q, q->n_bytes);
    assert_memory_equal(s->data, want_s, s->n_bytes);
    assert_memory_equal(b->data, want_b, b->n_bytes);
    check_error(q->data, s->data, b->data, t->data, n, t->dtype, group, bits);
    free(want_q);
    free(want_s);
    free(want_b);
}

/* Check the result of a run. Every 2-D weight whose rows are whole groups has
 * `bits` bits, the head has head_bits, and modules that begin with `skip` are
 * unchanged. Returns the number of quantized modules. */
static size_t check_result(const char *src, const char *dst, size_t group,
                           int bits, const char *head, int head_bits,
                           const char *skip)
{
    struct st_set *from = open_set(src), *to = open_set(dst);
    struct json_doc *doc;
    struct qwick_err e;
    struct map map;
    char path[1200];
    size_t n_quantized = 0;
    snprintf(path, sizeof path, "%s/config.json", dst);
    assert_ok(map_open(&map, path, &e), &e);
    assert_ok(json_parse(&doc, path, (const char *)map.data, map.size,
                         QWICK_ERR_MODEL, &e),
              &e);
    const struct json_value *quant = json_get(json_root(doc), "quantization");
    int64_t v;
    assert_int_equal(json_int(json_get(quant, "group_size"), 0, 999, &v), 0);
    assert_int_equal(v, group);
    assert_int_equal(json_int(json_get(quant, "bits"), 0, 999, &v), 0);
    assert_int_equal(v, bits);
    for (size_t i = 0; i < st_count(from); i++) {
        const struct st_tensor *t = st_at(from, i);
        const struct st_tensor *g = need(to, t->name);
        char module[256];
        snprintf(module, sizeof module, "%s", t->name);
        char *dot = strrchr(module, '.');
        bool is_weight = dot && strcmp(dot, ".weight") == 0 && t->rank == 2;
        if (is_weight)
            *dot = '\0';
        const struct json_value *own =
            is_weight ? json_get(quant, module) : NULL;
        bool packed = is_weight && t->n_bytes > 0 && t->shape[1] % group == 0 &&
                      !(skip && strncmp(module, skip, strlen(skip)) == 0);
        if (packed) {
            bool special = head && strcmp(module, head) == 0;
            int want = special ? head_bits : bits;
            check_module(t, to, module, group, want);
            n_quantized++;
            assert_true((own != NULL) == (want != bits));
            if (own) {
                json_int(json_get(own, "bits"), 0, 999, &v);
                assert_int_equal(v, want);
                json_int(json_get(own, "group_size"), 0, 999, &v);
                assert_int_equal(v, group);
            }
            continue;
        }
        assert_true(g->dtype == t->dtype && g->rank == t->rank);
        assert_memory_equal(g->shape, t->shape, sizeof t->shape);
        assert_memory_equal(g->data, t->data, t->n_bytes);
        assert_true(!is_weight || (json_is(own, JSON_BOOL) && !own->boolean));
    }
    assert_int_equal(st_count(to), st_count(from) + 2 * n_quantized);
    json_free(doc);
    map_close(&map);
    st_close(from);
    st_close(to);
    return n_quantized;
}

static void golden_checkpoints(void **state)
{
    static const struct {
        const char *name, *head;
    } models[] = {
        {"tied-bf16", "model.embed_tokens"},
        {"f32", "model.embed_tokens"},
        {"f16", "model.embed_tokens"},
        {"sharded-bf16", "model.embed_tokens"},
        {"head128-untied-bf16", "lm_head"},
        {"embedding-names", "embed_tokens"},
    };
    size_t runs = 0;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        char src[128];
        snprintf(src, sizeof src, MODELS "%s", models[m].name);
        for (int i = 0; i < N_BITS; i++)
            for (int j = 0; j < N_GROUPS; j++) {
                struct qwick_quantize_options o = qwick_quantize_defaults();
                struct qwick_quantize_report r;
                struct qwick_err e;
                const char *dst = out_path;
                o.bits = all_bits[i];
                o.group = all_groups[j];
                o.threads = 1 + i % 3;
                int rc = qwick_quantize(src, dst, &o, &r, &e);
                if (rc && e.code == QWICK_ERR_USAGE && o.group == 128) {
                    /* no weight has such rows */
                    assert_non_null(strstr(e.msg, "no module"));
                    assert_int_equal(entries(temp_dir), 0);
                    continue;
                }
                assert_ok(rc, &e);
                size_t n = check_result(src, dst, (size_t)o.group, o.bits, NULL,
                                        0, NULL);
                assert_int_equal(r.n_quantized, n);
                assert_int_equal(entries(temp_dir), 1);
                remove_tree(dst);
                runs++;
            }
        struct qwick_quantize_options o = qwick_quantize_defaults();
        const char *const skip[] = {strcmp(models[m].head, "embed_tokens")
                                        ? "model.layers.1.*"
                                        : "layers.1.*"};
        struct qwick_err e;
        o.bits = 3;
        o.head_bits = 8;
        o.group = 32;
        o.skip = skip;
        o.n_skip = 1;
        assert_ok(qwick_quantize(src, out_path, &o, NULL, &e), &e);
        char begin[32];
        snprintf(begin, sizeof begin, "%.*s", (int)strlen(skip[0]) - 1,
                 skip[0]);
        check_result(src, out_path, 32, 3, models[m].head, 8, begin);
        remove_tree(out_path);
    }
    assert_true(runs >= 6 * 6 * 2);
}

/* ---- a checkpoint written here ------------------------------------------- */

static const char config_text[] =
    "{\"model_type\": \"qwen3\", \"zebra\": [1.50, {\"\\u00e9\": null}, []], "
    "\"vocab_size\": 4099, \"hidden_size\": 160, \"intermediate_size\": 96, "
    "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, "
    "\"num_key_value_heads\": 1, \"head_dim\": 16, "
    "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-06, "
    "\"rope_theta\": 1000000, \"tie_word_embeddings\": true}";

enum { VOCAB = 4099, COLS = 160 }; /* 655,840 elements: three pieces */

/* Write the tensors in an order that leaves all of them unaligned. bad: index
 * of an element of the embedding that becomes NaN, or -1. */
static void write_source(long bad)
{
    static uint16_t embed[VOCAB * COLS];
    static const uint16_t three[3] = {0x3f80, 0x4000, 0x4040};
    static const int64_t wide[2] = {-5, 1ll << 40};
    struct st_out_tensor t[] = {
        {"model.norm.weight", DT_BF16, 1, {3}, three},
        {"model.embed_tokens.weight", DT_BF16, 2, {VOCAB, COLS}, embed},
        {"lm_head.weight", DT_BF16, 2, {VOCAB, COLS}, embed},
        {"odd.weight", DT_BF16, 2, {1, 3}, three},
        {"counts", DT_I64, 1, {2}, wide},
        {"none.weight", DT_F32, 2, {0, 64}, three},
        {"model.layers.0.mlp.up_proj.weight", DT_F32, 2, {5, 96}, embed + 8},
    };
    struct st_writer *w;
    struct qwick_err e;
    for (size_t i = 0; i < VOCAB * COLS; i++) {
        unsigned char b[2];
        store(DT_BF16, b, normal(5, i));
        embed[i] = (uint16_t)(b[0] | b[1] << 8);
    }
    if (bad >= 0)
        embed[bad] = 0x7fc0;
    mkdir(src_path, 0777);
    assert_ok(st_writer_open(&w, temp_path("src/model.safetensors"), t,
                             sizeof t / sizeof *t, &e),
              &e);
    assert_ok(st_writer_close(w, &e), &e);
    put_file(temp_path("src/config.json"), config_text, sizeof config_text - 1);
    put_file(temp_path("src/tokenizer.json"), "{}", 2);
    put_file(temp_path("src/merges.txt"), "", 0);
    put_file(temp_path("src/notes.txt"), "x", 1);
}

struct told {
    char notes[2000];
    size_t done, total, calls;
    bool back;
};

static void tell(void *ctx, const char *line)
{
    struct told *t = ctx;
    size_t n = strlen(t->notes);
    snprintf(t->notes + n, sizeof t->notes - n, "%s\n", line);
}

static void progress(void *ctx, size_t done, size_t total)
{
    struct told *t = ctx;
    t->calls++;
    t->back |= done < t->done;
    t->done = done;
    t->total = total;
}

static void pieces_alignment_and_companions(void **state)
{
    for (int threads = 1; threads <= 4; threads += 3) {
        struct told told = {0};
        struct qwick_quantize_options o = qwick_quantize_defaults();
        struct qwick_quantize_report r;
        struct qwick_err e;
        const char *dst = out_path;
        write_source(-1);
        o.bits = 5;
        o.group = 32;
        o.threads = threads;
        o.progress = progress;
        o.note = tell;
        o.progress_ctx = o.note_ctx = &told;
        assert_ok(qwick_quantize(src_path, dst, &o, &r, &e), &e);
        assert_true(told.calls > 0 && !told.back);
        assert_int_equal(told.done, told.total);
        assert_int_equal(told.total, r.bytes_read);
        assert_int_equal(r.n_quantized, 2);
        assert_int_equal(r.n_dense, 2);
        assert_non_null(strstr(told.notes, "lm_head: left out"));
        assert_non_null(strstr(told.notes, "odd: is copied: 3 columns"));

        /* the spare head is removed; the other tensors are right */
        struct st_set *to = open_set(dst);
        assert_null(st_find(to, "lm_head.weight"));
        struct st_set *from = open_set(src_path);
        check_module(need(from, "model.embed_tokens.weight"), to,
                     "model.embed_tokens", 32, 5);
        check_module(need(from, "model.layers.0.mlp.up_proj.weight"), to,
                     "model.layers.0.mlp.up_proj", 32, 5);
        size_t sum = 0;
        for (size_t i = 0; i < st_count(to); i++) {
            const struct st_tensor *t = st_at(to, i);
            assert_int_equal((uintptr_t)t->data % dtype_bytes(t->dtype), 0);
            sum += t->n_bytes;
        }
        assert_int_equal(sum, r.bytes_written);
        assert_int_equal(st_count(to), 6 - 2 + 2 * 3);
        st_close(from);
        st_close(to);

        char *text;
        size_t n;
        assert_ok(map_read_all(temp_path("out/model.safetensors"), 1 << 24,
                               &text, &n, &e),
                  &e);
        assert_memory_equal(text + 8, "{\"__metadata__\":{\"format\":\"mlx\"},",
                            33);
        free(text);
        assert_ok(
            map_read_all(temp_path("out/config.json"), 1 << 24, &text, &n, &e),
            &e);
        assert_non_null(strstr(text, "{\n  \"model_type\": \"qwen3\",\n"
                                     "  \"zebra\": [\n    1.50,\n    {\n"
                                     "      \"\xc3\xa9\": null\n    },\n"
                                     "    []\n  ],\n"));
        assert_non_null(strstr(text, "\"rms_norm_eps\": 1e-06,\n"));
        free(text);
        assert_true(exists(temp_path("out/tokenizer.json")));
        assert_true(exists(temp_path("out/merges.txt")));
        assert_false(exists(temp_path("out/notes.txt")));
        assert_int_equal(entries(dst), 4);
        assert_int_equal(entries(temp_dir), 2);
        remove_tree(dst);
    }
    remove_tree(src_path);
}

static void demo_model(void **state)
{
    struct qwick_quantize_options o = qwick_quantize_defaults();
    struct qwick_quantize_report r;
    struct qwick_err e;
    assert_ok(qwick_quantize(NULL, out_path, &o, &r, &e), &e);
    assert_true(r.n_quantized > 0 && r.bits_per_weight > 4 &&
                r.bits_per_weight < 5);
    assert_true(exists(temp_path("out/tokenizer.json")));
    remove_tree(out_path);
}

/* ---- refusals ------------------------------------------------------------ */

/* Check that the call fails with the code, a message that contains the word,
 * and no files left. */
static void refuses(const char *src, const char *dst,
                    const struct qwick_quantize_options *o,
                    enum qwick_err_code code, const char *word)
{
    struct qwick_err e = {0};
    struct qwick_quantize_report r;
    size_t before = entries(temp_dir);
    if (!qwick_quantize(src, dst, o, &r, &e))
        fail_msg("accepted: %s", word);
    if (e.code != code || !strstr(e.msg, word))
        fail_msg("expected %d and %s: %d %s", (int)code, word, (int)e.code,
                 e.msg);
    assert_int_equal(entries(temp_dir), before);
    assert_int_equal(qwick_quantize(src, dst, o, NULL, NULL), -1);
}

static void options_are_checked(void **state)
{
    const char *src = MODELS "tied-bf16", *dst = out_path;
    const char *const all[] = {"*"}, *const none[] = {"nothing*"};
    const char *const head[] = {"*embed*"};
    struct qwick_quantize_options o = qwick_quantize_defaults(), d = o;
    const int bad_bits[] = {-4, 1, 7, 9, 16};
    for (size_t i = 0; i < 5; i++, o = d) {
        o.bits = bad_bits[i];
        refuses(src, dst, &o, QWICK_ERR_USAGE, "bits");
    }
    o.head_bits = 7;
    refuses(src, dst, &o, QWICK_ERR_USAGE, "head bits");
    o = d;
    const int bad_groups[] = {-64, 16, 48, 256};
    for (size_t i = 0; i < 4; i++, o = d) {
        o.group = bad_groups[i];
        refuses(src, dst, &o, QWICK_ERR_USAGE, "group");
    }
    o.scales = (enum qwick_scales)7;
    refuses(src, dst, &o, QWICK_ERR_USAGE, "scales");
    o = d;
    o.threads = 5000;
    refuses(src, dst, &o, QWICK_ERR_USAGE, "threads");
    o = d;
    o.skip = all;
    o.n_skip = 1;
    refuses(src, dst, &o, QWICK_ERR_USAGE, "no module is left");
    o.skip = none;
    refuses(src, dst, &o, QWICK_ERR_USAGE, "skip: nothing*");
    o = d;
    o.only = none;
    o.n_only = 1;
    refuses(src, dst, &o, QWICK_ERR_USAGE, "only: nothing*");
    o = d;
    o.skip = head;
    o.n_skip = 1;
    o.head_bits = 8;
    refuses(src, dst, &o, QWICK_ERR_USAGE, "the head is not quantized");
}

static void sources_are_checked(void **state)
{
    struct qwick_quantize_options o = qwick_quantize_defaults();
    const char *dst = out_path;
    refuses("/nonexistent", dst, &o, QWICK_ERR_MODEL, "/nonexistent");
    refuses(MODELS "mlx4", dst, &o, QWICK_ERR_MODEL,
            "quantized already (4 bits)");

    write_source(-1);
    static const char hqq[] =
        "{\"quantization_config\": {\"quant_method\": \"hqq\"}}";
    put_file(temp_path("src/config.json"), hqq, sizeof hqq - 1);
    refuses(src_path, dst, &o, QWICK_ERR_MODEL, "quantized already (hqq)");
    unlink(temp_path("src/config.json"));
    refuses(src_path, dst, &o, QWICK_ERR_MODEL, "config.json: missing");

    write_source(COLS * 1000 + 17);
    o.group = 32;
    o.threads = 3;
    refuses(src_path, dst, &o, QWICK_ERR_MODEL, "row 1000: holds NaN");
    refuses(src_path, dst, &o, QWICK_ERR_MODEL, "model.embed_tokens.weight");

    static const struct st_out_tensor traces[] = {
        {"a.scales", DT_F32, 1, {1}, "\0\0\0"},
        {"a.weight", DT_U32, 2, {1, 1}, "\0\0\0"},
        {"a.weight", DT_F8_E4M3, 2, {1, 4}, "\0\0\0"},
    };
    static const char *const words[] = {"a.scales", "dtype U32",
                                        "dtype F8_E4M3"};
    for (size_t i = 0; i < 3; i++) {
        struct st_writer *w;
        struct qwick_err e;
        assert_ok(st_writer_open(&w, temp_path("src/model.safetensors"),
                                 &traces[i], 1, &e),
                  &e);
        assert_ok(st_writer_close(w, &e), &e);
        refuses(src_path, out_path, &o, QWICK_ERR_MODEL, words[i]);
    }
    remove_tree(src_path);
}

static void what_is_there_stays(void **state)
{
    struct qwick_quantize_options o = qwick_quantize_defaults();
    struct qwick_err e;
    const char *src = MODELS "tied-bf16", *dst = out_path;

    put_file(dst, "x", 1);
    refuses(src, dst, &o, QWICK_ERR_USAGE, "is not a directory");
    unlink(dst);
    refuses(src, "", &o, QWICK_ERR_USAGE, "empty");
    refuses(src, temp_path("none/out"), &o, QWICK_ERR_RUNTIME, "none/out");
    assert_int_equal(symlink("nowhere", dst), 0);
    refuses(src, dst, &o, QWICK_ERR_USAGE, "out");
    unlink(dst);

    /* an empty directory is used; a checkpoint only with force; others never */
    mkdir(dst, 0777);
    assert_ok(qwick_quantize(src, temp_path("out/"), &o, NULL, &e), &e);
    refuses(src, dst, &o, QWICK_ERR_USAGE, "--force");
    o.force = true;
    o.bits = 8;
    put_file(temp_path("out/model-00001-of-00002.safetensors"), "x", 1);
    assert_ok(qwick_quantize(src, dst, &o, NULL, &e), &e);
    check_result(src, dst, 64, 8, NULL, 0, NULL);
    assert_int_equal(entries(dst), 2);
    assert_int_equal(entries(temp_dir), 1);
    mkdir(temp_path("out/sub"), 0777);
    refuses(src, dst, &o, QWICK_ERR_USAGE, "sub");
    rmdir(temp_path("out/sub"));
    unlink(temp_path("out/config.json"));
    refuses(src, dst, &o, QWICK_ERR_USAGE, "config.json");
    remove_tree(dst);

    /* a link to an empty directory: its target is filled */
    mkdir(temp_path("real"), 0777);
    assert_int_equal(symlink("real", dst), 0);
    assert_ok(qwick_quantize(src, dst, &o, NULL, &e), &e);
    assert_true(exists(temp_path("real/config.json")));
    struct stat st;
    assert_true(lstat(dst, &st) == 0 && S_ISLNK(st.st_mode));
    unlink(dst);
    remove_tree(temp_path("real"));

    /* never the source */
    write_source(-1);
    o.group = 32;
    refuses(src_path, src_path, &o, QWICK_ERR_USAGE, "is the source");
    remove_tree(src_path);
}

struct stopper {
    volatile int flag;
    int signal; /* 0: set the flag */
};

static void stop_halfway(void *ctx, size_t done, size_t total)
{
    struct stopper *s = ctx;
    if (done < total / 2)
        return;
    if (s->signal)
        raise(s->signal);
    s->flag = 1;
}

static void stops(void **state)
{
    struct stopper s = {0};
    struct qwick_quantize_options o = qwick_quantize_defaults();
    o.progress = stop_halfway;
    o.progress_ctx = &s;
    o.interrupt = &s.flag;
    refuses(MODELS "sharded-bf16", out_path, &o, QWICK_ERR_INTERRUPTED,
            "interrupted");
    assert_int_equal(entries(temp_dir), 0);

    /* After a kill, the leftover has another name and no config.json. Use one
     * thread, because a forked child lacks the threads of the pool. */
    s = (struct stopper){.signal = SIGKILL};
    o.threads = 1;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)qwick_quantize(MODELS "sharded-bf16", out_path, &o, NULL, NULL);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_false(exists(out_path));
    DIR *d = opendir(temp_dir);
    assert_non_null(d);
    for (struct dirent *f; (f = readdir(d)) != NULL;) {
        char name[600];
        if (f->d_name[0] == '.')
            continue;
        assert_memory_equal(f->d_name, "out.tmp-", 8);
        snprintf(name, sizeof name, "%s/config.json", f->d_name);
        assert_false(exists(temp_path(name)));
        snprintf(name, sizeof name, "%s/model.safetensors.index.json",
                 f->d_name);
        assert_false(exists(temp_path(name)));
    }
    closedir(d);
    remove_tree(temp_dir);
    mkdir(temp_dir, 0777);
}

#define IN_DIRECTORY(f) cmocka_unit_test_setup_teardown(f, setup, temp_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(golden_checkpoints),
        IN_DIRECTORY(pieces_alignment_and_companions),
        IN_DIRECTORY(demo_model),
        IN_DIRECTORY(options_are_checked),
        IN_DIRECTORY(sources_are_checked),
        IN_DIRECTORY(what_is_there_stays),
        IN_DIRECTORY(stops),
    };
    kernels = kernels_get(cpu_best());
    return cmocka_run_group_tests_name("quantize", tests, NULL, NULL);
}
