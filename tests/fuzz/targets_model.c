/* What describes a model, and the files that hold its keys and values. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/checkpoint.h"
#include "model/config.h"
#include "qwick.h"
#include "targets.h"

/* ---- config ---- */

static const char valid_config[] =
    "{\"model_type\":\"qwen3\",\"hidden_act\":\"silu\",\"vocab_size\":320,"
    "\"hidden_size\":64,\"intermediate_size\":160,\"num_hidden_layers\":3,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":16,"
    "\"max_position_embeddings\":256,\"rms_norm_eps\":1e-06,"
    "\"tie_word_embeddings\":true,\"eos_token_id\":[1,2],\"rope_theta\":1e6}";

static int load_config(struct qwick_err *e)
{
    static struct checkpoint *ck;
    if (!ck) {
        char path[256];
        snprintf(path, sizeof path, "%s",
                 fuzz_file("model.safetensors", "", 0));
        *strrchr(path, '/') = '\0';
        CHECK(checkpoint_open(&ck, path, e) == 0);
    }
    struct config c;
    if (config_load(&c, ck, e)) {
        CHECK(!c.layers && !c.quant.v && !c.quant.stored.groups);
        return -1;
    }
    CHECK(c.n_layers > 0 && c.n_heads % c.n_kv_heads == 0);
    CHECK(c.n_stop_ids <= CONFIG_MAX_STOP_IDS);
    for (size_t i = 0; i < c.n_layers; i++)
        CHECK(c.layers[i].window > 0 && c.layers[i].rope < c.n_ropes);
    config_free(&c);
    return 0;
}

int fuzz_config(const char *in, size_t n, struct qwick_err *e)
{
    fuzz_file("config.json", in, n);
    return load_config(e);
}

int fuzz_generation(const char *in, size_t n, struct qwick_err *e)
{
    fuzz_file("config.json", valid_config, sizeof valid_config - 1);
    fuzz_file("generation_config.json", in, n);
    return load_config(e);
}

/* ---- saved sessions ----
 *
 * A saved session belongs to the files of its model, so no input can be one. An
 * input is changes of a session that is saved here: three bytes of offset and
 * the new byte, each. The reader is that of the prefix cache's entries, too. In
 * fuzz builds it does not compare hashes. */

static struct qwick_engine *small_model(void)
{
    static struct qwick_engine *eng;
    struct qwick_engine_options o = qwick_engine_defaults();
    struct qwick_err e;
    o.model = "tests/golden/models/tied-bf16";
    o.threads = 1;
    if (!eng && qwick_engine_open(&eng, &o, &e))
        fuzz_fail(__FILE__, __LINE__, e.msg);
    return eng;
}

static void save_session(char **file, size_t *n)
{
    const int32_t ids[] = {5, 9, 2, 7};
    struct qwick_session *s;
    struct qwick_err e;
    const char *path = fuzz_path("session");
    CHECK(qwick_session_create(&s, small_model(), 64, &e) == 0);
    CHECK(qwick_session_sync(s, ids, 4, &e) == 0);
    if (qwick_session_save(s, path, &e))
        fuzz_fail(__FILE__, __LINE__, e.msg);
    qwick_session_free(s);
    CHECK(map_read_all(path, 1 << 24, file, n, &e) == 0);
}

int fuzz_session(const char *in, size_t n, struct qwick_err *e)
{
    static char *intact;
    static size_t size;
    if (!intact)
        save_session(&intact, &size);
    char *file = malloc(size);
    CHECK(file);
    memcpy(file, intact, size);
    size_t len = size;
    for (size_t i = 0; i + 4 <= n; i += 4) {
        const unsigned char *p = (const unsigned char *)in + i;
        size_t at = p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16;
        if (at < size)
            file[at] = (char)p[3];
        else
            len = at % (size + 1); /* cut */
    }
    const char *path = fuzz_file("session", file, len);
    struct qwick_session *s;
    int rc = qwick_session_load(&s, small_model(), path, 64, e);
    CHECK(!rc == !!s);
    if (!rc) {
        /* a loaded session goes on */
        const int32_t more[] = {5, 9, 3};
        CHECK(qwick_session_sync(s, more, 3, e) == 0);
        qwick_session_free(s);
    }
    free(file);
    return rc;
}
