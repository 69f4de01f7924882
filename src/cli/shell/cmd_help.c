/* help: the pages of --help, and topics. */
#include "cli/opt/opt.h"
#include "cli/opt/verbs.h"
#include "qwick.h"

/* Return the topic whose name is nearly this one, or NULL. */
static const char *topic_near(const char *name)
{
    const char *near = NULL;
    size_t least = 3;
    for (const struct help_topic *t = help_topics; t->name; t++)
        word_nearest(name, t->name, &least, &near);
    return near;
}

static int help_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    const struct verb *v = p->verb;
    (void)eng;
    if (p->n_args > 1)
        return opt_usage(v, "\"%s\": one verb or topic only", p->args[1]);
    if (!p->n_args)
        return opt_help(NULL);
    const char *name = p->args[0], *near = verb_near(name);
    const struct verb *about = verb_find(name);
    if (about)
        return opt_help(about);
    int status = help_topic_print(name);
    if (status >= 0)
        return status;
    if (!near)
        near = topic_near(name);
    return opt_usage(v, "\"%s\": no such verb or topic%s%s%s", name,
                     DID_YOU_MEAN(near), near ? "?" : "");
}

const struct verb verb_help = {
    .bit = V_HELP,
    .name = "help",
    .group = VERBS_SHELL,
    .args = "[VERB|TOPIC]",
    .summary = "help for a verb, as VERB --help, or about a topic",
    .about =
        "Print the help of a verb, a topic, or the first page. Topics: verbs, "
        "options,\ntemplates, config, scripts, choosing-a-model.",
    .examples = "  qwick help batch\n"
                "  qwick help verbs\n"
                "  qwick help templates\n",
    .run = help_run,
};
