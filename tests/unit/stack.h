/* Before a checkpoint is written: change its experts from one tensor per expert
 * to one tensor for all. */
#ifndef TEST_STACK_H
#define TEST_STACK_H

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/safetensors.h"

/* How a checkpoint stores the experts of a layer. */
enum expert_layout {
    LAYOUT_EACH,  /* experts.E.gate_proj.weight ... */
    LAYOUT_FUSED, /* experts.gate_up_proj, experts.down_proj */
    LAYOUT_STACK, /* switch_mlp.gate_proj.weight ... */
    N_LAYOUTS
};

struct tensors {
    struct st_out_tensor *t;
    size_t n;
};

static inline struct st_out_tensor *tensors_find(const struct tensors *l,
                                                 const char *name)
{
    for (size_t i = 0; i < l->n; i++)
        if (!strcmp(l->t[i].name, name))
            return &l->t[i];
    return NULL;
}

static inline size_t tensor_bytes(const struct st_out_tensor *t)
{
    size_t n = dtype_bytes(t->dtype);
    for (size_t i = 0; i < t->rank; i++)
        n *= t->shape[i];
    return n;
}

/* Remember p until the end of the program. Names and data of tensors that are
 * replaced may belong to a file or to the heap, so that nobody frees them;
 * while a static variable points to them, they do not count as leaks. */
static inline void tensors_keep(const void *p)
{
    static const void **kept;
    static size_t n, cap;
    if (n == cap) {
        cap = cap ? 2 * cap : 64;
        kept = realloc(kept, cap * sizeof *kept);
        assert(kept);
    }
    kept[n++] = p;
}

/* Replace the matrices [rows, cols] called names[0..n_parts) by one tensor
 * [n_parts / per, per * rows, cols] called `name`, in order. Its name and data
 * are malloc'ed and stay until the end of the program. Returns false if no
 * tensor is called names[0]. */
static inline bool tensors_stack(struct tensors *l, char (*names)[192],
                                 size_t n_parts, size_t per, const char *name)
{
    struct st_out_tensor *first = tensors_find(l, names[0]);
    if (!first)
        return false;
    struct st_out_tensor all = *first;
    size_t bytes = tensor_bytes(first);
    unsigned char *data = malloc(n_parts * bytes);
    assert(data && all.rank == 2);
    for (size_t i = 0; i < n_parts; i++) {
        struct st_out_tensor *part = tensors_find(l, names[i]);
        assert(part && tensor_bytes(part) == bytes);
        memcpy(data + i * bytes, part->data, bytes);
        tensors_keep(part->data);
        *part = l->t[--l->n];
    }
    all.name = strdup(name);
    tensors_keep(all.name);
    tensors_keep(data);
    all.rank = 3;
    all.shape[2] = all.shape[1];
    all.shape[1] = per * all.shape[0];
    all.shape[0] = n_parts / per;
    all.data = data;
    l->t[l->n++] = all;
    return true;
}

/* Rewrite the experts of a layer. mlp: such as "model.layers.0.mlp". Quantized
 * experts cannot be fused. */
static inline void tensors_layout(struct tensors *l, const char *mlp,
                                  size_t n_experts, enum expert_layout layout)
{
    static const char *const roles[] = {"gate_proj", "up_proj", "down_proj"};
    static const char *const parts[] = {"weight", "scales", "biases"};
    char(*names)[192] = malloc(2 * n_experts * sizeof *names), name[192];
    if (layout == LAYOUT_FUSED) {
        for (size_t i = 0; i < 2 * n_experts; i++)
            snprintf(names[i], sizeof names[i], "%s.experts.%zu.%s.weight", mlp,
                     i / 2, roles[i % 2]);
        snprintf(name, sizeof name, "%s.experts.gate_up_proj", mlp);
        assert(tensors_stack(l, names, 2 * n_experts, 2, name));
    }
    for (size_t r = layout == LAYOUT_FUSED ? 2 : 0;
         r < 3 && layout != LAYOUT_EACH; r++)
        for (size_t p = 0; p < 3; p++) {
            for (size_t i = 0; i < n_experts; i++)
                snprintf(names[i], sizeof names[i], "%s.experts.%zu.%s.%s", mlp,
                         i, roles[r], parts[p]);
            if (layout == LAYOUT_FUSED)
                snprintf(name, sizeof name, "%s.experts.%s", mlp, roles[r]);
            else
                snprintf(name, sizeof name, "%s.switch_mlp.%s.%s", mlp,
                         roles[r], parts[p]);
            tensors_stack(l, names, n_experts, 1, name);
        }
    free(names);
}

#endif
