/* The files of a LoRA adapter, as pairs of tensors. Three kinds:
 *
 *   PEFT     adapter_config.json and adapter_model.safetensors
 *   mlx-lm   adapter_config.json and adapters.safetensors
 *   GGUF     one file with general.type "adapter"
 *
 * What would change a model in another way (DoRA, trained biases or whole
 * modules, embeddings) is refused by the name of its field. */
#ifndef MODEL_LORA_FILES_H
#define MODEL_LORA_FILES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "file/json.h"
#include "file/tensors.h"

struct gguf;

/* A and B of one module. */
struct lora_pair {
    char *name; /* of the weight: the module and ".weight" */
    const struct st_tensor *a, *b;
    double factor;
};

struct lora_file {
    char *path;        /* of the tensors, for messages */
    bool is_gguf;      /* names and orders of rows are as in GGUF files */
    bool transposed;   /* A is [cols, rank], and B is [rank, rows] */
    struct st_set *set;
    struct gguf *gguf; /* or NULL */
    struct lora_pair *pairs;
    size_t n_pairs, cap_pairs;
    const char *architecture; /* of a GGUF file, [n_architecture]; else NULL */
    size_t n_architecture;
};

/* Open the adapter at path. Of shapes, only whether A and B fit each
 * other is checked. QWICK_ERR_MODEL names the file, the field or tensor and
 * both values. */
int lora_file_open(struct lora_file *out, const char *path,
                   struct qwick_err *e);
void lora_file_close(struct lora_file *f);

/* The rank of a pair. */
size_t lora_pair_rank(const struct lora_file *f, const struct lora_pair *p);

#endif
