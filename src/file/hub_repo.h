/* A repository of the Hugging Face cache, locked for a removal, and walks over
 * it that follow no links. For hub_remove.c and hub_plan.c. */
#ifndef FILE_HUB_REPO_H
#define FILE_HUB_REPO_H

#include <limits.h>
#include <sys/stat.h>

#include "file/hub_remove.h"

struct hub_removal {
    const struct hub_target *t;
    int fd;      /* of the repository, locked */
    bool entire; /* remove whole snapshots: one, or all */
    size_t freed;
};

/* A set of names. */
struct hub_names {
    char **v; /* [n] */
    size_t n, cap;
};

bool hub_names_have(const struct hub_names *l, const char *name);
int hub_names_add(struct hub_names *l, const char *name, struct qwick_err *e);
void hub_names_free(struct hub_names *l);

/* Set *e as err_errno does, for a path in the repository. */
int hub_err_in(const struct hub_removal *r, const char *path, const char *what,
               struct qwick_err *e);

/* An entry that a walk has found; `path` is relative to the repository. */
struct hub_entry {
    int dir;
    const char *name, *path;
    struct stat st;
};

struct hub_walk {
    struct hub_removal *r;
    /* Called for each file and link and, with dirs, for each directory after
     * its entries. */
    int (*fn)(struct hub_walk *w, const struct hub_entry *f);
    bool dirs;
    struct hub_names *names;
    size_t n_files, n_bytes;
    struct qwick_err *e;
};

/* Walk over the entries below a directory of the repository ("": all of it), or
 * over one entry of the repository and those below it. A missing directory or
 * entry is empty. Return 0, or the result of fn that was not 0, or -1 with
 * *w->e set. */
int hub_walk_below(struct hub_walk *w, const char *path);
int hub_walk_top(struct hub_walk *w, const char *name);

/* Add the names of a directory's entries, and of the directories that removals
 * have left in the repository. */
int hub_list_dir(struct hub_removal *r, const char *path, struct hub_names *out,
                 struct qwick_err *e);
int hub_list_leftovers(struct hub_removal *r, struct hub_names *out,
                       struct qwick_err *e);
#define HUB_LEFTOVER ".removed-"

/* Set *last: the repository has no snapshot besides `except` (may be NULL). */
int hub_is_last(struct hub_removal *r, const char *except, bool *last,
                struct qwick_err *e);

/* Find the blob that a link names: "../../blobs/NAME". False: another place. */
bool hub_blob_of(const struct hub_entry *f, char out[PATH_MAX]);

/* The last part of the path that a link has: the blob that it keeps, if it
 * leads to one, in whatever way its path says so. False: it is no link. */
bool hub_link_name(const struct hub_entry *f, char out[PATH_MAX]);

/* The bytes that deleting an entry, or a blob, frees: none while it has another
 * name. References do not count. */
size_t hub_bytes_below(const struct hub_entry *f);
size_t hub_blob_bytes(const struct hub_removal *r, const char *name);

/* For walks: add the blobs of links to w->names, and count all files, and the
 * bytes of files that are not links. */
int hub_collect(struct hub_walk *w, const struct hub_entry *f);

/* Lock the repository. */
int hub_open_repo(struct hub_removal *r, struct qwick_err *e);

/* Count what would go, and set r->entire. */
int hub_plan(struct hub_removal *r, size_t *n_files, size_t *n_bytes,
             struct qwick_err *e);

#endif
