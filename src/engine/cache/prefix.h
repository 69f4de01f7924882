/* The prefix cache in memory: a trie over pages of keys and values.
 *
 * A node is one page: KV_BLOCK tokens, or fewer at the end of a sequence, that
 * follow the tokens of its ancestors. The trie shares pages by reference with
 * the sequences that computed them, and never writes to a page. Every page of
 * the trie counts towards a budget in bytes. The page that was used longest ago
 * is dropped first, and descendants before ancestors, so every remaining page
 * can be reached from the root. */
#ifndef ENGINE_PREFIX_H
#define ENGINE_PREFIX_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/kv_cache.h"

struct prefix;

/* Create a trie of at most max_bytes, for KV caches of the shape and dtype of
 * *shape, which is only read here. */
int prefix_create(struct prefix **out, const struct kv_cache *shape,
                  size_t max_bytes, struct qwick_err *e);
void prefix_free(struct prefix *p);

/* Find the longest prefix of tokens[0..n) in the trie. Returns its length:
 * whole pages, and the part of one more page that agrees. pages [n / KV_BLOCK +
 * 1] gets *n_pages pages, with one reference each for the caller. With pages
 * NULL the call only returns the length, and does not count as a use of the
 * pages.
 */
size_t prefix_match(struct prefix *p, const int32_t *tokens, size_t n,
                    struct kv_page **pages, size_t *n_pages);

/* Put the first n positions of kv, which hold tokens, into the trie. If n ends
 * inside a page, the trie shares that page, too, and a sequence that goes on
 * must copy it (kv_reserve does). So for such a sequence pass a multiple of
 * KV_BLOCK. Pages for which memory or budget are too small are left out, and so
 * are all pages after one whose window layers were released. */
void prefix_insert(struct prefix *p, const int32_t *tokens, size_t n,
                   const struct kv_cache *kv);

/* Bytes of the pages in the trie. */
size_t prefix_bytes(const struct prefix *p);

/* Drop the pages that were used longest ago until at most `bytes` are left.
 * Sequences keep the pages that they use. */
void prefix_shrink(struct prefix *p, size_t bytes);

#endif
