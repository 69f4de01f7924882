/* Targets and draft models among the goldens, for tests of guesses. */
#ifndef TEST_DRAFT_PAIRS_H
#define TEST_DRAFT_PAIRS_H

#include <stdbool.h>

#define GOLDEN "tests/golden/models/"

/* good: the draft model is the target, so it is mostly right. */
static const struct {
    const char *target, *draft;
    bool draft_exact, good;
} pairs[] = {
    {GOLDEN "yarn", GOLDEN "yarn", true, true}, /* shares keys and values */
    {GOLDEN "yarn", GOLDEN "yarn", false, true},
    {GOLDEN "tied-bf16", GOLDEN "f16", true, false},
    {GOLDEN "f32", GOLDEN "mlx4", true, false},
    {GOLDEN "moe", GOLDEN "moe", true, true},
    {GOLDEN "gemma3-gqa", GOLDEN "gemma3-gqa", true, true},
    {GOLDEN "gemma3-gqa", GOLDEN "gemma3-tied", false, false},
    {GOLDEN "qwen35-tied", GOLDEN "qwen35-tied", true, true},
    {GOLDEN "qwen35-tied", GOLDEN "qwen35-tied", false, true},
    {GOLDEN "qwen35-tied", GOLDEN "yarn", true, false},
    {GOLDEN "yarn", GOLDEN "qwen35-tied", true, false},
};
enum { N_PAIRS = sizeof pairs / sizeof *pairs };

#endif
