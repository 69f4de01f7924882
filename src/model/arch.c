#include "model/arch.h"

#include <string.h>

static const struct arch *const families[] = {&arch_qwen3};

const struct arch *arch_find(const char *model_type, size_t len)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strlen(families[i]->model_type) == len &&
            memcmp(families[i]->model_type, model_type, len) == 0)
            return families[i];
    return NULL;
}

const char *arch_names(void)
{
    return "\"qwen3\"";
}
