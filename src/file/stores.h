/* The models on this machine, by the directories in which programs keep them:
 * the Hugging Face cache, the directories of $QWICK_MODEL_PATH, and the stores
 * of Ollama, LM Studio, llama.cpp and ModelScope. Only directories, the refs of
 * the Hugging Face cache and the manifests of Ollama are read. */
#ifndef FILE_STORES_H
#define FILE_STORES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct store_model {
    const char *store; /* "huggingface", "path", "ollama", "lmstudio",
                          "llama.cpp" or "modelscope"; static */
    char *name;        /* the short name: "Qwen3-4B", "Qwen3-4B-Q4_K_M",
                          "qwen3:4b" */
    char *id;          /* the name in the store: "Qwen/Qwen3-4B",
                          "Qwen/Qwen3-4B-GGUF:Q4_K_M" */
    char *path;        /* the directory or GGUF file; with a fault, the place
                          where it shows */
    char *fault;       /* why the model cannot be opened; NULL: nothing known */
    bool unfinished;   /* the store also holds parts of downloads for it */
    bool is_copy;      /* only another name of a model in the list: the same
                          directory or file */
    uint64_t dev, ino; /* of path; 0 with a fault */
};

/* A directory that was searched. */
struct store_place {
    const char *title; /* "the Hugging Face cache"; static */
    char *path;
    bool exists;
};

/* A text that means a model, for stores_index. */
struct store_key {
    uint64_t hash; /* of the text, in lower case */
    uint32_t model;
};

struct stores {
    struct store_model *v; /* [n] in order of stores, then of paths */
    size_t n, cap;
    struct store_place *places; /* [n_places] in the order of the search */
    size_t n_places, cap_places;
    bool cut; /* there was more than STORES_MAX_ENTRIES: some are missing */
    struct store_key *keys; /* [n_keys] ascending; NULL: no index */
    size_t n_keys;
    uint64_t seed;
};

/* Limits of the search: directory entries of one store, models, and depth. A
 * directory inside itself (through a link) is not searched again. */
enum {
    STORES_MAX_ENTRIES = 200000,
    STORES_MAX_MODELS = 10000,
    STORES_MAX_DEPTH = 6
};

/* Search all places. If several paths lead to one model, the first path that is
 * not a symbolic link counts, or the first one if all are links. A directory
 * that cannot be read is listed as a model with a fault. interrupt (NULL:
 * never) stops the search when it is not 0. Returns 0, or -1 with *e set: out
 * of memory, or interrupted. */
int stores_scan(struct stores *s, const volatile int *interrupt,
                struct qwick_err *e);
void stores_free(struct stores *s);

/* Index the models by their names, so that the functions below need not compare
 * with all of them. */
int stores_index(struct stores *s, struct qwick_err *e);

/* Find the models that spec names, in upper or lower case: by name, by id, by
 * the id's last part, by an id without ":TYPE", or by the name of a file. Only
 * the best matches count: models without a fault before models with one, then
 * the exact case before other matches. A copy counts as the model itself.
 * Writes the first such model to *at and returns their number. */
size_t stores_match(const struct stores *s, const char *spec, size_t *at);

/* Return the shortest text that names only model i: its name, its id or its
 * path. Model i must not be a copy. */
const char *stores_spec(const struct stores *s, size_t i);

/* Return the path of the model that spec means, malloc'ed; NULL with *found
 * false if there is none, or with *e set: several models, which the error
 * lists, or one with a fault. */
char *stores_find(const struct stores *s, const char *spec, bool *found,
                  struct qwick_err *e);

/* ---- for the search of one store ------------------------------------------
 */

struct store_scan {
    struct stores *s;
    const char *store;
    size_t entries;  /* directory entries that may still be read */
    bool repository; /* directories below the first one hold other files of its
                        model */
    bool unfinished; /* store_model's */
    const volatile int *interrupt;
    struct qwick_err *e;
    /* directories above the current one */
    struct {
        uint64_t dev, ino;
    } above[STORES_MAX_DEPTH + 1];
};

/* Search the directory root. Return 0, or -1 with *scan->e set. */
int scan_hub(struct store_scan *scan, const char *root);
int scan_tree(struct store_scan *scan, const char *root);
int scan_modelscope(struct store_scan *scan, const char *root);
int scan_ollama(struct store_scan *scan, const char *root);

/* Add a model. name NULL: the part of id behind its last slash. fault: why it
 * cannot be opened, or NULL. */
int scan_add(struct store_scan *scan, const char *id, const char *name,
             const char *path, const char *fault);

/* Add a model that cannot be opened for the reason *why, a message about path.
 * When memory ran out, set *scan->e and return -1. */
int scan_add_unreadable(struct store_scan *scan, const char *id,
                        const char *name, const char *path,
                        const struct qwick_err *why);

/* Search the directory path and those below it as scan_tree does. Its models
 * get the id `id` ("": the names below path are the ids). */
int scan_models(struct store_scan *scan, const char *path, const char *id);

#endif
