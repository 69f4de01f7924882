/* Files that say how vectors are made, and the index.json of an index. */
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "file/checkpoint.h"
#include "model/config.h"
#include "model/pooling.h"
#include "qwick_tools.h"
#include "targets.h"

static const char *fuzz_dir(void)
{
    static char path[256];
    memcpy(path, fuzz_path(""), sizeof path - 1);
    path[strlen(path) - 1] = '\0';
    return path;
}

/* The first byte chooses the file. */
int fuzz_pooling(const char *in, size_t n, struct qwick_err *e)
{
    static const char *const names[] = {
        "modules.json", "config_sentence_transformers.json",
        "sentence_bert_config.json", "README.md"};
    static struct checkpoint *ck;
    const struct config c = {.d_model = 64, .bidirectional = true};
    struct pooling p;
    for (size_t i = 0; i < 4; i++)
        (void)unlink(fuzz_path(names[i]));
    if (n)
        fuzz_file(names[(unsigned char)in[0] % 4], in + 1, n - 1);
    fuzz_file("model.safetensors", "", 0);
    if (!ck)
        CHECK(checkpoint_open(&ck, fuzz_dir(), e) == 0);
    int rc = pooling_read(&p, ck, &c, e);
    if (!rc) {
        CHECK(p.modes.n > 0 && p.modes.n <= N_POOLING_MODES && p.width > 0);
        CHECK(p.n_dims <= POOLING_MAX_DIMS && p.n_dense <= POOLING_MAX_DENSE);
        for (size_t i = 0; i < p.n_dims; i++)
            CHECK(p.dims[i] > 0);
        CHECK(!p.prompt || json_is(p.prompt, JSON_STRING));
    }
    pooling_close(&p);
    return rc;
}

/* Use all that an index has. */
static void use_index(struct qwick_index *ix)
{
    const struct qwick_index_info *info = qwick_index_get_info(ix);
    const float vector[8] = {1, 2};
    struct qwick_index_query q = qwick_index_query_defaults();
    struct qwick_index_row row;
    struct qwick_index_hit hits[2];
    float v[8];
    size_t at, n_hits;
    CHECK(info->n_dead <= info->n_rows && info->n_rows <= 2 && info->dim <= 8);
    for (size_t i = 0; i < info->n_rows; i++) {
        if (!qwick_index_get_row(ix, i, &row, NULL))
            CHECK(row.n_id <= 2 && row.n_text <= 3);
        CHECK(qwick_index_get_vector(ix, i, v, NULL) == 0);
    }
    if (!qwick_index_find(ix, "b", 1, &at, NULL))
        CHECK(at == SIZE_MAX || at < info->n_rows);
    q.vectors = vector;
    q.n = 1;
    q.top = 2;
    q.threads = 1;
    if (!qwick_index_search(ix, NULL, &q, hits, &n_hits, NULL, NULL))
        CHECK(n_hits <= info->n_rows - info->n_dead);
}

/* The files of an index of two rows, of which one is dead. */
int fuzz_manifest(const char *in, size_t n, struct qwick_err *e)
{
    static const float vectors[] = {1, 0, 0, 1};
    static const uint64_t ends[] = {1, 1, 2, 3}, dead[] = {0};
    struct qwick_index *ix;
    fuzz_file("vectors.f32", vectors, sizeof vectors);
    fuzz_file("vectors.f16", vectors, sizeof vectors);
    fuzz_file("offsets.u64", ends, sizeof ends);
    fuzz_file("ids.txt", "ab", 2);
    fuzz_file("texts.txt", "xyz", 3);
    fuzz_file("dead.u64", dead, sizeof dead);
    fuzz_file("index.json", in, n);
    if (qwick_index_open(&ix, fuzz_dir(), e)) {
        CHECK(!ix);
        return -1;
    }
    use_index(ix);
    qwick_index_close(ix);
    return 0;
}
