#include "file/dir_list.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"

bool ends_in(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static int by_name(const void *a, const void *b)
{
    const struct dir_entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* The type in the entry saves a call of stat for most files. */
static bool is_directory(DIR *d, const struct dirent *ent)
{
    struct stat st;
    if (ent->d_type != DT_LNK && ent->d_type != DT_UNKNOWN)
        return ent->d_type == DT_DIR;
    return fstatat(dirfd(d), ent->d_name, &st, 0) == 0 && S_ISDIR(st.st_mode);
}

static int add(struct dir_list *l, DIR *d, const struct dirent *ent,
               struct qwick_err *e)
{
    if (ARRAY_RESERVE(l->v, l->cap, l->n + 1, e))
        return -1;
    char *name = strdup(ent->d_name);
    if (!name)
        return err_oom(e, strlen(ent->d_name) + 1);
    l->v[l->n++] = (struct dir_entry){name, is_directory(d, ent)};
    return 0;
}

int dir_list_fail(const char *path, int err, int code, struct qwick_err *e)
{
    err_set(e, err == ENOMEM ? QWICK_ERR_MEMORY : code, "%s: cannot list: %s",
            path, strerror(err));
    errno = err;
    return -1;
}

int dir_list_read(struct dir_list *l, const char *path, size_t max,
                  struct qwick_err *e)
{
    *l = (struct dir_list){0};
    DIR *d = opendir(path);
    struct dirent *ent;
    int rc = 0, err = errno;
    if (!d)
        return dir_list_fail(path, err, QWICK_ERR_MODEL, e);
    while (!rc && l->n < max && (errno = 0, ent = readdir(d)) != NULL)
        if (ent->d_name[0] != '.')
            rc = add(l, d, ent, e);
    err = rc ? 0 : errno;
    closedir(d);
    if (err && l->n < max)
        rc = dir_list_fail(path, err, QWICK_ERR_MODEL, e);
    if (rc) {
        dir_list_free(l);
        errno = err;
        return -1;
    }
    if (l->n)
        qsort(l->v, l->n, sizeof *l->v, by_name);
    return 0;
}

void dir_list_free(struct dir_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->v[i].name);
    free(l->v);
    *l = (struct dir_list){0};
}

bool dir_list_has(const struct dir_list *l, const char *name)
{
    const struct dir_entry want = {.name = (char *)name};
    return l->n && bsearch(&want, l->v, l->n, sizeof *l->v, by_name);
}
