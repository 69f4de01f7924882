/* Sessions: which tokens of a context are cached, and which must be
 * evaluated. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "engine/core/engine.h"
#include "engine/core/first_pass.h"
#include "qwick_tools.h"

/* Bytes of logits that qwick_session_all_logits holds at once. */
enum { LOGITS_BYTES = 32 << 20 };

int engine_context(const struct qwick_engine *eng, size_t n_ctx, size_t *limit,
                   struct qwick_err *e)
{
    size_t most = eng->model.config.n_ctx_max;
    if (!eng->weights)
        return err_set(e, QWICK_ERR_USAGE,
                       "%s: was opened for its tokenizer only",
                       checkpoint_name(eng->ck));
    if (n_ctx > most)
        return err_set(e, QWICK_ERR_CONTEXT,
                       "%s: context of %zu tokens asked for, the model's "
                       "maximum is %zu (max_position_embeddings)",
                       checkpoint_name(eng->ck), n_ctx, most);
    *limit = n_ctx ? n_ctx : most;
    return 0;
}

int qwick_session_create(struct qwick_session **out, struct qwick_engine *eng,
                         size_t n_ctx, struct qwick_err *e)
{
    *out = NULL;
    return engine_need_head(eng, e) ? -1 : session_create(out, eng, n_ctx, e);
}

int session_create(struct qwick_session **out, struct qwick_engine *eng,
                   size_t n_ctx, struct qwick_err *e)
{
    const struct config *c = &eng->model.config;
    size_t limit;
    *out = NULL;
    if (engine_context(eng, n_ctx, &limit, e))
        return -1;
    struct qwick_session *s = calloc(1, sizeof *s);
    if (!s)
        return err_oom(e, sizeof *s);
    s->eng = eng;
    s->limit = limit;
    if (kv_init(&s->kv, eng->kv, c, e) ||
        (!eng->scratch && scratch_create(&eng->scratch, &eng->model, e))) {
        qwick_session_free(s);
        return -1;
    }
    /* a prefix cache takes whole pages, and gets them only after a prompt */
    s->kv.keeps_windows = eng->prefix || eng->disks;
    s->lora = eng->own_lora;
    *out = s;
    return 0;
}

void qwick_session_free(struct qwick_session *s)
{
    if (!s)
        return;
    qwick_session_free(s->draft);
    kv_free(&s->kv);
    free(s->tokens);
    free(s->own_logits);
    free(s->note);
    free(s);
}

/* Fail if `need` bytes more do not fit the memory. what: the purpose, with
 * n. */
static int predict_bytes(struct qwick_engine *eng, size_t need,
                         struct qwick_err *e, const char *what, size_t n)
{
    if (need == 0)
        return 0;
    size_t avail = memory_available(&eng->memory, need);
    if (need > avail || need == SIZE_MAX)
        return err_set(e, QWICK_ERR_MEMORY,
                       "out of memory: %zu bytes more for the KV cache of %zu "
                       "%s, %zu are available",
                       need, n, what, avail);
    memory_grant(&eng->memory, need);
    return 0;
}

int session_predict_memory(const struct qwick_session *s, size_t n,
                           struct qwick_err *e)
{
    return predict_bytes(s->eng, kv_missing_bytes(&s->kv, n), e, "tokens", n);
}

/* Fail if what the sessions of a joint step need does not fit the memory. */
static int predict_steps(struct qwick_engine *eng,
                         const struct qwick_step *steps, size_t n,
                         struct qwick_err *e)
{
    size_t need = 0;
    for (size_t i = 0; i < n; i++) {
        const struct kv_cache *kv = &steps[i].session->kv;
        if (size_add(need, kv_missing_bytes(kv, kv->n + steps[i].n), &need))
            need = SIZE_MAX;
    }
    return predict_bytes(eng, need, e, "sequences", n);
}

int session_reserve_tokens(struct qwick_session *s, size_t n,
                           struct qwick_err *e)
{
    if (n <= s->cap)
        return 0;
    size_t cap = n + n / 2 + 64;
    int32_t *tokens = realloc(s->tokens, cap * sizeof *tokens);
    if (!tokens)
        return err_oom(e, cap * sizeof *tokens);
    s->tokens = tokens;
    s->cap = cap;
    return 0;
}

bool session_needs_long_rope(const struct qwick_session *s, size_t n)
{
    return n >= model_long_rope_from(&s->eng->model);
}

static int forward(struct qwick_session *s, const int32_t *tokens, size_t n,
                   enum span_rows rows, float *logits, bool prefill);

int session_choose_rope(struct qwick_session *s, size_t n, struct qwick_err *e)
{
    struct qwick_engine *eng = s->eng;
    const size_t had = s->kv.n, chunk = eng->model.chunk;
    const bool is_long =
        session_needs_long_rope(s, n > s->n_expected ? n : s->n_expected);
    const pass_layer_fn on_layer = eng->on_layer;
    int rc = 0;
    if (is_long == s->kv.long_rope)
        return 0;
    kv_truncate(&s->kv, 0);
    s->kv.long_rope = is_long;
    eng->on_layer = NULL; /* it reports what follows */
    for (size_t at = 0; at < had && !rc; at = s->kv.n) {
        size_t m = had - at < chunk ? had - at : chunk;
        if (scratch_reserve(eng->scratch, &eng->model, m, at + m, e) ||
            kv_reserve(&s->kv, at + m, e))
            rc = -1;
        else if (session_stopped(s) ||
                 forward(s, s->tokens + at, m, ROWS_NONE, NULL, true))
            rc = err_set(e, QWICK_ERR_INTERRUPTED, "interrupted");
    }
    eng->on_layer = on_layer;
    return rc;
}

/* Allocate everything for a context of n tokens, evaluated `chunk` at a
 * time. */
static int reserve(struct qwick_session *s, size_t n, size_t chunk,
                   struct qwick_err *e)
{
    const struct model *m = &s->eng->model;
    if (!s->own_logits) {
        s->own_logits = calloc(m->config.vocab_size, sizeof *s->own_logits);
        if (!s->own_logits)
            return err_oom(e, m->config.vocab_size * sizeof *s->own_logits);
    }
    if (session_reserve_tokens(s, n, e) || session_choose_rope(s, n, e) ||
        scratch_reserve(s->eng->scratch, m, chunk, n, e))
        return -1;
    return kv_reserve(&s->kv, n, e);
}

/* Evaluate tokens after the cached ones in one pass. -1: stopped; only a
 * prefill can be stopped. */
static int forward(struct qwick_session *s, const int32_t *tokens, size_t n,
                   enum span_rows rows, float *logits, bool prefill)
{
    const struct span span = {
        .kv = &s->kv,
        .tokens = tokens,
        .n = n,
        .rows = rows,
        .lora = s->lora};
    const struct pass_io io = {.spans = &span,
                               .n_spans = 1,
                               .logits = logits,
                               .ms = s->parts,
                               .interrupt = prefill ? s->interrupt : NULL,
                               .deadline_ms = prefill ? s->deadline_ms : 0,
                               .on_layer = s->eng->on_layer,
                               .on_layer_ctx = s->eng->on_layer_ctx};
    s->logits = NULL;
    s->hidden = NULL;
    s->n_rows = 0;
    if (logits)
        engine_suitable_head(s->eng);
    if (engine_pass(s->eng, &io))
        return -1;
    if (rows == ROWS_LAST) {
        s->logits = logits;
        s->n_rows = 1;
    }
    return 0;
}

int session_check_tokens(const struct qwick_session *s, const int32_t *tokens,
                         size_t n, struct qwick_err *e)
{
    size_t vocab_size = s->eng->model.config.vocab_size;
    if (n == 0)
        return err_set(e, QWICK_ERR_USAGE, "prompt: has no tokens");
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || (size_t)tokens[i] >= vocab_size)
            return err_set(e, QWICK_ERR_USAGE,
                           "prompt: token id %d is out of range, the "
                           "vocabulary has %zu",
                           tokens[i], vocab_size);
    if (n > s->limit)
        return err_set(e, QWICK_ERR_CONTEXT,
                       "prompt: %zu tokens do not fit the context of %zu", n,
                       s->limit);
    return 0;
}

void session_truncate(struct qwick_session *s, size_t n)
{
    if (n >= s->kv.n)
        return;
    kv_truncate(&s->kv, n);
    s->n_expected = 0;
    s->logits = NULL;
    s->hidden = NULL;
    s->n_rows = 0;
}

/* Tokens [first, end) are evaluated, `step` of them now. */
struct prefill {
    struct qwick_session *s;
    size_t first, end, step;
};

static void prefill_layer(void *ctx, size_t n_done, size_t n_layers)
{
    const struct prefill *p = ctx;
    const struct qwick_session *s = p->s;
    s->progress(s->progress_ctx,
                s->kv.n - p->first + p->step * n_done / n_layers,
                p->end - p->first);
}

/* Report the layers of the passes that follow, until prefill_unwatch. */
static void prefill_watch(struct prefill *p)
{
    p->s->eng->on_layer = p->s->progress ? prefill_layer : NULL;
    p->s->eng->on_layer_ctx = p;
}

static void prefill_unwatch(struct prefill *p)
{
    p->s->eng->on_layer = NULL;
}

static int prefill(struct prefill *p, const int32_t *tokens,
                   struct qwick_err *e)
{
    struct qwick_session *s = p->s;
    size_t at = p->first, n = p->end, chunk = s->eng->model.chunk;
    while (at < n) {
        size_t m = n - at < chunk ? n - at : chunk;
        p->step = m;
        if (reserve(s, at + m, m, e))
            return -1;
        memcpy(s->tokens + at, tokens + at, m * sizeof *tokens);
        if (session_stopped(s) ||
            forward(s, tokens + at, m, at + m == n ? ROWS_LAST : ROWS_NONE,
                    s->own_logits, true))
            return err_set(e, QWICK_ERR_INTERRUPTED, "interrupted");
        at += m;
        if (s->progress)
            s->progress(s->progress_ctx, at - p->first, n - p->first);
    }
    return 0;
}

int qwick_session_sync(struct qwick_session *s, const int32_t *tokens, size_t n,
                       struct qwick_err *e)
{
    /* always evaluate the last token, to get its logits */
    if (session_check_tokens(s, tokens, n, e) ||
        session_predict_memory(s, n, e) ||
        qwick_session_reuse(s, tokens, n - 1, e))
        return -1;
    struct prefill p = {.s = s, .first = s->kv.n, .end = n};
    size_t first = p.first;
    s->n_expected = n;
    s->n_cached = first;
    prefill_watch(&p);
    int rc = prefill(&p, tokens, e);
    prefill_unwatch(&p);
    if (rc)
        return -1;
    /* chats go back to the end of a prompt, and others share it */
    if (n - first >= KV_BLOCK)
        kv_snapshot(&s->kv);
    qwick_session_publish(s);
    return 0;
}

int qwick_session_decode(struct qwick_session *s, int32_t token,
                         struct qwick_err *e)
{
    if (s->kv.n >= s->limit)
        return err_set(e, QWICK_ERR_CONTEXT, "context: is full with %zu tokens",
                       s->limit);
    if (session_check_tokens(s, &token, 1, e) || reserve(s, s->kv.n + 1, 1, e))
        return -1;
    s->tokens[s->kv.n] = token;
    return forward(s, &token, 1, ROWS_LAST, s->own_logits, false);
}

int session_decode_all(struct qwick_session *s, const int32_t *tokens, size_t n,
                       size_t most, float *rows, struct qwick_err *e)
{
    if (session_check_tokens(s, tokens, n, e))
        return -1;
    if (n > s->limit - s->kv.n)
        return err_set(e, QWICK_ERR_CONTEXT,
                       "context: %zu tokens after %zu do not fit %zu", n,
                       s->kv.n, s->limit);
    if (reserve(s, s->kv.n + n, most, e))
        return -1;
    memcpy(s->tokens + s->kv.n, tokens, n * sizeof *tokens);
    if (forward(s, tokens, n, ROWS_ALL, rows, false))
        return -1;
    s->logits = rows + (n - 1) * s->eng->model.config.vocab_size;
    s->n_rows = n;
    return 0;
}

void session_keep(struct qwick_session *s, size_t n)
{
    size_t dropped = s->kv.n - n;
    kv_truncate(&s->kv, n);
    assert(s->kv.n == n);
    s->logits -= dropped * s->eng->model.config.vocab_size;
    s->n_rows -= dropped;
}

void session_own_logits(struct qwick_session *s)
{
    if (!s->logits || s->logits == s->own_logits)
        return;
    memcpy(s->own_logits, s->logits,
           s->eng->model.config.vocab_size * sizeof *s->own_logits);
    s->logits = s->own_logits;
    s->n_rows = 1;
}

int qwick_session_rollback(struct qwick_session *s, size_t n,
                           struct qwick_err *e)
{
    if (n > s->kv.n)
        return err_set(e, QWICK_ERR_USAGE,
                       "rollback: to %zu tokens, but the context has %zu", n,
                       s->kv.n);
    if (kv_usable(&s->kv, n) < n)
        return err_set(e, QWICK_ERR_USAGE,
                       "rollback: to %zu of %zu tokens: %s are gone", n,
                       s->kv.n,
                       s->kv.state.n_layers
                           ? "the states of the recurrent layers"
                           : "the keys of the layers with a sliding window");
    session_truncate(s, n);
    return 0;
}

int qwick_session_all_logits(struct qwick_session *s, const int32_t *tokens,
                             size_t n, qwick_row_fn row, void *ctx,
                             struct qwick_err *e)
{
    if (session_check_tokens(s, tokens, n, e) ||
        session_predict_memory(s, n, e))
        return -1;
    size_t vocab_size = s->eng->model.config.vocab_size, bytes;
    size_t most = LOGITS_BYTES / (vocab_size * sizeof(float)) + 1;
    if (most > s->eng->model.chunk)
        most = s->eng->model.chunk;
    if (most > n)
        most = n;
    if (size_mul(vocab_size, most * sizeof(float), &bytes))
        return err_oom(e, SIZE_MAX);
    float *logits = malloc(bytes);
    if (!logits)
        return err_oom(e, bytes);
    int rc = -1;
    struct prefill p = {.s = s, .end = n};
    session_truncate(s, 0);
    s->n_cached = 0;
    s->n_expected = n;
    prefill_watch(&p);
    for (size_t at = 0; at < n;) {
        size_t m = n - at < most ? n - at : most;
        p.step = m;
        if (reserve(s, at + m, m, e))
            goto done;
        memcpy(s->tokens + at, tokens + at, m * sizeof *tokens);
        if (session_interrupted(s) ||
            forward(s, tokens + at, m, ROWS_ALL, logits, true)) {
            err_set(e, QWICK_ERR_INTERRUPTED, "interrupted");
            goto done;
        }
        for (size_t i = 0; i < m; i++) {
            if (row(ctx, at + i, logits + i * vocab_size)) {
                err_set(e, QWICK_ERR_RUNTIME, "logits: stopped at position %zu",
                        at + i);
                goto done;
            }
        }
        at += m;
        memcpy(s->own_logits, logits + (m - 1) * vocab_size,
               vocab_size * sizeof *logits);
        s->logits = s->own_logits;
        s->n_rows = 1;
    }
    rc = 0;
done:
    prefill_unwatch(&p);
    free(logits);
    return rc;
}

int qwick_session_fork(struct qwick_session **out,
                       const struct qwick_session *s, struct qwick_err *e)
{
    struct qwick_session *f;
    *out = NULL;
    if (session_create(&f, s->eng, s->limit, e))
        return -1;
    size_t vocab_size = s->eng->model.config.vocab_size;
    if (s->logits && !(f->own_logits = malloc(vocab_size * sizeof(float)))) {
        err_oom(e, vocab_size * sizeof(float));
        goto fail;
    }
    if (session_reserve_tokens(f, s->kv.n, e) ||
        kv_share(&f->kv, &s->kv, s->kv.n, e))
        goto fail;
    if (s->kv.n)
        memcpy(f->tokens, s->tokens, s->kv.n * sizeof *f->tokens);
    if (s->logits) {
        memcpy(f->own_logits, s->logits, vocab_size * sizeof(float));
        f->logits = f->own_logits;
        f->n_rows = 1;
    }
    f->interrupt = s->interrupt;
    f->lora = s->lora;
    *out = f;
    return 0;
fail:
    qwick_session_free(f);
    return -1;
}

_Static_assert(QWICK_PROFILE_PARTS == PART_COUNT, "the public header says so");

/* ---- joint steps -------------------------------------------------------- */

static int check_steps(const struct qwick_engine *eng,
                       const struct qwick_step *steps, size_t n,
                       struct qwick_err *e)
{
    for (size_t i = 0; i < n; i++) {
        const struct qwick_session *s = steps[i].session;
        if (s->eng != eng)
            return err_set(e, QWICK_ERR_USAGE,
                           "step %zu: the session belongs to another engine",
                           i);
        for (size_t j = 0; j < i; j++)
            if (steps[j].session == s)
                return err_set(e, QWICK_ERR_USAGE,
                               "step %zu: has the same session as step %zu", i,
                               j);
        if (steps[i].rows == QWICK_ROWS_FIRST &&
            !eng->model.config.bidirectional)
            return err_set(e, QWICK_ERR_USAGE,
                           "step %zu: only text encoders have rows of first "
                           "tokens",
                           i);
        if (session_check_tokens(s, steps[i].tokens, steps[i].n, e))
            return -1;
        if (steps[i].n > s->limit - s->kv.n)
            return err_set(e, QWICK_ERR_CONTEXT,
                           "context: %zu tokens after %zu do not fit %zu",
                           steps[i].n, s->kv.n, s->limit);
    }
    return 0;
}

/* Make room for n rows of `width` floats at *p. The old contents are lost. */
static int reserve_rows(float **p, size_t *cap, size_t n, size_t width,
                        struct qwick_err *e)
{
    size_t bytes;
    if (n <= *cap)
        return 0;
    if (size_mul(n, width, &bytes) || size_mul(bytes, sizeof **p, &bytes))
        return err_oom(e, SIZE_MAX);
    float *rows = malloc(bytes);
    if (!rows)
        return err_oom(e, bytes);
    free(*p);
    *p = rows;
    *cap = n;
    return 0;
}

static size_t rows_of(const struct qwick_step *step)
{
    return step->rows == QWICK_ROWS_ALL    ? step->n
           : step->rows == QWICK_ROWS_NONE ? 0
                                           : 1;
}

static enum span_rows span_rows_of(enum qwick_rows rows)
{
    static const enum span_rows of[] = {[QWICK_ROWS_NONE] = ROWS_NONE,
                                        [QWICK_ROWS_LAST] = ROWS_LAST,
                                        [QWICK_ROWS_ALL] = ROWS_ALL,
                                        [QWICK_ROWS_FIRST] = ROWS_FIRST};
    return of[rows];
}

static int reserve_step(struct qwick_engine *eng,
                        const struct qwick_step *steps, size_t n,
                        enum qwick_output output, struct qwick_err *e)
{
    const struct config *c = &eng->model.config;
    size_t n_tokens = 0, n_ctx = 0, n_rows = 0;
    if (predict_steps(eng, steps, n, e))
        return -1;
    if (n > eng->cap_spans) {
        struct span *spans = realloc(eng->spans, n * sizeof *spans);
        if (!spans)
            return err_oom(e, n * sizeof *spans);
        eng->spans = spans;
        eng->cap_spans = n;
    }
    for (size_t i = 0; i < n; i++) {
        struct qwick_session *s = steps[i].session;
        size_t end = s->kv.n + steps[i].n;
        if (session_reserve_tokens(s, end, e) ||
            session_choose_rope(s, end, e) || kv_reserve(&s->kv, end, e))
            return -1;
        n_tokens += steps[i].n;
        n_rows += rows_of(&steps[i]);
        n_ctx = end > n_ctx ? end : n_ctx;
    }
    if (output & QWICK_LOGITS &&
        reserve_rows(&eng->rows, &eng->cap_rows, n_rows, c->vocab_size, e))
        return -1;
    if (output & QWICK_HIDDEN &&
        reserve_rows(&eng->hidden, &eng->cap_hidden, n_rows, c->d_model, e))
        return -1;
    return scratch_reserve(eng->scratch, &eng->model, n_tokens, n_ctx, e);
}

int qwick_engine_step(struct qwick_engine *eng, const struct qwick_step *steps,
                      size_t n, enum qwick_output output, struct qwick_err *e)
{
    const struct config *c = &eng->model.config;
    if (n == 0)
        return 0;
    if (check_steps(eng, steps, n, e) || reserve_step(eng, steps, n, output, e))
        return -1;
    for (size_t i = 0; i < n; i++) {
        struct qwick_session *s = steps[i].session;
        memcpy(s->tokens + s->kv.n, steps[i].tokens,
               steps[i].n * sizeof *s->tokens);
        eng->spans[i] = (struct span){.kv = &s->kv,
                                      .tokens = steps[i].tokens,
                                      .n = steps[i].n,
                                      .n_type0 = s->n_type0,
                                      .rows = span_rows_of(steps[i].rows),
                                      .lora = s->lora};
    }
    const struct pass_io io = {
        .spans = eng->spans,
        .n_spans = n,
        .logits = output & QWICK_LOGITS ? eng->rows : NULL,
        .hidden = output & QWICK_HIDDEN ? eng->hidden : NULL,
        .ms = steps[0].session->parts,
        .interrupt = eng->stop ? eng->stop : steps[0].session->interrupt,
        .on_layer = eng->on_layer,
        .on_layer_ctx = eng->on_layer_ctx,
        .on_input = eng->on_input,
        .on_input_ctx = eng->on_input_ctx};
    if (io.logits)
        engine_suitable_head(eng);
    if (engine_pass(eng, &io))
        return err_set(e, QWICK_ERR_INTERRUPTED, "interrupted");
    for (size_t i = 0, row = 0; i < n; i++) {
        struct qwick_session *s = steps[i].session;
        s->n_rows = rows_of(&steps[i]);
        row += s->n_rows;
        s->logits = io.logits && s->n_rows
                        ? io.logits + (row - 1) * c->vocab_size
                        : NULL;
        s->hidden =
            io.hidden && s->n_rows ? io.hidden + (row - 1) * c->d_model : NULL;
    }
    return 0;
}

const float *qwick_session_rows(const struct qwick_session *s, size_t *n)
{
    *n = s->logits ? s->n_rows : 0;
    if (!s->logits)
        return NULL;
    return s->logits - (s->n_rows - 1) * s->eng->model.config.vocab_size;
}

const float *qwick_session_hidden(const struct qwick_session *s)
{
    return s->hidden;
}

const char *qwick_profile_part(size_t part)
{
    static const char *const names[] = {
        [PART_EMBED] = "embedding",
        [PART_NORMS] = "norms",
        [PART_PROJECTIONS] = "projections",
        [PART_ATTENTION] = "attention",
        [PART_HEAD] = "head",
        [PART_BARRIERS] = "barriers",
    };
    return part < PART_COUNT ? names[part] : NULL;
}

void qwick_session_profile(struct qwick_session *s, double *ms)
{
    s->parts = ms;
}

size_t qwick_session_length(const struct qwick_session *s)
{
    return s->kv.n;
}

const int32_t *qwick_session_tokens(const struct qwick_session *s, size_t *n)
{
    *n = s->kv.n;
    return s->tokens;
}

size_t qwick_session_cached(const struct qwick_session *s)
{
    return s->n_cached;
}

size_t qwick_session_n_ctx(const struct qwick_session *s)
{
    return s->limit;
}

size_t qwick_session_kv_bytes(const struct qwick_session *s)
{
    return kv_bytes(&s->kv);
}

const float *qwick_session_logits(const struct qwick_session *s)
{
    return s->logits;
}

void qwick_session_progress(struct qwick_session *s, qwick_progress_fn fn,
                            void *ctx)
{
    s->progress = fn;
    s->progress_ctx = ctx;
}

void qwick_session_interrupt(struct qwick_session *s, const volatile int *flag)
{
    s->interrupt = flag;
}
