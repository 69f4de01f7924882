/* The split patterns of byte-level tokenizers, matched by hand-written code. */
#ifndef TEXT_SPLIT_H
#define TEXT_SPLIT_H

#include <stddef.h>

enum split {
    SPLIT_QWEN2,  /* Qwen2 and Qwen3 */
    SPLIT_QWEN35, /* Qwen3.5: marks, \p{M}, belong to words like letters */
    SPLIT_LLAMA3, /* as QWEN2 with up to three digits: Llama 3, GLM-4, OLMo 2 */
    SPLIT_GPT4O,  /* words end where lower case changes to upper case:
                     gpt-oss, Llama 4, Phi-4-mini */
    SPLIT_TEKKEN, /* as GPT4O with single digits, without contractions: Mistral
                     from Nemo on */
    SPLIT_DEEPSEEK, /* digits, then Chinese and Japanese, then the rest:
                       DeepSeek V3, Hunyuan */
    SPLIT_SMOLLM, /* single digits, then as GPT2: SmolLM2, StarCoder2, Granite 3
                   */
    SPLIT_GPT2,   /* GPT-2, and what has its tokenizer */
    SPLIT_SEED,   /* as QWEN2 without newlines after punctuation: Seed-OSS */
    N_SPLITS
};

enum { SPLIT_MAX_PATTERNS = 3 };

/* A split. Texts are split by the first pattern, each part by the next one, and
 * so on. */
struct split_kind {
    const char *name;
    /* the patterns in tokenizer.json; NULL after the last */
    const char *patterns[SPLIT_MAX_PATTERNS];
    /* Return the length of the first part of p[0..n), n >= 1. A byte that is
     * not valid UTF-8 counts as U+FFFD, a symbol. */
    size_t (*next)(const char *p, size_t n);
};

extern const struct split_kind splits[N_SPLITS];

static inline size_t split_next(enum split split, const char *p, size_t n)
{
    return splits[split].next(p, n);
}

#endif
