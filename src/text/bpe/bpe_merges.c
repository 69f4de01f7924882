/* The second thread of a large tokenizer. It reads the merges, while the first
 * thread reads the vocabulary and indexes it; then both resolve merges. If
 * anything fails, the first thread reads or resolves all merges again alone. So
 * results and messages are the same as with one thread. */
#include <signal.h>
#include <time.h>

#include "base/os.h"
#include "base/par.h"
#include "text/bpe/bpe_load.h"

/* For a smaller file, a second thread costs more than it saves. */
enum { MIN_BYTES = 1 << 20 };

int bpe_merge_done(struct merges *m, size_t left, size_t right)
{
    m->arena.len += HEAD + left + right;
    if (++m->n % CHUNK_MERGES)
        return 0;
    size_t c = m->n / CHUNK_MERGES;
    m->start[c] = m->arena.len;
    /* The other thread may read BPE_PAD bytes beyond its chunks. These must
     * also be complete, so a chunk is published a little late. */
    __atomic_store_n(&m->published, c - 1, __ATOMIC_RELEASE);
    return __atomic_load_n(&m->ended, __ATOMIC_RELAXED) ? -1 : 0;
}

void bpe_merges_done(struct merges *m, bool whole)
{
    int running = 0;
    size_t chunks = (m->n + CHUNK_MERGES - 1) / CHUNK_MERGES;
    m->start[chunks] = m->arena.len;
    __atomic_store_n(&m->published, chunks, __ATOMIC_RELEASE);
    __atomic_compare_exchange_n(&m->ended, &running, whole ? 1 : -1, false,
                                __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

void bpe_merges_reset(struct merges *m)
{
    m->arena.len = m->n = m->published = 0;
    m->ended = 0;
    m->fault.at = NULL;
}

static void pause_briefly(void)
{
    nanosleep(&(struct timespec){0, 20000}, NULL);
}

static void *second_thread(void *ctx)
{
    struct bpe_load *l = ctx;
    struct merges *m = &l->merges;
    int vocab;
    if (m->read(l)) {
        __atomic_store_n(&m->ended, -1, __ATOMIC_RELEASE);
        return NULL;
    }
    do {
        vocab = __atomic_load_n(&m->vocab, __ATOMIC_ACQUIRE);
        if (!vocab)
            pause_briefly();
    } while (!vocab && __atomic_load_n(&m->ended, __ATOMIC_RELAXED) == 1);
    if (vocab == 1)
        bpe_resolve_chunks(l);
    return NULL;
}

void bpe_merges_start(struct bpe_load *l, size_t n, bpe_merges_read read)
{
    sigset_t old;
    if (n < MIN_BYTES || os_cpus() < 2)
        return;
    l->merges.read = read;
    par_block_signals(&old);
    l->merges.running =
        pthread_create(&l->merges.thread, NULL, second_thread, l) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void bpe_merges_vocab_ready(struct bpe_load *l)
{
    __atomic_store_n(&l->merges.vocab, 1, __ATOMIC_RELEASE);
}

/* End the second thread, if it runs. give_up: do not wait for its result. */
static void end_thread(struct merges *m, bool give_up)
{
    int unset = 0;
    if (!m->running)
        return;
    if (give_up)
        __atomic_store_n(&m->ended, -1, __ATOMIC_RELAXED);
    __atomic_compare_exchange_n(&m->vocab, &unset, -1, false, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
    pthread_join(m->thread, NULL);
    m->running = false;
}

bool bpe_merges_join(struct bpe_load *l)
{
    struct merges *m = &l->merges;
    if (!m->running)
        return false;
    if (m->vocab == 1)
        bpe_resolve_chunks(l);
    end_thread(m, false);
    return m->vocab == 1 && m->ended == 1;
}

void bpe_merges_give_up(struct bpe_load *l)
{
    end_thread(&l->merges, true);
}
