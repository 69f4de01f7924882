/* What a verb declares, and the order in which rights are given up. The filter
 * of system calls is in sandbox_calls.c, that of files in sandbox_files.c. */
#include "cli/sandbox/sandbox.h"

#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/os.h"
#include "cli/io/out.h"
#include "cli/io/state_file.h"
#include "cli/sandbox/sandbox_parts.h"

#if SANDBOX_BUILT

typedef int (*file_fn)(void *ctx, enum opt_access access, const char *path);

static enum opt_access access_of(const struct opt *o)
{
    bool is_file = o->type == OPT_FILE || o->type == OPT_FILES;
    return !o->access && is_file ? OPT_LOADS : o->access;
}

/* The files of addresses. Sockets of the network have none. */
static int each_socket(const struct strings *addresses, file_fn fn, void *ctx)
{
    int rc = fn(ctx, OPT_LISTENS, NULL);
    for (size_t i = 0; i < addresses->n && !rc; i++)
        if (strncmp(addresses->v[i], "unix:", 5) == 0)
            rc = fn(ctx, OPT_UNLINKS, addresses->v[i] + 5);
    return rc;
}

/* Call fn for each file that the options declare. The value of "-" is a
 * standard stream, which is open. */
static int each_file(const struct opt_parsed *p, file_fn fn, void *ctx)
{
    int rc = 0;
    for (const struct opt *o = NULL; !rc && (o = opt_next(p->verb, o));) {
        const enum opt_access access = access_of(o);
        const union opt_value *v = opt_value_at(p, o);
        const struct strings one = {(const char **)(uintptr_t)&v->text, 1};
        const bool many = o->type == OPT_TEXTS || o->type == OPT_FILES;
        const struct strings *all = many ? &v->texts : &one;
        if (!access)
            continue;
        if (access == OPT_LISTENS) {
            rc = each_socket(all, fn, ctx);
            continue;
        }
        if (o->type == OPT_FLAG) {
            rc = v->flag ? fn(ctx, access, NULL) : 0;
            continue;
        }
        if (o->type == OPT_FLAG_FILE) {
            rc = v->flag_file.on ? fn(ctx, access, v->flag_file.file) : 0;
            continue;
        }
        for (size_t k = 0; k < all->n && !rc; k++)
            if (all->v[k] && strcmp(all->v[k], "-") != 0)
                rc = fn(ctx, access, all->v[k]);
    }
    return rc;
}

static int add_calls(void *ctx, enum opt_access access, const char *path)
{
    unsigned *calls = ctx;
    (void)path;
    *calls |= sandbox_access(access)->calls;
    return 0;
}

/* The place of an option that does not name its path, but perhaps what is there;
 * NULL with *why 0: there is
 * none. */
static char *own_place(enum opt_access access, const char *name, int *why)
{
    struct qwick_err e = {0};
    struct buf path = {0};
    char *place = NULL;
    int bad =
        access == OPT_KEEPS && name ? state_conversation_path(&path, name, &e)
        : access == OPT_KEEPS  ? state_need_path(&path, STATE_LAST, "--keep", &e)
        : access == OPT_LOGS ? state_need_path(&path, STATE_LOG, "--log", &e)
        : access == OPT_CACHES ? qwick_cache_dir(&place, &e)
                               : 0;
    *why = bad && e.code == QWICK_ERR_MEMORY ? ENOMEM : 0;
    if (bad)
        buf_free(&path);
    return path.data ? path.data : place;
}

static int add_files(void *ctx, enum opt_access access, const char *path)
{
    int why = 0;
    bool named = path && access != OPT_LOGS && access != OPT_KEEPS;
    char *own = named ? NULL : own_place(access, path, &why);
    if (named || own)
        why = sandbox_files_add(ctx, access, named ? path : own);
    free(own);
    return why;
}

/* ---- what loading reads besides ------------------------------------------ */

struct model_files {
    struct sandbox_files *f;
    int why;
};

static int add_model_file(void *ctx, const char *path, bool is_dir)
{
    struct model_files *m = ctx;
    m->why = sandbox_files_add_readable(m->f, path, is_dir);
    return m->why;
}

static int add_models(struct sandbox_files *f, const char *const *places,
                      size_t n)
{
    struct model_files m = {f, 0};
    struct qwick_err e = {0};
    for (size_t i = 0; i < n && !m.why; i++)
        if (places[i] && qwick_model_files(places[i], add_model_file, &m, &e) &&
            !m.why && e.code == QWICK_ERR_MEMORY)
            m.why = ENOMEM;
    return m.why;
}

/* The files and directories of adapters. */
static int add_loras(struct sandbox_files *f, const struct opt_models *m)
{
    int why = 0;
    for (size_t i = 0; i < m->n_loras && !why; i++)
        why = sandbox_files_add_readable(f, m->loras[i].path, false);
    return why;
}

/* The directory of a library that is loaded already: OpenBLAS may be there. */
static int add_library(struct dl_phdr_info *info, size_t size, void *ctx)
{
    struct sandbox_files *f = ctx;
    const char *slash = strrchr(info->dlpi_name, '/');
    (void)size;
    if (!slash)
        return 0;
    char *dir = strndup(info->dlpi_name, (size_t)(slash - info->dlpi_name) + 1);
    int why = dir ? sandbox_files_add_readable(f, dir, false) : ENOMEM;
    free(dir);
    return why;
}

/* Directories of LD_LIBRARY_PATH. */
static int add_library_path(struct sandbox_files *f)
{
    const char *at = getenv("LD_LIBRARY_PATH");
    int why = 0;
    while (at && *at && !why) {
        size_t n = strcspn(at, ":;");
        char *dir = strndup(at, n);
        why = !dir ? ENOMEM : n ? sandbox_files_add_readable(f, dir, false) : 0;
        free(dir);
        at += n + (at[n] != 0);
    }
    return why;
}

static int add_system(struct sandbox_files *f)
{
    static const char *const paths[] = {
        "/proc", "/sys",   "/usr/lib",         "/usr/local/lib",
        "/lib",  "/lib64", "/etc/ld.so.cache", "/etc/alternatives"};
    int why = add_library_path(f);
    for (size_t i = 0; i < sizeof paths / sizeof *paths && !why; i++)
        why = sandbox_files_add_readable(f, paths[i], false);
    return why ? why : dl_iterate_phdr(add_library, f);
}

/* qwick's own cache keeps what a probe of an unknown core found. */
static int add_cache(struct sandbox_files *f)
{
    int why;
    char *dir = own_place(OPT_CACHES, NULL, &why);
    if (dir && access(dir, F_OK) == 0)
        why = sandbox_files_add(f, OPT_CACHES, dir);
    free(dir);
    return why;
}

/* The result that --report opens again. It does not exist yet, so this is what
 * is beside it. */
static int add_result(struct sandbox_files *f, const struct args *a)
{
    if (!a->report || !a->output)
        return 0;
    const char *slash = strrchr(a->output, '/');
    char *dir = slash ? strndup(a->output, (size_t)(slash - a->output) + 1)
                      : strdup(".");
    int why = dir ? sandbox_files_add_readable(f, dir, false) : ENOMEM;
    free(dir);
    return why;
}

/* ---- the two parts ------------------------------------------------------- */

static int restrict_early(const struct opt_parsed *p, const char *const *places,
                          size_t n)
{
    struct sandbox_files f;
    int why = sandbox_files_open(&f, true);
    if (!why)
        why = each_file(p, add_files, &f);
    if (!why)
        why = add_models(&f, places, n);
    if (!why)
        why = add_loras(&f, &p->models);
    if (!why)
        why = add_result(&f, &p->a);
    if (!why)
        why = add_system(&f);
    if (!why)
        why = add_cache(&f);
    if (!why) {
        sandbox_files_restrict(&f);
        why = f.failed;
    }
    sandbox_files_close(&f);
    return why;
}

/* Landlock holds for a thread and those that it starts later, so each thread
 * does this on its own. */
static int restrict_files(const struct opt_parsed *p,
                          const struct qwick_engine *eng,
                          const struct qwick_engine *draft,
                          const struct sandbox_thread *other)
{
    struct sandbox_files f;
    int rc = sandbox_files_open(&f, false);
    if (!rc)
        rc = each_file(p, add_files, &f);
    if (!rc) {
        qwick_engine_each_thread(eng, sandbox_files_restrict, &f);
        if (draft)
            qwick_engine_each_thread(draft, sandbox_files_restrict, &f);
        if (other)
            other->call(other->ctx, sandbox_files_restrict, &f);
        rc = f.failed;
    }
    sandbox_files_close(&f);
    return rc;
}

/* Print that something is missing; 0, or an exit status when out of memory. */
static int missing(const char *part, int why)
{
    if (why == ENOMEM)
        return msg_oom();
    if (why)
        msg_note("sandbox: without %s: %s", part, strerror(why));
    return 0;
}

/* What the first part said is missing; the second does not say it again. */
static bool lacks_landlock, lacks_seccomp;

int sandbox_load(const struct opt_parsed *p, const char *const *places,
                 size_t n)
{
    unsigned calls = 0;
    int status, why;
    if (p->a.no_sandbox || !opt_row(p->verb, OPT_no_sandbox))
        return 0;
    /* what the C library and the engine would open later */
    tzset();
    os_hold_memory_files();
    lacks_landlock = (why = restrict_early(p, places, n)) != 0;
    if ((status = missing("Landlock, files are not restricted by name", why)) !=
        0)
        return status;
    (void)each_file(p, add_calls, &calls);
    why = sandbox_calls_restrict(calls | CALLS_READ | CALLS_WRITE |
                                 CALLS_NAMES | CALLS_LOAD);
    lacks_seccomp = why != 0;
    return missing("seccomp, system calls are not restricted", why);
}

int sandbox_enter_with(const struct opt_parsed *p,
                       const struct qwick_engine *eng,
                       const struct qwick_engine *draft, size_t n_tokens,
                       const struct sandbox_thread *other)
{
    unsigned calls = 0;
    if (p->a.no_sandbox)
        return 0;
    qwick_engine_load_blas(eng, n_tokens);
    if (draft)
        qwick_engine_load_blas(draft, n_tokens);
    (void)each_file(p, add_calls, &calls);
    int why = restrict_files(p, eng, draft, other), status = 0;
    if (why == ENOMEM || !lacks_landlock)
        status = missing("the second part of Landlock's rules", why);
    if (status)
        return status;
    why = sandbox_calls_restrict(calls);
    return why == ENOMEM || !lacks_seccomp
               ? missing("the second part of seccomp's rules", why)
               : 0;
}

#else

int sandbox_load(const struct opt_parsed *p, const char *const *places,
                 size_t n)
{
    (void)places;
    (void)n;
    if (!p->a.no_sandbox && opt_row(p->verb, OPT_no_sandbox))
        msg_note("sandbox: none in a build with sanitizers");
    return 0;
}

int sandbox_enter_with(const struct opt_parsed *p,
                       const struct qwick_engine *eng,
                       const struct qwick_engine *draft, size_t n_tokens,
                       const struct sandbox_thread *other)
{
    (void)p;
    (void)eng;
    (void)draft;
    (void)n_tokens;
    (void)other;
    return 0;
}

#endif
