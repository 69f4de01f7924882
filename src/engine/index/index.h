/* An index of vectors: its files, and its state in memory. qwick_tools.h has
 * the functions, docs/formats.md the files.
 *
 * index.json is the commit record. It says how many bytes of each other file
 * belong to the index. It is replaced in one step, after these bytes are on the
 * disk. Bytes that follow them are of a writer that works or has crashed: they
 * are ignored, and the next writer drops them. No byte of the index changes
 * later, so a reader needs no lock. */
#ifndef ENGINE_INDEX_H
#define ENGINE_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/hashmap.h"
#include "file/map.h"
#include "qwick_tools.h"

struct par_pool;

#define INDEX_MANIFEST "index.json"

enum { INDEX_VERSION = 1, INDEX_MAX_DIM = 1 << 20 };

/* Rows are indices of a hash table. */
#define INDEX_MAX_ROWS ((size_t)INT32_MAX - 1)

enum index_file {
    INDEX_VECTORS, /* f32 or f16 [n_rows, dim] */
    INDEX_OFFSETS, /* u64 [n_rows, 2]: ends of the row's id and text */
    INDEX_IDS,     /* bytes */
    INDEX_TEXTS,   /* bytes */
    INDEX_DEAD,    /* u64 [n_dead]: rows, in any order */
    INDEX_FILES
};

struct qwick_index {
    char *dir;
    struct qwick_index_info info; /* its texts are ours */
    size_t n_rows;                /* committed rows */
    size_t sizes[INDEX_FILES];    /* committed bytes */
    struct map maps[INDEX_FILES]; /* writers map no vectors */
    uint64_t *dead;               /* a bit for each row of info.n_rows */
    size_t cap_dead;              /* words */

    struct hashmap by_id; /* of rows that were not dead when it was made */
    size_t cap_ids;       /* its room; 0: it is not made */
    uint64_t seed;

    bool writes;
    int fds[INDEX_FILES];          /* of a writer, else -1 */
    struct buf added[INDEX_FILES]; /* bytes that are not committed */
    struct par_pool *pool;         /* of searches without an engine */
};

/* Return the name of a file of the index. */
const char *index_name(const struct qwick_index_info *info, enum index_file f);
/* Return the path of a file in the index, malloc'ed; NULL with *e set. */
char *index_path(const struct qwick_index *ix, const char *name,
                 struct qwick_err *e);
/* Set *e to QWICK_ERR_RUNTIME: "DIR/NAME: …". Returns -1. */
int index_bad(const struct qwick_index *ix, const char *name,
              struct qwick_err *e, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Return the bytes of a number of a vector. */
static inline size_t index_number_bytes(const struct qwick_index_info *info)
{
    return info->f16 ? 2 : 4;
}

static inline bool index_is_dead(const struct qwick_index *ix, size_t row)
{
    return ix->dead[row / 64] >> row % 64 & 1;
}
/* Make room for the bits of n_rows rows. */
int index_room_dead(struct qwick_index *ix, size_t n_rows, struct qwick_err *e);

/* Map a file of the index. */
int index_map_file(const struct qwick_index *ix, const char *name,
                   struct map *m, struct qwick_err *e);

/* Read and check the manifest, and set info, n_rows and sizes. *found: there is
 * one. */
int index_read_manifest(struct qwick_index *ix, bool *found,
                        struct qwick_err *e);
/* Replace the manifest by one that counts all rows, added ones too. */
int index_write_manifest(const struct qwick_index *ix, struct qwick_err *e);
/* Set info to copies of the texts of *from. */
int index_copy_info(struct qwick_index_info *info,
                    const struct qwick_index_info *from, struct qwick_err *e);

/* Allocate the index of a directory. */
struct qwick_index *index_new(const char *dir, struct qwick_err *e);
/* Set the bits of dead rows from the mapped file. */
int index_read_dead(struct qwick_index *ix, struct qwick_err *e);
/* Map the committed bytes of files [from, INDEX_FILES), and check them. */
int index_map(struct qwick_index *ix, enum index_file from,
              struct qwick_err *e);

#endif
