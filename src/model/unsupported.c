#include "model/unsupported.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"

static const char mla[] = "latent attention",
                  mamba[] = "Mamba layers", images[] = "images",
                  audio[] = "audio",
                  encoder[] = "another kind of encoder",
                  rotary[] = "an encoder with rotary embeddings",
                  alibi[] = "an encoder with ALiBi";

static const char bge[] = "bge-base-en-v1.5",
                  modern[] = "gte-modernbert-base", medium[] = "Qwen3-8B",
                  mixture[] = "Qwen3-30B-A3B", hybrid[] = "Qwen3.5-4B";

/* A name that ends with '*' stands for all that begin so. The first row that
 * fits counts. */
static const struct {
    const char *name;
    const char *why; /* NULL: not done yet */
    const char *instead;
} families[] = {
    {"gemma3n*", NULL, "Gemma 4 E2B"},
    {"gemma*", NULL, "Gemma 4 E4B"},
    {"paligemma*", images, "Gemma 4 E4B, for its text"},
    {"gptoss", "Ollama's own layout of gpt-oss",
     "gpt-oss-20b from Hugging Face"},
    {"deepseek*", mla, mixture},
    {"glm4_moe_lite", mla, mixture},
    {"kimi*", mla, mixture},
    {"mistral4*", mla, "Mistral Small 3"},
    {"glm4_moe*", NULL, "GLM-4-9B-0414"},
    {"glm4moe", NULL, "GLM-4-9B-0414"},
    {"glm4v*", images, "GLM-4-9B-0414"},
    {"chatglm", NULL, "GLM-4-9B-0414"},
    {"granite*", mamba, "Granite 3.3"},
    {"nemotron_h*", mamba, hybrid},
    {"lfm2*", NULL, "LFM2"},
    {"mamba*", mamba, hybrid},
    {"falcon_h1", mamba, hybrid},
    {"falcon-h1", mamba, hybrid},
    {"jamba", mamba, hybrid},
    {"bamba", mamba, hybrid},
    {"zamba*", mamba, hybrid},
    {"llama4*", NULL, "Llama 3.1"},
    {"mllama*", images, "Llama 3.1"},
    {"llava*", images, "Qwen3-VL, for its text"},
    {"phi4mm", images, "Phi-4-mini"},
    {"phi*", NULL, "Phi-4-mini"},
    {"cohere*", NULL, "Mistral Small 3"},
    {"command-r", NULL, "Mistral Small 3"},
    {"olmo*", NULL, "OLMo 2"},
    {"exaone*", NULL, "EXAONE 4"},
    {"ernie4_5*", NULL, "ERNIE 4.5 0.3B"},
    {"minimax*", NULL, mixture},
    {"qwen2_audio*", audio, "Qwen2.5"},
    {"qwen2_5_omni*", audio, "Qwen2.5"},
    {"qwen3_omni*", audio, "Qwen3"},
    {"qwen", NULL, "Qwen2.5"},
    {"whisper", audio, medium},
    {"nomic*", rotary, modern},
    {"new", rotary, modern}, /* gte-*-en-v1.5 */
    {"jina*", alibi, modern},
    {"distilbert", encoder, bge},
    {"mpnet", encoder, bge},
    {"deberta*", encoder, bge},
    {"electra", encoder, bge},
    {"albert", encoder, bge},
    {"t5*", "an encoder and a decoder", medium},
};

static bool is_family(const char *pattern, const char *name, size_t len)
{
    size_t n = strlen(pattern);
    if (pattern[n - 1] == '*')
        return len >= n - 1 && memcmp(pattern, name, n - 1) == 0;
    return len == n && memcmp(pattern, name, n) == 0;
}

void unsupported_describe(char *out, size_t n, const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const char *why = families[i].why;
        if (!is_family(families[i].name, name, len))
            continue;
        snprintf(out, n, "\"%s\" is not supported%s%s%s: use %s",
                 ERR_SHOW(name, len), why ? " (" : "", why ? why : "",
                 why ? ")" : "", families[i].instead);
        return;
    }
    snprintf(out, n, "\"%s\" is not supported; qwick(1) lists what is",
             ERR_SHOW(name, len));
}
