/* The prefix cache on disk, which later processes use.
 *
 *     DIR/prefix-1/CLASS/PAGE-HASH.kv
 *
 * CLASS is a hash of everything except the tokens that the numbers depend on:
 * the model's fingerprint, the identity of its files, the KV cache's dtype,
 * --exact, the kernel level. An entry (see kv_file.h) holds whole pages from
 * page number PAGE on, and all tokens from the start of the context. HASH
 * covers the tokens up to the end of the entry's first page. So the search
 * finds an entry by the first page that the entries before it lack. Prompts
 * that begin with the same tokens share pages: the entry of the second prompt
 * begins at the page where it differs from the first one. The search compares
 * tokens and does not rely on the hash.
 *
 * Entries never change. A file gets its name when it is complete, and a process
 * that has it open can still read it after it was removed, so any number of
 * processes may use a directory. The modification time of an entry is the time
 * of its last use: a process that uses an entry sets it, and sets those of the
 * entries before it to the same time. */
#ifndef ENGINE_PREFIX_DISK_H
#define ENGINE_PREFIX_DISK_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/core/engine.h"

/* Version of the directory's layout. The version of the entries is part of
 * their class. */
enum { PREFIX_DIR_VERSION = 1 };

struct prefix_disk;

/* dir: NULL for the directory of qwick_cache_dir. The engine must have weights.
 * The first store creates the directory. A directory that belongs to another
 * user, or that others can write to, is refused: see owner_check_dir. Each
 * entry is checked by itself as well. */
int prefix_disk_open(struct prefix_disk **out, struct qwick_engine *eng,
                     const char *dir, size_t max_bytes, struct qwick_err *e);
void prefix_disk_close(struct prefix_disk *d);

/* Read the pages of tokens[0..n) after the first `first` ones: pages
 * [n / KV_BLOCK + 1] gets *n_pages new pages. Returns the number of tokens that
 * are covered, in whole pages and the part of the last page that agrees; 0:
 * nothing was found. A damaged entry is removed and ends the search; an entry
 * that cannot be read ends it. *bad is set for the first such entry that this
 * struct meets. A nonzero *interrupt (NULL: never) ends the search. */
size_t prefix_disk_find(struct prefix_disk *d, const int32_t *tokens, size_t n,
                        size_t first, struct kv_page **pages, size_t *n_pages,
                        const volatile int *interrupt, struct qwick_err *bad);

/* Write the whole pages of tokens[0..n), which kv holds, except those that the
 * directory has. Then remove entries, the one that was used longest ago first,
 * until at most max_bytes are left. Writes nothing if the new pages alone are
 * larger than max_bytes. */
int prefix_disk_store(struct prefix_disk *d, const int32_t *tokens, size_t n,
                      const struct kv_cache *kv, struct qwick_err *e);

#endif
