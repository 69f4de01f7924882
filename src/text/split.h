/* The split patterns of Qwen's tokenizers, matched by hand-written code. */
#ifndef TEXT_SPLIT_H
#define TEXT_SPLIT_H

#include <stddef.h>

enum split {
    SPLIT_QWEN2,  /* Qwen2 and Qwen3 */
    SPLIT_QWEN35, /* Qwen3.5: marks, \p{M}, belong to words like letters */
    N_SPLITS
};

/* The pattern in tokenizer.json. */
extern const char *const split_patterns[N_SPLITS];

/* Return the length of the pattern's first match in p[0..n), n >= 1. The match
 * always starts at p, because every character matches some alternative. A byte
 * that is not valid UTF-8 counts as a character that is neither letter, mark,
 * number nor space. */
size_t split_next(enum split split, const char *p, size_t n);

#endif
