#include "text/chat/conversation.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/utf8.h"
#include "qwick.h"

/* ---- memory of a message ---- */

/* Values of a message, then their texts. Texts that were replaced stay, as
 * other members may be in the same block. */
struct message_memory {
    struct message_memory *older;
    struct json_value parts; /* the message with its content as a list */
    struct json_value values[];
};

static void memory_free(struct message_memory *m)
{
    while (m) {
        struct message_memory *older = m->older;
        free(m);
        m = older;
    }
}

/* A block with room for n_values and n_bytes of texts, which *texts points to.
 */
static struct message_memory *memory_new(size_t n_values, size_t n_bytes,
                                         char **texts, struct qwick_err *e)
{
    struct message_memory *m = NULL;
    size_t n;
    if (!size_mul(n_values, sizeof m->values[0], &n) &&
        !size_add(n, sizeof *m, &n) && !size_add(n, n_bytes, &n))
        m = malloc(n);
    if (!m) {
        err_oom(e, n_bytes);
        return NULL;
    }
    m->older = NULL;
    *texts = (char *)(m->values + n_values);
    return m;
}

/* A string value, whose text is written to *at. */
static struct json_value put_text(char **at, const char *s, size_t n)
{
    struct json_value v = {.type = JSON_STRING, .str = *at, .len = n};
    if (n)
        memcpy(*at, s, n);
    (*at)[n] = '\0';
    *at += n + 1;
    return v;
}

/* ---- a message from its texts ---- */

struct member {
    const char *key;
    const char *text; /* [n] */
    size_t n;
};

/* A message with n members, whose keys are constants and whose texts are
 * copied. */
static struct message_memory *message_new(struct json_value *out,
                                          const struct member *members,
                                          size_t n, struct qwick_err *e)
{
    size_t n_bytes = n;
    char *at;
    for (size_t i = 0; i < n; i++)
        if (size_add(n_bytes, members[i].n, &n_bytes)) {
            err_oom(e, SIZE_MAX);
            return NULL;
        }
    struct message_memory *m = memory_new(2 * n, n_bytes, &at, e);
    if (!m)
        return NULL;
    struct json_value *items = m->values, *keys = m->values + n;
    for (size_t i = 0; i < n; i++) {
        items[i] = put_text(&at, members[i].text, members[i].n);
        keys[i] = (struct json_value){.type = JSON_STRING,
                                      .str = members[i].key,
                                      .len = strlen(members[i].key)};
    }
    *out = (struct json_value){
        .type = JSON_OBJECT, .len = n, .items = items, .keys = keys};
    return m;
}

/* The role for a name that OpenAI has for it as well; NULL: role has no other
 * name. "developer" is the new name of "system", and "function" the old one of
 * "tool". */
static const struct json_value *other_role(const struct json_value *role)
{
    static const struct json_value system = {
        .type = JSON_STRING, .str = "system", .len = 6};
    static const struct json_value tool = {
        .type = JSON_STRING, .str = "tool", .len = 4};
    return json_equals(role, "developer")  ? &system
           : json_equals(role, "function") ? &tool
                                           : NULL;
}

/* A copy of an object's values with text[0..n) as its content, if it has one;
 * text NULL: its own content. The role is the one of other_role. The other
 * values are shared. memory->parts is the message with its own content. */
static struct message_memory *copy_message(struct json_value *out,
                                           const struct json_value *m,
                                           const char *text, size_t n,
                                           struct qwick_err *e)
{
    char *at;
    struct message_memory *memory = memory_new(2 * m->len, n + 1, &at, e);
    if (!memory)
        return NULL;
    struct json_value *own = memory->values + m->len;
    for (size_t i = 0; i < m->len; i++) {
        const struct json_value *role =
            json_equals(&m->keys[i], "role") ? other_role(&m->items[i]) : NULL;
        own[i] = role ? *role : m->items[i];
        memory->values[i] = text && json_equals(&m->keys[i], "content")
                                ? put_text(&at, text, n)
                                : own[i];
    }
    *out = memory->parts = *m;
    out->items = memory->values;
    memory->parts.items = own;
    return memory;
}

/* ---- a message from JSON ---- */

/* Append the text of part k of message i's content. */
static int add_part(struct buf *out, size_t i, size_t k,
                    const struct json_value *part, struct qwick_err *e)
{
    const struct json_value *type = json_get(part, "type");
    const struct json_value *text = json_get(part, "text");
    if (!json_is(part, JSON_OBJECT))
        return err_usage(
            e, "chat: messages[%zu].content[%zu]: must be an object, is %s", i,
            k, json_type_name(part));
    if (!json_is(type, JSON_STRING))
        return err_usage(
            e, "chat: messages[%zu].content[%zu].type: must be a string, is %s",
            i, k, json_type_name(type));
    if (!json_equals(type, "text"))
        return err_usage(e,
                         "chat: messages[%zu].content[%zu].type: must be "
                         "\"text\", is \"%s\"",
                         i, k, ERR_SHOW(type->str, type->len));
    if (!json_is(text, JSON_STRING))
        return err_usage(
            e, "chat: messages[%zu].content[%zu].text: must be a string, is %s",
            i, k, json_type_name(text));
    if ((k > 0 && buf_putc(out, '\n')) || buf_append(out, text->str, text->len))
        return err_oom(e, text->len);
    return 0;
}

/* Message i with its list of text parts as one string. */
static int join_parts(struct json_value *out, struct message_memory **memory,
                      size_t i, const struct json_value *m,
                      const struct json_value *parts, struct qwick_err *e)
{
    struct buf text = {0};
    int rc = 0;
    for (size_t k = 0; k < parts->len && !rc; k++)
        rc = add_part(&text, i, k, &parts->items[k], e);
    if (!rc && !(*memory = copy_message(out, m, text.data ? text.data : "",
                                        text.len, e)))
        rc = -1;
    buf_free(&text);
    return rc;
}

/* Read v, message i of the chat, into the form that a template sees. */
static int read_message(struct json_value *out, struct message_memory **memory,
                        const struct json_value **parts, size_t i,
                        const struct json_value *v, struct qwick_err *e)
{
    const struct json_value *role = json_get(v, "role");
    const struct json_value *content = json_get(v, "content");
    *memory = NULL;
    *parts = NULL;
    if (!json_is(v, JSON_OBJECT))
        return err_usage(e, "chat: messages[%zu]: must be an object, is %s", i,
                         json_type_name(v));
    /* Templates print nothing for a role that they do not know. Without any
     * role the message can only be a mistake. */
    if (!json_is(role, JSON_STRING))
        return err_usage(e, "chat: messages[%zu].role: must be a string, is %s",
                         i, json_type_name(role));
    if (json_is(content, JSON_ARRAY)) {
        if (join_parts(out, memory, i, v, content, e))
            return -1;
        *parts = &(*memory)->parts;
        return 0;
    }
    if (content && !json_is(content, JSON_STRING) &&
        !json_is(content, JSON_NULL))
        return err_usage(e,
                         "chat: messages[%zu].content: must be a string, a "
                         "list of text parts or null, is %s",
                         i, json_type_name(content));
    *out = *v;
    return other_role(role) &&
                   !(*memory = copy_message(out, v, NULL, 0, e))
               ? -1
               : 0;
}

/* ---- the conversation ---- */

int qwick_chat_create(struct qwick_chat **out, struct qwick_err *e)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return err_oom(e, sizeof **out);
    (*out)->add_generation_prompt = CHAT_UNSET;
    (*out)->enable_thinking = CHAT_UNSET;
    return 0;
}

static void truncate_to(struct qwick_chat *c, size_t n)
{
    while (c->n > n)
        memory_free(c->memory[--c->n]);
}

void qwick_chat_free(struct qwick_chat *c)
{
    if (!c)
        return;
    truncate_to(c, 0);
    for (size_t i = 0; i < c->n_docs; i++)
        json_free(c->docs[i]);
    free(c->docs);
    free(c->memory);
    free(c->parts);
    free(c->messages);
    free(c);
}

/* Room for n more messages. */
static int reserve(struct qwick_chat *c, size_t n, struct qwick_err *e)
{
    size_t need;
    if (size_add(c->n, n, &need))
        return err_oom(e, SIZE_MAX);
    return ARRAY_RESERVE(c->messages, c->cap, need, e) ||
                   ARRAY_RESERVE(c->memory, c->cap_memory, need, e) ||
                   ARRAY_RESERVE(c->parts, c->cap_parts, need, e)
               ? -1
               : 0;
}

static int add_members(struct qwick_chat *c, const struct member *members,
                       size_t n, struct qwick_err *e)
{
    if (reserve(c, 1, e))
        return -1;
    struct message_memory *m = message_new(&c->messages[c->n], members, n, e);
    if (!m)
        return -1;
    c->parts[c->n] = NULL;
    c->memory[c->n++] = m;
    return 0;
}

/* The text as UTF-8, as JSON would have it. */
static int to_utf8(struct buf *out, const char *text, size_t n,
                   struct qwick_err *e)
{
    return utf8_sanitize(out, text, n) ? err_oom(e, n) : 0;
}

int qwick_chat_add(struct qwick_chat *c, const char *role, const char *content,
                   size_t n, struct qwick_err *e)
{
    struct buf r = {0}, text = {0};
    int rc = -1;
    if (!to_utf8(&r, role, strlen(role), e) && !to_utf8(&text, content, n, e)) {
        const struct member members[] = {{"role", r.data, r.len},
                                         {"content", text.data, text.len}};
        rc = add_members(c, members, 2, e);
    }
    buf_free(&r);
    buf_free(&text);
    return rc;
}

int qwick_chat_add_answer(struct qwick_chat *c, const struct qwick_result *r,
                          struct qwick_err *e)
{
    static const char role[] = "assistant";
    const struct member members[] = {
        {"role", role, sizeof role - 1},
        {"content", r->text, r->n_text},
        {"reasoning_content", r->thinking, r->n_thinking}};
    return add_members(c, members, r->thinking ? 3 : 2, e);
}

/* ---- JSON ---- */

struct chat_values chat_values_of(const struct json_value *v)
{
    if (json_is(v, JSON_ARRAY))
        return (struct chat_values){.messages = v};
    return (struct chat_values){
        .messages = json_get(v, "messages"),
        .tools = json_get(v, "tools"),
        .add_generation_prompt = json_get(v, "add_generation_prompt"),
        .enable_thinking = json_get(v, "enable_thinking"),
    };
}

/* An optional true or false. *out stays unchanged if v is NULL or null. */
static int read_flag(const struct json_value *v, const char *key,
                     enum chat_bool *out, struct qwick_err *e)
{
    if (!v || json_is(v, JSON_NULL))
        return 0;
    if (!json_is(v, JSON_BOOL))
        return err_usage(e, "chat: %s: must be true, false or null", key);
    *out = v->boolean ? CHAT_TRUE : CHAT_FALSE;
    return 0;
}

int chat_add_values(struct qwick_chat *c, const struct chat_values *v,
                    struct qwick_err *e)
{
    enum chat_bool add = c->add_generation_prompt, think = c->enable_thinking;
    size_t before = c->n;
    if (read_flag(v->add_generation_prompt, "add_generation_prompt", &add, e) ||
        read_flag(v->enable_thinking, "enable_thinking", &think, e))
        return -1;
    if (!json_is(v->messages, JSON_ARRAY))
        return err_usage(e, "chat: must be an array of messages, or an object "
                            "with one as \"messages\"");
    if (v->tools && !json_is(v->tools, JSON_NULL) &&
        !json_is(v->tools, JSON_ARRAY))
        return err_usage(e, "chat: tools: must be an array or null, is %s",
                         json_type_name(v->tools));
    if (chat_template_check_args(v->template_args, e) ||
        reserve(c, v->messages->len, e))
        return -1;
    for (size_t i = 0; i < v->messages->len; i++) {
        if (read_message(&c->messages[c->n], &c->memory[c->n], &c->parts[c->n],
                         c->n, &v->messages->items[i], e)) {
            truncate_to(c, before);
            return -1;
        }
        c->n++;
    }
    if (json_is(v->tools, JSON_ARRAY))
        c->tools = v->tools;
    if (v->template_args)
        c->template_args = v->template_args;
    c->add_generation_prompt = add;
    c->enable_thinking = think;
    return 0;
}

int qwick_chat_add_json(struct qwick_chat *c, const char *json, size_t n,
                        struct qwick_err *e)
{
    struct json_doc *doc;
    if (ARRAY_RESERVE(c->docs, c->cap_docs, c->n_docs + 1, e) ||
        json_parse(&doc, "chat", json, n, QWICK_ERR_USAGE, e))
        return -1;
    const struct chat_values v = chat_values_of(json_root(doc));
    if (chat_add_values(c, &v, e)) {
        json_free(doc);
        return -1;
    }
    c->docs[c->n_docs++] = doc;
    return 0;
}

static int put_flag(struct buf *b, const char *key, enum chat_bool v)
{
    return v == CHAT_UNSET ? 0
                           : buf_printf(b, "\"%s\": %s,\n", key,
                                        v == CHAT_TRUE ? "true" : "false");
}

/* Append the array of the messages, one in a line. */
static int put_messages(struct buf *b, const struct qwick_chat *c)
{
    int bad = buf_puts(b, "[");
    for (size_t i = 0; i < c->n && !bad; i++)
        bad = buf_puts(b, i ? ",\n" : "\n") ||
              json_dump_python(b, c->parts[i] ? c->parts[i] : &c->messages[i]);
    return bad || buf_puts(b, c->n ? "\n]" : "]") ? -1 : 0;
}

int qwick_chat_json(const struct qwick_chat *c, char **json, size_t *n,
                    struct qwick_err *e)
{
    struct buf b = {0};
    bool object = c->tools || c->add_generation_prompt != CHAT_UNSET ||
                  c->enable_thinking != CHAT_UNSET;
    int bad = 0;
    *json = NULL;
    *n = 0;
    if (object)
        bad = buf_puts(&b, "{") ||
              put_flag(&b, "add_generation_prompt", c->add_generation_prompt) ||
              put_flag(&b, "enable_thinking", c->enable_thinking) ||
              (c->tools &&
               (buf_puts(&b, "\"tools\": ") || json_dump_python(&b, c->tools) ||
                buf_puts(&b, ",\n"))) ||
              buf_puts(&b, "\"messages\": ");
    if (bad || put_messages(&b, c) || buf_puts(&b, object ? "}\n" : "\n")) {
        buf_free(&b);
        return err_oom(e, b.len);
    }
    *json = buf_take(&b, n);
    return 0;
}

/* ---- looking at it, changing it ---- */

size_t qwick_chat_length(const struct qwick_chat *c)
{
    return c->n;
}

static int check_index(const struct qwick_chat *c, size_t i,
                       struct qwick_err *e)
{
    return i < c->n ? 0
                    : err_usage(e, "chat: messages[%zu]: there are only %zu", i,
                                c->n);
}

/* A string member; NULL and 0 where there is none. */
static void get_text(const struct json_value *m, const char *key,
                     const char **text, size_t *n)
{
    const struct json_value *v = json_get(m, key);
    bool found = json_is(v, JSON_STRING);
    *text = found ? v->str : NULL;
    *n = found ? v->len : 0;
}

int qwick_chat_at(const struct qwick_chat *c, size_t i,
                  struct qwick_message *out, struct qwick_err *e)
{
    memset(out, 0, sizeof *out);
    if (check_index(c, i, e))
        return -1;
    const struct json_value *m = &c->messages[i];
    get_text(m, "role", &out->role, &out->n_role);
    get_text(m, "content", &out->content, &out->n_content);
    get_text(m, "reasoning_content", &out->thinking, &out->n_thinking);
    return 0;
}

int qwick_chat_replace(struct qwick_chat *c, size_t i, const char *content,
                       size_t n, struct qwick_err *e)
{
    if (check_index(c, i, e))
        return -1;
    if (!json_is(json_get(&c->messages[i], "content"), JSON_STRING))
        return err_usage(
            e, "chat: messages[%zu].content: must be a string, is %s", i,
            json_type_name(json_get(&c->messages[i], "content")));
    struct buf text = {0};
    struct message_memory *m = NULL;
    struct json_value changed;
    if (!to_utf8(&text, content, n, e))
        m = copy_message(&changed, &c->messages[i], text.data ? text.data : "",
                         text.len, e);
    buf_free(&text);
    if (!m)
        return -1;
    m->older = c->memory[i];
    c->memory[i] = m;
    c->parts[i] = NULL;
    c->messages[i] = changed;
    return 0;
}

int qwick_chat_rollback(struct qwick_chat *c, size_t n, struct qwick_err *e)
{
    if (n > c->n)
        return err_usage(e, "chat: %zu messages asked for, it has %zu", n,
                         c->n);
    truncate_to(c, n);
    return 0;
}

enum qwick_think qwick_chat_think(const struct qwick_chat *c)
{
    return c->enable_thinking == CHAT_UNSET  ? QWICK_THINK_AUTO
           : c->enable_thinking == CHAT_TRUE ? QWICK_THINK_ON
                                             : QWICK_THINK_OFF;
}

int conversation_source(const struct qwick_chat *c, bool add_generation_prompt,
                        enum chat_bool think, struct chat_source *out,
                        struct qwick_err *e)
{
    if (!c->n)
        return err_usage(
            e, "chat: messages: must hold at least one message, is empty");
    *out = (struct chat_source){
        .messages = {.type = JSON_ARRAY, .len = c->n, .items = c->messages},
        .parts = c->parts,
        .tools = c->tools,
        .args = c->template_args,
        .add_generation_prompt = c->add_generation_prompt == CHAT_UNSET
                                     ? add_generation_prompt
                                     : c->add_generation_prompt == CHAT_TRUE,
        .enable_thinking =
            c->enable_thinking == CHAT_UNSET ? think : c->enable_thinking,
    };
    return 0;
}
