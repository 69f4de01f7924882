#include <stdlib.h>

#include "base/buf.h"
#include "base/os.h"
#include "engine/embed.h"

enum { DEFAULT_SLOTS = 64 };

/* Sessions are used again, unless what a long sequence left is worth giving
 * back. */
enum { SPARE_BYTES = 16 << 20 };

int states_open(struct states *st, struct qwick_engine *eng, size_t n_ctx,
                size_t n_slots, struct qwick_err *e)
{
    *st = (struct states){.eng = eng};
    if (!eng->weights)
        return err_set(e, QWICK_ERR_USAGE,
                       "%s: was opened for its tokenizer only",
                       checkpoint_name(eng->ck));
    size_t most = eng->model.config.n_ctx_max;
    if (n_ctx > most)
        return err_set(e, QWICK_ERR_CONTEXT,
                       "%s: context of %zu tokens asked for, the model's "
                       "maximum is %zu (max_position_embeddings)",
                       checkpoint_name(eng->ck), n_ctx, most);
    st->n_ctx = n_ctx ? n_ctx : most;
    st->n_slots = n_slots ? n_slots : DEFAULT_SLOTS;
    st->slots = calloc(st->n_slots, sizeof *st->slots);
    st->steps = calloc(st->n_slots, sizeof *st->steps);
    st->who = calloc(st->n_slots, sizeof *st->who);
    if (!st->slots || !st->steps || !st->who)
        return err_oom(e, st->n_slots * sizeof *st->steps);
    /* half of what there is; whether one sequence fits alone is checked where
     * its pages are reserved */
    size_t avail = os_available_memory();
    st->kv_limit = avail ? avail / 2 : SIZE_MAX;
    return 0;
}

void states_close(struct states *st)
{
    for (size_t i = 0; st->slots && i < st->n_slots; i++)
        qwick_session_free(st->slots[i].session);
    qwick_session_free(st->base);
    free(st->slots);
    free(st->steps);
    free(st->who);
    *st = (struct states){0};
}

int states_set_base(struct states *st, const int32_t *tokens, size_t n,
                    struct qwick_err *e)
{
    size_t chunk = st->eng->model.chunk;
    if (qwick_session_create(&st->base, st->eng, st->n_ctx, e))
        return -1;
    qwick_session_interrupt(st->base, st->interrupt);
    /* in joint steps that want nothing: forks need no copies of logits */
    for (size_t at = 0; at < n;) {
        size_t m = n - at < chunk ? n - at : chunk;
        struct qwick_step step = {st->base, tokens + at, m, QWICK_WANT_NONE};
        if (qwick_engine_step(st->eng, &step, 1, QWICK_HIDDEN, e))
            return -1;
        at += m;
    }
    return 0;
}

/* ---- slots -------------------------------------------------------------- */

static size_t base_bytes(const struct states *st)
{
    return st->base ? qwick_session_kv_bytes(st->base) : 0;
}

/* What a sequence of n tokens takes in the cache. */
static size_t item_bytes(const struct states *st, size_t n)
{
    size_t pages = n / KV_BLOCK + 1, bytes;
    if (size_mul(pages, KV_BLOCK * st->eng->info.kv_token_bytes, &bytes))
        return SIZE_MAX;
    return bytes;
}

/* Make room for need bytes by giving back what idle slots hold. -1: what the
 * live ones hold does not leave so much. */
static int make_room(struct states *st, const struct states_item *items,
                     size_t need)
{
    size_t live = 0, idle = 0, n_live = 0;
    for (size_t i = 0; i < st->n_slots; i++) {
        const struct states_slot *slot = &st->slots[i];
        if (slot->live) {
            live += item_bytes(st, items[slot->item].n);
            n_live++;
        } else if (slot->session) {
            idle += qwick_session_kv_bytes(slot->session);
        }
    }
    if (n_live && (live >= st->kv_limit || need > st->kv_limit - live))
        return -1;
    size_t rest = live < st->kv_limit ? st->kv_limit - live : 0;
    for (size_t i = 0; i < st->n_slots && idle; i++) {
        struct states_slot *slot = &st->slots[i];
        if (need <= rest && idle <= rest - need)
            break;
        if (slot->live || !slot->session)
            continue;
        idle -= qwick_session_kv_bytes(slot->session);
        qwick_session_free(slot->session);
        slot->session = NULL;
    }
    return 0;
}

static struct states_slot *idle_slot(struct states *st)
{
    for (size_t i = 0; i < st->n_slots; i++)
        if (!st->slots[i].live)
            return &st->slots[i];
    return NULL;
}

/* Put an item into a slot, what it begins with being there already. */
static int begin(struct states *st, struct states_slot *slot, size_t i,
                 const struct states_item *item, struct qwick_err *e)
{
    size_t at = 0;
    if (!slot->session) {
        if (st->base
                ? qwick_session_fork(&slot->session, st->base, e)
                : qwick_session_create(&slot->session, st->eng, st->n_ctx, e))
            return -1;
        qwick_session_interrupt(slot->session, st->interrupt);
    }
    const struct qwick_session *s = slot->session;
    /* the last token is evaluated in any case: its state is asked for */
    while (at + 1 < item->n && at < s->kv.n &&
           item->tokens[at] == s->tokens[at])
        at++;
    if (qwick_session_rollback(slot->session, at, e))
        return -1;
    slot->live = true;
    slot->item = i;
    return 0;
}

static void end(struct states *st, struct states_slot *slot)
{
    slot->live = false;
    if (qwick_session_kv_bytes(slot->session) <= base_bytes(st) + SPARE_BYTES)
        return;
    qwick_session_free(slot->session);
    slot->session = NULL;
}

/* ---- passes ------------------------------------------------------------- */

/* The next step of a slot, at most room tokens. */
static void add_step(struct states *st, const struct states_slot *slot,
                     const struct states_item *items, size_t *n_steps,
                     size_t *room)
{
    const struct states_item *item = &items[slot->item];
    size_t at = qwick_session_length(slot->session);
    size_t rest = item->n - at, m = rest < *room ? rest : *room;
    st->who[*n_steps] = (size_t)(slot - st->slots);
    st->steps[(*n_steps)++] =
        (struct qwick_step){slot->session, item->tokens + at, m,
                            m == rest ? QWICK_WANT_LAST : QWICK_WANT_NONE};
    *room -= m;
}

/* A pass has as many tokens as the engine's chunk: first what was cut short,
 * then new items while there is room. */
static int plan(struct states *st, const struct states_item *items, size_t n,
                size_t *next, size_t *n_steps, struct qwick_err *e)
{
    size_t room = st->eng->model.chunk;
    *n_steps = 0;
    for (size_t i = 0; i < st->n_slots && room; i++)
        if (st->slots[i].live)
            add_step(st, &st->slots[i], items, n_steps, &room);
    while (room && *next < n) {
        struct states_slot *slot = idle_slot(st);
        if (!slot || make_room(st, items, item_bytes(st, items[*next].n)))
            break;
        if (begin(st, slot, *next, &items[*next], e))
            return -1;
        ++*next;
        add_step(st, slot, items, n_steps, &room);
    }
    return 0;
}

/* One pass, and what it gave. */
static int pass(struct states *st, size_t n_steps, state_fn fn, void *ctx,
                size_t *done, struct qwick_err *e)
{
    if (qwick_engine_step(st->eng, st->steps, n_steps, QWICK_HIDDEN, e))
        return -1;
    for (size_t i = 0; i < n_steps; i++) {
        struct states_slot *slot = &st->slots[st->who[i]];
        const float *hidden = qwick_session_hidden(slot->session);
        if (st->steps[i].want != QWICK_WANT_LAST)
            continue;
        if (fn(ctx, slot->item, hidden, e))
            return -1;
        *done += qwick_session_length(slot->session);
        end(st, slot);
    }
    return 0;
}

int states_run(struct states *st, const struct states_item *items, size_t n,
               state_fn fn, void *ctx, struct qwick_err *e)
{
    size_t next = 0, n_steps, total = 0, done = 0;
    int rc = -1;
    for (size_t i = 0; i < n; i++)
        total += items[i].n;
    for (;;) {
        if (plan(st, items, n, &next, &n_steps, e))
            goto stop;
        if (n_steps == 0)
            break;
        if (pass(st, n_steps, fn, ctx, &done, e))
            goto stop;
        if (st->progress)
            st->progress(st->progress_ctx, done, total);
    }
    rc = 0;
stop:
    for (size_t i = 0; i < st->n_slots; i++)
        st->slots[i].live = false;
    return rc;
}
