/* Run a conversation in a session. */
#include <stdlib.h>

#include "engine/core/engine.h"
#include "engine/core/options.h"

int qwick_chat_sync(const struct qwick_chat *c, struct qwick_session *s,
                    const struct qwick_chat_options *o, bool *in_think,
                    struct qwick_err *e)
{
    int32_t *ids;
    size_t n;
    if (qwick_chat_encode(c, s->eng, o, NULL, 0, &ids, &n, in_think, e))
        return -1;
    /* sync keeps the common beginning of the session and the prompt */
    int rc = qwick_session_sync(s, ids, n, e);
    free(ids);
    return rc;
}

int qwick_chat_generate(struct qwick_chat *c, struct qwick_session *s,
                        const struct qwick_chat_options *o,
                        const struct qwick_generate_options *g,
                        struct qwick_result *r, struct qwick_err *e)
{
    struct qwick_generate_options all = qwick_generate_defaults();
    int32_t *ids;
    size_t n;
    *r = (struct qwick_result){0};
    if (options_read(&all, sizeof all, g, "generate", e) ||
        qwick_chat_encode(c, s->eng, o, NULL, 0, &ids, &n, &all.in_think, e))
        return -1;
    int rc = qwick_generate(s, ids, n, &all, r, e); /* syncs the session */
    free(ids);
    if (!rc && r->n_tokens)
        rc = qwick_chat_add_answer(c, r, e);
    return rc;
}
