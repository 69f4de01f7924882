/* The conversation of a body of Messages. A message is a list of blocks, and a
 * record has a message of its own for each result of a tool:
 *
 *   Messages                               record
 *   user: result, result, text, text       tool, tool, user
 *   assistant: thinking, text, tool_use    assistant
 *
 * Messages of the same role that follow each other are one turn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/buf.h"
#include "cli/serve/messages.h"

/* Where a block may be. */
enum { IN_SYSTEM = 1, IN_USER = 2, IN_ASSISTANT = 4, IN_RESULT = 8 };

struct turn_text {
    const char *s; /* [n] */
    size_t n;
};

struct turn_reader {
    struct body_reader *x;
    char at[REQUEST_FAULT]; /* the value being read, as errors name it:
                               "messages[1].content[2]" */
    /* The turn that has not been written yet: */
    unsigned where; /* IN_SYSTEM, IN_USER or IN_ASSISTANT; 0: no turn */
    struct turn_text *texts;
    size_t n_texts, cap_texts;
    struct buf thinking;
    const struct json_value **calls; /* blocks */
    size_t n_calls, cap_calls;
    struct arena arena; /* texts that are not in the body */
};

#define turn_refuse(t, ...) body_refuse((t)->x, (t)->at, __VA_ARGS__)

static const struct {
    const char *name;
    unsigned where;
} roles[] = {
    {"user", IN_USER},
    {"assistant", IN_ASSISTANT},
    {"system", IN_SYSTEM},
};

enum { N_ROLES = sizeof(roles) / sizeof(*roles) };

/* ---- writing turns ---- */

static void turn_put_content(struct turn_reader *t)
{
    struct json_writer *w = t->x->w;
    if (t->n_texts < 2) {
        jw_string(w, "content", t->n_texts ? t->texts[0].s : "",
                  t->n_texts ? t->texts[0].n : 0);
        return;
    }
    jw_array(w, "content");
    for (size_t i = 0; i < t->n_texts; i++) {
        jw_object(w, NULL);
        jw_cstr(w, "type", "text");
        jw_string(w, "text", t->texts[i].s, t->texts[i].n);
        jw_end_object(w);
    }
    jw_end_array(w);
}

static void turn_put_call(struct json_writer *w, const struct json_value *block)
{
    static const struct json_value none = {.type = JSON_OBJECT};
    const struct json_value *input = json_member(block, "input");
    jw_object(w, NULL);
    jw_value(w, "id", json_member(block, "id"));
    jw_cstr(w, "type", "function");
    jw_object(w, "function");
    jw_value(w, "name", json_member(block, "name"));
    jw_value(w, "arguments", input ? input : &none);
    jw_end_object(w);
    jw_end_object(w);
}

/* End the turn: write its message, if it has texts or is the assistant's. */
static void turn_end(struct turn_reader *t)
{
    struct json_writer *w = t->x->w;
    if (t->where == IN_ASSISTANT || t->n_texts) {
        size_t i = 0;
        while (roles[i].where != t->where)
            i++;
        jw_object(w, NULL);
        jw_cstr(w, "role", roles[i].name);
        turn_put_content(t);
        if (t->thinking.len)
            jw_buf(w, "reasoning_content", &t->thinking);
        if (t->n_calls) {
            jw_array(w, "tool_calls");
            for (size_t k = 0; k < t->n_calls; k++)
                turn_put_call(w, t->calls[k]);
            jw_end_array(w);
        }
        jw_end_object(w);
    }
    t->where = 0;
    t->n_texts = t->n_calls = t->thinking.len = 0;
}

/* ---- blocks ---- */

static int turn_add_text(struct turn_reader *t, const char *s, size_t n)
{
    if (n == 0 && t->where == IN_SYSTEM)
        return 0; /* no system message at all */
    if (ARRAY_RESERVE(t->texts, t->cap_texts, t->n_texts + 1, t->x->e))
        return -1;
    t->texts[t->n_texts++] = (struct turn_text){s, n};
    return 0;
}

/* Add a text, which is copied, with a beginning and an end. */
static int turn_add_words(struct turn_reader *t, const char *before,
                          const char *s, size_t n, const char *after)
{
    struct buf b = {0};
    char *copy = NULL;
    buf_puts(&b, before);
    buf_append(&b, s, n);
    buf_puts(&b, after);
    if (!b.failed)
        copy = arena_copy(&t->arena, b.data, b.len);
    n = b.len;
    buf_free(&b);
    return copy ? turn_add_text(t, copy, n) : err_oom(t->x->e, n);
}

/* Get a member that is a string. Returns NULL after refusing the block. */
static const struct json_value *turn_string(struct turn_reader *t,
                                            const struct json_value *block,
                                            const char *key)
{
    const struct json_value *v = json_member(block, key);
    if (json_is(v, JSON_STRING))
        return v;
    turn_refuse(t, "%s: must be a string, is %s", key, json_type_name(v));
    return NULL;
}

static int read_text(struct turn_reader *t, const struct json_value *block)
{
    const struct json_value *text = turn_string(t, block, "text");
    return text ? turn_add_text(t, text->str, text->len) : -1;
}

/* Join the thinking of a turn to one text, as the model wrote it. */
static int read_thinking(struct turn_reader *t, const struct json_value *block)
{
    const struct json_value *text = turn_string(t, block, "thinking");
    if (!text)
        return -1;
    return buf_append(&t->thinking, text->str, text->len)
               ? err_oom(t->x->e, text->len)
               : 0;
}

/* A block that only its vendor can read. */
static int read_nothing(struct turn_reader *t, const struct json_value *block)
{
    (void)t, (void)block;
    return 0;
}

static int read_call(struct turn_reader *t, const struct json_value *block)
{
    const struct json_value *input = json_member(block, "input");
    if (!turn_string(t, block, "id") || !turn_string(t, block, "name"))
        return -1;
    if (input && !json_is(input, JSON_OBJECT))
        return turn_refuse(t, "input: must be an object, is %s",
                           json_type_name(input));
    if (ARRAY_RESERVE(t->calls, t->cap_calls, t->n_calls + 1, t->x->e))
        return -1;
    t->calls[t->n_calls++] = block;
    return 0;
}

static int read_content(struct turn_reader *t, unsigned where,
                        const struct json_value *content);

/* Templates have no way to say that a tool has failed, so the text says it. */
static int result_mark_error(struct turn_reader *t)
{
    struct turn_text first = {"", 0};
    if (t->n_texts)
        first = t->texts[0];
    size_t n = t->n_texts;
    if (turn_add_words(t, "Error: ", first.s, first.n, ""))
        return -1;
    if (n)
        t->texts[0] = t->texts[--t->n_texts];
    return 0;
}

static int read_result(struct turn_reader *t, const struct json_value *block)
{
    const struct json_value *id = turn_string(t, block, "tool_use_id");
    const struct json_value *content = json_member(block, "content");
    const struct json_value *failed = json_member(block, "is_error");
    size_t n_at = strlen(t->at);
    if (!id)
        return -1;
    if (failed && !json_is(failed, JSON_BOOL))
        return turn_refuse(t, "is_error: must be true or false");
    turn_end(t);
    snprintf(t->at + n_at, sizeof(t->at) - n_at, ".content");
    if ((content && read_content(t, IN_RESULT, content)) ||
        (failed && failed->boolean && result_mark_error(t)))
        return -1;
    t->at[n_at] = '\0';
    jw_object(t->x->w, NULL);
    jw_cstr(t->x->w, "role", "tool");
    jw_value(t->x->w, "tool_call_id", id);
    turn_put_content(t);
    jw_end_object(t->x->w);
    t->n_texts = 0;
    t->where = IN_USER;
    return 0;
}

/* A result that names a tool. The model already has its definition. */
static int read_reference(struct turn_reader *t, const struct json_value *block)
{
    const struct json_value *name = turn_string(t, block, "tool_name");
    return name ? turn_add_text(t, name->str, name->len) : -1;
}

/* A message that allows or forbids a tool of the request from here on. */
static int read_change(struct turn_reader *t, const struct json_value *block)
{
    const struct json_value *tool = json_member(block, "tool");
    bool added = json_equals(json_get(block, "type"), "tool_addition");
    if (!json_equals(json_get(tool, "type"), "tool_reference"))
        return turn_refuse(t, "tool.type: must be \"tool_reference\"");
    const struct json_value *name = turn_string(t, tool, "name");
    return name ? turn_add_words(t, "The tool ", name->str, name->len,
                                 added ? " is available now."
                                       : " is not available any more.")
                : -1;
}

static const struct block_row {
    const char *type;
    unsigned where; /* places where it is allowed */
    int (*read)(struct turn_reader *t, const struct json_value *block);
} block_rows[] = {
    {"text", IN_SYSTEM | IN_USER | IN_ASSISTANT | IN_RESULT, read_text},
    {"thinking", IN_ASSISTANT, read_thinking},
    {"redacted_thinking", IN_ASSISTANT, read_nothing},
    {"tool_use", IN_ASSISTANT, read_call},
    {"tool_result", IN_USER, read_result},
    {"tool_reference", IN_RESULT, read_reference},
    {"tool_addition", IN_SYSTEM, read_change},
    {"tool_removal", IN_SYSTEM, read_change},
};

static int read_block(struct turn_reader *t, unsigned where,
                      const struct json_value *block)
{
    const struct json_value *type = json_get(block, "type");
    const size_t n = sizeof(block_rows) / sizeof(*block_rows);
    if (!json_is(block, JSON_OBJECT))
        return turn_refuse(t, "must be an object, is %s",
                           json_type_name(block));
    if (!json_is(type, JSON_STRING))
        return turn_refuse(t, "type: must be a string, is %s",
                           json_type_name(type));
    for (size_t i = 0; i < n; i++)
        if ((block_rows[i].where & where) &&
            json_equals(type, block_rows[i].type))
            return block_rows[i].read(t, block);
    return turn_refuse(t, "type: \"%s\" is not supported here",
                       ERR_SHOW(type->str, type->len));
}

/* Read a text, or a list of blocks. */
static int read_content(struct turn_reader *t, unsigned where,
                        const struct json_value *content)
{
    size_t n_at = strlen(t->at);
    if (json_is(content, JSON_STRING))
        return turn_add_text(t, content->str, content->len);
    if (!json_is(content, JSON_ARRAY))
        return turn_refuse(t, "must be a string or an array of blocks, is %s",
                           json_type_name(content));
    for (size_t i = 0; i < content->len; i++) {
        snprintf(t->at + n_at, sizeof(t->at) - n_at, "[%zu]", i);
        if (read_block(t, where, &content->items[i]))
            return -1;
    }
    t->at[n_at] = '\0';
    return 0;
}

/* ---- messages ---- */

static int read_message(struct turn_reader *t, const struct json_value *m)
{
    const struct json_value *role = json_get(m, "role");
    size_t i = 0;
    while (i < N_ROLES && !json_equals(role, roles[i].name))
        i++;
    if (i == N_ROLES)
        return turn_refuse(
            t, "role: must be \"user\", \"assistant\" or \"system\"");
    if (t->where != roles[i].where) {
        turn_end(t);
        t->where = roles[i].where;
    }
    const struct json_value *content = json_member(m, "content");
    size_t n_at = strlen(t->at);
    snprintf(t->at + n_at, sizeof(t->at) - n_at, ".content");
    if (json_is(content, JSON_ARRAY) && !content->len && i == 0)
        return turn_refuse(t, "has no block");
    return read_content(t, roles[i].where, content);
}

static int read_system(struct turn_reader *t)
{
    const struct json_value *system = json_member(t->x->body, "system");
    if (!system)
        return 0;
    snprintf(t->at, sizeof(t->at), "system");
    t->where = IN_SYSTEM;
    if (read_content(t, IN_SYSTEM, system))
        return -1;
    turn_end(t);
    return 0;
}

static int read_messages(struct turn_reader *t)
{
    const struct json_value *list = json_member(t->x->body, "messages");
    snprintf(t->at, sizeof(t->at), "messages");
    if (!json_is(list, JSON_ARRAY))
        return turn_refuse(t, "must be an array, is %s", json_type_name(list));
    if (!list->len)
        return turn_refuse(t, "has no message");
    for (size_t i = 0; i < list->len; i++) {
        snprintf(t->at, sizeof(t->at), "messages[%zu]", i);
        if (read_message(t, &list->items[i]))
            return -1;
    }
    turn_end(t);
    return 0;
}

int messages_put_turns(struct body_reader *x)
{
    struct turn_reader t = {.x = x};
    jw_array(x->w, "messages");
    int rc = read_system(&t) || read_messages(&t) ? -1 : 0;
    jw_end_array(x->w);
    free(t.texts);
    free(t.calls);
    buf_free(&t.thinking);
    arena_free(&t.arena);
    return rc;
}
