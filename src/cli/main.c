/* qwick: the command line. Find the verb and run it. Each verb has its own
 * file. */
#include <stdlib.h>

#include "cli/io/out.h"
#include "cli/io/signals.h"
#include "cli/opt/common.h"
#include "cli/opt/opt.h"
#include "cli/opt/verbs.h"
#include "cli/sandbox/open_model.h"
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

/* Parse, check, open what the verb declares, and do its work. */
static int run_verb(const struct verb *v, int argc, char **argv)
{
    struct opt_parsed *p = malloc(sizeof(*p));
    struct qwick_engine *eng = NULL;
    if (!p)
        return msg_oom();
    int status = opt_parse(p, v, argc, argv);
    if (status < 0)
        status = common_check(p);
    if (status < 0 && v->check)
        status = v->check(p);
    if (status < 0) { /* else it is an exit status, of --help perhaps */
        bool tokenizer = v->opens == OPENS_TOKENIZER;
        status = v->opens ? open_model(&eng, p, tokenizer) : 0;
        if (!status)
            status = v->run(p, eng);
    }
    qwick_engine_close(eng);
    opt_free(p);
    free(p);
    return status;
}

int main(int argc, char **argv)
{
    int skip = argc > 0 ? 1 : 0, at, status;
    out_init();
    signals_init();
    const struct verb *v = find_verb(argc, argv, &at);
    if (at)
        argv[at] = NULL; /* marks the place for opt_parse */
    status = run_verb(v, argc - skip, argv + skip);
    status = out_close(status);
    signals_finish();
    return status;
}
