/* Parts of qwick_quantize: the plan for each tensor, and config.json. */
#ifndef ENGINE_QUANTIZE_H
#define ENGINE_QUANTIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "file/json.h"
#include "file/safetensors.h"
#include "qwick.h"

/* A tensor of the source that is written. */
struct quantize_job {
    const struct st_tensor *src;
    int bits;      /* 0: copied */
    size_t out[3]; /* indices into the shard's tensors: the copy; or codes,
                      scales, biases */
};

/* A file of the result. */
struct quantize_shard {
    char name[80];
    struct st_out_tensor *out;
    size_t n_out;
    struct quantize_job *jobs;
    size_t n_jobs;
};

/* A 2-D weight, by the name that MLX has for its module. */
struct quantize_module {
    const struct st_tensor *t;
    char *name; /* the tensor's without ".weight" */
    int bits;   /* 0: stays dense */
};

struct quantize_plan {
    const struct qwick_quantize_options *o;
    struct quantize_module *modules;
    size_t n_modules;
    struct quantize_shard *shards;
    size_t n_shards;
    char **names; /* of new tensors */
    size_t n_names;
    size_t n_params, bytes_read, bytes_written;
};

/* Plan the result; o->note gets the notes. path: the source, for messages.
 * tied: the embedding is the head. The plan borrows from set and o. */
int quantize_plan(struct quantize_plan *p, const struct st_set *set,
                  const char *path, bool tied,
                  const struct qwick_quantize_options *o, struct qwick_err *e);
void quantize_plan_free(struct quantize_plan *p);

/* QWICK_ERR_MODEL when config.json says that the checkpoint is quantized. */
int quantize_check_config(const struct json_value *config, const char *path,
                          struct qwick_err *e);
/* Append the config.json of the result: the members of config in their order,
 * numbers in their original text, and after them the members that mlx-lm reads.
 * -1: out of memory. */
int quantize_config(struct buf *out, const struct json_value *config,
                    const struct quantize_plan *p);
/* Append the model.safetensors.index.json of the result. -1: out of memory. */
int quantize_index(struct buf *out, const struct quantize_plan *p);

#endif
