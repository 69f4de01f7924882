#include "cli/answer/chat_input.h"

#include <string.h>

#include "base/err.h"
#include "cli/io/out.h"
#include "cli/io/prompt.h"

int chat_input_texts(struct qwick_chat *c, const char *system, size_t n_system,
                     const char *text, size_t n, struct qwick_err *e)
{
    return (system && qwick_chat_add(c, "system", system, n_system, e)) ||
                   qwick_chat_add(c, "user", text, n, e)
               ? -1
               : 0;
}

static bool role_is(const struct qwick_message *m, const char *role)
{
    return m->n_role == strlen(role) && memcmp(m->role, role, m->n_role) == 0;
}

int chat_input_check(const struct qwick_chat *c, const char *before,
                     struct qwick_err *e)
{
    struct qwick_message m;
    for (size_t i = 0; i < qwick_chat_length(c); i++) {
        if (qwick_chat_at(c, i, &m, e))
            return -1;
        if (!role_is(&m, "system") && !role_is(&m, "user") &&
            !role_is(&m, "assistant") && !role_is(&m, "tool"))
            return err_usage(e,
                             "%smessages[%zu].role: must be system, user, "
                             "assistant or tool",
                             before, i);
    }
    return 0;
}

bool chat_input_last_user(const struct qwick_chat *c, size_t *i,
                          struct qwick_message *out)
{
    for (*i = qwick_chat_length(c); (*i)-- > 0;)
        if (!qwick_chat_at(c, *i, out, NULL) && out->content &&
            role_is(out, "user"))
            return true;
    return false;
}

int chat_input_fail(const char *path, const struct qwick_err *e)
{
    const char *why = err_without_name(e, "chat");
    if (!path || why == e->msg)
        return msg_fail(e);
    return msg_stop(e->code, "%s: %s", prompt_name(path), why);
}

enum qwick_think chat_input_think(const struct qwick_chat *c,
                                  enum qwick_think think)
{
    enum qwick_think own = c ? qwick_chat_think(c) : QWICK_THINK_AUTO;
    return own == QWICK_THINK_AUTO ? think : own;
}
