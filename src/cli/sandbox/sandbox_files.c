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
#include "cli/sandbox/sandbox_parts.h"
#include "file/fs.h"
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
#define RENAME   (FS(MAKE_REG) | FS(REMOVE_FILE))
#define REPLACE  (RENAME | FS(WRITE_FILE) | FS_TRUNCATE | FS(READ_DIR))

#define REWRITE (REPLACE | FS(READ_FILE))
/* SQLite opens its journal for each change, and never removes it */
#define JOURNAL                                                   \
    (FS(READ_FILE) | FS(WRITE_FILE) | FS_TRUNCATE | FS(MAKE_REG) | \
     FS(READ_DIR))
#define DIRS    (REPLACE | FS(MAKE_DIR) | FS(REMOVE_DIR))

static const struct sandbox_access accesses[] = {
    [OPT_NO_ACCESS] = {false, 0, 0, 0},
    [OPT_LOADS] = {false, FS(READ_FILE), 0, 0},
    [OPT_MODEL] = {false, 0, 0, 0}, /* its files are several */
    [OPT_OPENS] = {true, REPLACE, 0, 0},
    [OPT_READS] = {false, FS(READ_FILE), FS(READ_FILE), CALLS_READ},
    [OPT_REREADS] = {true, FS(READ_FILE), FS(READ_FILE), CALLS_READ},
    [OPT_RENAMES] = {true, REWRITE, RENAME, CALLS_NAMES},
    [OPT_REPLACES] = {true, REPLACE, REPLACE, CALLS_WRITE | CALLS_NAMES},
    [OPT_REWRITES] = {true, REWRITE, REWRITE, CALLS_WRITE | CALLS_NAMES},
    [OPT_CACHES] = {false, DIRS | FS(READ_FILE), DIRS | FS(READ_FILE),
                    CALLS_WRITE | CALLS_NAMES},
    [OPT_INDEXES] = {false, REWRITE, REWRITE, CALLS_WRITE | CALLS_NAMES},
    [OPT_MAKES] = {true, DIRS | FS_REFER, 0, 0},
    [OPT_KEEPS] = {true, REWRITE, REPLACE, CALLS_WRITE | CALLS_NAMES},
    [OPT_LOGS] = {true, JOURNAL, JOURNAL, CALLS_WRITE | CALLS_LOCK},
    [OPT_LISTENS] = {false, 0, 0, CALLS_SERVE},
    [OPT_UNLINKS] = {true, FS(REMOVE_FILE), FS(REMOVE_FILE), CALLS_UNLINK},
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

int sandbox_files_open(struct sandbox_files *f, bool early)
{
    struct {
        uint64_t fs, net, scoped;
    } all = {0, NET_ALL, SCOPE_ALL};
    *f = (struct sandbox_files){.ruleset = -1, .early = early};
    f->abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0,
                          LANDLOCK_CREATE_RULESET_VERSION);
    if (f->abi < 1)
        return errno ? errno : ENOSYS;
    all.fs = known_rights(f->abi);
    size_t size = f->abi >= 6 ? 24 : f->abi >= 4 ? 16 : 8;
    f->ruleset = (int)syscall(SYS_landlock_create_ruleset, &all, size, 0);
    return f->ruleset < 0 ? errno : 0;
}

/* Where a directory, a file or a socket is made, malloc'ed: without links, if
 * it exists, and slashes at its end. */
static char *made_at(const char *path, struct qwick_err *e)
{
    char *at = realpath(path, NULL);
    if (!at)
        at = strdup(path);
    if (!at)
        err_oom(e, strlen(path));
    for (size_t n = at ? strlen(at) : 0; n > 1 && at[n - 1] == '/';)
        at[--n] = 0;
    return at;
}

/* Open the file for a rule, or its directory if a file is made beside it; -1
 * with errno set. */
static int open_place(enum opt_access access, const char *path)
{
    const struct sandbox_access *a = sandbox_access(access);
    struct qwick_err e = {0};
    int in_place = 0, fd = -1;
    char *target;
    if (!a->beside)
        return open(path, O_PATH | O_CLOEXEC);
    target = access == OPT_MAKES || access == OPT_UNLINKS
                 ? made_at(path, &e)
                 : save_target(path, &in_place, &e);
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
    return why == ENOENT || why == ENOTDIR || why == ENAMETOOLONG ||
           (why == EACCES && !a->beside);
}

/* Add a rule for an open file or directory, and close it. */
static int add_rule(const struct sandbox_files *f, int fd, uint64_t rights,
                    bool is_dir)
{
    struct landlock_path_beneath_attr rule = {
        .allowed_access = rights & known_rights(f->abi), .parent_fd = fd};
    if (!is_dir)
        rule.allowed_access &= OF_FILES;
    /* the kernel refuses an empty rule */
    long rc = rule.allowed_access
                  ? syscall(SYS_landlock_add_rule, f->ruleset,
                            LANDLOCK_RULE_PATH_BENEATH, &rule, 0)
                  : 0;
    int why = errno;
    close(fd);
    /* pipes have no name, and no rule restricts them */
    return rc && why != EBADFD ? why : 0;
}

static bool is_dir_at(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
}

int sandbox_files_add(struct sandbox_files *f, enum opt_access access,
                      const char *path)
{
    const struct sandbox_access *a = sandbox_access(access);
    uint64_t rights = f->early ? a->early : a->rights;
    int why;
    if (!rights)
        return 0;
    /* a file is made in a directory of its own and then leaves it */
    if (access == OPT_MAKES && f->abi < 2)
        return ENOSYS;
    /* as the engine would later: a rule needs a directory */
    if (access == OPT_CACHES)
        (void)make_dirs(path, strlen(path), 0700, NULL);
    int fd = open_place(access, path);
    if (fd < 0)
        return is_missing(errno, a) ? 0 : errno;
    bool is_dir = is_dir_at(fd);
    if (access == OPT_MAKES &&
        (why = sandbox_files_add_readable(f, path, false))) {
        close(fd); /* what is replaced is checked first */
        return why;
    }
    /* the user gave a directory as a file: the verb shall say so */
    if (rights == FS(READ_FILE) && is_dir && !a->beside)
        rights = FS(READ_DIR);
    return add_rule(f, fd, rights, is_dir);
}

int sandbox_files_add_readable(struct sandbox_files *f, const char *path,
                               bool only_list)
{
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOMEM ? ENOMEM : 0;
    return add_rule(f, fd, FS(READ_DIR) | (only_list ? 0 : FS(READ_FILE)),
                    is_dir_at(fd));
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
