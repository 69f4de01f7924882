#include "engine/generate/tool_form.h"

#include <stdlib.h>
#include <string.h>

#include "engine/core/engine.h"

static const char probe[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"?\"},"
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":["
    "{\"id\":\"call_000000001\",\"type\":\"function\",\"function\":"
    "{\"name\":\"f\",\"arguments\":{\"a\":\"b\"}}}]},"
    "{\"role\":\"user\",\"content\":\"?\"}],"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
    "\"description\":\"f\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"a\":{\"type\":\"string\",\"description\":\"a\"}},"
    "\"required\":[\"a\"]}}}]}";

int tool_form_find(const struct qwick_engine *eng, enum tools_form *out,
                   struct qwick_err *e)
{
    const struct qwick_chat_options o = qwick_chat_defaults();
    struct qwick_chat *c;
    char *text = NULL;
    size_t n;
    if (qwick_chat_create(&c, e))
        return -1;
    int rc = qwick_chat_add_json(c, probe, sizeof probe - 1, e) ||
             qwick_chat_render(c, eng, &o, &text, &n, e);
    qwick_chat_free(c);
    if (rc)
        return -1;
    if (tools_form_of(out, text, n))
        rc = err_set(e, QWICK_ERR_USAGE,
                     "%s: the chat template shows no call of a tool between "
                     "<tool_call> tags, so calls cannot be constrained",
                     checkpoint_name(eng->ck));
    free(text);
    return rc;
}
