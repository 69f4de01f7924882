/* Parts of qwick_quantize: the plan for each tensor, and config.json. */
#ifndef ENGINE_QUANTIZE_H
#define ENGINE_QUANTIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "file/json.h"
#include "file/safetensors.h"
#include "model/names.h"
#include "qwick.h"

/* Consecutive elements of a tensor. */
struct quantize_part {
    const struct st_tensor *src;
    size_t begin, n;
};

/* Elements of the source that are written. */
struct quantize_job {
    struct quantize_part from;
    size_t at;     /* where the result's elements begin */
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

/* A weight, by the name that MLX has for its module: a tensor of two
 * dimensions, or all experts of a layer in one role. */
struct quantize_module {
    const struct st_tensor *t;   /* the first one of its source */
    char *name;                  /* the result's without ".weight" */
    int bits;                    /* 0: stays dense */
    size_t stack;                /* matrices; 0: one, in two dimensions */
    size_t rows, cols;           /* of a matrix */
    struct quantize_part *parts; /* [n_parts] the elements, in order */
    size_t n_parts;
    bool fused; /* t holds another module, too, next in the plan or before */
};

/* What the plan knows of a tensor of the source. */
struct quantize_claim {
    bool claimed;  /* it belongs to a module of experts */
    size_t module; /* the last one of these */
    bool router;   /* it chooses experts, or weighs the shared one */
};

struct config;

struct quantize_plan {
    const struct qwick_quantize_options *o;
    struct naming naming; /* of the source */
    struct quantize_module *modules;
    size_t n_modules;
    struct quantize_claim *claims; /* of each tensor of the source */
    struct quantize_shard *shards;
    size_t n_shards;
    char **names; /* of new tensors */
    size_t n_names;
    size_t n_params, bytes_read, bytes_written;
};

/* Plan the result; o->note gets the notes. path: the source, for messages. c:
 * its configuration. The plan borrows from set and o. */
int quantize_plan(struct quantize_plan *p, const struct st_set *set,
                  const char *path, const struct config *c,
                  const struct qwick_quantize_options *o, struct qwick_err *e);
void quantize_plan_free(struct quantize_plan *p);

/* Add a module for the experts of each layer and role, and mark the tensors of
 * these and the routers in p->claims. Bits are not chosen yet. */
int quantize_experts(struct quantize_plan *p, const struct st_set *set,
                     const char *path, const struct config *c,
                     struct qwick_err *e);

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
