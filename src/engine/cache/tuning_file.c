#include "engine/cache/tuning_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/rng.h"
#include "file/fs.h"
#include "file/save.h"
#include "qwick.h"

/* A file of another length is damaged. */
enum { MAX_BYTES = 1024, DATE = 10 };
#define NAME "tuning-1-"

/* ---- text --------------------------------------------------------------- */

/* The lines that say where the choices hold. */
static int put_head(struct buf *b)
{
    char cpu[64];
    core_cpu_text(cpu, sizeof cpu);
    int bad = buf_printf(b, "qwick tuning 1\nversion %s\n", QWICK_VERSION);
    bad |= buf_printf(b, "cpu %s\nkernels %s\n", cpu, kernels_best()->name);
    return bad ? -1 : 0;
}

static int put_text(struct buf *b, const struct tuning *t)
{
    const struct core_knob *k;
    int bad = put_head(b);
    bad |= buf_printf(b, "date %.*s\n", DATE, t->date);
    for (size_t i = 0; (k = tuning_probed(i)) != NULL; i++)
        bad |= buf_printf(b, "%s %" PRIu32 "\n", k->name,
                          core_get(&t->choices, k));
    if (bad)
        return -1;
    return buf_printf(b, "sum %016" PRIx64 "\n",
                      hash_bytes(1, b->data, b->len));
}

/* Return what follows the line "NAME VALUE"; NULL: it is another line. */
static const char *skip_name(const char *p, const char *name)
{
    size_t n = strlen(name);
    return p && !strncmp(p, name, n) && p[n] == ' ' ? p + n + 1 : NULL;
}

static bool is_variant(const struct core_knob *k, unsigned long v)
{
    for (size_t i = 0; i < k->n_variants; i++)
        if (k->variants[i] == v)
            return true;
    return false;
}

static bool is_date(const char *p)
{
    for (size_t i = 0; i < DATE; i++)
        if (i == 4 || i == 7 ? p[i] != '-' : p[i] < '0' || p[i] > '9')
            return false;
    return true;
}

/* Read date and choices. The caller compares the whole text afterwards, so this
 * need not find what is wrong. */
static bool parse(struct tuning *t, const char *p)
{
    const struct core_knob *k;
    if (!(p = skip_name(p, "date")) || !is_date(p))
        return false;
    snprintf(t->date, sizeof t->date, "%.*s", DATE, p);
    p += DATE;
    for (size_t i = 0; (k = tuning_probed(i)) != NULL; i++) {
        char *end;
        if (*p++ != '\n' || !(p = skip_name(p, k->name)))
            return false;
        unsigned long v = strtoul(p, &end, 10);
        if (!is_variant(k, v))
            return false;
        core_set(&t->choices, k, (uint32_t)v);
        p = end;
    }
    return true;
}

/* ---- names -------------------------------------------------------------- */

static size_t count_hex(const char *s)
{
    return strspn(s, "0123456789abcdef");
}

bool tuning_file_name(const char *name, bool *temporary)
{
    const size_t n = strlen(NAME);
    *temporary = false;
    if (strncmp(name, NAME, n) != 0 || count_hex(name + n) != 16 ||
        strncmp(name + n + 16, ".txt", 4) != 0)
        return false;
    name += n + 20;
    *temporary = *name != 0;
    return !*name || (!strncmp(name, ".tmp-", 5) && count_hex(name + 5) == 16 &&
                      !name[21]);
}

/* NULL: out of memory. */
static char *file_path(const char *dir, const struct buf *head)
{
    char *path;
    uint64_t hash = hash_bytes(2, head->data, head->len);
    return asprintf(&path, "%s/" NAME "%016" PRIx64 ".txt", dir, hash) < 0
               ? NULL
               : path;
}

/* ---- files -------------------------------------------------------------- */

/* Read a file into text, a string. Returns -1 if it cannot be trusted. */
static int read_text(char text[MAX_BYTES], const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t n = -1;
    if (fd < 0)
        return -1;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) &&
        !owner_check(&st, path, S_IWGRP | S_IWOTH, NULL))
        n = read(fd, text, MAX_BYTES - 1);
    close(fd);
    if (n < 0)
        return -1;
    text[n] = 0;
    return strlen(text) == (size_t)n ? 0 : -1;
}

bool tuning_file_read(struct tuning *t, const char *dir)
{
    struct tuning got = *t;
    struct buf head = {0}, again = {0};
    char text[MAX_BYTES], *path = NULL;
    bool ok = !owner_check_dir(dir, false, NULL) && !put_head(&head) &&
              (path = file_path(dir, &head)) != NULL &&
              !read_text(text, path) &&
              !strncmp(text, head.data, head.len) &&
              parse(&got, text + head.len) && !put_text(&again, &got) &&
              !strcmp(text, again.data);
    if (ok)
        *t = got;
    free(path);
    buf_free(&head);
    buf_free(&again);
    return ok;
}

int tuning_file_write(const struct tuning *t, const char *dir,
                      struct qwick_err *e)
{
    struct buf head = {0}, text = {0};
    char *path = NULL;
    int rc;
    if (make_dirs(dir, strlen(dir), 0700, e) || owner_check_dir(dir, false, e))
        return -1;
    if (put_head(&head) || put_text(&text, t) ||
        !(path = file_path(dir, &head)))
        rc = err_oom(e, MAX_BYTES);
    else
        rc = save_put(path, SAVE_PRIVATE, text.data, text.len, e);
    free(path);
    buf_free(&head);
    buf_free(&text);
    return rc;
}
