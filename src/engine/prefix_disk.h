/* The prefix cache on disk, for runs that follow each other.
 *
 *     DIR/prefix-1/CLASS/PAGE-HASH.kv
 *
 * CLASS is a hash of everything that the numbers depend on besides the tokens:
 * the model's fingerprint, what identifies its files, the KV cache's dtype,
 * --exact, the level of kernels. An entry (see kv_file.h) holds whole pages
 * from page number PAGE on, and all tokens from the first of the context on;
 * HASH is of the tokens up to the end of its first page. So an entry is found
 * by the first page that the ones before it lack, and prompts that begin alike
 * share what they have in common: the second one's entry begins where it leaves
 * the first one's. Tokens are compared, not trusted to the hash.
 *
 * Entries never change. They get their name when they are complete, and going
 * away is harmless to who has them open, so any number of processes may use a
 * directory. Modification times say when an entry was last used: who uses one
 * sets it, and those of the entries that come before it, to the same time. */
#ifndef ENGINE_PREFIX_DISK_H
#define ENGINE_PREFIX_DISK_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/engine.h"

/* Of the directory. The version of the entries is part of their class. */
enum { PREFIX_DIR_VERSION = 1 };

struct prefix_disk;

/* dir: NULL for qwick_cache_dir's. Needs an engine with weights. Nothing is
 * created before something is stored. Directories that belong to another user,
 * or that others may write to, are refused: see owner_check_dir. Entries are
 * checked one by one, so that it does not matter who gets at a directory. */
int prefix_disk_open(struct prefix_disk **out, struct qwick_engine *eng,
                     const char *dir, size_t max_bytes, struct qwick_err *e);
void prefix_disk_close(struct prefix_disk *d);

/* Read what follows the first `first` pages of tokens[0..n): pages
 * [n / KV_BLOCK + 1] gets *n_pages new pages. Returns how many of the tokens
 * are covered, in whole pages and as much of the last one as agrees; 0: nothing
 * was found. Damaged entries are removed and end the search, ones that cannot
 * be read just end it; *bad is set for the first of this cache's life. */
size_t prefix_disk_find(struct prefix_disk *d, const int32_t *tokens, size_t n,
                        size_t first, struct kv_page **pages, size_t *n_pages,
                        const volatile int *interrupt, struct qwick_err *bad);

/* Write the whole pages of tokens[0..n), which kv holds, as far as they are not
 * there, then remove what was used longest ago until the directory has at most
 * its bytes. More than those by itself: nothing is written. */
int prefix_disk_store(struct prefix_disk *d, const int32_t *tokens, size_t n,
                      const struct kv_cache *kv, struct qwick_err *e);

#endif
