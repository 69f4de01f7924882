/* Conversations of chat in files, and changes of their messages. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "cli/answer/chat_input.h"
#include "cli/chat/chat_job.h"
#include "cli/io/json_writer.h"
#include "cli/io/out.h"
#include "cli/io/prompt.h"
#include "file/json.h"
#include "file/save.h"

int chat_copy(struct qwick_chat **out, const struct qwick_chat *c,
              struct qwick_err *e)
{
    char *json;
    size_t n;
    *out = NULL;
    if (qwick_chat_json(c, &json, &n, e))
        return -1;
    int rc = qwick_chat_create(out, e) || qwick_chat_add_json(*out, json, n, e);
    free(json);
    if (rc) {
        qwick_chat_free(*out);
        *out = NULL;
    }
    return rc ? -1 : 0;
}

/* Whether a message has this role. */
static bool has_role(const struct qwick_chat *c, size_t i, const char *role)
{
    struct qwick_message m;
    return !qwick_chat_at(c, i, &m, NULL) && m.n_role == strlen(role) &&
           memcmp(m.role, role, m.n_role) == 0;
}

/* Write a chat's JSON without its first message. */
static int without_first(struct buf *out, const char *json, size_t n,
                         struct qwick_err *e)
{
    struct json_doc *doc;
    if (json_parse(&doc, "chat", json, n, QWICK_ERR_USAGE, e))
        return -1;
    const struct json_value *root = json_root(doc), *messages = root;
    struct json_writer w = json_writer(out);
    jw_object(&w, NULL);
    for (size_t i = 0; json_is(root, JSON_OBJECT) && i < root->len; i++) {
        if (strcmp(root->keys[i].str, "messages") == 0)
            messages = &root->items[i];
        else
            jw_value(&w, root->keys[i].str, &root->items[i]);
    }
    jw_array(&w, "messages");
    for (size_t i = 1; i < messages->len; i++)
        jw_value(&w, NULL, &messages->items[i]);
    jw_end_array(&w);
    jw_end_object(&w);
    json_free(doc);
    return jw_status(&w) ? err_oom(e, n) : 0;
}

int chat_drop_system(struct qwick_chat **c, bool *had, struct qwick_err *e)
{
    struct qwick_chat *changed = NULL;
    struct buf b = {0};
    char *json;
    size_t n;
    *had = qwick_chat_length(*c) && has_role(*c, 0, "system");
    if (!*had)
        return 0;
    if (qwick_chat_json(*c, &json, &n, e))
        return -1;
    int rc = without_first(&b, json, n, e) || qwick_chat_create(&changed, e) ||
             qwick_chat_add_json(changed, b.data, b.len, e);
    free(json);
    buf_free(&b);
    qwick_chat_free(rc ? changed : *c);
    if (!rc)
        *c = changed;
    return rc ? -1 : 0;
}

int chat_set_system(struct qwick_chat **c, const char *text, size_t n,
                    struct qwick_err *e)
{
    struct qwick_chat *changed;
    char *json;
    size_t n_json;
    if (qwick_chat_length(*c) && has_role(*c, 0, "system"))
        return qwick_chat_replace(*c, 0, text, n, e);
    if (qwick_chat_json(*c, &json, &n_json, e))
        return -1;
    int rc = qwick_chat_create(&changed, e) ||
             qwick_chat_add(changed, "system", text, n, e) ||
             qwick_chat_add_json(changed, json, n_json, e);
    free(json);
    if (rc) {
        qwick_chat_free(changed);
        return -1;
    }
    qwick_chat_free(*c);
    *c = changed;
    return 0;
}

/* Write the messages and tools of a chat's JSON, without its other members. */
static int only_messages(struct buf *out, const char *json, size_t n,
                         enum qwick_think *think, struct qwick_err *e)
{
    struct json_doc *doc;
    if (json_parse(&doc, "chat", json, n, QWICK_ERR_USAGE, e))
        return -1;
    const struct json_value *root = json_root(doc);
    const struct json_value *flag = json_get(root, "enable_thinking");
    const struct json_value *messages =
        json_is(root, JSON_OBJECT) ? json_get(root, "messages") : root;
    struct json_writer w = json_writer(out);
    *think = !json_is(flag, JSON_BOOL) ? QWICK_THINK_AUTO
             : flag->boolean           ? QWICK_THINK_ON
                                       : QWICK_THINK_OFF;
    jw_object(&w, NULL);
    if (messages)
        jw_value(&w, "messages", messages);
    if (json_get(root, "tools"))
        jw_value(&w, "tools", json_get(root, "tools"));
    jw_end_object(&w);
    json_free(doc);
    return jw_status(&w) ? err_oom(e, n) : 0;
}

int chat_load(const char *path, struct qwick_chat **out,
              enum qwick_think *think)
{
    struct qwick_err e = {0};
    struct buf b = {0};
    char *json;
    size_t n;
    *out = NULL;
    if (prompt_read(path, &json, &n, &e))
        return msg_fail(&e);
    int rc = only_messages(&b, json, n, think, &e) ||
             qwick_chat_create(out, &e) ||
             qwick_chat_add_json(*out, b.data, b.len, &e) ||
             chat_input_check(*out, "chat", &e);
    free(json);
    buf_free(&b);
    if (!rc)
        return 0;
    qwick_chat_free(*out);
    *out = NULL;
    return chat_input_fail(path, &e);
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
        good =
            !qwick_chat_create(&c, &e) && !qwick_chat_add_json(c, json, n, &e);
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
    if (why) {
        msg_error("%s: %s; it is not replaced", path, why);
        return QWICK_ERR_RUNTIME;
    }
    if (qwick_chat_json(c, &json, &n, &e))
        return msg_fail(&e);
    int rc = save_put(path, SAVE_SHARED, json, n, &e);
    free(json);
    return rc ? msg_fail(&e) : 0;
}
