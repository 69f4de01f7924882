/* What a verb declares, and the order in which rights are given up. The filter
 * of system calls is in sandbox_calls.c, that of files in sandbox_files.c. */
#include "cli/sandbox.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/os.h"
#include "cli/common.h"
#include "cli/gen_kept.h"
#include "cli/out.h"
#include "cli/sandbox_parts.h"

#if SANDBOX_BUILT

/* Call fn for each file that the options declare. The value of "-" is a
 * standard stream, which is open. */
static int each_file(const struct opt_parsed *p,
                     int (*fn)(void *ctx, enum opt_access access,
                               const char *path),
                     void *ctx)
{
    int rc = 0;
    for (size_t i = 0; i < p->verb->n_opts && !rc; i++) {
        const struct opt *o = &p->verb->opts[i];
        const union opt_value *v =
            (const void *)((const char *)p->values + o->offset);
        const struct opt_texts one = {(const char **)(uintptr_t)&v->text, 1};
        const bool many = o->type == OPT_TEXTS || o->type == OPT_FILES;
        const struct opt_texts *all = many ? &v->texts : &one;
        if (!o->access)
            continue;
        if (o->type == OPT_FLAG) {
            rc = v->flag ? fn(ctx, o->access, NULL) : 0;
            continue;
        }
        if (o->type == OPT_FLAG_FILE) {
            rc = v->flag_file.on ? fn(ctx, o->access, v->flag_file.file) : 0;
            continue;
        }
        for (size_t k = 0; k < all->n && !rc; k++)
            if (all->v[k] && strcmp(all->v[k], "-") != 0)
                rc = fn(ctx, o->access, all->v[k]);
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

/* The place of an option that names none; NULL with *why 0: there is none. */
static char *own_place(enum opt_access access, int *why)
{
    struct qwick_err e = {0};
    struct buf path = {0};
    char *place = NULL;
    int bad = access == OPT_KEEPS ? gen_kept_path(&path, "--keep", &e)
                                  : qwick_cache_dir(&place, &e);
    *why = bad && e.code == QWICK_ERR_MEMORY ? ENOMEM : 0;
    if (bad)
        buf_free(&path);
    return path.data ? path.data : place;
}

static int add_files(void *ctx, enum opt_access access, const char *path)
{
    int why = 0;
    char *own = path ? NULL : own_place(access, &why);
    if (path || own)
        why = sandbox_files_add(ctx, access, path ? path : own);
    free(own);
    return why;
}

/* Restrict the files. Landlock holds for a thread and those that it starts
 * later, so each thread of the engines does this on its own. */
static int restrict_files(const struct opt_parsed *p,
                          const struct qwick_engine *eng,
                          const struct qwick_engine *draft)
{
    struct sandbox_files f;
    int rc = sandbox_files_open(&f);
    if (!rc)
        rc = each_file(p, add_files, &f);
    if (!rc) {
        qwick_engine_each_thread(eng, sandbox_files_restrict, &f);
        if (draft)
            qwick_engine_each_thread(draft, sandbox_files_restrict, &f);
        rc = f.failed;
    }
    sandbox_files_close(&f);
    return rc;
}

/* Print that a part of the sandbox is missing; 0, or an exit status when out of
 * memory. */
static int missing(const char *part, int why)
{
    if (why == ENOMEM)
        return msg_oom();
    if (why)
        msg_note("sandbox: without %s: %s", part, strerror(why));
    return 0;
}

int sandbox_enter(const struct opt_parsed *p, const struct common_args *c,
                  const struct qwick_engine *eng,
                  const struct qwick_engine *draft, size_t n_tokens)
{
    unsigned calls = 0;
    int status;
    if (c->no_sandbox)
        return 0;
    /* what the C library and the engine would open later */
    tzset();
    os_hold_memory_files();
    qwick_engine_load_blas(eng, n_tokens);
    if (draft)
        qwick_engine_load_blas(draft, n_tokens);
    (void)each_file(p, add_calls, &calls);
    if ((status = missing("Landlock, files are not restricted by name",
                          restrict_files(p, eng, draft))) != 0)
        return status;
    return missing("seccomp, system calls are not restricted",
                   sandbox_calls_restrict(calls));
}

#else

int sandbox_enter(const struct opt_parsed *p, const struct common_args *c,
                  const struct qwick_engine *eng,
                  const struct qwick_engine *draft, size_t n_tokens)
{
    (void)p;
    (void)eng;
    (void)draft;
    (void)n_tokens;
    if (!c->no_sandbox)
        msg_note("sandbox: none in a build with sanitizers");
    return 0;
}

#endif
