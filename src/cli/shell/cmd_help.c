/* The verbs help and version do the same as --help and --version. */
#include "cli/opt/common.h"
#include "cli/opt/opt.h"
#include "cli/opt/verbs.h"
#include "qwick.h"

static const struct opt opts[] = {
    {.type = OPT_HEADING, .help = "Options"},
    OPT_ROWS_BASIC,
};

static int help(const struct verb *v, const struct opt_parsed *p)
{
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

static int version(const struct verb *v, const struct opt_parsed *p)
{
    if (p->n_args)
        return opt_usage(v, "\"%s\": takes no arguments", p->args[0]);
    return opt_version();
}

static int run(const struct verb *v, int argc, char **argv)
{
    struct common_args a = {0};
    struct opt_parsed p;
    int status = opt_parse(&p, v, argc, argv, &a);
    if (status < 0)
        status = common_check(&p, &a);
    if (status < 0)
        status = v == &verb_help ? help(v, &p) : version(v, &p);
    opt_free(&p, &a);
    return status;
}

const struct verb verb_help = {
    .name = "help",
    .args = "[VERB]",
    .summary = "help for a verb, as VERB --help",
    .about = "Print the help of a verb, or the list of verbs.",
    .examples = "  qwick help batch\n",
    OPT_TABLE(opts),
    .run = run,
};

const struct verb verb_version = {
    .name = "version",
    .args = "",
    .summary = "the program's version",
    .about = "Print the version of the program, as --version does.",
    .examples = "  qwick version\n",
    OPT_TABLE(opts),
    .run = run,
};
