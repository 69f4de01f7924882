/* qwick: the command line. Dispatch only; a verb is a file of its own. */
#include <string.h>

#include "cli/opt.h"
#include "cli/out.h"
#include "cli/signals.h"
#include "cli/verbs.h"
#include "qwick.h"

const struct verb *const verbs[] = {
    &verb_generate, &verb_batch,    &verb_tokenize, &verb_detokenize,
    &verb_count,    &verb_render,   &verb_embed,    &verb_rerank,
    &verb_logits,   &verb_score,    &verb_choose,   &verb_inspect,
    &verb_bench,    &verb_quantize, &verb_cache,    NULL,
};

/* Names that will be verbs; taken from the start so that no script comes to
 * rely on them as prompts. */
static const char *const reserved[] = {
    "chat",
    "plan",
    "selftest",
    "completion",
};

static const struct verb *find_verb(const char *name)
{
    if (strcmp(name, "run") == 0)
        return &verb_generate;
    for (size_t i = 0; verbs[i]; i++)
        if (strcmp(verbs[i]->name, name) == 0)
            return verbs[i];
    return NULL;
}

int main(int argc, char **argv)
{
    const struct verb *v = &verb_generate;
    int skip = argc > 0 ? 1 : 0, status;
    out_init();
    signals_init();
    if (argc > 1) {
        const struct verb *named = find_verb(argv[1]);
        for (size_t i = 0; i < sizeof(reserved) / sizeof(*reserved); i++) {
            if (strcmp(reserved[i], argv[1]) == 0) {
                msg_error("%s: not in this version", argv[1]);
                return QWICK_ERR_USAGE;
            }
        }
        if (named) {
            v = named;
            skip = 2;
        }
    }
    status = v->run(v, argc - skip, argv + skip);
    status = out_close(status);
    signals_finish();
    return status;
}
