/* Read the tokenizer and the chat template from a GGUF file's metadata, which
 * replaces the text files of a checkpoint. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/utf8.h"
#include "engine/core/engine.h"
#include "engine/core/open_gguf.h"
#include "file/gguf.h"

static const char tokens_key[] = "tokenizer.ggml.tokens";
static const char merges_key[] = "tokenizer.ggml.merges";
static const char types_key[] = "tokenizer.ggml.token_type";
static const char scores_key[] = "tokenizer.ggml.scores";

/* Pre-tokenizers of byte-level BPE: what tokenizer.ggml.pre stands for.
 * llama.cpp (llama-vocab.cpp) has the same splits and flags. It never
 * normalises, though the tokenizers of Qwen do. */
static const struct pre {
    const char *names; /* with blanks between; quantize writes the first one */
    enum split split;
    bool nfc, ignore_merges;
    bool add_bos; /* unless tokenizer.ggml.add_bos_token says otherwise */
} pres[] = {
    {.names = "qwen2 deepseek-r1-qwen f2llmv2",
     .split = SPLIT_QWEN2,
     .nfc = true},
    {.names = "stablelm2 megrez hunyuan grok-2 solar-open kormo",
     .split = SPLIT_QWEN2},
    {.names = "qwen35", .split = SPLIT_QWEN35, .nfc = true},
    {.names = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2 "
              "midm-2.0 jina-v5-nano",
     .split = SPLIT_LLAMA3,
     .ignore_merges = true,
     .add_bos = true},
    {.names = "dbrx smaug-bpe glm4 chatglm-bpe", .split = SPLIT_LLAMA3},
    {.names = "gpt-4o llama4 kanana2 minimax-m2", .split = SPLIT_GPT4O},
    {.names = "tekken",
     .split = SPLIT_TEKKEN,
     .ignore_merges = true,
     .add_bos = true},
    {.names = "deepseek-v3 hunyuan-dense joyai-llm", .split = SPLIT_DEEPSEEK},
    {.names = "smollm starcoder refact command-r codeshell exaone",
     .split = SPLIT_SMOLLM},
    {.names = "gpt-2 phi-2 mpt olmo modern-bert exaone4 mellum",
     .split = SPLIT_GPT2},
    {.names = "seed-coder", .split = SPLIT_SEED},
};
enum { N_PRES = sizeof pres / sizeof *pres };

/* Values of token_type. */
enum {
    TYPE_NORMAL = 1,
    TYPE_UNKNOWN,
    TYPE_CONTROL,
    TYPE_USER,
    TYPE_UNUSED,
    TYPE_BYTE,
    N_TYPES
};

/* A kind of tokenizer. */
struct kind {
    const char *model; /* tokenizer.ggml.model */
    const char *name;
    bool scores;     /* the tokens have scores, and there are no merges */
    bool unigram;    /* with scores: the model is Unigram */
    bool add_eos;    /* unless tokenizer.ggml.add_eos_token says otherwise */
    bool characters; /* the merges are of characters; see struct bpe_parts */
    bool add_bos;    /* unless tokenizer.ggml.add_bos_token says otherwise */
    bool must_bos;   /* add_bos, whatever that key says */
    int bos, eos; /* ids where the file has no keys for them; -1: none */
    signed char kinds[N_TYPES]; /* enum bpe_kind of each type; -1: none */
};

static const struct kind kinds[] = {
    {.model = "gpt2",
     .name = "byte-level BPE",
     .bos = -1,
     .eos = -1,
     .kinds = {-1, BPE_KIND_NORMAL, -1, BPE_KIND_CONTROL, BPE_KIND_ADDED,
               BPE_KIND_UNUSED, -1}},
    {.model = "llama",
     .name = "SentencePiece",
     .scores = true,
     .add_bos = true,
     .bos = 1,
     .eos = 2,
     .kinds = {-1, BPE_KIND_NORMAL, BPE_KIND_CONTROL, BPE_KIND_CONTROL,
               BPE_KIND_ADDED, BPE_KIND_UNUSED, BPE_KIND_BYTE}},
    {.model = "t5",
     .name = "Unigram",
     .scores = true,
     .unigram = true,
     .add_eos = true,
     .bos = -1,
     .eos = 1,
     .kinds = {-1, BPE_KIND_NORMAL, BPE_KIND_CONTROL, BPE_KIND_CONTROL,
               BPE_KIND_ADDED, BPE_KIND_UNUSED, BPE_KIND_BYTE}},
    {.model = "gemma4",
     .name = "BPE of characters",
     .characters = true,
     .must_bos = true,
     .bos = 2,
     .eos = 1,
     .kinds = {-1, BPE_KIND_NORMAL, BPE_KIND_CONTROL, BPE_KIND_CONTROL,
               BPE_KIND_ADDED, BPE_KIND_UNUSED, BPE_KIND_BYTE}},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static bool is(const struct gguf_value *v, const char *s)
{
    return v->n_bytes == strlen(s) && memcmp(v->data, s, v->n_bytes) == 0;
}

/* Get a string that the file must have. */
static const struct gguf_value *
need_string(const struct gguf *g, const char *key, struct qwick_err *e)
{
    bool found;
    const struct gguf_value *v = gguf_need(g, key, GGUF_STRING, 0, &found, e);
    if (!found)
        err_set(e, QWICK_ERR_MODEL, "%s: %s: missing", gguf_path(g), key);
    return v;
}

/* Return whether the value is one of the row's names. */
static bool has_name(const struct pre *pre, const struct gguf_value *v)
{
    const char *name = pre->names;
    for (;; name++) {
        size_t n = strcspn(name, " ");
        if (n == v->n_bytes && memcmp(name, v->data, n) == 0)
            return true;
        name += n;
        if (!*name)
            return false;
    }
}

/* Find how byte-level BPE splits texts. NULL with *e set: not supported. */
static const struct pre *find_pre(const struct gguf *g, struct qwick_err *e)
{
    static const char pre_key[] = "tokenizer.ggml.pre";
    const struct gguf_value *v = need_string(g, pre_key, e);
    char all[640] = "";
    for (size_t i = 0, at = 0; v && i < N_PRES; i++) {
        if (has_name(&pres[i], v))
            return &pres[i];
        at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", i ? " " : "",
                               pres[i].names);
    }
    if (v)
        err_set(e, QWICK_ERR_MODEL, "%s: %s: \"%s\" is not supported (%s are)",
                gguf_path(g), pre_key,
                ERR_SHOW((const char *)v->data, v->n_bytes), all);
    return NULL;
}

const char *open_gguf_pre(const struct bpe_parts *parts, size_t *n)
{
    for (size_t i = 0; i < N_PRES; i++)
        if (pres[i].split == parts->split && pres[i].nfc == parts->nfc &&
            pres[i].ignore_merges == parts->ignore_merges) {
            *n = strcspn(pres[i].names, " ");
            return pres[i].names;
        }
    return NULL;
}

/* NULL with *e set: not supported. *pre is set for byte-level BPE. */
static const struct kind *find_kind(const struct gguf *g,
                                    const struct pre **pre, struct qwick_err *e)
{
    static const char key[] = "tokenizer.ggml.model";
    const struct gguf_value *v = need_string(g, key, e);
    *pre = NULL;
    if (!v)
        return NULL;
    for (size_t i = 0; i < N_KINDS; i++)
        if (is(v, kinds[i].model))
            return kinds[i].scores || kinds[i].characters ||
                           (*pre = find_pre(g, e))
                       ? &kinds[i]
                       : NULL;
    char all[256] = "";
    for (size_t i = 0, at = 0; i < N_KINDS; i++)
        at += (size_t)snprintf(all + at, sizeof all - at, "%s\"%s\", %s, ",
                               i + 1 == N_KINDS ? "and " : "", kinds[i].model,
                               kinds[i].name);
    err_set(e, QWICK_ERR_MODEL, "%s: %s: \"%s\" is not supported (%sare)",
            gguf_path(g), key, ERR_SHOW((const char *)v->data, v->n_bytes),
            all);
    return NULL;
}

int open_gguf_check_tokenizer(const struct gguf *g, struct qwick_err *e)
{
    const struct pre *pre;
    return find_kind(g, &pre, e) ? 0 : -1;
}

/* Get an array that the file must have. */
static const struct gguf_value *need_array(const struct gguf *g,
                                           const char *key,
                                           enum gguf_type element,
                                           struct qwick_err *e)
{
    bool found;
    const struct gguf_value *v =
        gguf_need(g, key, GGUF_ARRAY, element, &found, e);
    if (!found)
        err_set(e, QWICK_ERR_MODEL, "%s: %s: missing", gguf_path(g), key);
    return v;
}

/* Read the kinds of n tokens, malloc'ed; NULL if the file has no types and they
 * may be missing. */
static int read_kinds(const struct gguf *g, const struct kind *kind, size_t n,
                      unsigned char **out, struct qwick_err *e)
{
    bool found;
    *out = NULL;
    const struct gguf_value *v =
        gguf_need(g, types_key, GGUF_ARRAY, GGUF_I32, &found, e);
    if (!v && !found && kind->kinds[TYPE_BYTE] >= 0) /* control tokens, too, are
                                                        types */
        return err_set(e, QWICK_ERR_MODEL, "%s: %s: missing", gguf_path(g),
                       types_key);
    if (!v)
        return found ? -1 : 0;
    if (v->n != n)
        return err_set(e, QWICK_ERR_MODEL, "%s: %s: %zu of them, but %zu %s",
                       gguf_path(g), types_key, v->n, n, tokens_key);
    *out = malloc(n + 1);
    if (!*out)
        return err_oom(e, n + 1);
    for (size_t i = 0; i < n; i++) {
        int64_t type = gguf_int_at(v, i);
        int known = type > 0 && type < N_TYPES ? kind->kinds[type] : -1;
        if (known < 0) {
            free(*out);
            *out = NULL;
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: %s: token %zu has type %lld, which %s does not "
                           "have",
                           gguf_path(g), types_key, i, (long long)type,
                           kind->name);
        }
        (*out)[i] = (unsigned char)known;
    }
    return 0;
}

/* Read the scores of n tokens, malloc'ed. */
static int read_scores(const struct gguf *g, size_t n, float **out,
                       struct qwick_err *e)
{
    const struct gguf_value *v = need_array(g, scores_key, GGUF_F32, e);
    *out = NULL;
    if (!v)
        return -1;
    if (v->n != n)
        return err_set(e, QWICK_ERR_MODEL, "%s: %s: %zu of them, but %zu %s",
                       gguf_path(g), scores_key, v->n, n, tokens_key);
    *out = malloc((n + 1) * sizeof **out);
    if (!*out)
        return err_oom(e, n * sizeof **out);
    for (size_t i = 0; i < n; i++)
        (*out)[i] = gguf_f32_at(v, i);
    return 0;
}

/* Read the flag at key. */
static int read_flag(const struct gguf *g, const char *key, bool dflt,
                     bool *out, struct qwick_err *e)
{
    bool found;
    const struct gguf_value *v = gguf_need(g, key, GGUF_BOOL, 0, &found, e);
    *out = v ? v->u != 0 : dflt;
    return v || !found ? 0 : -1;
}

/* Read the id at key if `must`, or if the flag at add_key is set; else set *id
 * to -1. usual: the id if there is no key, or -1: then the flag must be
 * missing, too. */
static int read_frame_id(const struct gguf *g, const char *add_key, bool dflt,
                         bool must, const char *key, int usual, size_t n_tokens,
                         int32_t *id, struct qwick_err *e)
{
    bool found, add;
    *id = -1;
    if (read_flag(g, add_key, dflt, &add, e))
        return -1;
    if (!add && !must)
        return 0;
    const struct gguf_value *v = gguf_need(g, key, GGUF_U32, 0, &found, e);
    if (!v && !found && usual < 0 && !gguf_find(g, add_key))
        return 0;
    if (!v && (found || usual < 0))
        return found ? -1
                     : err_set(e, QWICK_ERR_MODEL,
                               "%s: %s: missing, but %s is true", gguf_path(g),
                               key, add_key);
    uint64_t u = v ? v->u : (uint64_t)usual;
    if (u >= n_tokens)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: %llu, but there are %zu tokens", gguf_path(g),
                       key, (unsigned long long)u, n_tokens);
    *id = (int32_t)u;
    return 0;
}

/* Read the ids that frame a text. */
static int read_frame(const struct gguf *g, const struct kind *kind,
                      const struct pre *pre, struct bpe_parts *parts,
                      struct qwick_err *e)
{
    return read_frame_id(g, "tokenizer.ggml.add_bos_token",
                         pre ? pre->add_bos : kind->add_bos, kind->must_bos,
                         "tokenizer.ggml.bos_token_id", kind->bos,
                         parts->tokens.n, &parts->before, e) ||
                   read_frame_id(g, "tokenizer.ggml.add_eos_token",
                                 kind->add_eos, false, "tokenizer.ggml.eos_token_id",
                                 kind->eos, parts->tokens.n, &parts->after, e)
               ? -1
               : 0;
}

static bool arch_begins(const struct gguf *g, const char *name)
{
    const struct gguf_value *arch = gguf_find(g, "general.architecture");
    return arch && arch->type == GGUF_STRING && arch->n_bytes >= strlen(name) &&
           memcmp(arch->data, name, strlen(name)) == 0;
}

static const char squeeze_key[] = "tokenizer.ggml.remove_extra_whitespaces";

/* Read the token of unknown characters: at its key, or the one of that type. */
static int read_unknown(const struct gguf *g, size_t n_tokens, int32_t *id,
                        struct qwick_err *e)
{
    static const char key[] = "tokenizer.ggml.unknown_token_id";
    bool found;
    const struct gguf_value *types = gguf_find(g, types_key);
    const struct gguf_value *v = gguf_need(g, key, GGUF_U32, 0, &found, e);
    if (!v && found)
        return -1;
    uint64_t u = v ? v->u : 2; /* T5's */
    if (types && (types->type != GGUF_ARRAY || types->element != GGUF_I32))
        types = NULL; /* read_kinds reports it */
    for (size_t i = 0; !v && types && i < types->n; i++)
        if (gguf_int_at(types, i) == TYPE_UNKNOWN)
            u = i;
    if (u >= n_tokens)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: %llu, but there are %zu tokens", gguf_path(g),
                       key, (unsigned long long)u, n_tokens);
    *id = (int32_t)u;
    return 0;
}

/* Read what only Unigram has. */
static int read_unigram(const struct gguf *g, struct bpe_parts *parts,
                        struct bpe_unigram_parts *unigram, float **scores,
                        struct qwick_err *e)
{
    static const char map_key[] = "tokenizer.ggml.precompiled_charsmap";
    const struct gguf_value *any = gguf_find(g, map_key);
    bool found;
    const struct gguf_value *map = gguf_need(
        g, map_key, GGUF_ARRAY,
        any && any->element == GGUF_I8 ? GGUF_I8 : GGUF_U8, &found, e);
    if ((!map && found) || read_scores(g, parts->tokens.n, scores, e) ||
        read_unknown(g, parts->tokens.n, &unigram->unk, e) ||
        read_flag(g, "tokenizer.ggml.add_space_prefix", false,
                  &parts->space_prefix, e) ||
        read_flag(g, squeeze_key, false, &unigram->squeeze, e))
        return -1;
    unigram->map_name = map_key;
    unigram->map = map ? map->data : NULL;
    unigram->n_map = map ? map->n_bytes : 0;
    parts->scores = *scores;
    parts->merges_name = scores_key;
    parts->unigram = unigram;
    return 0;
}

/* Read what only SentencePiece's BPE has. Gemma's tokenizer of this kind is the
 * only one that puts no blank before a text, unless the file says so. */
static int read_pieces(const struct gguf *g, struct bpe_parts *parts,
                       float **scores, struct qwick_err *e)
{
    bool squeeze;
    if (read_scores(g, parts->tokens.n, scores, e) ||
        read_flag(g, "tokenizer.ggml.add_space_prefix",
                  !arch_begins(g, "gemma"), &parts->space_prefix, e) ||
        read_flag(g, squeeze_key, false, &squeeze, e))
        return -1;
    if (squeeze)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: true is not supported (false is)", gguf_path(g),
                       squeeze_key);
    parts->scores = *scores;
    parts->merges_name = scores_key;
    parts->rstrip = arch_begins(g, "phi3");
    return 0;
}

/* Read what only one kind of tokenizer has. */
static int read_merging(const struct gguf *g, const struct kind *kind,
                        const struct pre *pre, struct bpe_parts *parts,
                        struct bpe_unigram_parts *unigram, float **scores,
                        struct qwick_err *e)
{
    const struct gguf_value *merges;
    *scores = NULL;
    if (kind->unigram)
        return read_unigram(g, parts, unigram, scores, e);
    if (kind->scores)
        return read_pieces(g, parts, scores, e);
    parts->characters = kind->characters;
    if (!(merges = need_array(g, merges_key, GGUF_STRING, e)))
        return -1;
    parts->merges =
        (struct bpe_strings){merges->data, merges->n, merges->n_bytes};
    parts->merges_name = merges_key;
    if (!pre)
        return 0;
    parts->split = pre->split;
    parts->nfc = pre->nfc;
    parts->ignore_merges = pre->ignore_merges;
    return 0;
}

int open_gguf_tokenizer(struct bpe **out, const struct gguf *g,
                        struct qwick_err *e)
{
    *out = NULL;
    if (!gguf_find(g, tokens_key))
        return 0;
    const struct pre *pre;
    const struct kind *kind = find_kind(g, &pre, e);
    const struct gguf_value *tokens;
    if (!kind || !(tokens = need_array(g, tokens_key, GGUF_STRING, e)))
        return -1;
    unsigned char *types = NULL;
    float *scores = NULL;
    struct bpe_unigram_parts unigram = {0};
    struct bpe_parts parts = {
        .name = gguf_path(g),
        .tokens_name = tokens_key,
        .tokens = {tokens->data, tokens->n, tokens->n_bytes}};
    int rc = read_merging(g, kind, pre, &parts, &unigram, &scores, e) ||
             read_frame(g, kind, pre, &parts, e) ||
             read_kinds(g, kind, tokens->n, &types, e);
    parts.kinds = types;
    rc = rc || bpe_open_parts(out, &parts, e) ? -1 : 0;
    free(types);
    free(scores);
    return rc;
}

int open_gguf_template(const struct gguf *g, const char *name,
                       const char **text, size_t *n, struct qwick_err *e)
{
    char key[128];
    bool found;
    snprintf(key, sizeof key, "tokenizer.chat_template%s%.60s", name ? "." : "",
             name ? name : "");
    const struct gguf_value *v = gguf_need(g, key, GGUF_STRING, 0, &found, e);
    *text = v ? (const char *)v->data : NULL;
    *n = v ? v->n_bytes : 0;
    return v || !found ? 0 : -1;
}

size_t open_gguf_tokens(const struct gguf *g, struct bpe *b,
                        struct json_value keys[OPEN_GGUF_TOKENS],
                        struct json_value values[OPEN_GGUF_TOKENS])
{
    static const char *const names[OPEN_GGUF_TOKENS][2] = {
        {"bos_token", "tokenizer.ggml.bos_token_id"},
        {"eos_token", "tokenizer.ggml.eos_token_id"},
        {"pad_token", "tokenizer.ggml.padding_token_id"},
        {"unk_token", "tokenizer.ggml.unknown_token_id"},
    };
    size_t n = 0;
    for (size_t i = 0; i < OPEN_GGUF_TOKENS; i++) {
        const struct gguf_value *v = gguf_find(g, names[i][1]);
        size_t len;
        if (!v || v->type != GGUF_U32 || v->u > INT32_MAX ||
            !bpe_has(b, (int32_t)v->u))
            continue;
        const char *text = bpe_token(b, (int32_t)v->u, &len);
        if (!text || utf8_valid(text, len) != len)
            continue;
        keys[n] = (struct json_value){.type = JSON_STRING,
                                      .str = names[i][0],
                                      .len = strlen(names[i][0])};
        values[n++] =
            (struct json_value){.type = JSON_STRING, .str = text, .len = len};
    }
    return n;
}

void open_gguf_stops(struct bpe *b, struct config *c)
{
    static const char *const ends[] = {"<|im_end|>", "<|endoftext|>",
                                       "<end_of_turn>", "<turn|>",
                                       "<|tool_response>"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        int32_t id = bpe_added_id(b, ends[i]);
        if (id >= 0 && bpe_is_special(b, id))
            (void)config_add_stop(c, id);
    }
}

void open_gguf_hash(const struct gguf *g, uint64_t id[2])
{
    static const char prefix[] = "tokenizer.";
    for (size_t i = 0; i < gguf_count(g); i++) {
        const struct gguf_value *v = gguf_at(g, i);
        if (v->key_len < strlen(prefix) ||
            memcmp(v->key, prefix, strlen(prefix)) != 0)
            continue;
        for (size_t k = 0; k < 2; k++) {
            uint64_t h = hash_bytes(id[k] + k, v->key, v->key_len);
            h = hash_bytes(h ^ v->u ^ (uint64_t)v->i, &v->f, sizeof v->f);
            id[k] = hash_bytes(h, v->n_bytes ? (const char *)v->data : "",
                               v->n_bytes);
        }
    }
}
