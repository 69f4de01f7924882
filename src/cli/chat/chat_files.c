/* Conversations of chat in files, and changes of their messages. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "cli/answer/chat_input.h"
#include "cli/chat/chat_job.h"
#include "file/json_writer.h"
#include "cli/io/out.h"
#include "cli/io/prompt.h"
#include "file/json.h"
#include "file/save.h"
#include "text/chat/chat_values.h"

/* Make a conversation of a system prompt (NULL: none) and of JSON. Returns 0,
 * or -1 with *e set; then *out is NULL. */
static int chat_make(struct qwick_chat **out, const char *system,
                     size_t n_system, const char *json, size_t n,
                     struct qwick_err *e)
{
    if (!qwick_chat_create(out, e) &&
        !(system && qwick_chat_add(*out, "system", system, n_system, e)) &&
        !qwick_chat_add_json(*out, json, n, e))
        return 0;
    qwick_chat_free(*out);
    *out = NULL;
    return -1;
}

int chat_copy(struct qwick_chat **out, const struct qwick_chat *c,
              struct qwick_err *e)
{
    char *json;
    size_t n;
    *out = NULL;
    if (qwick_chat_json(c, &json, &n, e))
        return -1;
    int rc = chat_make(out, NULL, 0, json, n, e);
    free(json);
    return rc;
}

bool chat_has_system(const struct qwick_chat *c)
{
    struct qwick_message m;
    return !qwick_chat_at(c, 0, &m, NULL) && m.n_role == strlen("system") &&
           memcmp(m.role, "system", m.n_role) == 0;
}

/* Write a chat's JSON without its first n_skip messages. think: leave out
 * values that would overrule the options, and set *think to "enable_thinking".
 */
static int put_part(struct buf *out, const char *json, size_t n, size_t n_skip,
                    enum qwick_think *think, struct qwick_err *e)
{
    struct json_doc *doc;
    if (json_parse(&doc, "chat", json, n, QWICK_ERR_USAGE, e))
        return -1;
    const struct json_value *root = json_root(doc);
    const struct chat_values v = chat_values_of(root);
    const struct json_value *all = v.messages;
    const struct json_value *flag = v.enable_thinking;
    struct json_writer w = json_writer(out);
    jw_object(&w, NULL);
    if (think)
        *think = !json_is(flag, JSON_BOOL) ? QWICK_THINK_AUTO
                 : flag->boolean           ? QWICK_THINK_ON
                                           : QWICK_THINK_OFF;
    else if (flag)
        jw_value(&w, "enable_thinking", flag);
    if (!think && v.add_generation_prompt)
        jw_value(&w, "add_generation_prompt", v.add_generation_prompt);
    if (v.tools)
        jw_value(&w, "tools", v.tools);
    if (!json_is(root, JSON_OBJECT))
        all = root;
    if (all) {
        struct json_value rest = *all;
        rest.items += n_skip;
        rest.len -= n_skip;
        jw_value(&w, "messages", &rest);
    }
    jw_end_object(&w);
    json_free(doc);
    return jw_status(&w) ? err_oom(e, n) : 0;
}

int chat_set_system(struct qwick_chat **c, const char *text, size_t n,
                    struct qwick_err *e)
{
    struct qwick_chat *changed = NULL;
    struct buf rest = {0};
    char *json;
    size_t n_json;
    bool had = chat_has_system(*c);
    if (had && text)
        return qwick_chat_replace(*c, 0, text, n, e);
    if (!had && !text)
        return 0;
    if (qwick_chat_json(*c, &json, &n_json, e))
        return -1;
    int rc = put_part(&rest, json, n_json, had, NULL, e) ||
             chat_make(&changed, text, n, rest.data, rest.len, e);
    free(json);
    buf_free(&rest);
    if (rc)
        return -1;
    qwick_chat_free(*c);
    *c = changed;
    return !text;
}

int chat_load(struct chat *c, const char *path)
{
    struct qwick_chat *chat = NULL;
    enum qwick_think think;
    struct qwick_err e = {0};
    struct buf b = {0};
    char *json;
    size_t n;
    if (prompt_read(path, &json, &n, &e))
        return msg_fail(&e);
    int rc = put_part(&b, json, n, 0, &think, &e) ||
             chat_make(&chat, NULL, 0, b.data, b.len, &e) ||
             chat_input_check(chat, "chat: ", &e);
    free(json);
    buf_free(&b);
    qwick_chat_free(rc ? chat : c->j.chat);
    if (rc)
        return chat_input_fail(path, &e);
    c->j.chat = chat;
    qwick_chat_free(c->cleared);
    c->cleared = NULL;
    if (think == QWICK_THINK_AUTO)
        return 0;
    c->j.think = think;
    return chat_set_change(&c->set, opt_row(c->j.p->verb, OPT_think),
                           think == QWICK_THINK_ON ? "on" : "off");
}

/* Why a file must not be replaced; NULL: it does not exist, is empty, or is a
 * conversation. */
static const char *why_kept(const char *path)
{
    struct qwick_chat *c = NULL;
    struct qwick_err e;
    struct stat st;
    char *json;
    size_t n;
    bool good;
    if (stat(path, &st))
        return NULL; /* writing it finds other faults */
    if (!S_ISREG(st.st_mode))
        return "is not a regular file";
    if (!st.st_size)
        return NULL;
    good = !prompt_read(path, &json, &n, &e);
    if (good) {
        good = !chat_make(&c, NULL, 0, json, n, &e);
        qwick_chat_free(c);
        free(json);
    }
    return good ? NULL : "exists and is not a conversation";
}

int chat_write(const struct qwick_chat *c, const char *path)
{
    const char *why = why_kept(path);
    struct qwick_err e;
    char *json;
    size_t n;
    if (why)
        return msg_failure("%s: %s; it is not replaced", path, why);
    if (qwick_chat_json(c, &json, &n, &e))
        return msg_fail(&e);
    int rc = save_put(path, SAVE_SHARED, json, n, &e);
    free(json);
    return msg_result(rc, &e);
}
