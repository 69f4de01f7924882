#include "model/arch.h"

#include <string.h>

static const struct arch *const families[] = {
    &arch_qwen3,          &arch_qwen3moe,
    &arch_qwen3vl,        &arch_qwen3vlmoe,
    &arch_qwen35,         &arch_qwen35moe,
    &arch_qwen2,          &arch_qwen2moe,
    &arch_qwen2vl,        &arch_qwen25vl,
    &arch_gemma1,         &arch_gemma2,
    &arch_gemma3,         &arch_llama,
    &arch_mistral,        &arch_ministral3,
    &arch_mixtral,        &arch_smollm3,
    &arch_granite,        &arch_olmo2,
    &arch_olmo3,          &arch_phi3,
    &arch_qwen3next,      &arch_glm4,
    &arch_seed_oss,       &arch_ernie45,
    &arch_exaone4,        &arch_gemma4,
    &arch_gemma4_unified, &arch_gemma4_unified_text,
    &arch_gpt_oss,        &arch_lfm2,
    &arch_lfm2moe,        &arch_bert,
    &arch_xlm_roberta,    &arch_roberta,
    &arch_camembert,      &arch_modernbert,
    &arch_gemma_embedding};

enum { N_FAMILIES = sizeof families / sizeof *families };

/* Kinds of names that a family may have. */
enum kind { IN_CONFIG, IN_CONFIG_WRAPPED, IN_GGUF };

static const char *name_of(const struct arch *a, enum kind kind)
{
    return kind == IN_CONFIG           ? a->model_type
           : kind == IN_CONFIG_WRAPPED ? a->wrapped
                                       : a->gguf;
}

static bool is_name(const char *known, const char *name, size_t len)
{
    return known && name && strlen(known) == len && !memcmp(known, name, len);
}

static const struct arch *find(const char *name, size_t len, enum kind kind)
{
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (is_name(name_of(families[i], kind), name, len))
            return families[i];
    return NULL;
}

const struct arch *arch_find(const char *model_type, size_t len)
{
    return find(model_type, len, IN_CONFIG);
}

const struct arch *arch_find_wrapped(const char *wrapped, size_t len,
                                     const char *inner, size_t inner_len)
{
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (is_name(families[i]->wrapped, wrapped, len) &&
            is_name(families[i]->model_type, inner, inner_len))
            return families[i];
    return find(wrapped, len, IN_CONFIG_WRAPPED);
}

const struct arch *arch_find_gguf(const char *name, size_t len)
{
    return find(name, len, IN_GGUF);
}

const struct arch *arch_in_gguf(const struct arch *a)
{
    return a->gguf_as ? a->gguf_as : a;
}
