/* The two parts of the sandbox. Functions return 0 or a value of errno. */
#ifndef CLI_SANDBOX_PARTS_H
#define CLI_SANDBOX_PARTS_H

#include <stdatomic.h>
#include <stdint.h>

#include "cli/opt/opt.h"

/* Sanitizers make system calls of their own, and open files to report. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define SANDBOX_BUILT 0
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANDBOX_BUILT 0
#endif
#ifndef SANDBOX_BUILT
#define SANDBOX_BUILT 1
#endif

/* Groups of system calls that only some accesses need. */
enum {
    CALLS_READ = 1,  /* open files for reading */
    CALLS_WRITE = 2, /* open files in any way */
    CALLS_NAMES = 4, /* make, rename and remove files */
    CALLS_LOAD = 8,  /* load a library, and begin the second part */
    CALLS_SERVE = 16, /* accept connections, and use them */
    CALLS_UNLINK = 32, /* remove files */
    CALLS_LOCK = 64 /* lock parts of open files, as SQLite does */
};

struct sandbox_access {
    bool beside;     /* the rights are those of the file's directory */
    uint64_t early;  /* rights of Landlock in the first part */
    uint64_t rights; /* the same in the second part */
    unsigned calls;  /* groups of system calls in the second part */
};

/* What an access takes. */
const struct sandbox_access *sandbox_access(enum opt_access access);

/* Allow only the system calls that each verb makes, and those of the groups, in
 * all threads of the process. */
int sandbox_calls_restrict(unsigned groups);

struct sandbox_files {
    int ruleset;       /* -1: none */
    int abi;           /* Landlock's */
    bool early;        /* rules of the first part */
    atomic_int failed; /* errno of a thread that could not be restricted */
};

/* Begin a set of rules that allows nothing, for the first or second part. */
int sandbox_files_open(struct sandbox_files *f, bool early);
/* Allow an access. Files that cannot be opened now are left out: the verb will
 * fail on them with its own message. */
int sandbox_files_add(struct sandbox_files *f, enum opt_access access,
                      const char *path);
/* Allow to read a file, or what is below a directory; only_list: allow only to list
 * the directory. A missing one is left out. */
int sandbox_files_add_readable(struct sandbox_files *f, const char *path,
                               bool only_list);
/* Restrict the calling thread. ctx is a struct sandbox_files. */
void sandbox_files_restrict(void *ctx);
void sandbox_files_close(struct sandbox_files *f);

#endif
