/* Files that hold tokens with their keys and values, and with the state of
 * recurrent layers: saved sessions, and the entries of the prefix cache.
 *
 *     struct kv_file_head   versioned, with a hash of itself
 *     i32 tokens  [n_tokens]
 *     u64 marks   [n_states]      numbers of the pages that carry a snapshot
 *     u64 hashes  [n_pages + n_states + (live_bytes ? 1 : 0)]
 *                                 of each part after the zeros, seeded by its
 *                                 number
 *     f32 logits  [n_logits]
 *     note        [n_note]        bytes of the program, see qwick_session_note
 *     zeros up to a multiple of KV_FILE_ALIGN
 *     pages       [n_pages][page_bytes]
 *     snapshots   [n_states][state_bytes]
 *     live state  [live_bytes]    of sessions, see state_pack
 *
 * Little-endian. The head's table_hash covers tokens, marks, hashes, logits and
 * note, so every byte that is used is covered by a hash. The hashes find damage,
 * not attacks. Against attacks, files that another user could have written are
 * refused. */
#ifndef ENGINE_KV_FILE_H
#define ENGINE_KV_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"
#include "engine/core/engine.h"

enum { KV_FILE_VERSION = 4, KV_FILE_ALIGN = 4096 };
enum kv_file_kind { KV_FILE_SESSION = 1, KV_FILE_PREFIX = 2 };

struct kv_file_head {
    char magic[8]; /* "qwick-kv" */
    uint32_t version, kind;
    /* how the numbers in the pages were computed */
    uint64_t model[2], files; /* struct fingerprint */
    uint64_t contents;        /* engine_contents; prefixes: 0 */
    uint64_t n_layers, n_kv_heads, head_dim; /* of struct config; model covers
                                                layers with other ones */
    uint64_t page_bytes;
    uint64_t state_bytes;  /* of a snapshot; 0: no recurrent layers */
    uint32_t exact, block; /* --exact, KV_BLOCK */
    char kv[8], isa[16];   /* "f16", "avx512" */
    char model_name[96];   /* for messages; long names are cut */
    /* the file's contents */
    uint64_t n_tokens;            /* from the start of the context */
    uint64_t first_page, n_pages; /* in sessions: 0 and all pages */
    uint64_t n_logits;            /* 0 or vocab_size */
    uint64_t n_note;              /* bytes; prefixes: 0 */
    uint64_t n_states;            /* snapshots */
    uint64_t live_bytes;          /* 0: no live state */
    uint64_t n_bytes;             /* size of the file */
    uint64_t table_hash, head_hash;
};

/* Fill in the fields that describe the engine, its adapter (adapter + 1, or 0)
 * and the kind, and set all other fields to zero. */
int kv_file_describe(struct kv_file_head *h, struct qwick_engine *eng,
                     size_t lora, enum kv_file_kind kind, struct qwick_err *e);

/* Write a file to path. It is written and synced under another name in the same
 * directory and then renamed, so path never names an incomplete file. Only the
 * owner may read it. A symbolic link at path is refused, because another user
 * may have put it there. head comes from kv_file_describe; the caller sets
 * n_tokens, first_page, n_logits and n_note. Only the used positions of the
 * last page are written, and the snapshots of full pages. A session's file gets
 * the last KV_SNAPSHOTS_FORWARD of them, and the live state if kv holds it.
 * time: of the file's contents; NULL: now. QWICK_ERR_RUNTIME names the path. */
int kv_file_write(const char *path, struct kv_file_head *head,
                  const int32_t *tokens, const float *logits, const char *note,
                  const struct kv_cache *kv, const struct timespec *time,
                  struct qwick_err *e);

/* Check that a session may be written to path: it names nothing, an empty file,
 * or a session of any version. QWICK_ERR_USAGE if it is another regular file;
 * kv_file_write refuses what is not regular. */
int kv_file_check_target(const char *path, struct qwick_err *e);

struct kv_file {
    int fd;
    char *path;
    struct kv_file_head head;
    int32_t *tokens;
    float *logits; /* NULL: none */
    char *note;    /* [head.n_note]; NULL: none */
    uint64_t *marks, *hashes;
    size_t data_at;
};

/* Why a file could not be used. UNREADABLE (out of memory, a failed read, no
 * permission): the file may be good. DAMAGED: it is not good. */
enum kv_file_fault { KV_FILE_MISSING, KV_FILE_UNREADABLE, KV_FILE_DAMAGED };

/* Open a file and check everything except the pages: sizes, hashes, and that
 * numbers agree with each other. use: the caller will use the keys and values,
 * so a file that another user could have written is refused
 * (KV_FILE_UNREADABLE). Without use, any readable file is accepted. On failure
 * *e is QWICK_ERR_RUNTIME, and *fault (fault may be NULL) says what kind of
 * failure it was. */
int kv_file_open(struct kv_file *f, const char *path, enum kv_file_kind kind,
                 bool use, enum kv_file_fault *fault, struct qwick_err *e);
void kv_file_close(struct kv_file *f);

/* Whether page i of the file carries a snapshot. */
bool kv_file_has_state(const struct kv_file *f, size_t i);

/* Read pages [i, i + n) of the file into pages, each of the file's page_bytes,
 * and check them, on the threads of the pool. The caller has given memory for
 * snapshots (state_snapshot_new) to pages whose snapshot it wants; the file
 * must carry these. Pages are read, not mapped, so that a later change of the
 * file cannot change checked data. Returns the number of good pages before the
 * first bad page. If it is less than n, *fault (fault may be NULL) and *e are
 * set. Stops with QWICK_ERR_INTERRUPTED when *interrupt (NULL: never) becomes
 * nonzero. */
size_t kv_file_pages(const struct kv_file *f, size_t i, size_t n,
                     struct kv_page *const *pages, struct par_pool *pool,
                     const volatile int *interrupt, enum kv_file_fault *fault,
                     struct qwick_err *e);

/* Read the live state, of live_bytes, and check it. QWICK_ERR_RUNTIME. */
int kv_file_live(const struct kv_file *f, float *packed, struct qwick_err *e);

#endif
