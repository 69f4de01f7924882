/* Random characters, equal in each run. */
#ifndef TEST_RANDOM_TEXT_H
#define TEST_RANDOM_TEXT_H

#include <stdint.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "test.h"

static uint64_t draw_state;

/* A number below n. */
static inline uint32_t draw(uint32_t n)
{
    draw_state = draw_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((draw_state >> 33) % n);
}

static inline void put(struct buf *b, uint32_t cp)
{
    char u[4];
    size_t n = utf8_encode(cp, u);
    assert_int_equal(buf_append(b, u, n), 0);
}

#endif
