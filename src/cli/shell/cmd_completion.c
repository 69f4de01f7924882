/* completion: print a completion script for a shell. */
#include <string.h>

#include "base/buf.h"
#include "cli/io/out.h"
#include "cli/opt/opt.h"
#include "cli/opt/verbs.h"
#include "cli/shell/completion.h"
#include "qwick.h"

static const struct completion_shell *find_shell(const char *name)
{
    const struct completion_shell *s = completion_shells;
    while (s->name && strcmp(s->name, name) != 0)
        s++;
    return s->name ? s : NULL;
}

static int completion_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    const char *shells = p->verb->args;
    (void)eng;
    if (p->n_args != 1)
        return opt_usage(p->verb, "expected the name of one shell: %s", shells);
    const struct completion_shell *shell = find_shell(p->args[0]);
    if (!shell)
        return opt_usage(p->verb, "\"%s\" is none of %s", p->args[0], shells);
    struct buf b = {0};
    completion_put(&b, shell);
    return out_print(&b, out_write);
}

const struct verb verb_completion = {
    .bit = V_COMPLETION,
    .name = "completion",
    .group = VERBS_SHELL,
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
    .run = completion_run,
};
