#include "text/chat/chat_fit.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"

/* ---- what a template takes ---- */

/* Words that no template writes by itself. ARGS is what tojson prints for the
 * object, and PART has a member that only a list printed as a whole shows. */
#define PART(text) \
    "{\"type\":\"text\",\"text\":\"" text "\",\"zqmember\":\"zqwhole\"}"
#define PARTS        "[" PART("zqone") "," PART("zqtwo") "]"
#define ARGS         "{\"zqkey\": \"zqvalue\"}"
#define ARGS_AS_TEXT "\"{\\\"zqkey\\\": \\\"zqvalue\\\"}\""
#define ARGS_AS_REPR "'zqkey'"
#define USER         "{\"role\":\"user\",\"content\":\"zqask\"}"
#define CALLS(args)                                                \
    "\"tool_calls\":[{\"id\":\"call00001\",\"type\":\"function\"," \
    "\"function\":{\"name\":\"zqname\",\"arguments\":" args "}}]"
#define CALL(args) "{\"role\":\"assistant\",\"content\":\"\"," CALLS(args) "}"
#define WITH_TOOL(messages)                                           \
    "{\"messages\":[" messages "],\"tools\":[{\"type\":\"function\"," \
    "\"function\":{\"name\":\"zqname\",\"description\":\"d\","        \
    "\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]}"

static bool prompt_has(const struct chat_prompt *p, const char *word)
{
    return p->text.len && memmem(p->text.data, p->text.len, word, strlen(word));
}

static bool same_text(const struct chat_prompt *a, const struct chat_prompt *b)
{
    return a->text.len == b->text.len &&
           (!a->text.len || !memcmp(a->text.data, b->text.data, a->text.len));
}

/* Render a small chat. fitted: as chat_template_render does. *ok: the template took
 * it. Returns -1 only when out of memory. */
static int render_probe(const struct chat_template *f, const char *json,
                        bool fitted, struct chat_prompt *out, bool *ok,
                        struct qwick_err *e)
{
    struct qwick_err why = {0};
    struct json_doc *doc;
    *out = (struct chat_prompt){0};
    if (json_parse(&doc, "probe", json, strlen(json), QWICK_ERR_USAGE, e))
        return -1;
    const struct chat_source in = {.messages =
                                       *json_get(json_root(doc), "messages"),
                                   .tools = json_get(json_root(doc), "tools"),
                                   .enable_thinking = CHAT_UNSET};
    *ok = !(fitted ? chat_template_render : chat_template_render_as_is)(out, f, &in,
                                                                &why);
    json_free(doc);
    if (why.code != QWICK_ERR_MEMORY)
        return 0;
    if (e)
        *e = why;
    return -1;
}

/* The texts of both parts come out, and not the list as a whole. */
static int probe_parts(const struct chat_template *f, enum chat_trait trait,
                       unsigned char *value, struct qwick_err *e)
{
#define ASKED(role)                                          \
    "{\"role\":\"" role "\",\"tool_call_id\":\"call00001\"," \
    "\"name\":\"zqname\",\"content\":" PARTS "}"
    static const char *const chats[] = {
        [TRAIT_SYSTEM_PARTS] = "{\"messages\":[" ASKED("system") "," USER "]}",
        [TRAIT_USER_PARTS] = "{\"messages\":[" ASKED("user") "]}",
        [TRAIT_ASSISTANT_PARTS] =
            "{\"messages\":[" USER "," ASKED("assistant") "," USER "]}",
        [TRAIT_TOOL_PARTS] = WITH_TOOL(USER "," CALL(ARGS) "," ASKED("tool")),
    };
    struct chat_prompt p;
    bool ok;
    int rc = render_probe(f, chats[trait], true, &p, &ok, e);
    *value = !rc && ok && prompt_has(&p, "zqone") && prompt_has(&p, "zqtwo") &&
             !prompt_has(&p, "zqwhole");
    chat_prompt_free(&p);
    return rc;
}

/* The first system message and the later one come out in their places. */
static int probe_later_system(const struct chat_template *f, unsigned char *value,
                              struct qwick_err *e)
{
    static const char chat[] =
        "{\"messages\":[{\"role\":\"system\",\"content\":\"zqone\"}," USER
        ",{\"role\":\"assistant\",\"content\":\"zqanswer\"},"
        "{\"role\":\"system\",\"content\":\"zqtwo\"},"
        "{\"role\":\"user\",\"content\":\"zqend\"}]}";
    static const char *const order[] = {"zqone", "zqanswer", "zqtwo", "zqend"};
    struct chat_prompt p;
    bool ok;
    int rc = render_probe(f, chat, false, &p, &ok, e);
    *value = !rc && ok;
    for (size_t i = 0; i < sizeof order / sizeof *order && *value; i++)
        *value = chat_prompt_cut(&p, order[i]) == 0;
    chat_prompt_free(&p);
    return rc;
}

static int probe_arguments(const struct chat_template *f, unsigned char *value,
                           struct qwick_err *e)
{
    struct chat_prompt text, object = {0};
    bool takes_text, takes_object;
    int rc = render_probe(f, WITH_TOOL(USER "," CALL(ARGS_AS_TEXT)), false,
                          &text, &takes_text, e) ||
             render_probe(f, WITH_TOOL(USER "," CALL(ARGS)), false, &object,
                          &takes_object, e);
    *value = ARGUMENTS_ANY;
    if (!rc && takes_text && prompt_has(&text, ARGS) &&
        (!takes_object || !prompt_has(&object, "zqvalue") ||
         prompt_has(&object, ARGS_AS_REPR)))
        *value = ARGUMENTS_TEXT;
    else if (!rc && takes_object && !(takes_text && same_text(&text, &object)))
        *value = ARGUMENTS_OBJECT;
    chat_prompt_free(&text);
    chat_prompt_free(&object);
    return rc ? -1 : 0;
}

/* The members in which messages have thinking. */
static const char *const thoughts[] = {"reasoning_content", "thinking",
                                       "reasoning"};
enum { N_THOUGHTS = sizeof thoughts / sizeof *thoughts, THOUGHT_ALONE = 1 };

/* Find the first member that comes out; 0 also if none does. Templates print at
 * least the thinking of a call that has no answer yet. */
static int probe_thinking(const struct chat_template *f, unsigned char *value,
                          struct qwick_err *e)
{
#define THOUGHT(key)                                            \
    WITH_TOOL(USER ",{\"role\":\"assistant\",\"content\":\"\"," \
                   "\"" key "\":\"zqthought\"," CALLS(ARGS) "}")
    static const char *const chats[N_THOUGHTS] = {THOUGHT("reasoning_content"),
                                                  THOUGHT("thinking"),
                                                  THOUGHT("reasoning")};
    *value = 0;
    for (unsigned char i = 0; i < N_THOUGHTS; i++) {
        struct chat_prompt p;
        bool ok;
        int rc = render_probe(f, chats[i], false, &p, &ok, e);
        bool shown = !rc && ok && prompt_has(&p, "zqthought");
        chat_prompt_free(&p);
        if (shown)
            *value = i;
        if (rc || shown)
            return rc;
    }
    return 0;
}

/* Threads that ask at the same time find out the same. */
static int get_trait(const struct chat_template *f, enum chat_trait trait,
                     unsigned char *value, struct qwick_err *e)
{
    struct chat_traits *t = chat_template_traits(f);
    unsigned char known = atomic_load(&t->known[trait]);
    if (known) {
        *value = known - 1;
        return 0;
    }
    if (trait == TRAIT_LATER_SYSTEM ? probe_later_system(f, value, e)
        : trait == TRAIT_ARGUMENTS  ? probe_arguments(f, value, e)
        : trait == TRAIT_THINKING   ? probe_thinking(f, value, e)
                                    : probe_parts(f, trait, value, e))
        return -1;
    atomic_store(&t->known[trait], *value + 1);
    return 0;
}

/* ---- values ---- */

static void *allocate(struct chat_fit *x, size_t n, struct qwick_err *e)
{
    size_t bytes;
    void *p = size_mul(n, sizeof(struct json_value), &bytes)
                  ? NULL
                  : arena_alloc(&x->arena, bytes ? bytes : 1,
                                _Alignof(struct json_value));
    if (!p)
        err_oom(e, n * sizeof(struct json_value));
    return p;
}

static int make_text(struct chat_fit *x, const char *s, size_t n,
                     struct json_value *out, struct qwick_err *e)
{
    char *copy = arena_copy(&x->arena, s, n);
    *out = (struct json_value){.type = JSON_STRING, .str = copy, .len = n};
    return copy ? 0 : err_oom(e, n);
}

/* Set a member of an object. Values and keys that it shares stay unchanged. */
static int set_member(struct chat_fit *x, struct json_value *object,
                      const char *key, struct json_value v, struct qwick_err *e)
{
    size_t n = object->len, at = 0;
    while (at < n && !json_equals(&object->keys[at], key))
        at++;
    struct json_value *items = allocate(x, n + 1, e);
    struct json_value *keys = items ? allocate(x, n + 1, e) : NULL;
    if (!keys)
        return -1;
    if (n) {
        memcpy(items, object->items, n * sizeof *items);
        memcpy(keys, object->keys, n * sizeof *keys);
    }
    items[at] = v;
    keys[at] = (struct json_value){
        .type = JSON_STRING, .str = key, .len = strlen(key)};
    object->items = items;
    object->keys = keys;
    object->len = n + (at == n);
    return 0;
}

static int remove_member(struct chat_fit *x, struct json_value *object,
                         const char *key, struct qwick_err *e)
{
    struct json_value *items = allocate(x, object->len, e), *keys;
    size_t n = 0;
    if (!items || !(keys = allocate(x, object->len, e)))
        return -1;
    for (size_t i = 0; i < object->len; i++) {
        if (json_equals(&object->keys[i], key))
            continue;
        items[n] = object->items[i];
        keys[n++] = object->keys[i];
    }
    object->items = items;
    object->keys = keys;
    object->len = n;
    return 0;
}

/* ---- tool calls ---- */

/* Set *v, a text, to the object whose JSON it is, if it is that of an object.
 * No text at all means no arguments. */
static int parse_arguments(struct chat_fit *x, struct json_value *v,
                           struct qwick_err *e)
{
    struct qwick_err why;
    struct json_doc *doc;
    if (strspn(v->str, " \t\r\n") == v->len) {
        *v = (struct json_value){.type = JSON_OBJECT};
        return 0;
    }
    if (ARRAY_RESERVE(x->docs, x->cap_docs, x->n_docs + 1, e))
        return -1;
    if (json_parse(&doc, "arguments", v->str, v->len, QWICK_ERR_USAGE, &why))
        return why.code == QWICK_ERR_MEMORY ? err_oom(e, v->len) : 0;
    x->docs[x->n_docs++] = doc;
    if (json_is(json_root(doc), JSON_OBJECT))
        *v = *json_root(doc);
    return 0;
}

static int print_arguments(struct chat_fit *x, struct json_value *v,
                           struct qwick_err *e)
{
    struct buf text = {0};
    int rc = json_dump_python(&text, v)
                 ? err_oom(e, text.len)
                 : make_text(x, text.data, text.len, v, e);
    buf_free(&text);
    return rc;
}

static int fit_call(struct chat_fit *x, const struct chat_template *f,
                    struct json_value *call, struct qwick_err *e)
{
    const struct json_value *function = json_get(call, "function");
    struct json_value inner = function ? *function : *call;
    const struct json_value *own = json_get(&inner, "arguments");
    unsigned char takes;
    if (!json_is(own, JSON_STRING) && !json_is(own, JSON_OBJECT))
        return 0;
    if (get_trait(f, TRAIT_ARGUMENTS, &takes, e))
        return -1;
    struct json_value v = *own;
    /* no arguments at all: templates that print the text would print nothing
     * where JSON has an object */
    bool blank = json_is(own, JSON_STRING) &&
                 strspn(own->str, " \t\r\n") == own->len;
    if (blank && takes != ARGUMENTS_OBJECT)
        v = (struct json_value){.type = JSON_STRING, .str = "{}", .len = 2};
    bool parses = takes == ARGUMENTS_OBJECT && json_is(own, JSON_STRING);
    bool prints = takes == ARGUMENTS_TEXT && json_is(own, JSON_OBJECT);
    if (!parses && !prints && !blank)
        return 0;
    if ((parses && parse_arguments(x, &v, e)) ||
        (prints && print_arguments(x, &v, e)) ||
        set_member(x, &inner, "arguments", v, e))
        return -1;
    if (function)
        return set_member(x, call, "function", inner, e);
    *call = inner;
    return 0;
}

/* Make a call of OpenAI's old form, the member "function_call", the only item of
 * "tool_calls". */
static int fit_old_call(struct chat_fit *x, struct json_value *m,
                        struct qwick_err *e)
{
    static const struct json_value type = {
        .type = JSON_STRING, .str = "function", .len = 8};
    struct json_value call = {.type = JSON_OBJECT};
    struct json_value list = {.type = JSON_ARRAY, .len = 1};
    struct json_value *item = allocate(x, 1, e);
    if (!item || set_member(x, &call, "type", type, e) ||
        set_member(x, &call, "function", *json_get(m, "function_call"), e))
        return -1;
    *item = call;
    list.items = item;
    return remove_member(x, m, "function_call", e) ||
                   set_member(x, m, "tool_calls", list, e)
               ? -1
               : 0;
}

/* Whether a member is a text with something in it. */
static bool has_text(const struct json_value *v)
{
    return json_is(v, JSON_STRING) && v->len > 0;
}

/* Put the content behind the thinking, and leave it empty. */
static int join_thinking(struct chat_fit *x, struct json_value *m,
                         const struct json_value *thought,
                         struct json_value *joined, struct qwick_err *e)
{
    const struct json_value *content = json_get(m, "content");
    struct json_value none;
    struct buf text = {0};
    int rc = buf_append(&text, thought->str, thought->len) ||
                     buf_puts(&text, "\n\n") ||
                     buf_append(&text, content->str, content->len)
                 ? err_oom(e, content->len)
                 : make_text(x, text.data, text.len, joined, e);
    buf_free(&text);
    return rc || make_text(x, "", 0, &none, e) ||
                   set_member(x, m, "content", none, e)
               ? -1
               : 0;
}

static int fit_thinking(struct chat_fit *x, const struct chat_template *f,
                        struct json_value *m, struct qwick_err *e)
{
    const struct json_value *own = NULL;
    unsigned char reads;
    if (!json_equals(json_get(m, "role"), "assistant"))
        return 0;
    for (size_t i = 0; i < N_THOUGHTS && !own; i++)
        if (has_text(json_get(m, thoughts[i])))
            own = json_get(m, thoughts[i]);
    if (!own)
        return 0;
    if (get_trait(f, TRAIT_THINKING, &reads, e))
        return -1;
    struct json_value v = *own;
    if (reads == THOUGHT_ALONE && json_get(m, "tool_calls") &&
        has_text(json_get(m, "content"))) {
        if (join_thinking(x, m, own, &v, e))
            return -1;
    } else if (has_text(json_get(m, thoughts[reads]))) {
        return 0;
    }
    return set_member(x, m, thoughts[reads], v, e);
}

/* Client libraries write members that are not used as null, and no calls as an
 * empty list. Templates take either for calls. */
static int drop_unused(struct chat_fit *x, struct json_value *m,
                       struct qwick_err *e)
{
    const struct json_value *calls = json_get(m, "tool_calls");
    const struct json_value *old = json_get(m, "function_call");
    bool none = json_is(calls, JSON_NULL) ||
                (json_is(calls, JSON_ARRAY) && !calls->len);
    if (none && remove_member(x, m, "tool_calls", e))
        return -1;
    if (json_is(old, JSON_NULL))
        return remove_member(x, m, "function_call", e);
    return json_is(old, JSON_OBJECT) && (!calls || none)
               ? fit_old_call(x, m, e)
               : 0;
}

static int fit_calls(struct chat_fit *x, const struct chat_template *f,
                     struct json_value *m, struct qwick_err *e)
{
    static const struct json_value empty = {.type = JSON_STRING, .str = ""};
    if (drop_unused(x, m, e))
        return -1;
    const struct json_value *calls = json_get(m, "tool_calls");
    const struct json_value *content = json_get(m, "content");
    if (!json_is(calls, JSON_ARRAY))
        return 0;
    if ((!content || json_is(content, JSON_NULL)) &&
        set_member(x, m, "content", empty, e))
        return -1;
    struct json_value *fitted = allocate(x, calls->len, e);
    struct json_value list = *calls;
    if (!fitted)
        return -1;
    for (size_t i = 0; i < calls->len; i++) {
        fitted[i] = calls->items[i];
        if (fit_call(x, f, &fitted[i], e))
            return -1;
    }
    list.items = fitted;
    return set_member(x, m, "tool_calls", list, e);
}

/* ---- system messages ---- */

static bool is_system(const struct json_value *m)
{
    return json_equals(json_get(m, "role"), "system");
}

static int add_paragraph(struct buf *text, const struct json_value *m,
                         struct qwick_err *e)
{
    const struct json_value *content = json_get(m, "content");
    if (!json_is(content, JSON_STRING) || !content->len)
        return 0;
    return (text->len && buf_puts(text, "\n\n")) ||
                   buf_append(text, content->str, content->len)
               ? err_oom(e, content->len)
               : 0;
}

/* Put one system message with the text at the front, instead of the first
 * n_first messages and, if `later`, of all later system messages. */
static int join_systems(struct chat_fit *x, const struct buf *text,
                        size_t n_first, bool later, struct qwick_err *e)
{
    const struct json_value *old = x->source.messages.items;
    size_t n_old = x->source.messages.len, n = 1;
    struct json_value *all = allocate(x, n_old + 1, e), role, content;
    if (!all || make_text(x, "system", 6, &role, e) ||
        make_text(x, text->data ? text->data : "", text->len, &content, e))
        return -1;
    all[0] = n_first ? old[0] : (struct json_value){.type = JSON_OBJECT};
    if (set_member(x, &all[0], "role", role, e) ||
        set_member(x, &all[0], "content", content, e))
        return -1;
    for (size_t i = n_first; i < n_old; i++)
        if (!later || !is_system(&old[i]))
            all[n++] = old[i];
    x->source.messages.items = all;
    x->source.messages.len = n;
    return 0;
}

/* in has the contents as texts. */
static int fit_systems(struct chat_fit *x, const struct chat_template *f,
                       const struct chat_source *in, struct qwick_err *e)
{
    const struct json_value *m = in->messages.items;
    size_t n = in->messages.len, n_first = 0, n_all = 0;
    unsigned char stays = 1;
    struct buf text = {0};
    int rc = 0;
    while (n_first < n && is_system(&m[n_first]))
        n_first++;
    for (size_t i = 0; i < n; i++)
        n_all += is_system(&m[i]);
    if (n_all > n_first && get_trait(f, TRAIT_LATER_SYSTEM, &stays, e))
        return -1;
    if (stays && n_first < 2)
        return 0;
    if (!stays && in->follows)
        return err_usage(e, "chat: messages: the template takes a system "
                            "message only at the start of a chat");
    for (size_t i = 0; i < n && !rc; i++)
        if (i < n_first || (!stays && is_system(&m[i])))
            rc = add_paragraph(&text, &m[i], e);
    rc = rc ? rc : join_systems(x, &text, n_first, !stays, e);
    buf_free(&text);
    return rc;
}

/* ---- messages ---- */

/* Message i, with its content as a list if the template takes that. */
static int fit_content(const struct chat_template *f, const struct chat_source *in,
                       size_t i, struct json_value *out, struct qwick_err *e)
{
    static const char *const roles[] = {[TRAIT_SYSTEM_PARTS] = "system",
                                        [TRAIT_USER_PARTS] = "user",
                                        [TRAIT_ASSISTANT_PARTS] = "assistant",
                                        [TRAIT_TOOL_PARTS] = "tool"};
    unsigned char yes = 0;
    size_t k = 0;
    *out = in->messages.items[i];
    if (!in->parts || !in->parts[i])
        return 0;
    while (k < 4 && !json_equals(json_get(out, "role"), roles[k]))
        k++;
    if (k < 4 && get_trait(f, (enum chat_trait)k, &yes, e))
        return -1;
    if (yes)
        *out = *in->parts[i];
    return 0;
}

/* Claude Code's first system block changes with each request, so no later request
 * could use what a cache holds. Leave it out. *all: nothing else is in the
 * message. */
static int drop_billing(struct chat_fit *x, struct json_value *m, bool *all,
                        struct qwick_err *e)
{
    static const char header[] = "x-anthropic-billing-header:";
    const size_t n_header = sizeof header - 1;
    const struct json_value *content = json_get(m, "content");
    bool list = json_is(content, JSON_ARRAY) && content->len;
    const struct json_value *text =
        list ? json_get(&content->items[0], "text") : content;
    *all = false;
    if (!is_system(m) || !json_is(text, JSON_STRING) || text->len < n_header ||
        memcmp(text->str, header, n_header) != 0)
        return 0;
    struct json_value v = *content;
    if (list) {
        v.items++;
        v.len--;
    } else {
        const char *end = memchr(v.str, '\n', v.len);
        size_t n = end ? (size_t)(end - v.str) : v.len;
        while (n < v.len && v.str[n] == '\n')
            n++;
        v.str += n;
        v.len -= n;
    }
    *all = v.len == 0;
    return *all ? 0 : set_member(x, m, "content", v, e);
}

int chat_fit(struct chat_fit *out, const struct chat_template *f,
             const struct chat_source *in, struct qwick_err *e)
{
    *out = (struct chat_fit){.source = *in};
    struct json_value *m = allocate(out, in->messages.len, e);
    size_t n = 0;
    if (!m)
        return -1;
    for (size_t i = 0; i < in->messages.len; i++) {
        bool all;
        if (fit_content(f, in, i, &m[n], e) || fit_calls(out, f, &m[n], e) ||
            fit_thinking(out, f, &m[n], e) || drop_billing(out, &m[n], &all, e))
            return -1;
        n += !all;
    }
    out->source.messages.items = m;
    out->source.messages.len = n;
    out->source.parts = NULL;
    return fit_systems(out, f, in, e);
}

void chat_fit_free(struct chat_fit *x)
{
    for (size_t i = 0; i < x->n_docs; i++)
        json_free(x->docs[i]);
    free(x->docs);
    arena_free(&x->arena);
    *x = (struct chat_fit){0};
}
