#include "cli/bench/bench_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "qwick_tools.h"

int bench_model_init(struct bench_model *m, struct qwick_engine *eng,
                     size_t max_depth, struct qwick_err *e)
{
    const struct qwick_info *i = qwick_engine_info(eng);
    uint64_t id[2];
    *m = (struct bench_model){.n_params = i->n_params,
                              .decode_bytes = i->decode_bytes,
                              .kv_token_bytes = i->kv_token_bytes,
                              .huge_share = NAN};
    const struct {
        char **to;
        const char *from;
    } texts[] = {
        {&m->name, i->model},       {&m->weights_dtype, i->weights_dtype},
        {&m->kv_dtype, i->kv_dtype}, {&m->isa, i->isa},
        {&m->cpu, i->cpu},          {&m->gemm, i->gemm},
    };
    for (size_t k = 0; k < sizeof(texts) / sizeof(*texts); k++)
        if (!(*texts[k].to = strdup(texts[k].from)))
            return err_oom(e, strlen(texts[k].from));
    if (qwick_engine_identity(eng, id, e))
        return -1;
    snprintf(m->identity, sizeof(m->identity), "%016llx%016llx",
             (unsigned long long)id[0], (unsigned long long)id[1]);
    for (size_t k = 0; k < BENCH_DEPTHS; k++) {
        size_t at = max_depth / (BENCH_DEPTHS - 1) * k;
        if (k + 1 == BENCH_DEPTHS)
            at = max_depth;
        m->depth[k] = (double)at;
        m->depth_bytes[k] =
            (double)i->decode_bytes + qwick_forward_kv_bytes(eng, at, 1);
    }
    return 0;
}

void bench_model_free(struct bench_model *m)
{
    for (size_t i = 0; i < m->n_lines; i++)
        bench_line_free(&m->lines[i]);
    free(m->lines);
    free(m->name);
    free(m->weights_dtype);
    free(m->kv_dtype);
    free(m->isa);
    free(m->cpu);
    free(m->gemm);
    *m = (struct bench_model){0};
}

const char *bench_unit(const struct bench_model *m, const struct bench_line *l)
{
    return l->by_memory                    ? "GB/s"
           : strcmp(m->gemm, "int8") == 0 ? "Gop/s"
                                           : "GFLOP/s";
}
