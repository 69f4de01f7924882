/* Keys: hashes that identify stored results, so that a result of another
 * prompt, model or option is not used by mistake. */
#ifndef BASE_KEY_H
#define BASE_KEY_H

#include <stddef.h>
#include <stdint.h>

/* A FNV-1a hash of 128 bits. It is the same on all machines. Two versions of
 * qwick that add equal values in the same order get equal keys. */
struct key {
    unsigned __int128 h;
};

/* Start a key. `what` is the kind of result. */
struct key key_start(const char *what);
void key_add(struct key *k, const void *p, size_t n);

/* Add a number, a text with its length (NULL differs from ""), or a float. */
void key_add_u64(struct key *k, uint64_t v);
void key_add_text(struct key *k, const char *s, size_t n);
void key_add_float(struct key *k, float v);

/* Add token ids and their number. */
void key_add_ids(struct key *k, const int32_t *ids, size_t n);

/* Return the hash, folded to 64 bits. */
uint64_t key_u64(const struct key *k);

#endif
