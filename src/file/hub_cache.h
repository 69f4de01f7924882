/* The local Hugging Face cache. A repository ORG/NAME is a directory
 * models--ORG--NAME, which holds
 *   refs/REVISION     a file with the name of a snapshot
 *   snapshots/HASH/   links to files in blobs
 *   blobs/            the files; unfinished downloads end in ".incomplete" */
#ifndef FILE_HUB_CACHE_H
#define FILE_HUB_CACHE_H

#include <stdbool.h>

#include "base/err.h"
#include "file/fs.h"

struct buf;

/* What messages call it. */
#define HUB_TITLE "the Hugging Face cache"

/* The directories where a cache may be, in the order of the search. */
enum { HUB_N_PLACES = 4 };
extern const struct place hub_places[HUB_N_PLACES];

/* The result of a search for a hub id. */
struct hub_found {
    bool is_id;           /* the text is "name" or "org/name", with or without
                             "@revision" */
    bool has_org;         /* there is a slash before the revision */
    bool other_revision;  /* the repository is here without this revision */
    const char *revision; /* as in the text, or "main"; borrowed */
    char *dir;            /* the snapshot, malloc'ed; NULL: not here */
};

/* Search all caches for spec. Does nothing if the text is not a hub id. Returns
 * 0, or -1 with *e set: a cache is inconsistent, or memory ran out. */
int hub_find(struct hub_found *out, const char *spec, struct qwick_err *e);

/* Read the name of a snapshot from the file of a revision at path. *name is
 * empty if there is no such file. */
int hub_read_ref(const char *path, struct buf *name, struct qwick_err *e);

#endif
