/* Containers and JSON. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/dtype.h"
#include "engine/core/open_gguf.h"
#include "file/checkpoint.h"
#include "file/gguf.h"
#include "file/json.h"
#include "file/safetensors.h"
#include "targets.h"
#include "text/bpe/bpe.h"

/* ---- JSON ---- */

static void walk(const struct json_value *v)
{
    if (v->type == JSON_STRING || v->type == JSON_NUMBER) {
        int64_t i;
        double d;
        CHECK(v->str[v->len] == '\0');
        (void)json_int(v, INT64_MIN, INT64_MAX, &i);
        (void)json_double(v, &d);
    }
    if (v->type == JSON_ARRAY || v->type == JSON_OBJECT)
        for (size_t i = 0; i < v->len; i++)
            walk(&v->items[i]);
    if (v->type == JSON_OBJECT)
        for (size_t i = 0; i < v->len; i++)
            CHECK(json_get_n(v, v->keys[i].str, v->keys[i].len) ==
                  &v->items[i]);
}

int fuzz_json(const char *in, size_t n, struct qwick_err *e)
{
    struct json_doc *doc, *python;
    bool strict = !json_parse(&doc, "fuzz", in, n, QWICK_ERR_USAGE, e);
    CHECK(strict == (doc != NULL));
    if (!json_parse_python(&python, "fuzz", in, n, QWICK_ERR_USAGE, NULL)) {
        walk(json_root(python));
        json_free(python);
    } else {
        CHECK(!strict);
    }
    if (!strict)
        return -1;
    walk(json_root(doc));
    json_free(doc);
    return 0;
}

/* ---- tensors ---- */

static volatile unsigned sink;

/* Each tensor's bytes are there, and each is found by its name. */
static void use_tensors(const struct st_set *set, size_t n)
{
    size_t total = 0;
    for (size_t i = 0; i < st_count(set); i++) {
        const struct st_tensor *t = st_at(set, i);
        CHECK(t->rank <= ST_MAX_RANK);
        if (t->n_bytes)
            sink += t->data[0] + t->data[t->n_bytes - 1];
        total += t->n_bytes;
        if (strlen(t->name) == t->name_len)
            CHECK(st_find(set, t->name) == t);
    }
    CHECK(total <= n);
}

int fuzz_safetensors(const char *in, size_t n, struct qwick_err *e)
{
    struct st_set *set;
    if (st_open_file(&set, fuzz_file("one.safetensors", in, n), e)) {
        CHECK(!set);
        return -1;
    }
    use_tensors(set, n);
    st_close(set);
    return 0;
}

/* A header with the right length before it, and data behind it. */
int fuzz_header(const char *in, size_t n, struct qwick_err *e)
{
    struct buf b = {0};
    char data[64] = {0};
    for (int i = 0; i < 8; i++)
        CHECK(buf_putc(&b, (char)(n >> 8 * i)) == 0);
    CHECK(buf_append(&b, in, n) == 0 && buf_append(&b, data, sizeof data) == 0);
    int rc = fuzz_safetensors(b.data, b.len, e);
    buf_free(&b);
    return rc;
}

/* An index beside two shards. */
int fuzz_index(const char *in, size_t n, struct qwick_err *e)
{
    static const char a[] =
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}    ";
    static const char b[] =
        "{\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}    ";
    static struct checkpoint *ck;
    static char shard[8 + sizeof a - 1 + 8];
    if (!ck) {
        const char *dir = fuzz_file("config.json", "{}", 2);
        char path[256];
        shard[0] = sizeof a - 1;
        memcpy(shard + 8, a, sizeof a - 1);
        fuzz_file("a.safetensors", shard, sizeof shard);
        memcpy(shard + 8, b, sizeof b - 1);
        fuzz_file("b.safetensors", shard, sizeof shard);
        strncpy(path, dir, sizeof path - 1);
        path[sizeof path - 1] = '\0';
        *strrchr(path, '/') = '\0';
        fuzz_file("model.safetensors.index.json", "{}", 2);
        CHECK(checkpoint_open(&ck, path, e) == 0);
    }
    struct st_set *set;
    fuzz_file("model.safetensors.index.json", in, n);
    if (st_open(&set, ck, e)) {
        CHECK(!set);
        return -1;
    }
    use_tensors(set, 2 * sizeof shard);
    st_close(set);
    return 0;
}

/* ---- GGUF ---- */

int fuzz_gguf(const char *in, size_t n, struct qwick_err *e)
{
    struct gguf *g;
    if (gguf_open(&g, fuzz_file("one.gguf", in, n), e)) {
        CHECK(!g);
        return -1;
    }
    for (size_t i = 0; i < gguf_count(g); i++) {
        const struct gguf_value *v = gguf_at(g, i);
        CHECK(gguf_type_name(v->type));
        if (v->type == GGUF_STRING || v->type == GGUF_ARRAY)
            for (size_t k = 0; k < v->n_bytes; k++)
                sink += v->data[k];
    }
    use_tensors(gguf_tensors(g), n);
    struct bpe *b;
    if (!open_gguf_tokenizer(&b, g, e))
        bpe_close(b);
    else
        CHECK(!b);
    gguf_close(g);
    return 0;
}
