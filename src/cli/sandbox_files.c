/* Landlock: which files the process may still open. Debian 12's headers know
 * its first version, and its C library has no functions for it. */
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"
#include "cli/sandbox_parts.h"
#include "file/save.h"

#define FS(name) LANDLOCK_ACCESS_FS_##name

/* Rights of later versions than the headers of Debian 12. */
enum {
    FS_REFER = 1 << 13,    /* version 2 */
    FS_TRUNCATE = 1 << 14, /* version 3 */
    FS_IOCTL_DEV = 1 << 15 /* version 5 */
};
enum { NET_ALL = 3 };   /* version 4: bind and connect by TCP */
enum { SCOPE_ALL = 3 }; /* version 6: abstract sockets and signals to others */

/* What a rule can allow on something that is not a directory. */
#define OF_FILES (FS(READ_FILE) | FS(WRITE_FILE) | FS_TRUNCATE)
#define RENAME  (FS(MAKE_REG) | FS(REMOVE_FILE))
#define REPLACE (RENAME | FS(WRITE_FILE) | FS_TRUNCATE | FS(READ_DIR))

static const struct sandbox_access accesses[] = {
    [OPT_NO_ACCESS] = {0, 0, false},
    [OPT_READS] = {CALLS_READ, FS(READ_FILE), false},
    [OPT_RENAMES] = {CALLS_NAMES, RENAME, true},
    [OPT_REPLACES] = {CALLS_WRITE | CALLS_NAMES, REPLACE, true},
    [OPT_REWRITES] = {CALLS_WRITE | CALLS_NAMES, REPLACE | FS(READ_FILE), true},
    [OPT_CACHES] = {CALLS_WRITE | CALLS_NAMES,
                    REPLACE | FS(READ_FILE) | FS(MAKE_DIR) | FS(REMOVE_DIR),
                    false},
    [OPT_KEEPS] = {CALLS_WRITE | CALLS_NAMES, REPLACE, true},
};

const struct sandbox_access *sandbox_access(enum opt_access access)
{
    return &accesses[access];
}

/* The rights that exist in a version. */
static uint64_t known_rights(int abi)
{
    return ((FS(MAKE_SYM) << 1) - 1) | (abi >= 2 ? FS_REFER : 0) |
           (abi >= 3 ? FS_TRUNCATE : 0) | (abi >= 5 ? FS_IOCTL_DEV : 0);
}

int sandbox_files_open(struct sandbox_files *f)
{
    struct {
        uint64_t fs, net, scoped;
    } all = {0, NET_ALL, SCOPE_ALL};
    *f = (struct sandbox_files){.ruleset = -1};
    f->abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0,
                          LANDLOCK_CREATE_RULESET_VERSION);
    if (f->abi < 1)
        return errno ? errno : ENOSYS;
    all.fs = known_rights(f->abi);
    size_t size = f->abi >= 6 ? 24 : f->abi >= 4 ? 16 : 8;
    f->ruleset = (int)syscall(SYS_landlock_create_ruleset, &all, size, 0);
    return f->ruleset < 0 ? errno : 0;
}

/* Create a missing directory, as the engine would later: a rule needs one. */
static void make_dir(const char *path)
{
    char *copy = strdup(path), *at = copy;
    while (copy && *at) {
        at += strspn(at, "/");
        at += strcspn(at, "/");
        char end = *at;
        *at = 0;
        (void)mkdir(copy, 0700);
        *at = end;
    }
    free(copy);
}

/* Open the file for a rule, or its directory if a file is made beside it; -1
 * with errno set. */
static int open_place(const struct sandbox_access *a, const char *path)
{
    struct qwick_err e = {0};
    int in_place = 0, fd = -1;
    if (!a->beside)
        return open(path, O_PATH | O_CLOEXEC);
    char *target = save_target(path, &in_place, &e);
    errno = e.code == QWICK_ERR_MEMORY ? ENOMEM : ENOENT;
    if (target) {
        char *slash = in_place ? NULL : strrchr(target, '/');
        if (slash)
            slash[1] = 0;
        fd = open(slash || in_place ? target : ".", O_PATH | O_CLOEXEC);
    }
    int why = errno;
    free(target);
    errno = why;
    return fd;
}

/* Whether there is no place for a rule: the verb will say so. Other failures
 * leave files unrestricted: an output whose rule is missing would be lost when
 * it gets its name. */
static bool is_missing(int why, const struct sandbox_access *a)
{
    return why == ENOENT || why == ENOTDIR || (why == EACCES && !a->beside);
}

int sandbox_files_add(struct sandbox_files *f, enum opt_access access,
                      const char *path)
{
    const struct sandbox_access *a = sandbox_access(access);
    struct stat st;
    if (access == OPT_CACHES)
        make_dir(path);
    int fd = open_place(a, path);
    if (fd < 0)
        return is_missing(errno, a) ? 0 : errno;
    struct landlock_path_beneath_attr rule = {
        .allowed_access = a->rights & known_rights(f->abi), .parent_fd = fd};
    bool is_dir = fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
    /* the user gave a directory as a file: the verb shall say so */
    if (access == OPT_READS && is_dir)
        rule.allowed_access = FS(READ_DIR);
    if (!is_dir)
        rule.allowed_access &= OF_FILES;
    if (!rule.allowed_access) { /* the kernel refuses an empty rule */
        close(fd);
        return 0;
    }
    long rc = syscall(SYS_landlock_add_rule, f->ruleset,
                      LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    int why = errno;
    close(fd);
    /* pipes have no name, and no rule restricts them */
    return rc && why != EBADFD ? why : 0;
}

void sandbox_files_restrict(void *ctx)
{
    struct sandbox_files *f = ctx;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        syscall(SYS_landlock_restrict_self, f->ruleset, 0))
        f->failed = errno;
}

void sandbox_files_close(struct sandbox_files *f)
{
    if (f->ruleset >= 0)
        close(f->ruleset);
    f->ruleset = -1;
}
