/* The prefix cache on disk, which later processes use.
 *
 *     DIR/prefix-1/CLASS/PAGE-HASH.kv
 *
 * CLASS is a hash of everything except the tokens that keys and values depend
 * on: the model's fingerprint, the identity of its files, the KV cache's dtype,
 * --exact, the kernel level. An entry is a file (see kv_file.h). It holds full
 * pages, starting with page number PAGE, and all tokens from the start of the
 * context. HASH covers the tokens up to the end of the entry's first page. A
 * search reads entries one after the other: it computes the name of the next
 * entry from the first page that it still lacks. Prompts that begin with the
 * same tokens share pages: the entry of the second prompt starts at the page
 * where it differs from the first prompt. The search compares tokens and does
 * not rely on the hash. With recurrent layers, an entry ends with a page that
 * carries a snapshot of their state. A search then finds the pages up to the
 * last page that matches and has a snapshot.
 *
 * Entries never change. A file gets its name when it is complete, and a process
 * that has it open can still read it after it was removed. So any number of
 * processes may use a directory. The modification time of an entry is the time
 * of its last use: a process that uses an entry sets it for this entry and for
 * the entries that hold the pages before it. */
#ifndef ENGINE_PREFIX_DISK_H
#define ENGINE_PREFIX_DISK_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"
#include "engine/core/engine.h"

/* Version of the directory's layout. The version of the entries' format is part
 * of CLASS. */
enum { PREFIX_DIR_VERSION = 1 };

struct prefix_disk;

/* Open the cache in dir (NULL: the directory of qwick_cache_dir). The engine
 * must have weights. lora: adapter + 1 of the sequences, or 0. The first store creates the directory. A directory that
 * belongs to another user, or that others can write to, is refused: see
 * owner_check_dir. Each entry is checked by itself as well. */
int prefix_disk_open(struct prefix_disk **out, struct qwick_engine *eng,
                     size_t lora, const char *dir, size_t max_bytes, struct qwick_err *e);
void prefix_disk_close(struct prefix_disk *d);

/* Read the pages of tokens[0..n) after the first `first` tokens. pages [n /
 * KV_BLOCK + 1] receives *n_pages new pages. Returns the number of tokens that
 * they cover: full pages, and the part of the last page that matches (with
 * recurrent layers, only full pages, of which the last one carries a snapshot);
 * 0 if nothing was found. A damaged entry is removed. The search ends at an
 * entry that is damaged or cannot be read. The first of these entries sets
 * *bad, once for each struct. The search also ends when *interrupt (NULL:
 * never) is nonzero. */
size_t prefix_disk_find(struct prefix_disk *d, const int32_t *tokens, size_t n,
                        size_t first, struct kv_page **pages, size_t *n_pages,
                        const volatile int *interrupt, struct qwick_err *bad);

/* Write the full pages of tokens[0..n), which kv holds, except pages that the
 * directory already has, and with recurrent layers except those after the last
 * snapshot. Then remove the least recently used entries until at
 * most max_bytes are left. Writes nothing if the new pages alone are larger
 * than max_bytes. */
int prefix_disk_store(struct prefix_disk *d, const int32_t *tokens, size_t n,
                      const struct kv_cache *kv, struct qwick_err *e);

/* What limits prefix_disk_put. */
struct prefix_put {
    struct timespec time;          /* of the entries: that of their last use */
    double deadline_ms;            /* by clock_ms; 0: none */
    const volatile int *interrupt; /* NULL: never */
};

/* Write the same pages, in several entries if they are many, without removing
 * old entries: prefix_disk_trim does that. An entry that is there keeps its
 * time if that is later. Returns 1 if the deadline or the flag stopped it
 * between two entries, 0 when all are there, or -1. */
int prefix_disk_put(struct prefix_disk *d, const int32_t *tokens, size_t n,
                    const struct kv_cache *kv, const struct prefix_put *how,
                    struct qwick_err *e);
int prefix_disk_trim(struct prefix_disk *d, struct qwick_err *e);
size_t prefix_disk_budget(const struct prefix_disk *d);

#endif
