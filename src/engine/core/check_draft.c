/* Whether two models have the same tokens. */
#include <string.h>

#include "base/hash.h"
#include "engine/core/engine.h"
#include "text/bpe/bpe.h"

/* How a text can contain the token. */
static int kind_of(const struct bpe *b, int32_t id)
{
    return bpe_has(b, id) + 2 * bpe_is_added(b, id) + 4 * bpe_is_special(b, id);
}

static bool same_token(struct bpe *a, struct bpe *b, int32_t id)
{
    size_t n, m;
    const char *p = bpe_token(a, id, &n), *q = bpe_token(b, id, &m);
    return kind_of(a, id) == kind_of(b, id) && n == m &&
           (n == 0 || memcmp(p, q, n) == 0);
}

/* A hash of all tokens, computed once per engine. */
static uint64_t hash_tokens(struct qwick_engine *eng)
{
    struct bpe *b = eng->bpe;
    uint64_t h = bpe_size(b);
    for (size_t i = 0; !eng->has_tokens_hash && i < bpe_size(b); i++) {
        size_t n;
        const char *p = bpe_token(b, (int32_t)i, &n);
        h = hash_bytes(h + (uint64_t)kind_of(b, (int32_t)i), p ? p : "", n);
    }
    if (!eng->has_tokens_hash)
        eng->tokens_hash = h;
    eng->has_tokens_hash = true;
    return eng->tokens_hash;
}

static int differ(const struct qwick_engine *eng,
                  const struct qwick_engine *draft, struct qwick_err *e)
{
    struct bpe *a = eng->bpe, *b = draft->bpe;
    const char *name = checkpoint_name(draft->ck);
    const char *of = checkpoint_name(eng->ck);
    int32_t id = 0;
    if (bpe_size(a) != bpe_size(b))
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: cannot draft for %s: its tokenizer has %zu tokens, "
                       "not %zu",
                       name, of, bpe_size(b), bpe_size(a));
    while ((size_t)id < bpe_size(a) && same_token(a, b, id))
        id++;
    if ((size_t)id == bpe_size(a))
        return 0;
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: cannot draft for %s: their tokenizers differ in token "
                   "%d",
                   name, of, id);
}

int qwick_draft_check(struct qwick_engine *eng, struct qwick_engine *draft,
                      struct qwick_err *e)
{
    const char *name = checkpoint_name(draft->ck);
    size_t n = draft->model.config.vocab_size, want;
    if (eng == draft)
        return err_set(e, QWICK_ERR_USAGE,
                       "%s: cannot draft for itself; open it twice", name);
    if (!draft->weights)
        return err_set(e, QWICK_ERR_USAGE,
                       "%s: was opened for its tokenizer only", name);
    want = eng->model.config.vocab_size;
    if (!eng->bpe != !draft->bpe || (!eng->bpe && n != want))
        return err_set(e, QWICK_ERR_MODEL, "%s: cannot draft for %s: %s", name,
                       checkpoint_name(eng->ck),
                       !draft->bpe && eng->bpe ? "it has no tokenizer"
                       : draft->bpe            ? "only it has a tokenizer"
                                    : "without tokenizers, their vocabularies "
                                      "must have the same size");
    if (!eng->bpe || hash_tokens(eng) == hash_tokens(draft))
        return 0;
    return differ(eng, draft, e);
}
