/* qwick: the command line. Find the verb and run it. Each verb has its own
 * file. */
#include "cli/opt/opt.h"
#include "cli/io/out.h"
#include "cli/io/signals.h"
#include "cli/opt/verbs.h"
#include "qwick.h"

/* Find the verb: the first word that is neither an option nor an option's
 * value. *at is its index in argv. Returns NULL with *at 0 if there is none;
 * the words then belong to generate. */
static const struct verb *find_verb(int argc, char **argv, int *at)
{
    int i = 1, n;
    while (i < argc && (n = opt_words(argc - i, argv + i)) > 0)
        i += n;
    const struct verb *v = i < argc ? verb_find(argv[i]) : NULL;
    *at = v ? i : 0;
    return v ? v : &verb_generate;
}

int main(int argc, char **argv)
{
    int skip = argc > 0 ? 1 : 0, at, status;
    out_init();
    signals_init();
    const struct verb *v = find_verb(argc, argv, &at);
    if (at)
        argv[at] = NULL; /* marks the place for opt_parse */
    status = v->run(v, argc - skip, argv + skip);
    status = out_close(status);
    signals_finish();
    return status;
}
