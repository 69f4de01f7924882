/* Hashes that say what a stored result is of, so that results of other prompts,
 * models or options are not taken for it. */
#ifndef CLI_KEY_H
#define CLI_KEY_H

#include <stddef.h>
#include <stdint.h>

/* FNV-1a of 128 bits. The same on every machine, and in every version that adds
 * the same things in the same order. */
struct key {
    unsigned __int128 h;
};

struct key key_start(const char *what);
void key_add(struct key *k, const void *p, size_t n);

/* A number of 64 bits; a text and its length, NULL being another one than "".
 */
void key_add_u64(struct key *k, uint64_t v);
void key_add_text(struct key *k, const char *s, size_t n);
void key_add_float(struct key *k, float v);

void key_add_ids(struct key *k, const int32_t *ids, size_t n);

/* The hash, folded to 64 bits. */
uint64_t key_u64(const struct key *k);

#endif
