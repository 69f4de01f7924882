/* The keys of a GGUF file's metadata that belong to its architecture. */
#ifndef MODEL_CONFIG_GGUF_KEYS_H
#define MODEL_CONFIG_GGUF_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct gguf;
struct gguf_value;
struct section_name;

struct gguf_keys {
    const struct gguf *g;
    const char *arch;       /* keys that begin with "." follow this name */
    bool hybrid;            /* layers may be recurrent */
    bool tiled;             /* the heads of these layers are, see names.h */
    bool layered;           /* arch.gguf_layered */
    bool full_first;        /* arch.gguf_full_first */
    const char *const *own; /* arch.gguf_keys */
};

/* Find the entry of a key; NULL when it is missing. */
const struct gguf_value *gguf_keys_find(const struct gguf_keys *k,
                                        const char *key);

/* Return the integer of a key, or the one that an array has for all layers. 0
 * when the key is missing or has no integer. */
uint64_t gguf_keys_int(const struct gguf_keys *k, const char *key);

/* Set *out to the integer that an array has for all layers. Recurrent layers
 * may have 0 instead. Returns false if layers differ, or if the array does not
 * have an integer for each of block_count layers. */
bool gguf_keys_shared(const struct gguf_keys *k, const struct gguf_value *v,
                      int64_t *out);

/* Set *out to the integer of a key for layer i: its own in an array. Returns
 * false when the key is missing or has no integer. */
bool gguf_keys_at(const struct gguf_keys *k, const char *key, size_t i,
                  int64_t *out);

/* Return whether the file lists the recurrent layers: attention.recurrent_layers
 * has them, or attention.head_count_kv is 0 for them. */
bool gguf_keys_lists_recurrent(const struct gguf_keys *k);

/* Return whether layer i is recurrent: by the list, or every layer but each
 * full_attention_interval-th, 4 if the file does not say. */
bool gguf_keys_recurrent(const struct gguf_keys *k, size_t i);

/* QWICK_ERR_MODEL, with the key and its value, if a key of the architecture
 * changes results and no reader uses it: arrays other than those of `names`
 * (ends with NULL) that differ between layers, and values that no supported
 * model has. */
int gguf_keys_check(const struct gguf_keys *k, const struct section_name *names,
                    struct qwick_err *e);

#endif
