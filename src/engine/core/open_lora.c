/* The LoRA adapters of an engine. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/core/engine.h"

enum { MAX_LORAS = 4096 };

/* The last part of a path, without slashes and ".gguf". NULL: out of memory. */
static char *name_of(const char *path)
{
    static const char tail[] = ".gguf";
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    size_t n = end - begin;
    if (n > sizeof tail - 1 && memcmp(path + end - (sizeof tail - 1), tail,
                                      sizeof tail - 1) == 0)
        n -= sizeof tail - 1;
    return strndup(path + begin, n);
}

static int check_lora(const struct qwick_engine_options *o, size_t i,
                      struct qwick_err *e)
{
    const struct qwick_lora *l = &o->loras[i];
    if (!l->path || !*l->path)
        return err_usage(e, "lora %zu: path: must not be empty", i);
    if (!(fabs(l->scale) <= 1e6))
        return err_usage(e, "lora: %s: scale: must be from -1e6 to 1e6, is %g",
                         l->path, l->scale);
    return 0;
}

/* Adapters that are chosen by name have names of their own. */
static int check_names(const struct lora_spec *specs, size_t n,
                       struct qwick_err *e)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(specs[i].name, specs[k].name) == 0)
                return err_usage(e,
                                 "lora: %s and %s are both called \"%s\": give "
                                 "one of them another name",
                                 specs[k].path, specs[i].path, specs[i].name);
    return 0;
}

static int open_specs(struct qwick_engine *eng,
                      const struct qwick_engine_options *o,
                      struct lora_spec *specs, char **names,
                      struct qwick_err *e)
{
    for (size_t i = 0; i < o->n_loras; i++) {
        const struct qwick_lora *l = &o->loras[i];
        if (check_lora(o, i, e))
            return -1;
        names[i] = l->name ? strdup(l->name) : name_of(l->path);
        if (!names[i])
            return err_oom(e, strlen(l->path));
        specs[i] = (struct lora_spec){.path = l->path,
                                      .name = names[i],
                                      .scale = l->scale,
                                      .adapter = o->loras_apart ? i : 0};
    }
    if (o->loras_apart && check_names(specs, o->n_loras, e))
        return -1;
    if (loras_open(&eng->model, specs, o->n_loras, e))
        return -1;
    for (size_t i = 0; i < eng->model.loras.n; i++) {
        const struct lora_facts *f = &eng->model.loras.v[i];
        engine_note(eng, "adapter %s: %zu matrices, rank up to %zu", f->name,
                    f->n_matrices, f->max_rank);
    }
    return 0;
}

int engine_open_loras(struct qwick_engine *eng,
                      const struct qwick_engine_options *o, struct qwick_err *e)
{
    size_t n = o->n_loras;
    if (!n)
        return 0;
    if (n > MAX_LORAS)
        return err_usage(e, "lora: at most %d are supported, is %zu", MAX_LORAS,
                         n);
    struct lora_spec *specs = calloc(n, sizeof *specs);
    char **names = calloc(n, sizeof(*names));
    int rc = specs && names ? open_specs(eng, o, specs, names, e)
                            : err_oom(e, n * sizeof *specs);
    for (size_t i = 0; names && i < n; i++)
        free(names[i]);
    free(names);
    free(specs);
    eng->own_lora = o->loras_apart ? 0 : 1;
    return rc;
}

size_t qwick_engine_lora_count(const struct qwick_engine *eng)
{
    return eng->model.loras.n;
}

int qwick_engine_lora_at(const struct qwick_engine *eng, size_t i,
                         struct qwick_lora_info *out, struct qwick_err *e)
{
    const struct loras *l = &eng->model.loras;
    *out = (struct qwick_lora_info){0};
    if (i >= l->n)
        return err_usage(e, "adapter %zu: is out of range, the engine has %zu",
                         i, l->n);
    *out = (struct qwick_lora_info){l->v[i].name, l->v[i].n_matrices,
                                    l->v[i].max_rank};
    return 0;
}

int qwick_engine_use_lora(struct qwick_engine *eng, size_t i,
                          struct qwick_err *e)
{
    size_t n = eng->model.loras.n;
    if (i > n)
        return err_usage(e, "adapter %zu: is out of range, the engine has %zu",
                         i, n);
    eng->own_lora = i == n ? 0 : i + 1;
    return 0;
}
