/* The verbs help and version do the same as --help and --version. */
#include "cli/opt/opt.h"
#include "cli/opt/verbs.h"
#include "qwick.h"

static int help_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    const struct verb *v = p->verb;
    (void)eng;
    if (p->n_args > 1)
        return opt_usage(v, "\"%s\": one verb only", p->args[1]);
    if (!p->n_args)
        return opt_help(&verb_generate);
    const char *name = p->args[0], *near = verb_near(name);
    const struct verb *about = verb_find(name);
    if (about)
        return opt_help(about);
    if (near)
        return opt_usage(v, "\"%s\": no such verb, did you mean %s?", name,
                         near);
    return opt_usage(v, "\"%s\": no such verb%s", name,
                     verb_is_later(name) ? " in this version" : "");
}

static int version_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    (void)eng;
    if (p->n_args)
        return opt_usage(p->verb, "\"%s\": takes no arguments", p->args[0]);
    return opt_version();
}

const struct verb verb_help = {
    .bit = V_HELP,
    .name = "help",
    .args = "[VERB]",
    .summary = "help for a verb, as VERB --help",
    .about = "Print the help of a verb, or the list of verbs.",
    .examples = "  qwick help batch\n",
    .run = help_run,
};

const struct verb verb_version = {
    .bit = V_VERSION,
    .name = "version",
    .args = "",
    .summary = "the program's version",
    .about = "Print the version of the program, as --version does.",
    .examples = "  qwick version\n",
    .run = version_run,
};
