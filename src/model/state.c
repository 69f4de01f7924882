#include "model/state.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "base/buf.h"
#include "model/kv_cache.h"

enum { LINE = 16 }; /* floats of a cache line */

_Static_assert(DELTA_BLOCK % LINE == 0, "arrays of the log end with a line");

/* *sum += a * b, rounded up to a cache line. -1: overflow. */
static int add_lines(size_t *sum, size_t a, size_t b)
{
    size_t n;
    if (size_mul(a, b, &n) || size_add(n, LINE - 1, &n))
        return -1;
    return size_add(*sum, n / LINE * LINE, sum);
}

/* *sum += n_heads arrays of a * b floats. */
static int add_heads(size_t *sum, size_t n_heads, size_t a, size_t b)
{
    size_t head = 0, n;
    return add_lines(&head, a, b) || size_mul(head, n_heads, &n) ||
                   size_add(*sum, n, sum)
               ? -1
               : 0;
}

static int set_sizes(struct state *s)
{
    const struct delta_config *d = &s->delta;
    size_t channels = delta_channels(d), n;
    return add_lines(&s->s_floats, d->d_k, d->d_v) ||
                   add_heads(&s->start_floats, d->n_v_heads, d->d_k, d->d_v) ||
                   add_lines(&s->start_floats, d->conv - 1, channels) ||
                   add_lines(&s->log_floats, DELTA_BLOCK, channels) ||
                   add_heads(&s->log_floats, d->n_k_heads, DELTA_BLOCK,
                             d->d_k) ||
                   add_heads(&s->log_floats, d->n_v_heads, DELTA_BLOCK,
                             d->d_v) ||
                   add_heads(&s->log_floats, d->n_v_heads, DELTA_BLOCK, 1) ||
                   size_add(s->start_floats, s->log_floats, &n) ||
                   size_mul(n, s->n_layers, &s->half_floats) ||
                   size_mul(s->half_floats, 2 * sizeof(float), &n)
               ? -1
               : 0;
}

int state_init(struct state *s, const struct config *c, struct qwick_err *e)
{
    *s = (struct state){.delta = c->delta};
    for (size_t i = 0; c->layers && i < c->n_layers; i++)
        s->n_layers += c->layers[i].recurrent;
    if (s->n_layers && set_sizes(s))
        return err_set(e, QWICK_ERR_MODEL,
                       "recurrent state: %zu layers of %zu heads of %zu x %zu "
                       "are too many",
                       s->n_layers, c->delta.n_v_heads, c->delta.d_k,
                       c->delta.d_v);
    return 0;
}

/* ---- memory ------------------------------------------------------------- */

size_t state_live_bytes(const struct state *s)
{
    return s->n_layers
               ? sizeof(struct state_live) + 2 * s->half_floats * sizeof(float)
               : 0;
}

size_t state_snapshot_bytes(const struct state *s)
{
    return s->n_layers * s->start_floats * sizeof(float);
}

size_t state_packed_bytes(const struct state *s)
{
    return s->half_floats * sizeof(float);
}

size_t state_missing_bytes(const struct state *s)
{
    return s->live && s->live->refs == 1 ? 0 : state_live_bytes(s);
}

/* Fresh zero pages: memory becomes resident only where it is written. */
static void *map_bytes(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void drop_live(struct state *s)
{
    if (s->live && --s->live->refs == 0)
        munmap(s->live, state_live_bytes(s));
    s->live = NULL;
}

void state_free(struct state *s)
{
    drop_live(s);
    s->first = 0;
}

float *state_snapshot_new(const struct state *s)
{
    return map_bytes(state_snapshot_bytes(s));
}

void state_snapshot_free(const struct state *s, float *snapshot)
{
    if (snapshot)
        munmap(snapshot, state_snapshot_bytes(s));
}

/* ---- copies ------------------------------------------------------------- */

/* The start and log of a block of the first layer. Others follow. */
static float *start_of(const struct state *s, size_t block)
{
    return s->live->data + block % 2 * s->half_floats;
}

static float *log_of(const struct state *s, size_t block)
{
    return start_of(s, block) + s->n_layers * s->start_floats;
}

void state_save(const struct state *s, size_t block, float *snapshot)
{
    memcpy(snapshot, start_of(s, block), state_snapshot_bytes(s));
}

/* Copy the first n rows of n_heads arrays of DELTA_BLOCK rows; returns the
 * floats of all rows. */
static size_t copy_rows(float *to, const float *from, size_t n_heads,
                        size_t row, size_t n)
{
    size_t head = DELTA_BLOCK * row;
    for (size_t i = 0; i < n_heads; i++)
        memcpy(to + i * head, from + i * head, n * row * sizeof *to);
    return n_heads * head;
}

/* Copy the first n rows of a block's log. */
static void copy_log(const struct state *s, float *to, const float *from,
                     size_t n)
{
    const struct delta_config *d = &s->delta;
    for (size_t i = 0; i < s->n_layers; i++) {
        size_t at = i * s->log_floats;
        at += copy_rows(to + at, from + at, 1, delta_channels(d), n);
        at += copy_rows(to + at, from + at, d->n_k_heads, d->d_k, n);
        at += copy_rows(to + at, from + at, d->n_v_heads, d->d_v, n);
        copy_rows(to + at, from + at, d->n_v_heads, 1, n);
    }
}

/* Copy the blocks of a sequence of n positions. */
static void copy_blocks(const struct state *to, const struct state *from,
                        size_t n)
{
    size_t last = n / DELTA_BLOCK;
    for (size_t b = from->first; b <= last; b++) {
        state_save(from, b, start_of(to, b));
        copy_log(from, log_of(to, b), log_of(from, b),
                 b == last ? n % DELTA_BLOCK : DELTA_BLOCK);
    }
}

void state_pack(const struct state *s, size_t n, float *packed)
{
    size_t block = n / DELTA_BLOCK, at = s->n_layers * s->start_floats;
    state_save(s, block, packed);
    memset(packed + at, 0, state_packed_bytes(s) - at * sizeof *packed);
    copy_log(s, packed + at, log_of(s, block), n % DELTA_BLOCK);
}

/* ---- positions ---------------------------------------------------------- */

int state_prepare(struct state *s, size_t n, const float *snapshot,
                  struct qwick_err *e)
{
    if (!s->n_layers)
        return 0;
    if (state_missing_bytes(s)) {
        struct state own = *s;
        own.live = map_bytes(state_live_bytes(s));
        if (!own.live)
            return err_oom(e, state_live_bytes(s));
        own.live->refs = 1;
        if (n && s->first != STATE_NONE)
            copy_blocks(&own, s, n);
        drop_live(s);
        *s = own;
    }
    if (s->first == STATE_NONE) {
        s->first = n / DELTA_BLOCK;
        memcpy(start_of(s, s->first), snapshot, state_snapshot_bytes(s));
    }
    return 0;
}

float *state_unpack(struct state *s, size_t n, struct qwick_err *e)
{
    s->first = 0;
    if (state_prepare(s, 0, NULL, e))
        return NULL;
    s->first = n / DELTA_BLOCK;
    return start_of(s, s->first);
}

bool state_holds(const struct state *s, size_t n, size_t to)
{
    return !s->n_layers || to == 0 ||
           (to <= n && s->first != STATE_NONE && to / DELTA_BLOCK >= s->first);
}

void state_advance(struct state *s, size_t n)
{
    size_t block = n / DELTA_BLOCK;
    if (s->n_layers && block > s->first + 1)
        s->first = block - 1;
}

bool state_stop(struct state *s, size_t n, size_t end)
{
    size_t block = n / DELTA_BLOCK, ahead = end / DELTA_BLOCK - block;
    if (!s->n_layers || ahead == 0 || n == 0)
        return true;
    /* The layers that were done have overwritten the block before n's, and if
     * they went further, n's as well. */
    s->first = ahead == 1 ? block : STATE_NONE;
    return ahead == 1;
}

void state_go_back(struct state *s, size_t n, size_t to)
{
    if (to == 0)
        s->first = 0;
    else if (!state_holds(s, n, to))
        s->first = STATE_NONE;
}

void state_share(struct state *dst, const struct state *src, size_t n,
                 size_t to)
{
    if (!src->n_layers)
        return;
    drop_live(dst);
    dst->first = to ? STATE_NONE : 0;
    if (to == 0 || !state_holds(src, n, to))
        return;
    dst->live = src->live;
    dst->live->refs++;
    dst->first = src->first;
}

/* ---- for layers --------------------------------------------------------- */

static float *layer_start(const struct kv_cache *kv, float *start, size_t layer)
{
    return start + kv->layers[layer].slot * kv->state.start_floats;
}

static float *layer_log(const struct kv_cache *kv, size_t block, size_t layer)
{
    return log_of(&kv->state, block) +
           kv->layers[layer].slot * kv->state.log_floats;
}

float *state_s(const struct kv_cache *kv, size_t block, size_t layer,
               size_t v_head)
{
    const struct state *s = &kv->state;
    return layer_start(kv, start_of(s, block), layer) + v_head * s->s_floats;
}

float *state_tail(const struct kv_cache *kv, size_t block, size_t layer)
{
    return state_s(kv, block, layer, kv->state.delta.n_v_heads);
}

float *state_qkv(const struct kv_cache *kv, size_t block, size_t layer)
{
    return layer_log(kv, block, layer);
}

float *state_k(const struct kv_cache *kv, size_t block, size_t layer,
               size_t k_head)
{
    const struct delta_config *d = &kv->state.delta;
    return layer_log(kv, block, layer) +
           DELTA_BLOCK * (delta_channels(d) + k_head * d->d_k);
}

float *state_u(const struct kv_cache *kv, size_t block, size_t layer,
               size_t v_head)
{
    const struct delta_config *d = &kv->state.delta;
    return state_k(kv, block, layer, d->n_k_heads) +
           v_head * DELTA_BLOCK * d->d_v;
}

float *state_g(const struct kv_cache *kv, size_t block, size_t layer,
               size_t v_head)
{
    const struct delta_config *d = &kv->state.delta;
    return state_u(kv, block, layer, d->n_v_heads) + v_head * DELTA_BLOCK;
}

float *state_snapshot_s(const struct kv_cache *kv, size_t page, size_t layer,
                        size_t v_head)
{
    float *snapshot = kv->pages[page]->state;
    return snapshot
               ? layer_start(kv, snapshot, layer) + v_head * kv->state.s_floats
               : NULL;
}

float *state_snapshot_tail(const struct kv_cache *kv, size_t page, size_t layer)
{
    return state_snapshot_s(kv, page, layer, kv->state.delta.n_v_heads);
}
