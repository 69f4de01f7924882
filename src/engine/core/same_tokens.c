/* Whether two models have the same tokens. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "engine/core/engine.h"
#include "qwick_tools.h"
#include "text/bpe/bpe.h"

/* How a text can contain the token. */
static int kind_of(const struct bpe *b, int32_t id)
{
    return bpe_has(b, id) + 2 * bpe_is_added(b, id) + 4 * bpe_is_special(b, id);
}

static bool same_bytes(struct bpe *a, struct bpe *b, int32_t id)
{
    size_t n, m;
    const char *p = bpe_token(a, id, &n), *q = bpe_token(b, id, &m);
    return n == m && (n == 0 || memcmp(p, q, n) == 0);
}

static bool same_token(struct bpe *a, struct bpe *b, int32_t id)
{
    return kind_of(a, id) == kind_of(b, id) && same_bytes(a, b, id);
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

/* A token in a message. */
static const char *show_token(char out[ERR_SHOWN + 2], struct bpe *b,
                              int32_t id)
{
    char text[ERR_SHOWN];
    size_t n;
    const char *s = bpe_token(b, id, &n);
    if (!s)
        return "missing";
    snprintf(out, ERR_SHOWN + 2, "\"%s\"", err_show(text, s, n));
    return out;
}

/* How texts contain a token does not matter here, since one tokenizer encodes
 * the texts for both models. */
static int compare_tokens(const struct qwick_engine *eng,
                          const struct qwick_engine *reference,
                          struct qwick_err *e)
{
    struct bpe *a = eng->bpe, *b = reference->bpe;
    char own[ERR_SHOWN + 2], other[ERR_SHOWN + 2];
    size_t n = bpe_size(a) > bpe_size(b) ? bpe_size(a) : bpe_size(b);
    int32_t id = 0;
    while ((size_t)id < n && bpe_has(a, id) == bpe_has(b, id) &&
           same_bytes(a, b, id))
        id++;
    if ((size_t)id == n)
        return 0;
    return err_usage(e,
                     "%s: cannot be compared with %s, which has other tokens: "
                     "token %d is %s here, and %s there",
                     checkpoint_name(eng->ck), checkpoint_name(reference->ck),
                     id, show_token(own, a, id), show_token(other, b, id));
}

int qwick_compare_check(struct qwick_engine *eng,
                        struct qwick_engine *reference, struct qwick_err *e)
{
    size_t n = eng->model.config.vocab_size;
    size_t m = reference->model.config.vocab_size;
    if (engine_need_head(eng, e) || engine_need_head(reference, e))
        return -1;
    if (eng->bpe && reference->bpe)
        return hash_tokens(eng) == hash_tokens(reference)
                   ? 0
                   : compare_tokens(eng, reference, e);
    if (!eng->bpe && !reference->bpe && n == m)
        return 0;
    return err_usage(e,
                     "%s: cannot be compared with %s: vocabularies of %zu and "
                     "%zu, and %s tokenizer to check that they are the same",
                     checkpoint_name(eng->ck), checkpoint_name(reference->ck),
                     n, m, eng->bpe || reference->bpe ? "only one" : "no");
}
