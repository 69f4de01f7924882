/* A temporary directory for a test, and files in it. */
#ifndef TEST_TEMPDIR_H
#define TEST_TEMPDIR_H

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

static char temp_dir[64];

static inline int temp_setup(void **state)
{
    snprintf(temp_dir, sizeof temp_dir, "/tmp/qwick-test-XXXXXX");
    return mkdtemp(temp_dir) ? 0 : -1;
}

static inline int temp_remove_one(const char *path, const struct stat *st,
                                  int type, struct FTW *at)
{
    (void)st;
    (void)type;
    if (at->level > 0)
        remove(path); /* a remaining file makes the teardown's rmdir fail */
    return 0;
}

static inline void temp_clear(void)
{
    assert_int_equal(nftw(temp_dir, temp_remove_one, 16, FTW_DEPTH | FTW_PHYS),
                     0);
}

static inline int temp_teardown(void **state)
{
    temp_clear();
    return rmdir(temp_dir);
}

/* A setup that empties temp_dir, for each test of a group. */
static inline int fresh(void **state)
{
    temp_clear();
    return 0;
}

/* The path of a file in temp_dir. The last four results stay valid. */
static inline const char *temp_path(const char *name)
{
    static char p[4][1024];
    static int i;
    i = (i + 1) % 4;
    snprintf(p[i], sizeof p[i], "%s/%s", temp_dir, name);
    return p[i];
}

/* Remove a directory and everything in it. */
static inline void remove_tree(const char *path)
{
    (void)nftw(path, temp_remove_one, 16, FTW_DEPTH | FTW_PHYS);
    (void)rmdir(path);
}

/* Count the entries of a directory that are not hidden. */
static inline size_t entries(const char *path)
{
    size_t n = 0;
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *f; (f = readdir(d)) != NULL;)
        n += f->d_name[0] != '.';
    closedir(d);
    return n;
}

static inline bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static inline void put_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Make the directories of a path in temp_dir, then the file. text NULL: only
 * the directories. */
static inline void temp_put(const char *name, const char *text)
{
    char p[1024];
    snprintf(p, sizeof p, "%s", temp_path(name));
    for (char *s = p + strlen(temp_dir) + 1; (s = strchr(s, '/')) != NULL;
         s++) {
        *s = '\0';
        mkdir(p, 0700);
        *s = '/';
    }
    if (text)
        put_file(p, text, strlen(text));
}

static inline void temp_write(const char *name, const void *data, size_t n)
{
    put_file(temp_path(name), data, n);
}

static inline void temp_remove(const char *name)
{
    (void)unlink(temp_path(name));
}

#endif
