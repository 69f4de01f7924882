/* What Gemmas share beside their layers (layer.h). */
#ifndef MODEL_GEMMA_H
#define MODEL_GEMMA_H

#include "base/err.h"
#include "model/config.h"

struct section;

/* The keys of caps in GGUF files, for arch.gguf_keys. */
extern const char *const gemma_cap_keys[];

/* Return query_pre_attn_scalar of a GGUF file, which has no key for it:
 * head_dim; in the model of 27B, which has this number of layers, d_model /
 * n_heads. */
double gemma_gguf_scalar(const struct config *c, size_t layers_of_27b);

/* Set the factor of the embeddings and the scale of scores. The fields that all
 * families have must have been read. */
int gemma_read_scales(struct config *c, const struct section *s,
                      struct qwick_err *e);

/* Read a cap of scores or logits: dflt if the field is missing, none if it is
 * null, as 0 of a GGUF file is. */
int gemma_read_cap(const struct section *s, const char *key, double dflt,
                   float *out, struct qwick_err *e);

#endif
