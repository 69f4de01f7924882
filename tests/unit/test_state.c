/* The state of recurrent layers in the KV cache: going back, and sharing
 * between sequences. Instead of a model, the tests use a made-up layer, which
 * writes numbers that depend on all tokens before them. */
#include "test.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "model/kv_cache.h"

/* Layers 0, 1 and 3 are recurrent. The sizes are odd, so that every array ends
 * inside a cache line. */
enum { LAYERS = 4, KEY_HEADS = 2, VALUE_HEADS = 4, D_K = 5, D_V = 7, CONV = 4 };
enum { CHANNELS = 2 * KEY_HEADS * D_K + VALUE_HEADS * D_V };
enum { MOST = 8192 };

static struct layer_config layers[LAYERS];

static struct config some_config(void)
{
    struct config c = {.n_layers = LAYERS,
                       .n_kv_heads = 1,
                       .head_dim = 16,
                       .layers = layers,
                       .delta = {.n_k_heads = KEY_HEADS,
                                 .n_v_heads = VALUE_HEADS,
                                 .d_k = D_K,
                                 .d_v = D_V,
                                 .conv = CONV}};
    for (size_t i = 0; i < LAYERS; i++)
        layers[i] =
            (struct layer_config){.window = NO_WINDOW, .recurrent = i != 2};
    config_number_layers(&c);
    return c;
}

/* ---- a pretended model -------------------------------------------------- */

/* A sequence, and a hash of its first n tokens for each n. */
struct seq {
    struct kv_cache kv;
    unsigned hashes[MOST + 1];
};

/* Tokens [from, from + n) become t. Later tokens are no longer known. */
static void set_tokens(struct seq *s, size_t from, size_t n, int t)
{
    s->hashes[0] = 1;
    for (size_t i = from; i < from + n; i++)
        s->hashes[i + 1] = s->hashes[i] * 31 + (unsigned)t + 7;
}

static void copy_tokens(struct seq *to, const struct seq *from)
{
    memcpy(to->hashes, from->hashes, sizeof to->hashes);
}

/* A number that depends on the first n tokens. */
static float mark(const struct seq *s, size_t n)
{
    return (float)(s->hashes[n] % 100003);
}

/* Element `i` of array `what` of a layer and head, when the first n tokens
 * decide it. */
static float value(const struct seq *s, size_t n, size_t layer, size_t head,
                   size_t what, size_t i)
{
    return mark(s, n) + (float)(layer * 1000 + head * 100 + what * 10) +
           (float)i / 64;
}

static void set_start(const struct seq *s, size_t block, size_t layer)
{
    for (size_t h = 0; h < VALUE_HEADS; h++) {
        float *a = state_s(&s->kv, block, layer, h);
        assert_int_equal((uintptr_t)a % 64, 0);
        for (size_t i = 0; i < D_K * D_V; i++)
            a[i] = value(s, block * DELTA_BLOCK, layer, h, 0, i);
    }
    float *tail = state_tail(&s->kv, block, layer);
    assert_int_equal((uintptr_t)tail % 64, 0);
    for (size_t i = 0; i < (CONV - 1) * CHANNELS; i++)
        tail[i] = value(s, block * DELTA_BLOCK, layer, 0, 1, i);
}

static void set_snapshot(const struct seq *s, size_t page, size_t layer)
{
    size_t n = (page + 1) * KV_BLOCK;
    for (size_t h = 0; h < VALUE_HEADS; h++) {
        float *a = state_snapshot_s(&s->kv, page, layer, h);
        for (size_t i = 0; a && i < D_K * D_V; i++)
            a[i] = value(s, n, layer, h, 0, i);
    }
    float *tail = state_snapshot_tail(&s->kv, page, layer);
    for (size_t i = 0; tail && i < (CONV - 1) * CHANNELS; i++)
        tail[i] = value(s, n, layer, 0, 1, i);
}

/* One array of a block's log: n_heads of [DELTA_BLOCK][width]. */
struct array {
    float *(*at)(const struct kv_cache *kv, size_t block, size_t layer,
                 size_t head);
    size_t n_heads, width;
};

static float *qkv_at(const struct kv_cache *kv, size_t block, size_t layer,
                     size_t head)
{
    (void)head;
    return state_qkv(kv, block, layer);
}

static const struct array arrays[] = {{qkv_at, 1, CHANNELS},
                                      {state_k, KEY_HEADS, D_K},
                                      {state_u, VALUE_HEADS, D_V},
                                      {state_g, VALUE_HEADS, 1}};

/* Write position pos, or check it. */
static void visit_log(const struct seq *s, size_t layer, size_t pos, bool check)
{
    size_t block = pos / DELTA_BLOCK, row = pos % DELTA_BLOCK;
    for (size_t a = 0; a < 4; a++) {
        for (size_t h = 0; h < arrays[a].n_heads; h++) {
            size_t width = arrays[a].width;
            float *p = arrays[a].at(&s->kv, block, layer, h);
            assert_int_equal((uintptr_t)p % 64, 0);
            for (size_t i = 0; i < width; i++) {
                float x = value(s, pos + 1, layer, h, 2 + a, i);
                if (check)
                    assert_true(p[row * width + i] == x);
                else
                    p[row * width + i] = x;
            }
        }
    }
}

static void check_start(const struct seq *s, size_t block, size_t layer)
{
    for (size_t h = 0; h < VALUE_HEADS; h++)
        for (size_t i = 0; i < D_K * D_V; i++)
            assert_true(state_s(&s->kv, block, layer, h)[i] ==
                        value(s, block * DELTA_BLOCK, layer, h, 0, i));
    for (size_t i = 0; i < (CONV - 1) * CHANNELS; i++)
        assert_true(state_tail(&s->kv, block, layer)[i] ==
                    value(s, block * DELTA_BLOCK, layer, 0, 1, i));
}

/* Check the state after all n positions. kv_reserve brings it about. */
static void check_at(struct seq *s, size_t n)
{
    size_t block = n / DELTA_BLOCK;
    assert_int_equal(s->kv.n, n);
    assert_int_equal(kv_reserve(&s->kv, n, NULL), 0);
    for (size_t l = 0; l < LAYERS; l++) {
        if (!layers[l].recurrent)
            continue;
        if (n)
            check_start(s, block, l);
        for (size_t pos = block * DELTA_BLOCK; pos < n; pos++)
            visit_log(s, l, pos, true);
    }
}

/* Layers [0, n_layers) compute n more positions with token t. */
static void compute(struct seq *s, size_t n, int t, size_t n_layers)
{
    size_t from = s->kv.n, end = from + n;
    set_tokens(s, from, n, t);
    if (n == 0)
        return;
    for (size_t l = 0; l < n_layers; l++) {
        if (!layers[l].recurrent)
            continue;
        if (from == 0)
            set_start(s, 0, l);
        for (size_t pos = from; pos < end; pos++) {
            visit_log(s, l, pos, false);
            if ((pos + 1) % DELTA_BLOCK == 0)
                set_start(s, (pos + 1) / DELTA_BLOCK, l);
            if ((pos + 1) % KV_BLOCK == 0)
                set_snapshot(s, pos / KV_BLOCK, l);
        }
    }
}

static void grow(struct seq *s, size_t n, int t)
{
    check_at(s, s->kv.n);
    assert_int_equal(kv_reserve(&s->kv, s->kv.n + n, NULL), 0);
    compute(s, n, t, LAYERS);
    kv_advance(&s->kv, n);
}

static void begin(struct seq *s)
{
    struct config c = some_config();
    assert_int_equal(kv_init(&s->kv, kv_kind(QWICK_KV_F32), &c, NULL), 0);
}

static struct seq one, two;

/* ---- allocations that fail ----------------------------------------------- */

static long n_good = -1; /* mappings until one fails; -1: none does */

#if !defined(__SANITIZE_ADDRESS__)
void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t from)
{
    if (n_good == 0) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    n_good -= n_good > 0;
    return (void *)syscall(SYS_mmap, at, n, protection, flags, fd, from);
}
#endif

/* ---- tests -------------------------------------------------------------- */

static void pages_hold_layers_with_keys_only(void **state)
{
    begin(&one);
    assert_int_equal(one.kv.page_bytes, 2 * KV_BLOCK * 16 * sizeof(float));
    assert_int_equal(kv_bytes(&one.kv), 0);
    grow(&one, 1, 1);
    assert_ptr_equal(kv_keys(&one.kv, 0, 2, 0), one.kv.pages[0]->data);
    assert_int_equal(kv_bytes(&one.kv),
                     one.kv.page_bytes + state_live_bytes(&one.kv.state));
    kv_free(&one.kv);

    struct config c = some_config();
    struct qwick_err e;
    for (size_t i = 0; i < LAYERS; i++)
        layers[i].recurrent = true;
    assert_int_equal(kv_init(&one.kv, kv_kind(QWICK_KV_F32), &c, &e), -1);
    assert_string_equal(e.msg,
                        "KV cache: none of 4 layers has keys and values");
    some_config();
    c.delta.d_k = SIZE_MAX / 8;
    assert_int_equal(kv_init(&one.kv, kv_kind(QWICK_KV_F32), &c, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_MODEL);
}

/* Lengths that the state can go back to after growing to n. */
static void going_back_finds_the_state(void **state)
{
    static const size_t at[] = {0,   1,   31,  32,  33,  63,  64,  65, 95,
                                127, 128, 250, 255, 256, 257, 300, 319};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        for (size_t k = 0; k <= at[i]; k += k < 4 ? 1 : 13) {
            size_t to = at[i] - k, n = at[i];
            begin(&one);
            /* by pieces, then one by one */
            while (one.kv.n + 45 < n)
                grow(&one, 45, 1);
            while (one.kv.n < n)
                grow(&one, 1, 1);
            size_t want = to;
            if (to / DELTA_BLOCK + 1 < n / DELTA_BLOCK)
                want = to / 256 * 256;
            assert_int_equal(kv_usable(&one.kv, to), want);
            kv_truncate(&one.kv, to);
            assert_int_equal(one.kv.n, want);
            check_at(&one, want);
            /* other tokens replace the dropped ones */
            grow(&one, 70, 2);
            check_at(&one, one.kv.n);
            kv_truncate(&one.kv, one.kv.n - 20);
            check_at(&one, one.kv.n);
            kv_free(&one.kv);
        }
    }
}

/* Guesses of prompt lookup: at most DELTA_BLOCK tokens behind the last one that
 * counts. */
static void guesses_can_always_be_dropped(void **state)
{
    begin(&one);
    for (size_t n = 1; n < 400; n++) {
        grow(&one, 1 + DELTA_BLOCK, 2);
        kv_truncate(&one.kv, n);
        assert_int_equal(one.kv.n, n);
        check_at(&one, n);
    }
    kv_free(&one.kv);
}

static void a_stopped_pass_leaves_a_usable_state(void **state)
{
    static const size_t before[] = {0, 1, 40, 64, 256, 300, 320};
    static const size_t more[] = {1, 2, 23, 24, 25, 32, 56, 57, 64, 200, 512};
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        for (size_t j = 0; j < sizeof more / sizeof *more; j++) {
            for (size_t l = 0; l <= LAYERS; l++) {
                size_t n = before[i], end = n + more[j], want = n;
                begin(&one);
                grow(&one, n, 1);
                assert_int_equal(kv_reserve(&one.kv, end, NULL), 0);
                compute(&one, more[j], 2, l);
                if (n && end / DELTA_BLOCK > n / DELTA_BLOCK + 1)
                    want = n / 256 * 256;
                kv_stop(&one.kv, more[j]);
                assert_int_equal(one.kv.n, want);
                check_at(&one, want);
                grow(&one, 100, 3);
                check_at(&one, one.kv.n);
                kv_free(&one.kv);
            }
        }
    }
}

/* A sequence that shares the first n positions of another one goes on by
 * itself. */
static void sequences_share_the_state(void **state)
{
    for (size_t n = 0; n <= 300; n += n < 40 ? 1 : 13) {
        begin(&one);
        begin(&two);
        grow(&one, 300, 1);
        grow(&two, 77, 5);
        size_t want = n / DELTA_BLOCK >= 8 ? n : n / 256 * 256;
        assert_int_equal(kv_share(&two.kv, &one.kv, n, NULL), 0);
        assert_int_equal(two.kv.n, want);
        copy_tokens(&two, &one);
        check_at(&two, want);
        grow(&two, 90, 2);
        check_at(&one, 300);
        grow(&one, 90, 3);
        check_at(&two, two.kv.n);
        kv_free(&one.kv);
        check_at(&two, two.kv.n);
        kv_free(&two.kv);
    }
}

static size_t n_snapshots(const struct kv_cache *kv)
{
    size_t n = 0;
    for (size_t i = 0; i < kv->n_pages; i++)
        n += kv->pages[i]->state != NULL;
    return n;
}

static void long_sequences_have_few_snapshots(void **state)
{
    begin(&one);
    size_t most = 0, at_once = kv_sequence_bytes(&one.kv, 8000);
    while (one.kv.n < 8000) {
        size_t missing = kv_missing_bytes(&one.kv, one.kv.n + 500);
        size_t had = kv_bytes(&one.kv);
        grow(&one, 500, 1);
        assert_true(kv_bytes(&one.kv) <= had + missing);
        assert_true(kv_bytes(&one.kv) <= kv_sequence_bytes(&one.kv, one.kv.n));
        most = n_snapshots(&one.kv) > most ? n_snapshots(&one.kv) : most;
        assert_true(n_snapshots(&one.kv) >= one.kv.n / 1024);
    }
    assert_true(most <= KV_SNAPSHOTS && most > KV_SNAPSHOTS - 3);
    assert_true(kv_bytes(&one.kv) <= at_once);
    /* the remaining snapshots are used */
    size_t to = kv_usable(&one.kv, 5000);
    assert_true(to <= 5000 && to + 512 > 5000);
    kv_truncate(&one.kv, 5000);
    check_at(&one, to);
    grow(&one, 1000, 2);
    check_at(&one, to + 1000);
    /* a sequence that starts again has them as often as a new one */
    kv_truncate(&one.kv, 0);
    grow(&one, 300, 3);
    assert_int_equal(kv_usable(&one.kv, 256 + 1), 257);
    grow(&one, 100, 3);
    assert_int_equal(kv_usable(&one.kv, 290), 256);
    kv_free(&one.kv);
}

/* Snapshots that other sequences use stay, even if there are many. */
static void shared_snapshots_stay(void **state)
{
    begin(&one);
    grow(&one, 4000, 1);
    size_t n = n_snapshots(&one.kv);
    assert_int_equal(n, 15);
    two.kv = kv_like(&one.kv);
    assert_int_equal(kv_share(&two.kv, &one.kv, 4000, NULL), 0);
    grow(&one, 4000, 1);
    assert_int_equal(n_snapshots(&two.kv), n);
    kv_free(&one.kv);
    set_tokens(&two, 0, 4000, 1);
    for (size_t to = 3840; to; to -= 256) {
        kv_truncate(&two.kv, to);
        assert_int_equal(two.kv.n, to);
        check_at(&two, to);
    }
    kv_free(&two.kv);
}

static void a_snapshot_is_added_where_it_is_asked_for(void **state)
{
    for (size_t n = 0; n < 300; n += n < 66 ? 1 : 7) {
        begin(&one);
        begin(&two);
        grow(&one, n, 1);
        size_t end = n / KV_BLOCK * KV_BLOCK, pages = n / KV_BLOCK;
        kv_snapshot(&one.kv);
        kv_snapshot(&one.kv);
        if (pages)
            assert_non_null(one.kv.pages[pages - 1]->state);
        grow(&one, 200, 2);
        assert_int_equal(kv_usable(&one.kv, end), end);
        /* other sequences adopt the pages */
        struct kv_page *shared[8];
        for (size_t i = 0; i < pages; i++) {
            shared[i] = one.kv.pages[i];
            shared[i]->refs++;
        }
        if (pages) {
            grow(&two, 100, 4);
            assert_int_equal(kv_adopt(&two.kv, 0, shared, pages, end, NULL), 0);
            copy_tokens(&two, &one);
            check_at(&two, end);
            grow(&two, 50, 3);
        }
        kv_truncate(&one.kv, end);
        check_at(&one, end);
        kv_free(&one.kv);
        check_at(&two, two.kv.n);
        kv_free(&two.kv);
    }
    /* not where the live state has gone past the page's end and back */
    begin(&one);
    grow(&one, 140, 1);
    kv_truncate(&one.kv, 127);
    assert_int_equal(one.kv.n, 127);
    kv_snapshot(&one.kv);
    assert_int_equal(n_snapshots(&one.kv), 0);
    kv_free(&one.kv);
}

/* A page that is filled again has the snapshot of its new tokens. */
static void snapshots_follow_the_tokens(void **state)
{
    begin(&one);
    grow(&one, 256 + 5, 1);
    kv_truncate(&one.kv, 250);
    assert_int_equal(one.kv.n, 250);
    grow(&one, 100, 2);
    kv_truncate(&one.kv, 256);
    assert_int_equal(one.kv.n, 256);
    check_at(&one, 256);
    /* a page that is not full offers none */
    kv_truncate(&one.kv, 0);
    grow(&one, 200, 3);
    assert_int_equal(kv_usable(&one.kv, 100), 0);
    kv_free(&one.kv);
}

/* A failure leaves what was there; a snapshot that fails is left out. */
static void failed_allocations_change_nothing(void **state)
{
#if defined(__SANITIZE_ADDRESS__)
    print_message("SKIP: sanitizers have mappings of their own\n");
    return;
#endif
    size_t n_failed = 0;
    for (long k = 0; k < 20; k++) {
        for (size_t n = 270; n <= 300; n += 15) {
            begin(&one);
            begin(&two);
            grow(&one, 300, 1);
            grow(&two, 77, 5);
            n_good = k;
            int reserved = kv_reserve(&one.kv, 600, NULL);
            int shared = kv_share(&two.kv, &one.kv, n, NULL);
            int again = shared ? 0 : kv_reserve(&two.kv, two.kv.n + 40, NULL);
            kv_snapshot(&two.kv);
            kv_truncate(&two.kv, two.kv.n - 1);
            n_good = -1;
            n_failed += reserved || shared || again;
            check_at(&one, 300);
            grow(&one, 300, 2);
            if (!shared)
                copy_tokens(&two, &one);
            check_at(&two, shared ? 76 : n - 1);
            grow(&two, 40, 3);
            check_at(&two, two.kv.n);
            check_at(&one, 600);
            kv_free(&one.kv);
            kv_free(&two.kv);
        }
    }
    assert_true(n_failed > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_hold_layers_with_keys_only),
        cmocka_unit_test(going_back_finds_the_state),
        cmocka_unit_test(guesses_can_always_be_dropped),
        cmocka_unit_test(a_stopped_pass_leaves_a_usable_state),
        cmocka_unit_test(sequences_share_the_state),
        cmocka_unit_test(long_sequences_have_few_snapshots),
        cmocka_unit_test(shared_snapshots_stay),
        cmocka_unit_test(a_snapshot_is_added_where_it_is_asked_for),
        cmocka_unit_test(snapshots_follow_the_tokens),
        cmocka_unit_test(failed_allocations_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
