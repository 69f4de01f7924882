/* completion: print a completion script for a shell. */
#include <string.h>

#include "base/buf.h"
#include "cli/opt/common.h"
#include "cli/shell/completion.h"
#include "cli/opt/opt.h"
#include "cli/io/out.h"
#include "cli/opt/verbs.h"
#include "qwick.h"

static const struct opt opts[] = {
    {.type = OPT_HEADING, .help = "Options"},
    OPT_ROWS_BASIC,
};

static const struct completion_shell *find_shell(const char *name)
{
    const struct completion_shell *s = completion_shells;
    while (s->name && strcmp(s->name, name) != 0)
        s++;
    return s->name ? s : NULL;
}

static int put(const struct completion_shell *shell)
{
    struct buf b = {0};
    int status = completion_put(&b, shell)  ? msg_oom()
                 : out_write(b.data, b.len) ? QWICK_ERR_RUNTIME
                                            : 0;
    buf_free(&b);
    return status;
}

static int run(const struct verb *v, int argc, char **argv)
{
    const struct completion_shell *shell = NULL;
    struct common_args a = {0};
    struct opt_parsed p;
    int status = opt_parse(&p, v, argc, argv, &a);
    if (status < 0)
        status = common_check(&p, &a);
    if (status < 0 && p.n_args != 1)
        status = opt_usage(v, "expected the name of one shell: %s", v->args);
    if (status < 0 && !(shell = find_shell(p.args[0])))
        status = opt_usage(v, "\"%s\" is none of %s", p.args[0], v->args);
    if (status < 0)
        status = put(shell);
    opt_free(&p, &a);
    return status;
}

const struct verb verb_completion = {
    .name = "completion",
    .args = "bash|zsh|fish",
    .summary = "a script with which a shell completes command lines",
    .about = "Print a script with which the shell completes verbs, options, "
             "their values,\nfiles and the names of models. make install and "
             "the Debian package install the\nscripts; without them:\n\n"
             "  bash  add to ~/.bashrc:  source <(qwick completion bash)\n"
             "  zsh   add to ~/.zshrc, after compinit:  "
             "source <(qwick completion zsh)\n"
             "  fish  qwick completion fish "
             ">~/.config/fish/completions/qwick.fish",
    .examples = "  qwick completion bash >qwick.bash\n",
    OPT_TABLE(opts),
    .run = run,
};
