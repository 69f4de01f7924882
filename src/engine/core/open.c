/* Opening a checkpoint: config, tokenizer, template, weights. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/os.h"
#include "base/par.h"
#include "engine/cache/prefix.h"
#include "engine/cache/prefix_disk.h"
#include "engine/core/engine.h"
#include "engine/core/first_pass.h"
#include "engine/core/numa.h"
#include "engine/core/options.h"
#include "engine/core/template_probe.h"
#include "engine/core/tuning.h"
#include "engine/generate/token_trie.h"
#include "model/pooling.h"
#include "qwick_tools.h"
#include "text/chat/call_forms.h"
#include "text/chat/think.h"

enum { DEFAULT_CHUNK = 512, MAX_CHUNK = 1 << 16, MAX_THREADS = 1024 };
static const size_t DEFAULT_DISK_BYTES = (size_t)4 << 30;

const struct qwick_info *qwick_engine_info(const struct qwick_engine *eng)
{
    return &eng->info;
}

int engine_need_tokenizer(const struct qwick_engine *eng, struct qwick_err *e)
{
    if (!eng->bpe && eng->pieces_file)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: tokenizer.json: no such file, and %s alone is not "
                       "supported: let transformers write tokenizer.json "
                       "(AutoTokenizer, save_pretrained)",
                       checkpoint_dir(eng->ck), eng->pieces_file);
    return eng->bpe ? 0
                    : err_set(e, QWICK_ERR_MODEL,
                              "%s: %s, so that only token ids can be used",
                              checkpoint_dir(eng->ck),
                              checkpoint_gguf(eng->ck)
                                  ? "tokenizer.ggml.tokens: missing"
                                  : "tokenizer.json: no such file");
}

static int no_kernels(const char *name, struct qwick_err *e)
{
    char have[80] = "";
    const char *level;

    for (size_t i = 0; (level = kernels_level(i)); i++) {
        size_t n = strlen(have);
        (void)snprintf(have + n, sizeof have - n, "%s%s", n ? ", " : "", level);
    }
    return err_set(e, QWICK_ERR_USAGE, "isa: %s: this CPU supports only %s",
                   name, have);
}

static int choose_kernels(struct qwick_engine *eng,
                          const struct qwick_engine_options *o,
                          struct qwick_err *e)
{
    const struct kernels *best = kernels_best(), *k = best;
    bool known = true;
    if (o->isa)
        k = kernels_named(o->isa, &known);
    if (!known)
        return err_set(e, QWICK_ERR_USAGE, "isa: \"%.40s\": is none of %s",
                       o->isa, kernels_names());
    if (!k)
        return no_kernels(o->isa, e);
    if (best == kernels_ref())
        engine_warn(eng,
                    "there are no fast kernels for this CPU (on x86 they need "
                    "AVX2 and FMA): the reference kernels are slow");
    if (!o->tokenizer_only) {
        eng->tuning = tuning_settle(o->core, o->tuning_dir, e);
        if (!eng->tuning)
            return -1;
        eng->info.core = eng->tuning->core->name;
        eng->info.core_evidence = eng->tuning->evidence;
        eng->info.cpu_id = eng->tuning->cpu;
    }
    eng->model.k = k;
    eng->info.isa = k->name;
    eng->info.cpu = best->name;
    return 0;
}

const char *qwick_kv_name(enum qwick_kv kv)
{
    const struct kv_kind *kind = kv_kind(kv);
    return kind ? kind->name : NULL;
}

static int choose_mode(struct qwick_engine *eng,
                       const struct qwick_engine_options *o,
                       struct qwick_err *e)
{
    struct model *m = &eng->model;
    const struct kv_kind *kv = kv_kind(o->kv);
    if (!kv && o->kv != QWICK_KV_DEFAULT)
        return err_set(e, QWICK_ERR_USAGE, "KV cache: there is no kind %d",
                       (int)o->kv);
    if (o->exact && kv && o->kv != QWICK_KV_F32)
        return err_set(e, QWICK_ERR_USAGE,
                       "exact: keeps the KV cache in f32, %s was asked for",
                       kv->name);
    if (o->threads < 0 || o->threads > MAX_THREADS)
        return err_set(e, QWICK_ERR_USAGE,
                       "threads: must be from 1 to %d, is %d", MAX_THREADS,
                       o->threads);
    if (o->prefill_chunk > MAX_CHUNK)
        return err_set(e, QWICK_ERR_USAGE,
                       "prefill chunk: must be from 1 to %d, is %zu", MAX_CHUNK,
                       o->prefill_chunk);
    m->exact = o->exact;
    m->lazy_blas = o->lazy_blas;
    m->chunk = o->prefill_chunk ? o->prefill_chunk : DEFAULT_CHUNK;
    int want = o->threads ? o->threads : os_default_threads();
    eng->pool = m->pool = par_create(want);
    if (!eng->pool)
        return err_oom(e, (size_t)want * sizeof(pthread_t));
    m->n_threads = par_threads(eng->pool);
    if (m->n_threads < want)
        engine_warn(eng, "only %d of %d threads could be started", m->n_threads,
                    want);
    eng->info.threads = m->n_threads;
    return 0;
}

/* Choose the type of keys and values, once the config has been read. Without a
 * scale of scores, f16 would change logits by nearly as much as bf16
 * activations do elsewhere, and 4 bits by most of their size. */
static int choose_kv(struct qwick_engine *eng,
                     const struct qwick_engine_options *o,
                     struct qwick_err *e)
{
    bool unscaled = config_unscaled(&eng->model.config);
    bool f32 = o->exact || unscaled;
    if (unscaled && o->kv == QWICK_KV_Q4)
        return err_set(e, QWICK_ERR_USAGE,
                       "KV cache: q4 is too coarse for the attention of %s, "
                       "which does not scale its scores; use f32, f16 or q8",
                       eng->model.config.model_type);
    eng->kv = kv_kind(o->kv != QWICK_KV_DEFAULT ? o->kv
                      : f32                     ? QWICK_KV_F32
                                                : QWICK_KV_F16);
    eng->info.kv_dtype = eng->kv->name;
    engine_note(eng, "kernels %s of %s, %d threads of %d CPUs, KV %s%s",
                eng->info.isa, eng->info.cpu, eng->model.n_threads, os_cpus(),
                eng->info.kv_dtype, o->exact ? ", exact" : "");
    return 0;
}

/* Drop stop ids outside the vocabulary, with a warning. */
static void check_stop_ids(struct qwick_engine *eng)
{
    struct config *c = &eng->model.config;
    size_t n = 0;
    for (size_t i = 0; i < c->n_stop_ids; i++) {
        if ((size_t)c->stop_ids[i] < c->vocab_size)
            c->stop_ids[n++] = c->stop_ids[i];
        else
            engine_warn(eng,
                        "%s: eos_token_id: %d is outside the vocabulary of %zu "
                        "and ignored",
                        checkpoint_dir(eng->ck), c->stop_ids[i], c->vocab_size);
    }
    c->n_stop_ids = n;
}

/* Check that the embedding has a row for every id of the tokenizer. Added
 * tokens at its end may lack one: a text model can share its tokenizer with a
 * larger model, which has a token for images. They become text. */
static int check_ids(const struct qwick_engine *eng, struct qwick_err *e)
{
    size_t n = eng->model.config.vocab_size, size;
    if (!eng->bpe || bpe_size(eng->bpe) <= n)
        return 0;
    size = bpe_size(eng->bpe);
    if (!bpe_drop_from(eng->bpe, n)) {
        engine_note(eng,
                    "%s: added tokens with ids %zu to %zu are text: vocab_size "
                    "is %zu",
                    checkpoint_dir(eng->ck), n, size - 1, n);
        return 0;
    }
    return err_set(
        e, QWICK_ERR_MODEL, "%s: %s has ids up to %zu, %s a vocab_size of %zu",
        checkpoint_dir(eng->ck),
        checkpoint_gguf(eng->ck) ? "tokenizer.ggml.tokens" : "tokenizer.json",
        size - 1, checkpoint_gguf(eng->ck) ? "the file" : "config.json", n);
}

/* Block ids that the tokenizer lacks, because these rows of the head are
 * padding, and those that generation_config.json suppresses. */
static int block_ids(struct qwick_engine *eng, struct qwick_err *e)
{
    const struct config *c = &eng->model.config;
    size_t n = c->vocab_size;
    if (!eng->bpe && !c->n_suppress)
        return 0;
    eng->blocked = calloc(n, 1);
    if (!eng->blocked)
        return err_oom(e, n);
    for (size_t i = 0; eng->bpe && i < n; i++)
        eng->blocked[i] = !bpe_has(eng->bpe, (int32_t)i);
    for (size_t i = 0; i < c->n_suppress; i++)
        eng->blocked[c->suppress[i]] = 1;
    return 0;
}

static void fill_info(struct qwick_engine *eng)
{
    struct model *m = &eng->model;
    const struct config *c = &m->config;
    struct qwick_info *i = &eng->info;
    i->model = checkpoint_name(eng->ck);
    i->path = checkpoint_dir(eng->ck);
    i->model_type = c->model_type;
    i->template_name = eng->form ? chat_template_name(eng->form) : "none";
    i->rope_type = c->n_ropes ? config_rope_name(&c->ropes[0]) : "none";
    i->vocab_size = c->vocab_size;
    i->tokenizer_size = eng->bpe ? bpe_size(eng->bpe) : 0;
    i->has_tokenizer = eng->bpe != NULL;
    i->d_model = c->d_model;
    i->d_ff = c->d_ff;
    i->n_layers = c->n_layers;
    for (size_t k = 0; k < c->n_layers; k++) {
        const struct layer_config *l = &c->layers[k];
        if (l->n_experts) { /* all layers with experts have equal numbers */
            i->n_experts = l->n_experts;
            i->n_active_experts = l->n_active;
            i->expert_d_ff = l->expert_ff;
        }
    }
    i->n_heads = c->n_heads;
    i->n_kv_heads = c->n_kv_heads;
    i->head_dim = c->head_dim;
    i->n_ctx_max = c->n_ctx_max;
    i->sliding_window = c->sliding_window;
    i->rope_theta = c->ropes[0].theta;
    i->rms_eps = c->rms_eps;
    i->tied_head = c->tied_head;
    i->attention_bias = c->qkv_bias;
    i->stop_ids = c->stop_ids;
    i->n_stop_ids = c->n_stop_ids;
    i->bos_id = eng->bos_id;
    i->think_open_id = eng->think_open;
    i->think_close_id = eng->think_close;
    i->call_form = eng->call_form ? eng->call_form->name : NULL;
    i->generates = !engine_need_head(eng, NULL);
    i->is_classifier = engine_refuse_classifier(eng, NULL) != 0;
    i->weights_dtype = i->gemm = "none";
    if (!eng->weights)
        return;
    i->has_weights = true;
    i->gemm = model_gemm_name(m);
    struct model_sizes s = model_sizes(m);
    i->weights_dtype = s.storage;
    i->n_params = s.n_params;
    i->n_active_params = s.n_active_params;
    memcpy(i->params_by_bits, m->weights.params_by_bits,
           sizeof i->params_by_bits);
    if (i->n_params != i->params_by_bits[0]) {
        i->quant_bits = c->quant.all.bits;
        i->quant_group = c->quant.all.group;
        i->quant_overrides = c->quant.n;
    }
    i->weight_bytes = s.bytes;
    i->table_bytes = s.table_bytes;
    i->decode_bytes = s.decode_bytes;
    if (eng->own_lora)
        i->decode_bytes += m->loras.n_bytes;
    i->lora_bytes = m->loras.n_bytes;
    struct kv_cache kv; /* empty: no positions */
    if (kv_init(&kv, eng->kv, c, NULL))
        return;
    i->kv_token_bytes = kv_position_bytes(&kv);
    i->kv_state_bytes = state_live_bytes(&kv.state) +
                        KV_SNAPSHOTS * state_snapshot_bytes(&kv.state);
    kv_free(&kv);
}

/* Check the memory only for weights of this size: the check takes 0.2 ms. */
static const size_t LARGE_WEIGHTS = (size_t)256 << 20;

/* Check whether the weights fit the memory. If not, preloading is an error, and
 * otherwise a note says that they are read from the file. Weights in the page
 * cache count as available memory. */
static int check_memory(struct qwick_engine *eng, bool preload,
                        struct qwick_err *e)
{
    const struct model *m = &eng->model;
    size_t all = m->weights.n_bytes;
    if (all < LARGE_WEIGHTS)
        return 0;
    size_t memory = memory_available(&eng->memory, all);
    if (all <= memory)
        return 0;
    if (preload)
        return err_set(e, QWICK_ERR_MEMORY,
                       "%s: preload: the weights are %zu MB, but %zu MB of "
                       "memory are available; without preload they are read "
                       "from the file as needed",
                       checkpoint_dir(eng->ck), all >> 20, memory >> 20);
    engine_note(eng,
                "the weights are %zu MB, but %zu MB of memory are available: "
                "expect to read %.0f MB from the disk for each token",
                all >> 20, memory >> 20,
                model_disk_bytes(m, memory) / (1 << 20));
    return 0;
}

/* Whether passes read all weights, and the weights fit the memory. */
static bool all_read(struct qwick_engine *eng)
{
    const struct config *c = &eng->model.config;
    size_t all =
        st_file_bytes(eng->weights) - eng->model.weights.n_table_bytes;
    for (size_t i = 0; i < c->n_layers; i++)
        if (c->layers[i].n_experts)
            return false;
    return all < LARGE_WEIGHTS || all <= memory_available(&eng->memory, all);
}

/* Such as the vision model beside the text model. */
static void note_unused(struct qwick_engine *eng)
{
    const struct st_tensor *first = NULL;
    size_t n = 0, bytes = 0;
    for (size_t i = 0; i < st_count(eng->weights); i++) {
        const struct st_tensor *t = st_at(eng->weights, i);
        if (eng->model.weights.used[i])
            continue;
        first = first ? first : t;
        n++;
        bytes += t->n_bytes;
    }
    if (n)
        engine_note(eng,
                    "%s: %zu tensors, %.1f MB, are not part of the text model "
                    "and ignored: %.100s%s",
                    checkpoint_dir(eng->ck), n, (double)bytes / 1e6,
                    first->name, n > 1 ? ", ..." : "");
}

/* The file has been read, and most of it is not read again. MLX's format has no
 * order of columns: such weights would be rounded again. */
static void note_repacked(struct qwick_engine *eng)
{
    const struct weights *w = &eng->model.weights;
    if (!w->n_copies)
        return;
    eng->read_first = false;
    engine_note(eng, "%s: repacking the weights took %.1f s%s",
                checkpoint_dir(eng->ck), w->repack_ms / 1e3,
                w->n_orders ? ""
                            : "; `qwick quantize` writes them once in MLX's "
                              "format, which needs no repacking");
}

static int open_weights(struct qwick_engine *eng,
                        const struct qwick_engine_options *o,
                        struct qwick_err *e)
{
    struct model *m = &eng->model;
    if (eng->bos_id >= 0 && (size_t)eng->bos_id >= m->config.vocab_size)
        eng->bos_id = -1; /* text from now on, see check_ids */
    if (check_ids(eng, e) || st_open(&eng->weights, eng->ck, e))
        return -1;
    /* before model_open reads a page here and there, unless it has to find a
       table first */
    bool table = m->config.ple_dim > 0;
    if (!table && all_read(eng))
        first_pass_expect(eng);
    if (model_open(m, eng->ck, eng->weights, e))
        return -1;
    if (table && all_read(eng))
        first_pass_expect(eng);
    if (engine_open_loras(eng, o, e))
        return -1;
    note_repacked(eng);
    first_pass_leave_tables(eng);
    if (check_memory(eng, o->preload, e))
        return -1;
    if (o->preload) {
        first_pass_read(eng, NULL, 0);
        if (numa_preload(eng, e))
            return -1;
    }
    if (!m->lazy_blas)
        model_load_blas(m, m->chunk);
    if (m->head_differs)
        engine_warn(eng,
                    "%s: lm_head.weight differs from the embedding, although "
                    "tie_word_embeddings is true: lm_head.weight is used",
                    checkpoint_dir(eng->ck));
    note_unused(eng);
    check_stop_ids(eng);
    return block_ids(eng, e);
}

/* Read config.json. Tokenizing does not need it: a directory with only the
 * tokenizer's files is enough. */
static int open_config(struct qwick_engine *eng, bool optional,
                       struct qwick_err *e)
{
    struct map map;
    bool found;
    if (optional) {
        if (!checkpoint_gguf(eng->ck)) {
            if (checkpoint_map_small(eng->ck, "config.json", &map, &found, e))
                return -1;
            if (!found)
                return 0;
            map_close(&map);
        }
        /* ignore errors: tokenizing works even for models that we cannot run */
        if (config_load(&eng->model.config, eng->ck, NULL))
            eng->model.config = (struct config){0};
        return 0;
    }
    return config_load(&eng->model.config, eng->ck, e);
}

/* Open the caches on disk that sessions may use: one for each adapter that they
 * may have. */
static int open_disks(struct qwick_engine *eng,
                      const struct qwick_engine_options *o, struct qwick_err *e)
{
    struct qwick_err why;
    size_t n = 1 + eng->model.loras.n, bytes = o->prefix_cache_disk_bytes;
    eng->disks = calloc(n, sizeof(*eng->disks));
    if (!eng->disks)
        return err_oom(e, n * sizeof(*eng->disks));
    for (size_t i = eng->own_lora; i < n; i++)
        if (prefix_disk_open(&eng->disks[i], eng, i, o->prefix_cache_dir,
                             bytes ? bytes : DEFAULT_DISK_BYTES, &why)) {
            engine_warn(eng, "prefix cache: %s; not used", why.msg);
            return 0;
        }
    return 0;
}

/* Open the prefix caches. If the cache on disk fails, warn and go on without
 * it. */
static int open_prefixes(struct qwick_engine *eng,
                         const struct qwick_engine_options *o,
                         struct qwick_err *e)
{
    const struct config *c = &eng->model.config;
    struct kv_cache kv = {0}; /* empty: no positions */
    bool bad = o->prefix_cache_bytes &&
               (kv_init(&kv, eng->kv, c, e) ||
                prefix_create(&eng->prefix, &kv, o->prefix_cache_bytes,
                             1 + eng->model.loras.n, e));
    kv_free(&kv);
    if (bad)
        return -1;
    return o->prefix_cache_disk ? open_disks(eng, o, e) : 0;
}

/* Find the first pair of think tags that the tokenizer has as added tokens. */
static void find_think_ids(struct qwick_engine *eng)
{
    for (size_t i = 0; eng->bpe && i < N_THINK_TAGS; i++) {
        int32_t open = bpe_added_id(eng->bpe, think_tags[i].open);
        int32_t close = bpe_added_id(eng->bpe, think_tags[i].close);
        if (open < 0 || close < 0)
            continue;
        eng->think_open = open;
        eng->think_close = close;
        eng->think_label = think_tags[i].label;
        return;
    }
}

int qwick_engine_open(struct qwick_engine **out,
                      const struct qwick_engine_options *given,
                      struct qwick_err *e)
{
    *out = NULL;
    double start = clock_ms();
    struct qwick_engine_options all = qwick_engine_defaults(), *o = &all;
    if (options_read(o, sizeof *o, given, "engine", e))
        return -1;
    struct qwick_engine *eng = calloc(1, sizeof *eng);
    if (!eng)
        return err_oom(e, sizeof *eng);
    pthread_mutex_init(&eng->trie_lock, NULL);
    pthread_mutex_init(&eng->pooling_lock, NULL);
    eng->log = o->log;
    eng->log_ctx = o->log_ctx;
    eng->think_open = eng->think_close = eng->bos_id = -1;
    if (choose_kernels(eng, o, e) || choose_mode(eng, o, e) ||
        numa_open(eng, o, e) ||
        checkpoint_open_at(&eng->ck, o->model, o->place, e) ||
        open_config(eng, o->tokenizer_only, e) || choose_kv(eng, o, e))
        goto fail;
    double opened = clock_ms();
    if (engine_open_text(eng, o, e))
        goto fail;
    find_think_ids(eng);
    if (eng->bpe)
        channels_open(eng);
    if (engine_probe_template(eng, e))
        goto fail;
    double tokens = clock_ms();
    if (o->tokenizer_only && engine_need_tokenizer(eng, e))
        goto fail;
    if (!o->tokenizer_only && open_weights(eng, o, e))
        goto fail;
    eng->info.tokenizer_ms = tokens - opened;
    eng->info.weights_ms = clock_ms() - tokens;
    fill_info(eng);
    if (eng->weights && open_prefixes(eng, o, e))
        goto fail;
    eng->info.load_ms = clock_ms() - start;
    *out = eng;
    return 0;
fail:
    qwick_engine_close(eng);
    return -1;
}

void qwick_engine_close(struct qwick_engine *eng)
{
    if (!eng)
        return;
    prefix_free(eng->prefix);
    for (size_t i = 0; eng->disks && i <= eng->model.loras.n; i++)
        prefix_disk_close(eng->disks[i]);
    free(eng->disks);
    if (eng->pooling)
        pooling_close(eng->pooling);
    free(eng->pooling);
    model_close(&eng->model);
    st_close(eng->weights);
    token_trie_free(eng->trie);
    bpe_close(eng->bpe);
    chat_template_close(eng->form);
    chat_template_close(eng->form_tools);
    checkpoint_close(eng->ck);
    free(eng->blocked);
    scratch_free(eng->scratch);
    free(eng->spans);
    free(eng->rows);
    free(eng->hidden);
    par_free(eng->pool);
    os_nodes_free(&eng->nodes);
    pthread_mutex_destroy(&eng->trie_lock);
    pthread_mutex_destroy(&eng->pooling_lock);
    free(eng);
}

size_t qwick_tensor_count(const struct qwick_engine *eng)
{
    return eng->weights ? st_count(eng->weights) : 0;
}

int qwick_tensor_at(const struct qwick_engine *eng, size_t i,
                    struct qwick_tensor *out, struct qwick_err *e)
{
    size_t n = qwick_tensor_count(eng);
    *out = (struct qwick_tensor){0};
    if (i >= n)
        return err_set(e, QWICK_ERR_USAGE,
                       "tensor %zu: is out of range, the checkpoint has %zu", i,
                       n);
    const struct st_tensor *t = st_at(eng->weights, i);
    *out = (struct qwick_tensor){.name = t->name,
                                 .dtype = dtype_name(t->dtype),
                                 .file = t->file,
                                 .rank = t->rank,
                                 .bytes = t->n_bytes,
                                 .used = eng->model.weights.used[i]};
    memcpy(out->shape, t->shape, sizeof out->shape);
    return 0;
}
