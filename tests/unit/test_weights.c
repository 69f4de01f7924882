/* Binding tensors by name, shape and type: on small checkpoints written here,
 * each with one thing changed. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines.h"
#include "file/safetensors.h"
#include "model/weights.h"
#include "qwick_tools.h"
#include "tempdir.h"
#include "tensors_file.h"

enum { VOCAB = 10, D = 8, FF = 12, HEADS = 2, KV = 1, HEAD = 4 };
enum { MAX_TENSORS = 32 };

static unsigned char zeros[4096];

struct list {
    struct st_out_tensor t[MAX_TENSORS];
    char names[MAX_TENSORS][80];
    size_t n;
};

static void put(struct list *l, const char *name, size_t rows, size_t cols)
{
    struct st_out_tensor *t = &l->t[l->n];
    snprintf(l->names[l->n], sizeof l->names[0], "%s", name);
    *t = (struct st_out_tensor){.name = l->names[l->n],
                                .dtype = DT_F32,
                                .rank = cols ? 2 : 1,
                                .shape = {rows, cols},
                                .data = zeros};
    l->n++;
}

/* One layer; bias: the four of attention_bias too. */
static struct list *layer(const char *prefix, bool bias)
{
    static const struct {
        const char *name;
        size_t rows, cols;
        bool bias;
    } rows[] = {
        {"embed_tokens.weight", VOCAB, D, false},
        {"norm.weight", D, 0, false},
        {"layers.0.input_layernorm.weight", D, 0, false},
        {"layers.0.post_attention_layernorm.weight", D, 0, false},
        {"layers.0.self_attn.q_proj.weight", HEADS * HEAD, D, false},
        {"layers.0.self_attn.k_proj.weight", KV * HEAD, D, false},
        {"layers.0.self_attn.v_proj.weight", KV * HEAD, D, false},
        {"layers.0.self_attn.o_proj.weight", D, HEADS * HEAD, false},
        {"layers.0.self_attn.q_norm.weight", HEAD, 0, false},
        {"layers.0.self_attn.k_norm.weight", HEAD, 0, false},
        {"layers.0.mlp.gate_proj.weight", FF, D, false},
        {"layers.0.mlp.up_proj.weight", FF, D, false},
        {"layers.0.mlp.down_proj.weight", D, FF, false},
        {"layers.0.self_attn.q_proj.bias", HEADS * HEAD, 0, true},
        {"layers.0.self_attn.k_proj.bias", KV * HEAD, 0, true},
        {"layers.0.self_attn.v_proj.bias", KV * HEAD, 0, true},
        {"layers.0.self_attn.o_proj.bias", D, 0, true},
    };
    static struct list l;
    l.n = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[80];
        if (rows[i].bias && !bias)
            continue;
        snprintf(name, sizeof name, "%s%s", prefix, rows[i].name);
        put(&l, name, rows[i].rows, rows[i].cols);
    }
    return &l;
}

static void write_weights(const struct list *l)
{
    temp_put_tensors("model.safetensors", l->t, l->n);
}

static void write_config(bool tied, bool bias)
{
    char text[1024];
    int n = snprintf(
        text, sizeof text,
        "{\"model_type\": \"qwen3\", \"vocab_size\": %d, \"hidden_size\": %d, "
        "\"intermediate_size\": %d, \"num_hidden_layers\": 1, "
        "\"num_attention_heads\": %d, \"num_key_value_heads\": %d, "
        "\"head_dim\": %d, \"max_position_embeddings\": 64, "
        "\"rms_norm_eps\": 1e-6, \"rope_theta\": 10000, "
        "\"tie_word_embeddings\": %s, \"attention_bias\": %s}",
        VOCAB, D, FF, HEADS, KV, HEAD, tied ? "true" : "false",
        bias ? "true" : "false");
    temp_write("config.json", text, (size_t)n);
}

/* The checkpoint opens and answers; *info is copied. */
static struct qwick_info opens(void)
{
    struct qwick_engine *eng = engine_with(.model = temp_dir, .threads = 1);
    struct qwick_info info = *qwick_engine_info(eng);
    logits_are_zero(eng);
    qwick_engine_close(eng);
    return info;
}

static void refuses(const char *a, const char *b, const char *c)
{
    struct qwick_err e = open_refused(temp_dir);
    if (e.code != QWICK_ERR_MODEL || !strstr(e.msg, a) || !strstr(e.msg, b) ||
        !strstr(e.msg, c) || !strstr(e.msg, temp_dir))
        fail_msg("expected %s, %s, %s, %s in: %s", temp_dir, a, b, c, e.msg);
}

static void good_checkpoints(void **state)
{
    const size_t embed = VOCAB * D;
    const size_t rest = D + 2 * D + 2 * D * HEADS * HEAD + 2 * D * KV * HEAD +
                        2 * HEAD + 3 * D * FF;
    const size_t biases = HEADS * HEAD + 2 * KV * HEAD + D;
    write_config(true, false);
    struct list *l = layer("model.", false);
    write_weights(l);
    struct qwick_info info = opens();
    assert_int_equal(info.n_params, embed + rest);
    assert_int_equal(info.weight_bytes, 4 * (embed + rest));
    assert_true(info.tied_head);
    assert_false(info.has_tokenizer);
    /* tensors that nothing uses */
    put(l, "model.rotary_emb.inv_freq", HEAD / 2, 0);
    put(l, "visual.patch_embed", 3, 3);
    l->t[l->n - 1].dtype = DT_I64;
    write_weights(l);
    info = opens();
    assert_int_equal(info.n_params, embed + rest);
    /* a head of its own counts, whatever tie_word_embeddings says */
    put(l, "lm_head.weight", VOCAB, D);
    write_weights(l);
    info = opens();
    assert_int_equal(info.n_params, 2 * embed + rest);
    assert_false(info.tied_head);
    /* the bare model's names */
    write_weights(layer("", false));
    info = opens();
    assert_int_equal(info.n_params, embed + rest);
    /* an own head, and with its name in a bare model */
    write_config(false, false);
    for (int bare = 0; bare < 2; bare++) {
        l = layer(bare ? "" : "model.", false);
        put(l, "lm_head.weight", VOCAB, D);
        write_weights(l);
        info = opens();
        assert_int_equal(info.n_params, 2 * embed + rest);
        /* of the embedding, a token reads one row */
        assert_int_equal(info.decode_bytes, 4 * (embed + rest + D));
    }
    write_config(true, true);
    write_weights(layer("model.", true));
    info = opens();
    assert_int_equal(info.n_params, embed + rest + biases);
    /* biases that the config does not know of are not silently left out by the
     * config's fault alone: they are extra tensors */
    write_config(true, false);
    info = opens();
    assert_int_equal(info.n_params, embed + rest);
}

static void used_tensors_are_marked(void **state)
{
    write_config(true, false);
    struct list *l = layer("model.", false);
    put(l, "odd.weight", VOCAB, D);
    write_weights(l);
    struct qwick_engine *eng = engine_with(.model = temp_dir, .threads = 1);
    struct qwick_tensor t;
    size_t n = 0, unused = 0;
    for (; !qwick_tensor_at(eng, n, &t, NULL); n++) {
        assert_string_equal(t.dtype, "F32");
        assert_string_equal(t.file, "model.safetensors");
        if (!t.used) {
            unused++;
            assert_string_equal(t.name, "odd.weight");
        }
    }
    assert_int_equal(n, l->n);
    assert_int_equal(unused, 1);
    qwick_engine_close(eng);
}

static void each_missing_tensor_is_named(void **state)
{
    for (int bare = 0; bare < 2; bare++) {
        for (size_t i = 0;; i++) {
            struct list *l = layer(bare ? "" : "model.", true);
            if (i == l->n)
                break;
            char name[80];
            memcpy(name, l->names[i], sizeof name);
            l->t[i] = l->t[--l->n];
            write_config(true, true);
            write_weights(l);
            /* without its embedding, nothing tells a bare model */
            refuses(bare && i == 0 ? "embed_tokens.weight" : name, "missing",
                    "tensor");
        }
    }
    write_config(false, false);
    write_weights(layer("model.", false));
    refuses("lm_head.weight", "missing", "tensor");
    /* the prefix belongs to all names or none */
    struct list *l = layer("model.", false);
    put(l, "model.lm_head.weight", VOCAB, D);
    write_weights(l);
    refuses("lm_head.weight", "missing", "tensor");
}

static void each_wrong_shape_is_named(void **state)
{
    write_config(false, true);
    for (size_t i = 0;; i++) {
        struct list *l = layer("model.", true);
        put(l, "lm_head.weight", VOCAB, D);
        if (i == l->n)
            break;
        struct st_out_tensor *t = &l->t[i];
        size_t rows = t->shape[0], cols = t->shape[1];
        char want[64];
        if (t->rank == 2)
            snprintf(want, sizeof want, "[%zu, %zu] by", rows, cols);
        else
            snprintf(want, sizeof want, "[%zu] by", rows);
        t->shape[0]++;
        write_weights(l);
        refuses(t->name, want, "model.safetensors");
        t->shape[0] -= 2;
        write_weights(l);
        refuses(t->name, want, "shape");
        t->shape[0] = rows;
        if (t->rank == 2) {
            t->shape[1]++;
            write_weights(l);
            refuses(t->name, want, "shape");
            if (rows != cols) { /* as some formats store it */
                t->shape[0] = cols;
                t->shape[1] = rows;
                write_weights(l);
                refuses(t->name, want, "shape");
            }
        }
        /* the same elements in another rank */
        t->shape[0] = 1;
        t->shape[1] = rows;
        t->shape[2] = t->rank == 2 ? cols : 1;
        t->rank = 3;
        write_weights(l);
        refuses(t->name, want, "[1, ");
        t->rank = 0;
        write_weights(l);
        refuses(t->name, want, "[] in");
    }
    /* a dimension of 0 is refused as well */
    struct list *l = layer("model.", false);
    l->t[0].shape[0] = 0;
    write_config(true, false);
    write_weights(l);
    refuses("embed_tokens", "[0, 8]", "[10, 8]");
}

static void types_that_are_no_weights(void **state)
{
    write_config(false, true);
    for (int type = 0; type < DT_BLOCKS; type++) {
        for (size_t i = 0; i < 18; i += 3) {
            struct list *l = layer("model.", true);
            put(l, "lm_head.weight", VOCAB, D);
            l->t[i].dtype = (enum dtype)type;
            write_weights(l);
            bool packed = type == DT_U32 && l->t[i].rank == 2;
            if (type < DT_N_FLOAT)
                opens();
            else /* packed weights have that type, and scales beside them */
                refuses(l->names[i], dtype_name((enum dtype)type),
                        packed ? ".scales: missing" : "not supported");
        }
    }
}

/* The functions themselves: names, widening, counting each tensor once. */
static void vectors_are_widened(void **state)
{
    static const uint16_t bf16[3] = {0x3F80, 0xC000, 0x7F80}; /* 1 -2 inf */
    static const uint16_t f16[3] = {0x3C00, 0xC000, 0x0001};
    static const float f32[3] = {1, -2, 3.5f};
    struct st_out_tensor t[] = {
        {"model.embed_tokens.weight", DT_F32, 2, {1, 1}, f32},
        {"model.a", DT_BF16, 1, {3}, bf16},
        {"model.b", DT_F16, 1, {3}, f16},
        {"model.c.7.d", DT_F32, 1, {3}, f32},
    };
    struct st_writer *out;
    struct st_set *set;
    struct weights w;
    struct matrix m;
    float *v;
    const struct names names = {
        .prefixes = {"", "model.", NULL},
        .of = {[WEIGHT_EMBED] = {"@embed_tokens.weight"},
               [WEIGHT_HEAD] = {"lm_head.weight"},
               [WEIGHT_NORM] = {"@a"},
               [WEIGHT_ATTN_NORM] = {"@b"},
               [WEIGHT_MLP_NORM] = {"@not.there", "@c.#.d"}}};
    const struct names *const schemes[] = {&names, NULL};
    const struct weight_ref a = {.id = WEIGHT_NORM},
                            b = {.id = WEIGHT_ATTN_NORM},
                            c7 = {.id = WEIGHT_MLP_NORM, .layer = 7};
    assert_int_equal(
        st_writer_open(&out, temp_path("x.safetensors"), t, 4, NULL), 0);
    assert_int_equal(st_writer_close(out, NULL), 0);
    assert_int_equal(st_open_file(&set, temp_path("x.safetensors"), NULL), 0);
    assert_int_equal(
        weights_open(&w, set, "PATH", schemes, kernels_ref(), true, NULL), 0);
    assert_string_equal(w.naming.prefix, "model.");
    assert_int_equal(weights_vector(&w, &v, 3, a, NULL), 0);
    assert_true(v[0] == 1 && v[1] == -2 && v[2] > 3e38f);
    assert_int_equal(weights_vector(&w, &v, 3, b, NULL), 0);
    assert_true(v[0] == 1 && v[1] == -2 && v[2] == 0x1p-24f);
    assert_int_equal(weights_vector(&w, &v, 3, c7, NULL), 0);
    assert_true(v[2] == 3.5f);
    assert_int_equal(w.n_params, 9);
    assert_int_equal(w.n_bytes, 6 + 6 + 12);
    assert_int_equal(weights_vector(&w, &v, 3, c7, NULL), 0);
    assert_int_equal(w.n_params, 9);
    struct qwick_err e;
    assert_int_equal(weights_vector(&w, &v, 2, a, &e), -1);
    assert_null(v);
    assert_int_equal(weights_matrix(&w, &m, 3, 1, a, &e), -1);
    assert_non_null(strstr(e.msg, "PATH: "));
    assert_int_equal(weights_matrix(&w, &m, 1, 1,
                                    (struct weight_ref){WEIGHT_EMBED, 0, 0},
                                    &e),
                     0);
    assert_int_equal(m.rows, 1);
    assert_int_equal(weights_matrix(&w, &m, 1, 1,
                                    (struct weight_ref){WEIGHT_HEAD, 0, 0}, &e),
                     -1);
    weights_close(&w);
    weights_close(&w);
    st_close(set);
}

/* Patterns are expanded, each weight has a name in some scheme, and the longest
 * names fit. Families test that their schemes name what they bind. */
static void names_are_expanded(void **state)
{
    char name[NAMES_BYTES];
    const struct weight_ref up = {WEIGHT_EXPERT_UP, 47, 127};
    const struct weight_ref down = {WEIGHT_EXPERTS_DOWN, 3, 0};
    const struct weight_ref head = {WEIGHT_HEAD, 0, 0};
    assert_true(names_expand(name, &names_hub, "model.", up, 0));
    assert_string_equal(name, "model.layers.47.mlp.experts.127.up_proj.weight");
    assert_true(names_expand(name, &names_hub, "model.", up, 1));
    assert_string_equal(
        name, "model.layers.47.block_sparse_moe.experts.127.w3.weight");
    assert_false(names_expand(name, &names_hub, "model.", up, 2));
    assert_string_equal(name, "");
    assert_true(names_expand(name, &names_hub, "", down, 0));
    assert_string_equal(name, "layers.3.mlp.switch_mlp.down_proj.weight");
    assert_true(names_expand(name, &names_hub, "", down, 2));
    assert_string_equal(name, "layers.3.mlp.experts.down_proj");
    assert_true(names_expand(name, &names_hub, "model.", head, 0));
    assert_string_equal(name, "lm_head.weight");
    static const struct names *const schemes[] = {
        &names_hub,       &names_gemma,         &names_gguf,
        &names_gemma4,    &names_gpt_oss,       &names_gguf_oss,
        &names_qwen35,    &names_qwen35_mlx,    &names_qwen35_gguf,
        &names_qwen3next, &names_qwen3next_mlx, &names_qwen3next_gguf,
        &names_lfm2,      &names_lfm2_gguf,     &names_bert,
        &names_gguf_bert, &names_modernbert};
    for (int id = 0; id < N_WEIGHTS; id++) {
        const struct weight_ref ref = {(enum weight_id)id, SIZE_MAX, SIZE_MAX};
        size_t n = 0;
        for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
            n +=
                names_expand(name, schemes[i], "model.language_model.", ref, 0);
            assert_true(strlen(name) < NAMES_BYTES - 1);
        }
        assert_true(n > 0);
    }
}

/* The scheme whose embedding is in the file names all weights. */
static void schemes_are_told_apart(void **state)
{
    static const float one[1] = {1}, two[1] = {2};
    const struct st_out_tensor t[] = {{"tok.weight", DT_F32, 2, {1, 1}, one},
                                      {"n.weight", DT_F32, 1, {1}, two},
                                      {"norm.weight", DT_F32, 1, {1}, one}};
    const struct names other = {
        .prefixes = {"", NULL},
        .of = {[WEIGHT_EMBED] = {"tok.weight"}, [WEIGHT_NORM] = {"n.weight"}}};
    const struct names *const schemes[] = {&names_hub, &other, NULL};
    const struct weight_ref norm = {.id = WEIGHT_NORM};
    struct st_writer *out;
    struct st_set *set;
    struct weights w;
    struct qwick_err e;
    float *v;
    assert_int_equal(
        st_writer_open(&out, temp_path("x.safetensors"), t, 3, NULL), 0);
    assert_int_equal(st_writer_close(out, NULL), 0);
    assert_int_equal(st_open_file(&set, temp_path("x.safetensors"), NULL), 0);
    assert_int_equal(
        weights_open(&w, set, "PATH", schemes, kernels_ref(), true, NULL), 0);
    assert_int_equal(weights_vector(&w, &v, 1, norm, NULL), 0);
    assert_true(v[0] == 2);
    /* a weight that this scheme has no name for */
    assert_int_equal(
        weights_vector(&w, &v, 1, (struct weight_ref){.id = WEIGHT_Q_NORM}, &e),
        -1);
    assert_non_null(strstr(e.msg, "PATH: "));
    weights_close(&w);
    st_close(set);
}

/* A stack is one tensor of matrices; its parts borrow from it. */
static void stacks_are_cut_into_matrices(void **state)
{
    enum { N = 3, ROWS = 4, COLS = 5 };
    static float x[N * ROWS * COLS];
    const struct st_out_tensor t[] = {
        {"s", DT_F32, 3, {N, ROWS, COLS}, x},
        {"flat", DT_F32, 2, {N * ROWS, COLS}, x},
    };
    const struct names names = {
        .prefixes = {"", NULL},
        .of = {[WEIGHT_EMBED] = {"s"}, [WEIGHT_HEAD] = {"flat"}}};
    const struct names *const schemes[] = {&names, NULL};
    const struct weight_ref s = {.id = WEIGHT_EMBED}, f = {.id = WEIGHT_HEAD};
    struct st_writer *out;
    struct st_set *set;
    struct weights w;
    struct matrix all, part[2];
    struct qwick_err e;
    assert_int_equal(
        st_writer_open(&out, temp_path("x.safetensors"), t, 2, NULL), 0);
    assert_int_equal(st_writer_close(out, NULL), 0);
    assert_int_equal(st_open_file(&set, temp_path("x.safetensors"), NULL), 0);
    assert_int_equal(
        weights_open(&w, set, "PATH", schemes, kernels_ref(), true, NULL), 0);
    assert_int_equal(weights_stack(&w, &all, N, ROWS, COLS, s, NULL), 0);
    assert_int_equal(all.rows, N * ROWS);
    assert_int_equal(w.n_params, N * ROWS * COLS);
    assert_int_equal(w.n_matrices, 0);
    assert_int_equal(weights_view(&w, &part[0], &all, 0, ROWS, NULL), 0);
    assert_int_equal(weights_view(&w, &part[1], &all, 2 * ROWS, 2, NULL), 0);
    assert_int_equal(w.n_matrices, 2);
    assert_int_equal(part[1].rows, 2);
    assert_ptr_equal(part[1].data[0],
                     st_find(set, "s")->data + 2 * ROWS * COLS * sizeof(float));
    /* the right number of elements is not enough */
    assert_int_equal(weights_stack(&w, &all, N, COLS, ROWS, s, &e), -1);
    assert_non_null(strstr(e.msg, "[3, 4, 5] in the file, [3, 5, 4] by"));
    assert_int_equal(weights_stack(&w, &all, ROWS, N, COLS, s, &e), -1);
    assert_int_equal(weights_stack(&w, &all, N, ROWS, COLS, f, &e), -1);
    assert_non_null(strstr(e.msg, "[12, 5] in the file, [3, 4, 5] by"));
    assert_int_equal(weights_matrix(&w, &all, N * ROWS, COLS, s, &e), -1);
    weights_close(&w);
    st_close(set);
}

/* gpt-oss's stacks in MXFP4: the rows of two matrices alternate, and a view of
 * one of them has its rows and no others. */
static void rows_of_two_matrices_alternate(void **state)
{
    enum { N = 2, ROWS = 6, COLS = 64, STRIPES = COLS / 32 };
    static unsigned char q[N * ROWS * STRIPES * 16], s[N * ROWS * STRIPES];
    static float x[N * ROWS * COLS];
    const struct st_out_tensor t[] = {
        {"m_blocks", DT_U8, 4, {N, ROWS, STRIPES, 16}, q},
        {"m_scales", DT_U8, 3, {N, ROWS, STRIPES}, s},
        {"alone_blocks", DT_U8, 4, {N, ROWS, STRIPES, 16}, q},
        {"f", DT_F32, 3, {N, ROWS, COLS}, x},
    };
    const struct names names = {.config = "config.json",
                                .prefixes = {"", NULL},
                                .of = {[WEIGHT_EMBED] = {"m"},
                                       [WEIGHT_HEAD] = {"alone.weight"},
                                       [WEIGHT_NORM] = {"f"}}};
    const struct names *const schemes[] = {&names, NULL};
    const struct weight_ref m = {.id = WEIGHT_EMBED}, a = {.id = WEIGHT_HEAD},
                            f = {.id = WEIGHT_NORM};
    const struct kernels *k = kernels_ref();
    struct st_writer *out;
    struct st_set *set;
    struct weights w;
    struct matrix all, odd;
    struct qwick_err e;
    float want[COLS], got[3 * COLS];
    for (size_t i = 0; i < sizeof q; i++)
        q[i] = (unsigned char)(i * 37);
    for (size_t i = 0; i < sizeof s; i++)
        s[i] = (unsigned char)(120 + i % 9);
    assert_int_equal(
        st_writer_open(&out, temp_path("m.safetensors"), t, 4, NULL), 0);
    assert_int_equal(st_writer_close(out, NULL), 0);
    assert_int_equal(st_open_file(&set, temp_path("m.safetensors"), NULL), 0);
    assert_int_equal(weights_open(&w, set, "PATH", schemes, k, true, NULL), 0);
    assert_true(weights_has(&w, m) && weights_in_blocks(&w, m));
    assert_int_equal(weights_stack(&w, &all, N, ROWS, COLS, m, NULL), 0);
    assert_ptr_equal(all.data[0], st_find(set, "m_blocks")->data);
    assert_int_equal(w.n_bytes, sizeof q + sizeof s);
    assert_int_equal(w.n_params, N * ROWS * COLS);
    /* the second matrix's rows 1, 3 and 5 */
    assert_int_equal(
        weights_view_steps(&w, &odd, &all, ROWS + 1, ROWS / 2, 2, NULL), 0);
    odd.ops->to_f32(k, got, &odd, 0, ROWS / 2);
    for (size_t r = 0; r < ROWS / 2; r++) {
        all.ops->to_f32(k, want, &all, ROWS + 1 + 2 * r, 1);
        assert_memory_equal(got + r * COLS, want, sizeof want);
    }
    /* shapes, a missing part, and a format that has no such views */
    assert_int_equal(weights_stack(&w, &all, N, COLS, ROWS, m, &e), -1);
    assert_non_null(strstr(e.msg, "not a multiple of MXFP4's group of 32"));
    assert_int_equal(weights_stack(&w, &all, N, ROWS, 2 * COLS, m, &e), -1);
    assert_non_null(strstr(e.msg, "[2, 6, 2, 16] in the file, [2, 6, 4, 16]"));
    assert_int_equal(weights_stack(&w, &all, N, ROWS, COLS, a, &e), -1);
    assert_non_null(strstr(e.msg, "alone_scales: missing"));
    assert_int_equal(weights_stack(&w, &all, N, ROWS, COLS, f, NULL), 0);
    assert_int_equal(weights_view_steps(&w, &odd, &all, 0, 3, 2, &e), -1);
    assert_non_null(strstr(e.msg, "PATH: a stack of matrices in f32"));
    weights_close(&w);
    st_close(set);
}

static void no_weights_at_all(void **state)
{
    write_config(true, false);
    refuses("safetensors", "", "");
    /* an empty container is legal and holds nothing that is needed */
    temp_write("model.safetensors", "\x02\0\0\0\0\0\0\0{}", 10);
    refuses("embed_tokens.weight", "missing", "tensor");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(good_checkpoints, fresh),
        cmocka_unit_test_setup(used_tensors_are_marked, fresh),
        cmocka_unit_test_setup(each_missing_tensor_is_named, fresh),
        cmocka_unit_test_setup(each_wrong_shape_is_named, fresh),
        cmocka_unit_test_setup(types_that_are_no_weights, fresh),
        cmocka_unit_test_setup(vectors_are_widened, fresh),
        cmocka_unit_test_setup(names_are_expanded, fresh),
        cmocka_unit_test_setup(schemes_are_told_apart, fresh),
        cmocka_unit_test_setup(stacks_are_cut_into_matrices, fresh),
        cmocka_unit_test_setup(rows_of_two_matrices_alternate, fresh),
        cmocka_unit_test_setup(no_weights_at_all, fresh),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
