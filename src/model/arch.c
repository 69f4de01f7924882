#include "model/arch.h"

#include <stdio.h>
#include <string.h>

static const struct arch *const families[] = {&arch_qwen3, &arch_qwen3moe};

enum { N_FAMILIES = sizeof families / sizeof *families };

/* What config.json or GGUF calls a family; NULL: GGUF has no such models. */
static const char *name_of(const struct arch *a, bool gguf)
{
    return gguf ? a->gguf : a->model_type;
}

static const struct arch *find(const char *name, size_t len, bool gguf)
{
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const char *known = name_of(families[i], gguf);
        if (known && strlen(known) == len && memcmp(known, name, len) == 0)
            return families[i];
    }
    return NULL;
}

static void list(char *out, size_t n, bool gguf)
{
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < N_FAMILIES && at < n; i++) {
        const char *known = name_of(families[i], gguf);
        int len = known ? snprintf(out + at, n - at, "%s\"%s\"", at ? ", " : "",
                                   known)
                        : 0;
        at += len > 0 ? (size_t)len : 0;
    }
}

const struct arch *arch_find(const char *model_type, size_t len)
{
    return find(model_type, len, false);
}

const struct arch *arch_find_gguf(const char *name, size_t len)
{
    return find(name, len, true);
}

void arch_names(char *out, size_t n)
{
    list(out, n, false);
}

void arch_gguf_names(char *out, size_t n)
{
    list(out, n, true);
}
