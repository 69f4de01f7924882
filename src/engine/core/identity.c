/* The identity of a model, independent of the machine and the place of its
 * files. */
#include "base/buf.h"
#include "base/hash.h"
#include "engine/core/engine.h"
#include "engine/core/open_gguf.h"
#include "engine/core/specials.h"

/* Other files may add tokens. */
static void hash_added(struct bpe *b, uint64_t id[2])
{
    for (int32_t t = 0; (size_t)t < bpe_size(b); t++) {
        const uint32_t row[] = {(uint32_t)t, bpe_is_special(b, t)};
        size_t n;
        if (!bpe_is_added(b, t))
            continue;
        const char *text = bpe_token(b, t, &n);
        for (size_t i = 0; i < 2; i++)
            id[i] = hash_bytes(hash_bytes(id[i], row, sizeof row), text, n);
    }
}

static int hash_file(const struct qwick_engine *eng, const char *name,
                     uint64_t id[2], struct qwick_err *e)
{
    struct map map;
    bool found;
    if (checkpoint_map(eng->ck, name, &map, &found, e))
        return -1;
    if (!found)
        return 0;
    for (size_t i = 0; i < 2; i++)
        id[i] = hash_bytes(id[i] + i, map.data, map.size);
    map_close(&map);
    return 0;
}

/* Every byte of the tokenizer's file can affect encoding and decoding, so hash
 * them all; of a GGUF file, the metadata that replaces it. */
static int hash_tokenizer(const struct qwick_engine *eng, uint64_t id[2],
                          struct qwick_err *e)
{
    struct map map;
    bool found;
    if (checkpoint_gguf(eng->ck)) {
        open_gguf_hash(checkpoint_gguf(eng->ck), id);
        return 0;
    }
    const char *name;
    if (specials_map_tokenizer(eng->ck, &map, &name, &found, e))
        return -1;
    if (!found)
        return 0;
    for (size_t i = 0; i < 2; i++)
        id[i] = hash_bytes(id[i] + i, map.data, map.size);
    map_close(&map);
    if (eng->bpe && bpe_n_beside(eng->bpe) > 0)
        hash_added(eng->bpe, id);
    /* vocab.txt has only the tokens; the settings are in other files */
    return strcmp(name, "vocab.txt") == 0 &&
                   (hash_file(eng, "tokenizer_config.json", id, e) ||
                    hash_file(eng, "special_tokens_map.json", id, e))
               ? -1
               : 0;
}

/* What generation_config.json says about the tokens of an answer, and no option
 * changes. */
static void hash_start(const struct config *c, uint64_t id[2])
{
    const uint64_t row[] = {c->n_suppress, c->n_begin, c->min_new_tokens,
                            c->min_length};
    for (size_t i = 0; i < 2; i++) {
        id[i] = hash_bytes(id[i], row, sizeof row);
        if (c->suppress)
            id[i] =
                hash_bytes(id[i], c->suppress,
                           (c->n_suppress + c->n_begin) * sizeof *c->suppress);
    }
}

int qwick_engine_identity(struct qwick_engine *eng, uint64_t id[2],
                          struct qwick_err *e)
{
    const struct config *c = &eng->model.config;
    struct fingerprint f;
    if (!eng->weights)
        return err_set(e, QWICK_ERR_USAGE,
                       "%s: was opened for its tokenizer only",
                       checkpoint_name(eng->ck));
    if (engine_fingerprint(eng, eng->own_lora, &f, e))
        return -1;
    for (size_t i = 0; i < 2; i++)
        id[i] = hash_bytes(f.model[i], c->stop_ids,
                           c->n_stop_ids * sizeof *c->stop_ids);
    if (c->n_suppress || c->n_begin || c->min_new_tokens || c->min_length)
        hash_start(c, id);
    /* tokenizer_config.json decides it for texts without a template */
    for (size_t i = 0; i < 2 && eng->bos_id >= 0; i++)
        id[i] = hash_bytes(id[i], &eng->bos_id, sizeof eng->bos_id);
    return hash_tokenizer(eng, id, e);
}
