/* A hash table from keys to indices. The caller keeps the keys, for example in
 * an array, hashes them and compares them. The table holds only indices.
 *
 * Open addressing, linear probing, 4 bytes per slot, so that the table of a
 * vocabulary fits an L2 cache. The low id_bits of a slot hold index + 1 (0:
 * empty). The other bits hold a tag from the hash: a tag that differs shows
 * that the key differs, nearly always without reading the key.
 *
 *     uint32_t at = hashmap_slot(m, h), i;
 *     while ((i = hashmap_next(m, h, &at)) != HASHMAP_NONE)
 *         if (key i is the wanted one)
 *             return i; */
#ifndef BASE_HASHMAP_H
#define BASE_HASHMAP_H

#include <stddef.h>
#include <stdint.h>

struct qwick_err;

/* A table. A struct of all zeros has no memory; call hashmap_init before
 * use. */
struct hashmap {
    uint32_t *slots;
    uint32_t mask; /* number of slots in use - 1 */
    int id_bits;
    size_t cap; /* slots allocated */
};

#define HASHMAP_NONE UINT32_MAX

/* Empty the table and make room for n entries, whose indices are at most
 * max_index < 2^31. Uses the table's memory again if it is large enough.
 * Returns 0, or -1 with *e set; then the table is unusable. */
int hashmap_init(struct hashmap *m, size_t n, size_t max_index,
                 struct qwick_err *e);
void hashmap_free(struct hashmap *m);

/* Return the slot where the search for a hash begins. */
static inline uint32_t hashmap_slot(const struct hashmap *m, uint64_t h)
{
    return (uint32_t)h & m->mask;
}

static inline uint32_t hashmap_tag(const struct hashmap *m, uint64_t h)
{
    return (uint32_t)(h >> 32) >> m->id_bits << m->id_bits;
}

/* Return the next index whose key may have the hash h, or HASHMAP_NONE. *at is
 * the slot to look at next. */
static inline uint32_t hashmap_next(const struct hashmap *m, uint64_t h,
                                    uint32_t *at)
{
    uint32_t tag = hashmap_tag(m, h), low = (1u << m->id_bits) - 1;
    for (;;) {
        uint32_t s = m->slots[*at];
        if (s == 0)
            return HASHMAP_NONE;
        *at = (*at + 1) & m->mask;
        if ((s & ~low) == tag)
            return (s & low) - 1;
    }
}

/* Add an index. Its key must not be in the table. */
static inline void hashmap_put(struct hashmap *m, uint64_t h, uint32_t index)
{
    uint32_t at = hashmap_slot(m, h);
    while (m->slots[at])
        at = (at + 1) & m->mask;
    m->slots[at] = hashmap_tag(m, h) | (index + 1);
}

#endif
