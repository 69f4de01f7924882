#include "cli/opt/aliases.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "cli/io/out.h"
#include "cli/opt/settings.h"
#include "cli/opt/verbs.h"
#include "file/fs.h"
#include "file/save.h"

/* ---- reading ------------------------------------------------------------ */

/* Refuse names that -m takes for a path or a name with a type, or that a line
 * of the file cannot hold. */
static int check_name(const char *name, struct qwick_err *e)
{
    size_t n = strlen(name);
    bool bad = n == 0 || strchr(".~-#[", *name) ||
               (n > 5 && strcmp(name + n - 5, ".gguf") == 0);
    for (size_t i = 0; i < n; i++)
        bad |= (unsigned char)name[i] <= ' ' || name[i] == 127 ||
               strchr("/:=\"", name[i]);
    return bad ? err_usage(e,
                           "\"%s\": cannot be the name of an alias: no blank, "
                           "no / : = and \", no . ~ - # or [ at its beginning, "
                           "no .gguf at its end",
                           ERR_SHOW(name, n))
               : 0;
}

/* Read one line, which is changed. */
static int read_line(struct aliases *a, char *line, size_t number,
                     struct qwick_err *e)
{
    struct qwick_err why;
    char *name, *model;
    int r = settings_split(line, &name, &model, &why);
    if (r > 0)
        return 0;
    if (!r)
        r = check_name(name, &why);
    if (!r && !*model)
        r = err_usage(&why, "%s: names no model", name);
    const struct alias *first = r ? NULL : aliases_find(a, name);
    if (first)
        r = err_usage(&why, "%s: is on line %zu as well", name, first->line);
    if (r)
        return err_set(e, why.code, "%s:%zu: %s", a->path, number, why.msg);
    if (ARRAY_RESERVE(a->v, a->cap, a->n + 1, e))
        return -1;
    a->v[a->n++] = (struct alias){name, model, number};
    return 0;
}

/* Read the lines of the text, which is changed. */
static int read_lines(struct aliases *a, struct qwick_err *e)
{
    size_t number = 0;
    for (char *line = a->text, *end; line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = 0;
        if (read_line(a, line, ++number, e))
            return -1;
    }
    return 0;
}

int aliases_read(struct aliases *a, struct qwick_err *e)
{
    struct buf path = {0};
    size_t n;
    *a = (struct aliases){0};
    if (settings_path(&path, "aliases"))
        return err_oom(e, 0);
    a->path = buf_take(&path, NULL);
    if (!a->path)
        return 0;
    return settings_read_file(a->path, &a->text, &n, e) || read_lines(a, e) ? -1
                                                                            : 0;
}

void aliases_free(struct aliases *a)
{
    free(a->path);
    free(a->text);
    free(a->v);
    *a = (struct aliases){0};
}

/* ---- finding ------------------------------------------------------------ */

const struct alias *aliases_find(const struct aliases *a, const char *name)
{
    for (size_t i = 0; i < a->n; i++)
        if (strcmp(a->v[i].name, name) == 0)
            return &a->v[i];
    return NULL;
}

/* The name of the alias that the user probably meant; NULL: none. */
static const char *aliases_near(const struct aliases *a, const char *word)
{
    const char *near = NULL;
    size_t least = strlen(word) > 2 ? 2 : 0;
    for (size_t i = 0; i < a->n; i++)
        word_nearest(word, a->v[i].name, &least, &near);
    return near;
}

static bool exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

int aliases_follow(const struct aliases *a, const char *name,
                   const char **model, struct qwick_err *e)
{
    const struct alias *at = NULL;
    *model = NULL;
    for (size_t i = 0; i <= a->n; i++) {
        const char *next = at ? at->model : name;
        const struct alias *to = aliases_find(a, next);
        if (!to) {
            *model = at ? at->model : NULL;
            return 0;
        }
        at = to;
    }
    return err_usage(e,
                     "%s:%zu: %s: this alias leads back to an alias before it",
                     a->path, at->line, at->name);
}

/* ---- writing ------------------------------------------------------------ */

/* Lock the directory of the file, until its descriptor *fd is closed. */
static int lock_dir(const char *path, int *fd, struct qwick_err *e)
{
    char *dir = strndup(path, (size_t)(strrchr(path, '/') - path));
    int rc = 0;
    if (!dir)
        return err_oom(e, strlen(path));
    *fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0 || (flock(*fd, LOCK_EX) && errno != ENOLCK))
        rc = err_errno(e, dir, "cannot be locked");
    free(dir);
    return rc;
}

/* Append the lines of the file, except line `drop`; 0: all. */
static int copy_lines(const struct aliases *a, size_t drop, struct buf *out,
                      struct qwick_err *e)
{
    struct qwick_err why;
    char *text;
    size_t n, number = 1;
    if (settings_read_file(a->path, &text, &n, &why))
        return err_set(e, why.code, "%s", why.msg);
    int bad = 0;
    for (char *s = text, *end; s && *s && !bad; s = end, number++) {
        size_t len = strcspn(s, "\n");
        end = s + len + (s[len] == '\n');
        if (number != drop)
            bad = buf_append(out, s, len) || buf_putc(out, '\n');
    }
    free(text);
    return bad ? err_oom(e, out->len) : 0;
}

/* The model as the file has it: a path becomes absolute. */
static char *lasting(const char *model)
{
    const char *home = getenv("HOME");
    char *path = NULL;
    if (strncmp(model, "~/", 2) == 0 && home)
        return asprintf(&path, "%s%s", home, model + 1) < 0 ? NULL : path;
    if (exists(model))
        return realpath(model, NULL);
    if (*model != '.') /* no path, or an absolute one */
        return strdup(model);
    char *dir = getcwd(NULL, 0);
    if (dir && asprintf(&path, "%s/%s", dir, model) < 0)
        path = NULL;
    free(dir);
    return path;
}

/* Refuse a model that is `name`, or an alias that leads to it. */
static int check_loop(const struct aliases *a, const char *name,
                      const char *model, struct qwick_err *e)
{
    const char *at = model;
    for (size_t i = 0; i <= a->n && at; i++) {
        if (strcmp(at, name) == 0)
            return err_usage(e,
                             "%s: would lead back to itself, as an alias of %s",
                             name, model);
        const struct alias *next = aliases_find(a, at);
        at = next ? next->model : NULL;
    }
    return 0;
}

/* Append the line of the alias. */
static int put_alias(const struct aliases *a, const char *name,
                     const char *model, struct buf *out, struct qwick_err *e)
{
    char *value = lasting(model);
    if (!value)
        return errno == ENOMEM ? err_oom(e, strlen(model))
                               : err_errno(e, model, "cannot be resolved");
    int rc = check_loop(a, name, value, e);
    if (!rc && (buf_printf(out, "%s = ", name) || buf_json_cstr(out, value) ||
                buf_putc(out, '\n')))
        rc = err_oom(e, out->len);
    free(value);
    return rc;
}

/* Change the file, whose directory is locked. */
static int alias_change(const char *name, const char *model,
                        struct qwick_err *e)
{
    struct aliases a;
    struct buf text = {0};
    int rc = aliases_read(&a, e);
    const struct alias *old = rc ? NULL : aliases_find(&a, name);
    if (!rc && !old && !model) {
        const char *near = aliases_near(&a, name);
        rc = err_usage(e, "%s: %s: no such alias%s%s", a.path, name,
                       DID_YOU_MEAN(near));
    }
    if (!rc)
        rc = copy_lines(&a, old ? old->line : 0, &text, e) ||
             (model && put_alias(&a, name, model, &text, e));
    if (!rc)
        rc = save_put(a.path, SAVE_SHARED, text.data, text.len, e);
    buf_free(&text);
    aliases_free(&a);
    return rc ? -1 : 0;
}

int aliases_set(const char *name, const char *model, struct qwick_err *e)
{
    struct buf path = {0};
    int fd = -1, rc = -1;
    if (check_name(name, e))
        return -1;
    if (settings_path(&path, "aliases"))
        err_oom(e, 0);
    else if (!path.len)
        err_usage(e, "there is no place for aliases: HOME is not set");
    else if (!(model && make_dirs(path.data, dir_length(path.data), 0777, e)) &&
             !lock_dir(path.data, &fd, e))
        rc = alias_change(name, model, e);
    if (fd >= 0)
        close(fd);
    buf_free(&path);
    return rc;
}
