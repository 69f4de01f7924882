/* Where a model is, and the files that opening it reads: for programs that give
 * up the right to open other files before they parse these. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "file/checkpoint.h"
#include "file/find_model.h"
#include "file/fs.h"
#include "file/gguf_pick.h"
#include "qwick.h"

char *qwick_model_same_name(const char *spec)
{
    return find_model_same_name(spec);
}

int qwick_model_find(char **place, const char *spec, bool is_name,
                     struct qwick_err *e)
{
    const char *type;
    char *path;
    *place = NULL;
    if (checkpoint_check_name(spec, e) ||
        find_model(&path, &type, spec, is_name, e))
        return -1;
    if (!type) {
        *place = path;
        return 0;
    }
    if (asprintf(place, "%s:%s", path, type) < 0)
        *place = NULL;
    free(path);
    return *place ? 0 : err_oom(e, strlen(spec));
}

/* A walk over the files of a model. */
struct walk {
    int (*fn)(void *ctx, const char *path, bool is_dir);
    void *ctx;
    struct qwick_err *e;
};

/* Ends of names that checkpoints have. A directory may hold other files of the
 * user, above all if it is the home directory. */
static bool is_part(const char *name)
{
    static const char *const ends[] = {".json",  ".safetensors", ".gguf",
                                       ".jinja", ".md",          ".txt",
                                       ".model", "LICENSE",      "NOTICE"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_in(name, ends[i]))
            return true;
    return false;
}

/* The files in a directory, and if `below` also in those in it. */
static int walk_dir(const struct walk *w, const char *dir, bool below)
{
    struct dir_list list;
    int rc = 0;
    if (dir_list_read(&list, dir, below ? SIZE_MAX : GGUF_MAX_BELOW, w->e))
        return w->e && w->e->code == QWICK_ERR_MEMORY ? -1 : 0;
    for (size_t i = 0; i < list.n && !rc; i++) {
        const struct dir_entry *f = &list.v[i];
        char *path;
        if (f->is_dir ? !below : !is_part(f->name))
            continue;
        if (asprintf(&path, "%s/%s", dir, f->name) < 0) {
            rc = err_oom(w->e, strlen(dir) + strlen(f->name) + 2);
            break;
        }
        rc = f->is_dir ? walk_dir(w, path, false) : w->fn(w->ctx, path, false);
        free(path);
    }
    dir_list_free(&list);
    return rc;
}

/* A GGUF file, and the other parts if it is split. */
static int walk_file(const struct walk *w, const char *path)
{
    size_t size = strlen(path) + 16;
    char *part = malloc(size);
    struct stat st;
    int rc = part ? w->fn(w->ctx, path, false) : err_oom(w->e, size);
    for (size_t i = 1;
         !rc && gguf_part_name(part, size, path, i) && stat(part, &st) == 0;
         i++)
        rc = w->fn(w->ctx, part, false);
    free(part);
    return rc;
}

int qwick_model_files(const char *place,
                      int (*fn)(void *ctx, const char *path, bool is_dir),
                      void *ctx, struct qwick_err *e)
{
    const struct walk w = {fn, ctx, e};
    const char *type;
    char *path;
    struct stat st;
    if (find_model(&path, &type, place, false, e))
        return -1;
    int rc;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        rc = fn(ctx, path, true) || walk_dir(&w, path, true) ? -1 : 0;
    else
        rc = walk_file(&w, path);
    free(path);
    return rc;
}
