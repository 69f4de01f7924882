/* Save and open session files. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cache/kv_file.h"
#include "engine/core/engine.h"

int qwick_session_set_note(struct qwick_session *s, const char *note, size_t n,
                           struct qwick_err *e)
{
    char *copy = n ? malloc(n) : NULL;
    if (n && !copy)
        return err_oom(e, n);
    if (n)
        memcpy(copy, note, n);
    free(s->note);
    s->note = copy;
    s->n_note = n;
    return 0;
}

const char *qwick_session_note(const struct qwick_session *s, size_t *n)
{
    *n = s->n_note;
    return s->note;
}

int qwick_session_check_file(const char *path, struct qwick_err *e)
{
    return kv_file_check_target(path, e);
}

int qwick_session_save(struct qwick_session *s, const char *path,
                       struct qwick_err *e)
{
    struct kv_file_head head;
    if (kv_file_check_target(path, e) ||
        kv_file_describe(&head, s->eng, s->lora, KV_FILE_SESSION, e) ||
        engine_contents(s->eng, &head.contents, e) ||
        engine_check_unchanged(s->eng, e))
        return -1;
    /* the reader knows only how many tokens there are */
    s->n_expected = 0;
    if (session_choose_rope(s, s->kv.n, e))
        return -1;
    head.n_tokens = s->kv.n;
    head.n_logits = s->logits ? s->eng->model.config.vocab_size : 0;
    head.n_note = s->n_note;
    return kv_file_write(path, &head, s->tokens, s->logits, s->note, &s->kv, NULL,
                         e);
}

/* Check that the session was saved with the same weights. Equal file identities
 * (inode, size, times) prove it. Otherwise, for example with a copy, compare a
 * hash of all contents. */
static int check_weights(const struct kv_file *f,
                         const struct kv_file_head *mine,
                         struct qwick_engine *eng, struct qwick_err *e)
{
    const struct kv_file_head *h = &f->head;
    uint64_t contents;
    if (mine->files && h->files == mine->files) {
        eng->contents = h->contents;
        eng->has_contents = true;
        return 0;
    }
    if (engine_contents(eng, &contents, e))
        return -1;
    if (contents == h->contents)
        return 0;
    return err_set(e, QWICK_ERR_USAGE,
                   "%s: was saved with other weights of %s: they have been "
                   "changed since (%016" PRIx64 ", now %016" PRIx64 ")",
                   f->path, ERR_SHOW(h->model_name, strlen(h->model_name)),
                   h->contents, contents);
}

/* Whether this engine may continue the session of the engine that saved it. */
static int check_engine(const struct kv_file *f,
                        const struct kv_file_head *mine,
                        struct qwick_engine *eng, struct qwick_err *e)
{
    const struct kv_file_head *h = &f->head;
    if (h->model[0] != mine->model[0] || h->model[1] != mine->model[1])
        return err_set(e, QWICK_ERR_USAGE,
                       "%s: was saved with another model: %s (%016" PRIx64
                       "), this is %s (%016" PRIx64 ")",
                       f->path, ERR_SHOW(h->model_name, strlen(h->model_name)),
                       h->model[0], mine->model_name, mine->model[0]);
    if (strcmp(h->kv, mine->kv) != 0)
        return err_set(e, QWICK_ERR_USAGE,
                       "%s: was saved with a KV cache in %s, this one is in %s",
                       f->path, ERR_SHOW(h->kv, strlen(h->kv)), mine->kv);
    if (h->state_bytes != mine->state_bytes)
        return err_set(e, QWICK_ERR_USAGE,
                       "%s: its recurrent states have %" PRIu64
                       " bytes, this model's have %" PRIu64,
                       f->path, h->state_bytes, mine->state_bytes);
    if (h->page_bytes != mine->page_bytes || h->n_layers != mine->n_layers ||
        h->n_kv_heads != mine->n_kv_heads || h->head_dim != mine->head_dim)
        return err_set(e, QWICK_ERR_USAGE,
                       "%s: its pages have %" PRIu64
                       " bytes, this model's have %" PRIu64,
                       f->path, h->page_bytes, mine->page_bytes);
    if (mine->exact && (!h->exact || strcmp(h->isa, mine->isa) != 0))
        return err_set(e, QWICK_ERR_USAGE,
                       "%s: was saved %s on %s kernels, this is exact on %s",
                       f->path, h->exact ? "in exact mode" : "in default mode",
                       ERR_SHOW(h->isa, strlen(h->isa)), mine->isa);
    return check_weights(f, mine, eng, e);
}

static int check_content(const struct kv_file *f, const struct qwick_session *s,
                         struct qwick_err *e)
{
    const struct kv_file_head *h = &f->head;
    size_t vocab_size = s->eng->model.config.vocab_size;
    if (h->n_tokens > s->limit)
        return err_set(e, QWICK_ERR_CONTEXT,
                       "%s: its %" PRIu64
                       " tokens do not fit the context of %zu",
                       f->path, h->n_tokens, s->limit);
    if (h->n_logits && h->n_logits != vocab_size)
        return err_set(e, QWICK_ERR_RUNTIME,
                       "%s: has %" PRIu64 " logits, the vocabulary has %zu",
                       f->path, h->n_logits, vocab_size);
    for (size_t i = 0; i < h->n_tokens; i++)
        if (f->tokens[i] < 0 || (size_t)f->tokens[i] >= vocab_size)
            return err_set(e, QWICK_ERR_RUNTIME,
                           "%s: token id %d is out of range, the vocabulary "
                           "has %zu",
                           f->path, f->tokens[i], vocab_size);
    return session_predict_memory(s, h->n_tokens, e);
}

/* The file must have the state after its last token: live, or as a snapshot. */
static int check_state(const struct kv_file *f, const struct qwick_session *s,
                       struct qwick_err *e)
{
    const struct kv_file_head *h = &f->head;
    const struct state *st = &s->kv.state;
    if (h->live_bytes && h->live_bytes != state_packed_bytes(st))
        return err_set(e, QWICK_ERR_RUNTIME,
                       "%s: its live state has %" PRIu64
                       " bytes, this model's has %zu",
                       f->path, h->live_bytes, state_packed_bytes(st));
    if (st->n_layers && h->n_tokens && !h->live_bytes &&
        (h->n_tokens % KV_BLOCK || !kv_file_has_state(f, h->n_pages - 1)))
        return err_set(e, QWICK_ERR_RUNTIME,
                       "%s: has no recurrent state after its %" PRIu64
                       " tokens",
                       f->path, h->n_tokens);
    return 0;
}

/* Have snapshots on the pages that have them in the file. */
static int match_snapshots(struct kv_cache *kv, const struct kv_file *f,
                           struct qwick_err *e)
{
    for (size_t i = 0; i < f->head.n_pages; i++) {
        struct kv_page *page = kv->pages[i];
        bool has = kv_file_has_state(f, i);
        if (has && !page->state)
            page->state = state_snapshot_new(&kv->state);
        if (has && !page->state)
            return err_oom(e, state_snapshot_bytes(&kv->state));
        if (has)
            continue;
        state_snapshot_free(&kv->state, page->state);
        page->state = NULL;
    }
    return 0;
}

static int take_live(struct kv_cache *kv, const struct kv_file *f,
                     struct qwick_err *e)
{
    size_t n = f->head.n_tokens;
    if (kv->state.n_layers && n)
        kv->state.first = STATE_NONE; /* as after its last page's snapshot */
    if (!f->head.live_bytes)
        return 0;
    float *packed = state_unpack(&kv->state, n, e);
    return packed ? kv_file_live(f, packed, e) : -1;
}

static int take(struct qwick_session *s, struct kv_file *f, struct qwick_err *e)
{
    size_t n = f->head.n_tokens;
    s->kv.long_rope = session_needs_long_rope(s, n);
    if (session_reserve_tokens(s, n, e) || kv_reserve(&s->kv, n, e) ||
        match_snapshots(&s->kv, f, e))
        return -1;
    if (kv_file_pages(f, 0, f->head.n_pages, s->kv.pages, s->eng->pool, NULL,
                      NULL, e) < f->head.n_pages ||
        take_live(&s->kv, f, e))
        return -1;
    if (n)
        memcpy(s->tokens, f->tokens, n * sizeof *s->tokens);
    s->kv.n = n;
    s->note = f->note;
    s->n_note = f->head.n_note;
    f->note = NULL;
    /* release old pages of window layers, as the saved session may have done */
    kv_release(&s->kv, 0);
    if (f->logits) {
        s->own_logits = f->logits;
        f->logits = NULL;
        s->logits = s->own_logits;
        s->n_rows = 1;
    }
    return 0;
}

int qwick_session_load(struct qwick_session **out, struct qwick_engine *eng,
                       const char *path, size_t n_ctx, struct qwick_err *e)
{
    struct qwick_session *s;
    struct kv_file_head mine;
    struct kv_file f;
    *out = NULL;
    if (qwick_session_create(&s, eng, n_ctx, e))
        return -1;
    if (kv_file_describe(&mine, eng, eng->own_lora, KV_FILE_SESSION, e) ||
        kv_file_open(&f, path, KV_FILE_SESSION, true, NULL, e)) {
        qwick_session_free(s);
        return -1;
    }
    int rc = check_engine(&f, &mine, eng, e) || check_content(&f, s, e) ||
             check_state(&f, s, e) || take(s, &f, e);
    kv_file_close(&f);
    if (rc) {
        qwick_session_free(s);
        return -1;
    }
    *out = s;
    return 0;
}
