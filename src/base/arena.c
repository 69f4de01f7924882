#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

/* Blocks double from the smallest to the largest size. */
enum { MIN_BLOCK = 2048, MAX_BLOCK = 1 << 20 };

struct arena_block {
    struct arena_block *next;
    size_t len, cap;
    _Alignas(16) char data[];
};

void *arena_alloc(struct arena *a, size_t n, size_t align)
{
    struct arena_block *b = a->blocks;
    if (b) {
        size_t at = (b->len + align - 1) & ~(align - 1);
        if (at <= b->cap && b->cap - at >= n) {
            b->len = at + n;
            return b->data + at;
        }
    }
    size_t cap = b ? b->cap * 2 : MIN_BLOCK, total;
    if (cap > MAX_BLOCK)
        cap = MAX_BLOCK;
    if (cap < n)
        cap = n;
    if (size_add(cap, sizeof *b, &total))
        return NULL;
    struct arena_block *fresh = malloc(total);
    if (!fresh)
        return NULL;
    fresh->len = n;
    fresh->cap = cap;
    /* A block made for one large object is full: keep filling the old block. */
    if (b && cap == n) {
        fresh->next = b->next;
        b->next = fresh;
    } else {
        fresh->next = b;
        a->blocks = fresh;
    }
    return fresh->data;
}

char *arena_copy(struct arena *a, const char *s, size_t n)
{
    size_t size;
    char *copy = size_add(n, 1, &size) ? NULL : arena_alloc(a, size, 1);
    if (!copy)
        return NULL;
    if (n > 0)
        memcpy(copy, s, n);
    copy[n] = '\0';
    return copy;
}

void arena_free(struct arena *a)
{
    for (struct arena_block *b = a->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    a->blocks = NULL;
}
