/* pull: run the script qwick-pull, which downloads models. This program itself
 * connects to nothing. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cli/io/out.h"
#include "cli/opt/opt.h"
#include "cli/opt/verbs.h"
#include "qwick.h"

static const char script[] = "qwick-pull";

/* Beside this program, as make and make install put it. */
static void path_beside(char *out, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", out, size - sizeof script);
    char *slash = n > 0 ? memrchr(out, '/', (size_t)n) : NULL;
    if (slash)
        memcpy(slash + 1, script, sizeof script);
    else
        out[0] = '\0';
}

/* Returns only if the script cannot be run. */
static int run_script(char *const *argv)
{
    char path[4096];
    path_beside(path, sizeof path);
    /* exec keeps what is ignored, and the script's own pipes need them */
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    if (*path) {
        execv(path, argv);
        if (errno != ENOENT)
            return msg_errno(path, "cannot be run");
    }
    execvp(script, argv);
    if (errno != ENOENT)
        return msg_errno(script, "cannot be run");
    return msg_failure("%s: is neither beside qwick nor in PATH: make install "
                       "puts it there",
                       script);
}

static int pull_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    const struct args *a = &p->a;
    const char *argv[12] = {script};
    size_t n = 1;
    (void)eng;
    if (!p->n_args)
        return opt_usage(p->verb, "no model: give ORG/NAME");
    if (p->n_args > 1)
        return opt_usage(p->verb, "\"%s\": one model at a time", p->args[1]);
    if (a->revision) {
        argv[n++] = "--revision";
        argv[n++] = a->revision;
    }
    if (a->dir) {
        argv[n++] = "--dir";
        argv[n++] = a->dir;
    }
    if (a->verify)
        argv[n++] = "--verify";
    if (a->allow_http)
        argv[n++] = "--allow-http";
    if (a->quiet)
        argv[n++] = "--quiet";
    argv[n++] = p->args[0];
    argv[n] = NULL;
    return run_script((char *const *)argv);
}

const struct verb verb_pull = {
    .bit = V_PULL,
    .name = "pull",
    .group = VERBS_MODELS,
    .args = "ORG/NAME[@REVISION][:TYPE]",
    .summary = "download a model from the Hugging Face hub",
    .about =
        "Run the script qwick-pull, which downloads what qwick needs of a "
        "model into the\nlocal Hugging Face cache, where -m ORG/NAME finds it. "
        "Of a repository with GGUF\nfiles, it downloads the one of this type. "
        "An interrupted download goes on where\nit stopped; sizes and "
        "checksums are verified. Prints the directory of the model.\nThe "
        "script needs bash and curl; qwick itself connects to nothing.",
    .examples = "  qwick pull Qwen/Qwen3-0.6B\n"
                "  qwick pull Qwen/Qwen3-4B-GGUF:Q4_K_M\n",
    .run = pull_run,
};
