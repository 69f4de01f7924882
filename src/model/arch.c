#include "model/arch.h"

#include <stdio.h>
#include <string.h>

static const struct arch *const families[] = {&arch_qwen3, &arch_qwen3moe};

const struct arch *arch_find(const char *model_type, size_t len)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strlen(families[i]->model_type) == len &&
            memcmp(families[i]->model_type, model_type, len) == 0)
            return families[i];
    return NULL;
}

void arch_names(char *out, size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < sizeof families / sizeof *families && at < n; i++) {
        int len = snprintf(out + at, n - at, "%s\"%s\"", i ? ", " : "",
                           families[i]->model_type);
        at += len > 0 ? (size_t)len : 0;
    }
}
