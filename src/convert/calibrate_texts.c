/* The texts of a calibration: from files, or written by the model itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/flag.h"
#include "convert/calibrate.h"
#include "engine/core/engine.h"
#include "engine/generate/sampler.h"
#include "file/gguf.h"
#include "file/json.h"
#include "file/map.h"

/* TEXT: tokens of a text. TOKENS: of all texts. SAMPLES: texts that are written
 * at a time. */
enum { TEXT = MOMENTS_ROWS, MAX_TOKENS = 1 << 18, SAMPLES = 64 };
/* Fewer are worth a warning. */
enum { FEW_TOKENS = 1024 };

struct reader {
    struct qwick_engine *eng;
    const struct qwick_quantize_options *o;
    struct calibration_text *texts;
    size_t n, cap, n_tokens;
    size_t most; /* tokens of a text */
    bool cut;    /* texts have more than MAX_TOKENS */
};

void calibration_free_texts(struct calibration_text *texts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(texts[i].tokens);
    free(texts);
}

/* Add tokens a, then b, as one text. */
static int add_text(struct reader *r, const int32_t *a, size_t n_a,
                    const int32_t *b, size_t n_b, struct qwick_err *e)
{
    size_t n = n_a + n_b;
    r->cut = r->cut || r->n_tokens + n > MAX_TOKENS;
    if (r->cut || n == 0)
        return 0;
    if (ARRAY_RESERVE(r->texts, r->cap, r->n + 1, e))
        return -1;
    int32_t *tokens = malloc(n * sizeof *tokens);
    if (!tokens)
        return err_oom(e, n * sizeof *tokens);
    if (n_a)
        memcpy(tokens, a, n_a * sizeof *a);
    memcpy(tokens + n_a, b, n_b * sizeof *b);
    r->texts[r->n++] = (struct calibration_text){tokens, n};
    r->n_tokens += n;
    return 0;
}

/* ---- files --------------------------------------------------------------- */

/* Cut a text into pieces, each after the token that goes before texts. */
static int add_pieces(struct reader *r, const int32_t *ids, size_t n,
                      struct qwick_err *e)
{
    int32_t bos = r->eng->bos_id;
    bool frames = bos >= 0;
    if (frames && n && ids[0] == bos) {
        ids++;
        n--;
    }
    for (size_t i = 0, step; i < n && !r->cut; i += step) {
        step = r->most - frames < n - i ? r->most - frames : n - i;
        if (add_text(r, &bos, frames, ids + i, step, e))
            return -1;
    }
    return 0;
}

static int add_string(struct reader *r, const char *text, size_t n,
                      struct qwick_err *e)
{
    int32_t *ids;
    size_t n_ids;
    if (qwick_tokenize_prompt(r->eng, text, n, true, 0, &ids, &n_ids, e))
        return -1;
    int rc = add_pieces(r, ids, n_ids, e);
    free(ids);
    return rc;
}

/* "given", if there is one, then "text". */
static int add_object(struct reader *r, const char *name,
                      const struct json_value *v, struct qwick_err *e)
{
    const struct json_value *text = json_get(v, "text"),
                            *given = json_member(v, "given");
    struct buf all = {0};
    if (!json_is(text, JSON_STRING))
        return err_set(e, QWICK_ERR_USAGE, "%s: text: not a string", name);
    if (given && !json_is(given, JSON_STRING))
        return err_set(e, QWICK_ERR_USAGE, "%s: given: not a string", name);
    if ((given && buf_append(&all, given->str, given->len)) ||
        buf_append(&all, text->str, text->len)) {
        buf_free(&all);
        return err_oom(e, text->len);
    }
    int rc = add_string(r, all.data, all.len, e);
    buf_free(&all);
    return rc;
}

static int add_line(struct reader *r, const char *path, size_t number,
                    const char *line, size_t n, struct qwick_err *e)
{
    struct buf name = {0};
    struct json_doc *doc = NULL;
    if (buf_printf(&name, "%s: line %zu", path, number))
        return err_oom(e, strlen(path));
    int rc = json_parse(&doc, name.data, line, n, QWICK_ERR_USAGE, e);
    if (!rc)
        rc = add_object(r, name.data, json_root(doc), e);
    json_free(doc);
    buf_free(&name);
    return rc;
}

static int add_lines(struct reader *r, const char *path, const char *text,
                     size_t n, struct qwick_err *e)
{
    size_t number = 1;
    for (size_t at = 0, len; at < n && !r->cut; at += len + 1, number++) {
        const char *end = memchr(text + at, '\n', n - at);
        len = end ? (size_t)(end - text) - at : n - at;
        bool blank = strspn(text + at, " \t\r") >= len;
        if (!blank && add_line(r, path, number, text + at, len, e))
            return -1;
    }
    return 0;
}

static int add_file(struct reader *r, const char *path, struct qwick_err *e)
{
    enum { MAX_BYTES = 1 << 30 };
    size_t before = r->n_tokens, n, len = strlen(path);
    char *text;
    bool lines = len > 6 && strcmp(path + len - 6, ".jsonl") == 0;
    if (map_read_all(path, MAX_BYTES, &text, &n, e))
        return -1;
    int rc = lines ? add_lines(r, path, text, n, e) : add_string(r, text, n, e);
    free(text);
    if (!rc && r->n_tokens == before && !r->cut)
        rc = err_set(e, QWICK_ERR_USAGE, "calibrate: %s: has no text", path);
    return rc;
}

/* ---- texts of the model -------------------------------------------------- */

/* The token with which the model's texts begin. */
static int find_begin(const struct qwick_engine *eng, int32_t *out,
                      struct qwick_err *e)
{
    const struct gguf *g = checkpoint_gguf(eng->ck);
    const struct gguf_value *key =
        g ? gguf_find(g, "tokenizer.ggml.bos_token_id") : NULL;
    int64_t id = eng->bos_id >= 0 ? eng->bos_id
                 : key            ? gguf_int_at(key, 0)
                                  : -1;
    struct map map;
    struct json_doc *doc = NULL;
    bool found = false;
    if (id < 0 && !g &&
        checkpoint_map_small(eng->ck, "config.json", &map, &found, e))
        return -1;
    if (found) {
        if (!json_parse_python(&doc, "config.json", (const char *)map.data,
                               map.size, QWICK_ERR_MODEL, NULL) &&
            json_int(json_get(json_root(doc), "bos_token_id"), 0, INT32_MAX,
                     &id))
            id = -1;
        json_free(doc);
        map_close(&map);
    }
    *out = (int32_t)id;
    if (id >= 0 && (size_t)id < eng->model.config.vocab_size)
        return 0;
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: bos_token_id: no token begins texts, so that the model "
                   "cannot write some: calibrate with files",
                   checkpoint_dir(eng->ck));
}

/* A text that is being written. */
struct sample {
    struct qwick_session *session;
    struct sampler *sampler;
    int32_t ids[TEXT];
    size_t n, begin; /* tokens; where the current text begins */
};

static bool is_stop(const struct qwick_engine *eng, int32_t id)
{
    const struct qwick_info *info = qwick_engine_info(eng);
    for (size_t i = 0; i < info->n_stop_ids; i++)
        if (info->stop_ids[i] == id)
            return true;
    return false;
}

static int open_sample(struct sample *s, const struct reader *r, size_t i,
                       int32_t begin, struct qwick_err *e)
{
    struct qwick_sampling o = qwick_sampling_neutral();
    o.seed = r->o->seed + i;
    s->ids[s->n++] = begin;
    return session_create(&s->session, r->eng, r->most, e) ||
                   sampler_create(&s->sampler, &o,
                                  r->eng->model.config.vocab_size,
                                  r->eng->blocked, r->eng->model.k, e)
               ? -1
               : 0;
}

/* Draw the next token. After the end of a text, the next one begins. */
static int draw(struct sample *s, struct reader *r, int32_t begin,
                struct qwick_err *e)
{
    size_t n;
    int32_t id;
    const float *rows = qwick_session_rows(s->session, &n);
    if (sampler_draw(s->sampler, rows, &id, e))
        return -1;
    s->ids[s->n++] = id;
    if (s->n < r->most && !is_stop(r->eng, id))
        return 0;
    if (add_text(r, NULL, 0, s->ids + s->begin, s->n - s->begin, e))
        return -1;
    s->begin = s->n;
    if (s->n < r->most)
        s->ids[s->n++] = begin;
    return qwick_session_rollback(s->session, 0, e);
}

/* Write n texts beside each other, from number `first` on. */
static int write_samples(struct reader *r, struct sample *s, size_t first,
                         size_t n, int32_t begin, struct qwick_err *e)
{
    struct qwick_step steps[SAMPLES];
    for (size_t i = 0; i < n; i++)
        if (open_sample(&s[i], r, first + i, begin, e))
            return -1;
    for (size_t m = n; m > 0;) {
        m = 0;
        for (size_t i = 0; i < n; i++)
            if (s[i].n < r->most)
                steps[m++] = (struct qwick_step){
                    s[i].session, &s[i].ids[s[i].n - 1], 1, QWICK_ROWS_LAST};
        if (flag_is_set(r->o->interrupt))
            return err_set(e, QWICK_ERR_INTERRUPTED, "interrupted");
        if (qwick_engine_step(r->eng, steps, m, QWICK_LOGITS, e))
            return -1;
        for (size_t i = 0; i < n; i++)
            if (s[i].n < r->most && draw(&s[i], r, begin, e))
                return -1;
    }
    return 0;
}

static int write_all(struct reader *r, struct qwick_err *e)
{
    struct sample *s = malloc(SAMPLES * sizeof *s);
    size_t all = (size_t)r->o->calibrate_self;
    int32_t begin = 0;
    int rc = s ? find_begin(r->eng, &begin, e) : err_oom(e, sizeof *s);
    for (size_t i = 0, n; i < all && !rc && !r->cut; i += n) {
        n = all - i < SAMPLES ? all - i : SAMPLES;
        memset(s, 0, SAMPLES * sizeof *s);
        rc = write_samples(r, s, i, n, begin, e);
        for (size_t j = 0; j < n; j++) {
            qwick_session_free(s[j].session);
            sampler_free(s[j].sampler);
        }
    }
    free(s);
    return rc;
}

/* ---- */

/* Say how much of the texts counts, if that is not as expected. */
static void tell(const struct reader *r)
{
    const struct qwick_quantize_options *o = r->o;
    char line[120];
    if (r->cut && o->note) {
        snprintf(line, sizeof line,
                 "calibrate: only the first %zu tokens of the texts count",
                 r->n_tokens);
        o->note(o->note_ctx, line);
    }
    if (r->n_tokens >= FEW_TOKENS)
        return;
    snprintf(line, sizeof line,
             "calibrate: the texts have %zu tokens; fewer than %d say little "
             "about the inputs",
             r->n_tokens, FEW_TOKENS);
    if (o->warn)
        o->warn(o->warn_ctx, line);
    else if (o->note)
        o->note(o->note_ctx, line);
}

int calibration_read(struct calibration_text **out, size_t *n,
                     struct qwick_engine *eng,
                     const struct qwick_quantize_options *o,
                     struct qwick_err *e)
{
    struct reader r = {.eng = eng, .o = o};
    size_t n_ctx = qwick_engine_info(eng)->n_ctx_max;
    r.most = n_ctx < TEXT ? n_ctx : TEXT;
    int rc = 0;
    if (n_ctx < 2)
        rc = err_set(e, QWICK_ERR_MODEL,
                     "calibrate: the model's context has %zu token, texts need "
                     "2",
                     n_ctx);
    else if (o->calibrate_self)
        rc = write_all(&r, e);
    for (size_t i = 0; i < o->n_calibrate && !rc && !r.cut; i++)
        rc = add_file(&r, o->calibrate[i], e);
    *out = r.texts;
    *n = r.n;
    if (!rc) {
        tell(&r);
        return 0;
    }
    calibration_free_texts(r.texts, r.n);
    *out = NULL;
    *n = 0;
    return -1;
}
