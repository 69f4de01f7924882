#include "base/proc_linux.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool proc_read_open(int fd, char *out, size_t size)
{
    size_t n = 0;
    ssize_t k;
    do {
        k = pread(fd, out + n, size - 1 - n, (off_t)n);
        n += k > 0 ? (size_t)k : 0;
    } while (n + 1 < size && (k > 0 || (k < 0 && errno == EINTR)));
    out[n] = '\0';
    return n > 0;
}

bool proc_read(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    out[0] = '\0';
    if (fd < 0)
        return false;
    bool ok = proc_read_open(fd, out, size);
    close(fd);
    return ok;
}

const char *proc_line(const char *text, const char *key)
{
    size_t n = strlen(key);
    while (strncmp(text, key, n) != 0) {
        text = strchr(text, '\n');
        if (!text)
            return NULL;
        text++;
    }
    return text + n;
}

/* Whether a comma-separated list has the word ("cpuset" is not "cpu"). */
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (;;) {
        size_t len = strcspn(list, ",");
        if (len == n && !memcmp(list, word, n))
            return true;
        if (!list[len])
            return false;
        list += len + 1;
    }
}

/* Path of this process's cgroup for a controller ("" is the unified one). */
static bool cgroup_path(const char *controller, char *out, size_t n)
{
    char text[PROC_BYTES], *rest = text, *line;
    proc_read("/proc/self/cgroup", text, sizeof text);
    while ((line = strsep(&rest, "\n"))) {
        char *list = strchr(line, ':');
        char *path = list ? strchr(list + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        if (!has_word(list + 1, controller))
            continue;
        int len = snprintf(out, n, "%s", strcmp(path, "/") ? path : "");
        return len >= 0 && (size_t)len < n;
    }
    return false;
}

void proc_each_cgroup(const char *root, const char *controller,
                      void (*visit)(void *ctx, const char *dir), void *ctx)
{
    char group[900];
    if (!cgroup_path(controller, group, sizeof group))
        return;
    for (;;) {
        char dir[1024];
        snprintf(dir, sizeof dir, "%s%s", root, group);
        visit(ctx, dir);
        char *slash = strrchr(group, '/');
        if (!slash)
            return;
        *slash = '\0';
    }
}

double proc_number(const char *text)
{
    char *end;
    double v = strtod(text, &end);
    return end == text ? NAN : v;
}
