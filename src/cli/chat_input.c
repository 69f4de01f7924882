#include "cli/chat_input.h"

#include <string.h>

#include "cli/out.h"

static const struct json_value *messages(const struct chat_input *in)
{
    const struct json_value *root = json_root(in->doc);
    return json_is(root, JSON_ARRAY) ? root : json_get(root, "messages");
}

/* What the template would drop without a word is refused before an answer is
 * made of the rest. */
static int check_message(const char *name, size_t i, const struct json_value *m,
                         struct qwick_err *e)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    const struct json_value *role = json_get(m, "role");
    const struct json_value *content = json_get(m, "content");
    size_t r = 0;
    while (r < 4 && !json_equals(role, roles[r]))
        r++;
    if (r == 4)
        return err_set(e, QWICK_ERR_USAGE,
                       "%s: message %zu: role: is none of system, user, "
                       "assistant, tool",
                       name, i);
    if (content && !json_is(content, JSON_STRING) &&
        !json_is(content, JSON_NULL))
        return err_set(e, QWICK_ERR_USAGE,
                       "%s: message %zu: content: must be a string", name, i);
    return 0;
}

int chat_input_parse(struct chat_input *in, const char *name, const char *json,
                     size_t n, struct qwick_err *e)
{
    memset(in, 0, sizeof(*in));
    if (json_parse(&in->doc, name, json, n, QWICK_ERR_USAGE, e))
        return -1;
    const struct json_value *list = messages(in);
    if (!json_is(list, JSON_ARRAY)) {
        chat_input_free(in);
        return err_set(e, QWICK_ERR_USAGE,
                       "%s: messages: neither an array of messages nor an "
                       "object with one",
                       name);
    }
    for (size_t i = 0; i < list->len; i++) {
        if (check_message(name, i, &list->items[i], e)) {
            chat_input_free(in);
            return -1;
        }
    }
    for (size_t i = list->len; i-- > 0;) {
        const struct json_value *text = json_get(&list->items[i], "content");
        if (json_equals(json_get(&list->items[i], "role"), "user") &&
            json_is(text, JSON_STRING)) {
            in->last_user = &list->items[i];
            in->text = text->str;
            in->n_text = text->len;
            break;
        }
    }
    return 0;
}

const char *chat_input_name(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

int chat_input_fail(const char *path, const struct qwick_err *e)
{
    static const char chat[] = "chat: ";
    const size_t n = sizeof(chat) - 1;
    if (!path || strncmp(e->msg, chat, n) != 0)
        return msg_fail(e);
    msg_error("%s: %s", chat_input_name(path), e->msg + n);
    return e->code;
}

void chat_input_free(struct chat_input *in)
{
    json_free(in->doc);
    in->doc = NULL;
}

enum qwick_think chat_input_think(const struct chat_input *in,
                                  enum qwick_think think)
{
    const struct json_value *v;
    if (!in->doc)
        return think;
    v = json_get(json_root(in->doc), "enable_thinking");
    if (!json_is(v, JSON_BOOL))
        return think;
    return v->boolean ? QWICK_THINK_ON : QWICK_THINK_OFF;
}

static void put_messages(const struct chat_input *in, struct json_writer *w,
                         const struct json_value *list, const char *text,
                         size_t n)
{
    jw_array(w, NULL);
    for (size_t i = 0; i < list->len; i++) {
        const struct json_value *m = &list->items[i];
        if (m != in->last_user) {
            jw_value(w, NULL, m);
            continue;
        }
        jw_object(w, NULL);
        for (size_t k = 0; k < m->len; k++) {
            jw_key(w, m->keys[k].str, m->keys[k].len);
            if (json_equals(&m->keys[k], "content"))
                jw_string(w, NULL, text, n);
            else
                jw_value(w, NULL, &m->items[k]);
        }
        jw_end_object(w);
    }
    jw_end_array(w);
}

void chat_put_message(struct json_writer *w, const char *role, const char *text,
                      size_t n)
{
    jw_object(w, NULL);
    jw_cstr(w, "role", role);
    jw_string(w, "content", text, n);
    jw_end_object(w);
}

int chat_input_json(const struct chat_input *in, struct buf *out,
                    const char *text, size_t n)
{
    struct json_writer w = json_writer(out);
    const struct json_value *root = in->doc ? json_root(in->doc) : NULL;
    if (!root) {
        jw_array(&w, NULL);
        if (in->system)
            chat_put_message(&w, "system", in->system, in->n_system);
        chat_put_message(&w, "user", text, n);
        jw_end_array(&w);
        return jw_status(&w);
    }
    if (json_is(root, JSON_ARRAY)) {
        put_messages(in, &w, root, text, n);
        return jw_status(&w);
    }
    jw_object(&w, NULL);
    for (size_t k = 0; k < root->len; k++) {
        jw_key(&w, root->keys[k].str, root->keys[k].len);
        if (json_equals(&root->keys[k], "messages"))
            put_messages(in, &w, &root->items[k], text, n);
        else
            jw_value(&w, NULL, &root->items[k]);
    }
    jw_end_object(&w);
    return jw_status(&w);
}
