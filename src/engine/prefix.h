/* Prefixes of token sequences that stay evaluated: a trie over pages of keys
 * and values.
 *
 * A node is one page: KV_BLOCK tokens, or fewer at the end of a sequence, in
 * the context of those of its ancestors. Pages are shared with the sequences
 * that computed them, by reference, and never written. A byte budget counts
 * every page of the trie; what was used longest ago goes first, descendants
 * before ancestors, so that what stays is always whole from the root on. */
#ifndef ENGINE_PREFIX_H
#define ENGINE_PREFIX_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/kv_cache.h"

struct prefix;

/* For caches of the shape and dtype of *shape, of at most max_bytes. */
int prefix_create(struct prefix **out, const struct kv_cache *shape,
                  size_t max_bytes, struct qwick_err *e);
void prefix_free(struct prefix *p);

/* The longest prefix of tokens[0..n) that is there: returns its length, whole
 * pages and as much of one more page as agrees. pages [n / KV_BLOCK + 1] gets
 * the *n_pages pages with a reference each; NULL: only tell the length, which
 * is no use of what is there. */
size_t prefix_match(struct prefix *p, const int32_t *tokens, size_t n,
                    struct kv_page **pages, size_t *n_pages);

/* Keep the first n positions of kv, which hold tokens. Where n ends within a
 * page, the owner of kv has to copy that one before it goes on: whole pages are
 * for sequences that do. What does not fit into memory or budget is left out,
 * and so is what follows a page whose window layers were released. */
void prefix_insert(struct prefix *p, const int32_t *tokens, size_t n,
                   const struct kv_cache *kv);

/* Bytes of the pages in the trie. */
size_t prefix_bytes(const struct prefix *p);

/* Drop what was used longest ago until at most so many bytes are left. Pages
 * that sequences use stay theirs. */
void prefix_shrink(struct prefix *p, size_t bytes);

#endif
