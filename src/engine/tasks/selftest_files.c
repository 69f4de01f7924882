/* Self-test: files against recorded checksums, and tokenizer round trips. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/flag.h"
#include "engine/tasks/selftest.h"
#include "file/blob_sum.h"
#include "file/fs.h"
#include "qwick_tools.h"

/* ---- files -------------------------------------------------------------- */

/* More files than any checkpoint has. */
enum { MAX_FILES = 10000 };

/* Counts of the files seen so far. */
struct summing {
    struct selftest *t;
    size_t n_known, n_unknown; /* with and without a recorded checksum */
    size_t n_wrong;
    double bytes;   /* of files that are equal to their checksums */
    char first[96]; /* the first file that differs */
};

static int stop(void *ctx, size_t done)
{
    const struct selftest *t = ctx;
    (void)done;
    return flag_is_set(t->o->interrupt) ||
           (t->end_ms > 0 && clock_ms() >= t->end_ms);
}

static int sum_file(struct summing *s, const char *path, struct qwick_err *e)
{
    struct blob_sum sum;
    struct map_id id;
    char hex[65];
    blob_sum_find(&sum, path);
    if (!sum.known) {
        s->n_unknown++;
        return 0;
    }
    if (blob_sum_compute(&sum, path, hex, stop, s->t, e))
        return -1;
    s->n_known++;
    if (strcmp(hex, sum.hex) != 0) {
        const char *slash = strrchr(path, '/');
        if (s->n_wrong++ == 0)
            snprintf(s->first, sizeof s->first, "%s", slash ? slash + 1 : path);
    } else if (map_id_now(&id, path) == 0) {
        s->bytes += (double)id.size;
    }
    return 0;
}

static int sum_name(struct summing *s, const char *dir, size_t n_dir,
                    const char *name, struct qwick_err *e)
{
    char *path;
    if (asprintf(&path, "%.*s/%s", (int)n_dir, dir, name) < 0)
        return err_oom(e, n_dir + strlen(name) + 2);
    int rc = sum_file(s, path, e);
    free(path);
    return rc;
}

/* All files of a directory, also those that the model does not use. */
static int sum_dir(struct summing *s, const char *dir, struct qwick_err *e)
{
    struct dir_list l;
    int rc = 0;
    if (dir_list_read(&l, dir, MAX_FILES, e))
        return -1;
    for (size_t i = 0; i < l.n && !rc; i++)
        if (!l.v[i].is_dir)
            rc = sum_name(s, dir, strlen(dir), l.v[i].name, e);
    dir_list_free(&l);
    return rc;
}

/* All parts of a GGUF file. */
static int sum_parts(struct summing *s, const char *path, struct qwick_err *e)
{
    const struct st_set *set = s->t->given->weights;
    const char *slash = strrchr(path, '/'), *name;
    const char *dir = slash ? path : ".";
    size_t n_dir = slash ? (size_t)(slash - path) : 1;
    for (size_t i = 0; st_file_id(set, i, &name); i++)
        if (sum_name(s, dir, n_dir, name, e))
            return -1;
    return 0;
}

/* Describe the files that were hashed. late: the time is over. If memory is
 * short, the text is cut. */
static void report_files(const struct summing *s, bool late,
                         struct outcome *out)
{
    struct buf *b = &out->detail;
    if (s->n_wrong)
        (void)buf_printf(b,
                         "%zu of %zu files differ from their checksums: "
                         "%s%s; ",
                         s->n_wrong, s->n_known, s->first,
                         s->n_wrong > 1 ? ", ..." : "");
    else if (s->n_known)
        (void)buf_printf(b, "%zu files, %.0f MB, equal their checksums; ",
                         s->n_known, s->bytes / 1e6);
    if (late)
        (void)buf_puts(b, "its time is over; ");
    else if (s->n_unknown)
        (void)buf_printf(b, "no checksum is recorded for %zu files; ",
                         s->n_unknown);
    if (b->len >= 2)
        b->data[b->len -= 2] = '\0';
    out->result = s->n_wrong   ? QWICK_SELFTEST_FAIL
                  : late       ? QWICK_SELFTEST_CUT
                  : s->n_known ? QWICK_SELFTEST_PASS
                               : QWICK_SELFTEST_SKIP;
}

int selftest_files(struct selftest *t, struct outcome *out, struct qwick_err *e)
{
    struct summing s = {.t = t};
    struct qwick_err why = {0};
    const char *path = t->given->info.path;
    if (checkpoint_is_builtin(t->given->ck)) {
        out->result = QWICK_SELFTEST_SKIP;
        return buf_puts(&out->detail, "the model is inside the program")
                   ? err_oom(e, 1)
                   : 0;
    }
    int rc = checkpoint_gguf(t->given->ck) ? sum_parts(&s, path, &why)
                                           : sum_dir(&s, path, &why);
    if (rc && why.code != QWICK_ERR_INTERRUPTED)
        return err_set(e, why.code, "%s", why.msg);
    report_files(&s, rc != 0, out);
    return 0;
}

/* ---- tokenizer ---------------------------------------------------------- */

/* Texts in composed form (NFC), which tokenizers leave as it is. */
static const char *const texts[] = {
    "The quick brown fox jumps over the lazy dog. It's 3.14159, isn't it?\n",
    "  two blanks,\ttab,\r\n\r\nCRLF, trailing blanks   \n\n\n",
    "int main(void)\n{\n    return x[0] != 0x7f ? a->b : (c << 2);\n}\n",
    "Größe, garçon, niño, Ťažký, İstanbul, naïve — “quotes” … €100\n",
    "Привет, мир! Ελληνικά, עברית, العربية, हिन्दी, ไทย\n",
    "你好，世界。こんにちは、世界！안녕하세요 세계\n",
    "😀👩‍👩‍👧🏳️‍🌈 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 ∑∫√≠∞\n",
    "{\"key\": [1, 2.5e-3, true, null], \"text\": \"a\\nb\"}\n",
    "https://example.org/a?b=c&d=%20#e user@example.org 2026-11-23T14:30:00Z\n",
    "1234567890 00000000 aaaaaaaaaaaaaaaaaaaa ---------- ==========\n",
};

enum { N_TEXTS = sizeof texts / sizeof *texts };

/* Tokenize a text and turn the ids back into text. *same says whether the bytes
 * are equal. */
static int round_trip(const struct qwick_engine *eng, const char *text,
                      size_t *n_ids, bool *same, struct qwick_err *e)
{
    int32_t *ids;
    char *back;
    size_t n = strlen(text), n_back;
    if (qwick_tokenize(eng, text, n, false, &ids, n_ids, e))
        return -1;
    int rc = qwick_detokenize(eng, ids, *n_ids, false, &back, &n_back, e);
    free(ids);
    if (rc)
        return -1;
    *same = n == n_back && memcmp(text, back, n) == 0;
    free(back);
    return 0;
}

int selftest_tokenizer(struct selftest *t, struct outcome *out,
                       struct qwick_err *e)
{
    size_t sum = 0, n_wrong = 0, first = 0;
    if (!t->given->bpe) {
        out->result = QWICK_SELFTEST_SKIP;
        return buf_puts(&out->detail, "the model has no tokenizer")
                   ? err_oom(e, 1)
                   : 0;
    }
    for (size_t i = 0; i < N_TEXTS; i++) {
        size_t n;
        bool same;
        if (round_trip(t->given, texts[i], &n, &same, e))
            return -1;
        sum += n;
        if (!same && n_wrong++ == 0)
            first = i;
    }
    out->result = n_wrong ? QWICK_SELFTEST_FAIL : QWICK_SELFTEST_PASS;
    int bad = n_wrong
                  ? buf_printf(&out->detail,
                               "%zu of %d texts come back with other bytes: %s",
                               n_wrong, N_TEXTS,
                               ERR_SHOW(texts[first], strlen(texts[first])))
                  : buf_printf(&out->detail, "%d texts, %zu tokens: equal",
                               N_TEXTS, sum);
    return bad ? err_oom(e, 1) : 0;
}

/* ---- the text of the other checks --------------------------------------- */

/* Operations of one pass over the text. On two cores the scalar kernels take 12
 * seconds for them. A large model gets fewer tokens, but at least MIN_TOKENS.
 */
static const double FLOPS = 4e10;
enum { MIN_TOKENS = 8, MAX_TOKENS = SELFTEST_MAX_TOKENS };

static size_t text_length(const struct qwick_engine *eng)
{
    const struct qwick_info *i = &eng->info;
    double n = FLOPS / (2 * (double)i->n_active_params);
    size_t most = i->n_ctx_max < MAX_TOKENS ? i->n_ctx_max : MAX_TOKENS;
    size_t m = n < MIN_TOKENS   ? MIN_TOKENS
               : n > MAX_TOKENS ? MAX_TOKENS
                                : (size_t)n;
    return m < most ? m : most;
}

/* Tokens of the texts, repeated until there are t->n. */
static int real_ids(struct selftest *t, struct qwick_err *e)
{
    for (size_t at = 0, i = 0; at < t->n; i = (i + 1) % N_TEXTS) {
        int32_t *ids;
        size_t n;
        if (qwick_tokenize(t->given, texts[i], strlen(texts[i]), false, &ids,
                           &n, e))
            return -1;
        n = n < t->n - at ? n : t->n - at;
        memcpy(t->ids + at, ids, n * sizeof *ids);
        free(ids);
        at += n;
        if (n == 0)
            return err_set(e, QWICK_ERR_MODEL,
                           "tokenizer: a text of %zu bytes has no tokens",
                           strlen(texts[i]));
    }
    return 0;
}

int selftest_text(struct selftest *t, struct qwick_err *e)
{
    size_t vocab_size = t->given->info.vocab_size;
    t->n = text_length(t->given);
    t->ids = calloc(t->n, sizeof *t->ids);
    if (!t->ids)
        return err_oom(e, t->n * sizeof *t->ids);
    if (t->given->bpe)
        return real_ids(t, e);
    /* a step that shares no factor with usual sizes reaches all ids */
    for (size_t i = 0; i < t->n; i++)
        t->ids[i] = (int32_t)((i + 1) * 7919 % vocab_size);
    return 0;
}
