/* Whether a checkpoint suits a task. config.json says what only a classifier, a
 * text encoder, or a model without a head, is for. Qwen3, Qwen3-Embedding and
 * Qwen3-Reranker are all Qwen3ForCausalLM there, so we look for other signs of
 * each kind, and warn if a checkpoint has none. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "engine/core/engine.h"
#include "model/pooling.h"
#include "qwick_tools.h"

/* Bytes of README.md to search: its front matter and first lines. */
enum { README_BYTES = 4096 };

/* The vocabulary of Qwen3-Embedding and Qwen3-Reranker; chat models of the
 * family pad theirs to 151,936. */
enum { UNPADDED_VOCAB = 151669 };

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Whether the checkpoint's name contains a word. The name is that of its
 * directory; in the hub's cache, that of the directory above snapshots/. A GGUF
 * file has the name that the user gave, because a link may lead to a blob. */
static bool is_called(const struct qwick_engine *eng, const char *word)
{
    char path[PATH_MAX];
    if (checkpoint_gguf(eng->ck))
        return strcasestr(base_name(checkpoint_dir(eng->ck)), word) != NULL;
    if (!realpath(checkpoint_dir(eng->ck), path))
        return strcasestr(checkpoint_name(eng->ck), word) != NULL;
    char *end = strstr(path, "/snapshots/");
    if (end)
        *end = 0;
    return strcasestr(base_name(path), word) != NULL;
}

static bool has_file(const struct qwick_engine *eng, const char *name)
{
    struct map map;
    bool found = false;
    if (checkpoint_map(eng->ck, name, &map, &found, NULL) || !found)
        return false;
    map_close(&map);
    return true;
}

static bool readme_says(const struct qwick_engine *eng,
                        const char *const *words)
{
    struct map map;
    bool found = false;
    char text[README_BYTES + 1];
    if (checkpoint_map(eng->ck, "README.md", &map, &found, NULL) || !found)
        return false;
    size_t n = map.size < README_BYTES ? map.size : README_BYTES;
    memcpy(text, map.data, n);
    map_close(&map);
    for (size_t i = 0; i < n; i++)
        if (!text[i])
            text[i] = ' ';
    text[n] = 0;
    for (; *words; words++)
        if (strcasestr(text, *words))
            return true;
    return false;
}

/* Whether the post-processor ends texts with a token. Its hidden state is the
 * vector. */
static bool ends_texts(const struct qwick_engine *eng)
{
    struct bpe_frame f;
    return eng->bpe && !bpe_get_frame(eng->bpe, &f, NULL) && f.n_after > 0;
}

/* Whether the tensors have the names of the bare model that
 * sentence-transformers loads. */
static bool has_bare_names(const struct qwick_engine *eng)
{
    for (size_t i = 0; eng->weights && i < st_count(eng->weights); i++)
        if (!strcmp(st_at(eng->weights, i)->name, "embed_tokens.weight"))
            return true;
    return false;
}

/* A GGUF file says what it is for. */
static bool pools(const struct qwick_engine *eng, enum pooling_gguf how)
{
    const struct gguf *g = checkpoint_gguf(eng->ck);
    return g && pooling_gguf(g) == how;
}

static bool looks_like_embedder(const struct qwick_engine *eng)
{
    static const char *const words[] = {
        "sentence-similarity", "feature-extraction", "embedding", NULL};
    if (eng->model.config.bidirectional)
        return !eng->model.config.n_classes;
    return eng->model.config.class == CLASS_BARE || is_called(eng, "embed") ||
           pools(eng, POOLING_GGUF_MEAN) || pools(eng, POOLING_GGUF_CLS) ||
           pools(eng, POOLING_GGUF_LAST) || ends_texts(eng) ||
           has_bare_names(eng) || has_file(eng, "modules.json") ||
           has_file(eng, "config_sentence_transformers.json") ||
           readme_says(eng, words);
}

static bool looks_like_reranker(const struct qwick_engine *eng)
{
    static const char *const words[] = {"text-ranking", "rerank", NULL};
    if (eng->model.config.bidirectional)
        return eng->model.config.n_classes > 0;
    if (is_called(eng, "rerank") || pools(eng, POOLING_GGUF_RANK) ||
        readme_says(eng, words))
        return true;
    return eng->model.config.vocab_size == UNPADDED_VOCAB &&
           !looks_like_embedder(eng);
}

/* A model whose file has no head uses its embedding. Converters also leave the
 * head of a reranker out, whether or not it was the embedding. */
void engine_suitable_head(struct qwick_engine *eng)
{
    bool checked = eng->checked_head;
    engine_suitable_class(eng, false);
    eng->checked_head = true;
    if (checked || !checkpoint_gguf(eng->ck) || !eng->model.config.tied_head ||
        (!eng->model.config.n_classes && !pools(eng, POOLING_GGUF_RANK)))
        return;
    engine_warn(eng,
                "%s: is a reranker without output.weight: the embedding is its "
                "head, and what it writes is doubtful",
                checkpoint_dir(eng->ck));
}

int engine_refuse_classifier(const struct qwick_engine *eng,
                             struct qwick_err *e)
{
    const struct config *c = &eng->model.config;
    if (c->class == CLASS_CLASSIFIER)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: architectures: \"%s\": is a classifier, which only "
                       "rerank uses",
                       checkpoint_dir(eng->ck), c->class_name);
    return c->bidirectional && c->n_classes
               ? err_set(e, QWICK_ERR_MODEL,
                         "%s: tensor cls.output.weight: is a classifier's, "
                         "which only rerank uses",
                         checkpoint_dir(eng->ck))
               : 0;
}

int engine_need_head(const struct qwick_engine *eng, struct qwick_err *e)
{
    if (engine_refuse_classifier(eng, e))
        return -1;
    if (eng->model.config.bidirectional)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: is a text encoder, which generates nothing: only "
                       "embed can be used",
                       checkpoint_dir(eng->ck));
    return eng->model.no_head
               ? err_set(e, QWICK_ERR_MODEL,
                         "%s: tensor lm_head.weight: missing, so that only "
                         "embed can be used",
                         checkpoint_dir(eng->ck))
               : 0;
}

int qwick_engine_need_logits(const struct qwick_engine *eng,
                             struct qwick_err *e)
{
    return engine_need_head(eng, e);
}

void engine_suitable_class(struct qwick_engine *eng, bool hidden)
{
    const struct config *c = &eng->model.config;
    bool other = !c->bidirectional && (c->class == CLASS_OTHER ||
                                       (c->class == CLASS_BARE && !hidden));
    bool assumed = c->class_mean_assumed && c->n_classes;
    const char *ignored = eng->model.ignored;
    if (!other && !*c->own_code && !assumed && !*ignored)
        return;
    if (__atomic_exchange_n(&eng->checked_class, true, __ATOMIC_RELAXED))
        return;
    if (other)
        engine_warn(eng,
                    "%s: architectures: \"%s\": is run as %s, which it may "
                    "not be: the results are doubtful",
                    checkpoint_dir(eng->ck), c->class_name, c->model_type);
    if (*c->own_code)
        engine_warn(eng,
                    "%s: %s: the model has code of its own, which is not run: "
                    "the results are doubtful",
                    checkpoint_dir(eng->ck), c->own_code);
    if (*ignored)
        engine_warn(eng,
                    "%s: tensor %s: a model of type %s does not use it: the "
                    "results are doubtful",
                    checkpoint_dir(eng->ck), ignored, c->model_type);
    if (assumed)
        engine_warn(eng,
                    "%s: a GGUF file of ModernBERT does not say "
                    "classifier_pooling: scores are those of \"mean\", and "
                    "wrong for a model with \"cls\"",
                    checkpoint_dir(eng->ck));
}

const char *qwick_embed_suitability(const struct qwick_engine *eng)
{
    if (is_called(eng, "rerank") && !is_called(eng, "embed"))
        return "is a reranker by its name, the vectors are doubtful";
    return looks_like_embedder(eng)
               ? NULL
               : "does not look like an embedding model, the vectors are "
                 "doubtful";
}

const char *qwick_rerank_suitability(const struct qwick_engine *eng)
{
    return looks_like_reranker(eng)
               ? NULL
               : "does not look like a reranker, the scores are doubtful";
}
