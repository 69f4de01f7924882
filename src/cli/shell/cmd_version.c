/* version: the version, and with -v what a report of a fault should say. */
#include <gnu/libc-version.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/dynlib.h"
#include "cli/io/out.h"
#include "cli/opt/verbs.h"
#include "cli/report/machine.h"
#include "qwick.h"

#ifdef __clang__
#define COMPILER "" /* its __VERSION__ has the name */
#else
#define COMPILER "gcc "
#endif

/* Append the name of a loaded library with its version: that of the file to
 * which its name leads, "libutf8proc.so.2.8.0". The loader and libc are left
 * out: they have one version, which is that of libc. */
static int put_library(struct dl_phdr_info *info, size_t size, void *out)
{
    static const char *const of_libc[] = {"libc.so", "ld-linux", "libm.so",
                                          "libdl.so", "libpthread.so"};
    char *path = info->dlpi_name[0] ? realpath(info->dlpi_name, NULL) : NULL;
    const char *slash = path ? strrchr(path, '/') : NULL;
    bool skip = !slash;
    (void)size;
    for (size_t i = 0; i < sizeof(of_libc) / sizeof(*of_libc) && !skip; i++)
        skip = strncmp(slash + 1, of_libc[i], strlen(of_libc[i])) == 0;
    if (!skip)
        buf_printf(out, " %s", slash + 1);
    free(path);
    return 0;
}

static void put_libraries(struct buf *b)
{
    buf_printf(b, "libraries  glibc %s%s", gnu_get_libc_version(),
               dynlib_can_load() ? "" : ", static: no server, log or OpenBLAS");
    dl_iterate_phdr(put_library, b);
    buf_putc(b, '\n');
}

/* The engine chooses kernels when it opens a model; the demo model is always
 * there. */
static int put_kernels(struct buf *b)
{
    struct qwick_engine_options o = qwick_engine_defaults();
    struct qwick_engine *eng = NULL;
    struct qwick_err e;
    if (qwick_engine_open(&eng, &o, &e))
        return msg_fail(&e);
    const struct qwick_info *i = qwick_engine_info(eng);
    buf_printf(b, "cpu_id     %s\n", i->cpu_id);
    buf_printf(b, "kernels    %s, the CPU has %s; core %s; gemm %s\n", i->isa,
               i->cpu, i->core, i->gemm);
    put_libraries(b); /* with those that the kernels have loaded */
    qwick_engine_close(eng);
    return 0;
}

static int version_details(void)
{
    struct machine m;
    struct buf b = {0};
    machine_read(&m);
    buf_printf(&b, "qwick %s\n", qwick_version());
    buf_printf(&b, "commit     %s\n",
               QWICK_COMMIT[0] ? QWICK_COMMIT : "unknown");
    buf_printf(&b, "compiler   " COMPILER "%s\n", __VERSION__);
    buf_printf(&b, "system     %s\n", m.system);
    buf_printf(&b, "cpu        %s, %d CPUs\n", m.cpu, m.cpus);
    int status = put_kernels(&b);
    if (!status)
        status = out_print(&b, out_write);
    buf_free(&b);
    return status;
}

static int version_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    (void)eng;
    if (p->n_args)
        return opt_usage(p->verb, "\"%s\": takes no arguments", p->args[0]);
    return p->a.verbose ? version_details() : opt_version();
}

const struct verb verb_version = {
    .bit = V_VERSION,
    .name = "version",
    .group = VERBS_SHELL,
    .args = "",
    .summary = "the program's version; -v: all that a report needs",
    .about =
        "Print the version of the program, as --version does. With -v, also "
        "print the\ncommit that it was built from, the compiler, the CPU, "
        "the kernels in use and the\nlibraries: what a report of a fault "
        "should say.",
    .examples = "  qwick version\n"
                "  qwick version -v\n",
    .run = version_run,
};
