#include "base/hashmap.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

enum { MIN_BITS = 4, MAX_BITS = 31 };

int hashmap_init(struct hashmap *m, size_t n, size_t max_index,
                 struct qwick_err *e)
{
    int bits = MIN_BITS, id_bits = 1;
    while (bits <= MAX_BITS && (size_t)1 << bits < n + n / 2)
        bits++;
    while (id_bits <= MAX_BITS && (max_index + 1) >> id_bits != 0)
        id_bits++;
    if (n > SIZE_MAX / 2 || bits > MAX_BITS || id_bits > MAX_BITS)
        return err_oom(e, SIZE_MAX);
    size_t n_slots = (size_t)1 << bits;
    if (n_slots > m->cap) {
        hashmap_free(m);
        /* Neither calloc nor malloc, which gcc would turn into calloc: its zero
         * pages fault twice, at the first read and at the first write. */
        m->slots = aligned_alloc(64, n_slots * sizeof *m->slots);
        if (!m->slots)
            return err_oom(e, n_slots * sizeof *m->slots);
        m->cap = n_slots;
    }
    memset(m->slots, 0, n_slots * sizeof *m->slots);
    m->mask = (uint32_t)(n_slots - 1);
    m->id_bits = bits > id_bits ? bits : id_bits;
    return 0;
}

void hashmap_free(struct hashmap *m)
{
    free(m->slots);
    *m = (struct hashmap){0};
}
