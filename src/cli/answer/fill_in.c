#include "cli/answer/fill_in.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "cli/answer/gen_job.h"

enum { N_MARKS = 3 };

/* The marks before the prefix, the suffix and the answer: those of Qwen and
 * CodeGemma, and those of StarCoder and Granite. */
static const char *const marks[][N_MARKS] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
};

/* Find the ids of the marks that the tokenizer has. */
static int find_marks(const struct qwick_engine *eng, const char *name,
                      int32_t ids[N_MARKS], struct qwick_err *e)
{
    for (size_t k = 0; k < sizeof(marks) / sizeof(*marks); k++) {
        bool all = true;
        for (size_t i = 0; i < N_MARKS; i++) {
            if (gen_control_id(eng, marks[k][i], &ids[i], e))
                return -1;
            all &= ids[i] >= 0;
        }
        if (all)
            return 0;
    }
    return err_usage(e, "%s: the model has no tokens %s, %s and %s", name,
                     marks[0][0], marks[0][1], marks[0][2]);
}

struct ids {
    int32_t *v;
    size_t n, cap;
};

static int ids_add(struct ids *to, const int32_t *ids, size_t n,
                   struct qwick_err *e)
{
    if (ARRAY_RESERVE(to->v, to->cap, to->n + n, e))
        return -1;
    memcpy(to->v + to->n, ids, n * sizeof(*ids));
    to->n += n;
    return 0;
}

int fill_in_encode(const struct qwick_engine *eng, const char *name,
                   const char *prefix, size_t n_prefix, const char *suffix,
                   size_t n_suffix, bool special, int32_t **ids, size_t *n,
                   struct qwick_err *e)
{
    const int32_t bos = qwick_engine_info(eng)->bos_id;
    const char *texts[] = {prefix, suffix};
    const size_t lengths[] = {n_prefix, n_suffix};
    int32_t mark[N_MARKS], *part;
    struct ids out = {0};
    size_t k;
    int rc = find_marks(eng, name, mark, e);
    if (!rc && bos >= 0)
        rc = ids_add(&out, &bos, 1, e);
    for (size_t i = 0; i < N_MARKS && !rc; i++) {
        rc = ids_add(&out, &mark[i], 1, e);
        if (rc || i == 2 || !lengths[i])
            continue;
        rc = qwick_tokenize(eng, texts[i], lengths[i], special, &part, &k, e);
        if (rc)
            break;
        rc = ids_add(&out, part, k, e);
        free(part);
    }
    if (rc) {
        free(out.v);
        return -1;
    }
    *ids = out.v;
    *n = out.n;
    return 0;
}
