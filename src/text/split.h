/* The split pattern of Qwen2 and Qwen3, matched by hand-written code. */
#ifndef TEXT_SPLIT_H
#define TEXT_SPLIT_H

#include <stddef.h>

/* The pattern in tokenizer.json that split_next implements. */
#define SPLIT_PATTERN                                                   \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Return the length of the pattern's first match in p[0..n), n >= 1. The match
 * always starts at p, because every character matches some alternative. A byte
 * that is not valid UTF-8 counts as a character that is neither letter, number
 * nor space. */
size_t split_next(const char *p, size_t n);

#endif
