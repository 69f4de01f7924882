/* The prefix cache in memory: a trie over pages of keys and values.
 *
 * A node of the trie is one page. It holds KV_BLOCK tokens, or fewer at the end
 * of a sequence, which follow the tokens of its ancestors. The trie shares
 * pages by reference with the sequences that computed them, and never writes to
 * a page. Every page of the trie, with its snapshot of recurrent layers,
 * counts towards a budget in bytes. The least recently used page is dropped
 * first, but descendants before ancestors, so the remaining pages can always be
 * reached from the root. There are several roots, since keys and values also
 * depend on the sequence's adapter: root 0 is of sequences without one, root i of
 * those with adapter i - 1. With recurrent layers, every path ends with a page
 * that has a snapshot, since a sequence can go on only there. */
#ifndef ENGINE_PREFIX_H
#define ENGINE_PREFIX_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/kv_cache.h"

struct prefix;

/* Create a trie of n_roots roots and at most max_bytes, for KV caches that have the shape and
 * dtype of *shape. Only this call reads *shape. */
int prefix_create(struct prefix **out, const struct kv_cache *shape,
                  size_t max_bytes, size_t n_roots, struct qwick_err *e);
void prefix_free(struct prefix *p);

/* Find the longest prefix of tokens[0..n) below a root. Returns its length: full
 * pages, and the part of one more page that matches; with recurrent layers,
 * full pages up to one with a snapshot. pages [n / KV_BLOCK + 1] receives
 * *n_pages pages, each with one reference for the caller. With pages NULL the
 * call only returns the length and does not count as a use of the pages. */
size_t prefix_match(struct prefix *p, size_t root, const int32_t *tokens,
                    size_t n, struct kv_page **pages, size_t *n_pages);

/* Return the length of the longest prefix of tokens[0..n) whose keys and values
 * are in the trie, whether or not a sequence can go on after it. Does not count
 * as a use. */
size_t prefix_common(const struct prefix *p, size_t root,
                     const int32_t *tokens, size_t n);

/* Put the first n positions of kv, which hold tokens[0..n), into the trie. If n
 * ends inside a page, the trie shares that page, too, and a sequence that goes
 * on must first copy it (kv_reserve does so). To avoid the copy, pass a
 * multiple of KV_BLOCK for such a sequence. Pages that do not fit memory or
 * budget are left out, and so are all pages after a page whose window layers
 * were released. With recurrent layers, pages after the last one with a
 * snapshot are left out, too (see kv_snapshot).
 * Returns 0; or, when the budget is too small for any of it, the bytes that the
 * shortest beginning takes that could be kept. */
size_t prefix_insert(struct prefix *p, size_t root, const int32_t *tokens,
                     size_t n, const struct kv_cache *kv);

/* The full pages of a path from the root to its end: tokens[0..n), n >=
 * KV_BLOCK, are the first tokens of kv. Returns 0 to mark the path as written,
 * 1 to end the walk, or -1. */
typedef int (*prefix_path_fn)(void *ctx, size_t root, const int32_t *tokens,
                              size_t n, const struct kv_cache *kv,
                              struct qwick_err *e);

/* Call fn for each path that was not marked yet, the most recently used first.
 * Ends before the pages of all paths, marked ones included, take more than
 * max_bytes. Returns -1 if memory is short or fn fails, otherwise 0. */
int prefix_each_path(struct prefix *p, size_t max_bytes, prefix_path_fn fn,
                     void *ctx, struct qwick_err *e);

/* Return the maximum bytes of the pages in the trie, and the bytes that they
 * have now. */
size_t prefix_budget(const struct prefix *p);
size_t prefix_bytes(const struct prefix *p);

/* Drop the least recently used pages until at most `bytes` are left. Sequences
 * keep the pages that they use. */
void prefix_shrink(struct prefix *p, size_t bytes);

#endif
