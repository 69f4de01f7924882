#include "engine/core/template_probe.h"

#include <stdlib.h>
#include <string.h>

#include "engine/core/engine.h"
#include "text/chat/call_forms.h"
#include "text/chat/think.h"

#define ANSWER "zqanswer"
#define VALUE  "zqvalue"
#define RESULT "zqresult"
#define USER   "{\"role\":\"user\",\"content\":\"?\"}"
#define CALL                                                     \
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{" \
    "\"id\":\"call00001\",\"type\":\"function\",\"function\":{"  \
    "\"name\":\"f\",\"arguments\":{\"a\":\"" VALUE "\"}}}]}"
#define TOOLS                                                             \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","     \
    "\"description\":\"f\",\"parameters\":{\"type\":\"object\","          \
    "\"properties\":{\"a\":{\"type\":\"string\",\"description\":\"a\"}}," \
    "\"required\":[\"a\"]}}}]"

static const char answered[] =
    "[" USER ",{\"role\":\"assistant\",\"content\":\"" ANSWER "\"}," USER "]";
/* Some templates want the result of a call, others know none. */
static const char *const called[] = {
    "{\"messages\":[" USER "," CALL
    ",{\"role\":\"tool\",\"tool_call_id\":\"call00001\",\"name\":\"f\","
    "\"content\":\"" RESULT "\"}]," TOOLS "}",
    "{\"messages\":[" USER "," CALL "," USER "]," TOOLS "}",
};

/* Render a chat. *text is NULL if the template refuses it. */
static int probe_render(const struct qwick_engine *eng, const char *json,
                        char **text, size_t *n, struct qwick_err *e)
{
    struct qwick_chat_options o = qwick_chat_defaults();
    struct qwick_err why = {0};
    struct qwick_chat *c;
    o.add_generation_prompt = false;
    *text = NULL;
    if (qwick_chat_create(&c, e))
        return -1;
    int rc = qwick_chat_add_json(c, json, strlen(json), &why) ||
             qwick_chat_render(c, eng, &o, text, n, &why);
    qwick_chat_free(c);
    if (!rc || why.code != QWICK_ERR_MEMORY)
        return 0;
    if (e)
        *e = why;
    return -1;
}

static int encode(const struct qwick_engine *eng, const char *text, size_t n,
                  int32_t **ids, size_t *n_ids, struct qwick_err *e)
{
    const struct bpe_span all = {0, n};
    *ids = NULL;
    *n_ids = 0;
    if (!bpe_encode_spans(eng->bpe, text, n, &all, 1, false, 0, ids, n_ids,
                          e))
        return 0;
    free(*ids);
    *ids = NULL;
    return -1;
}

bool engine_is_call_tag(const struct qwick_engine *eng, int32_t id)
{
    for (size_t i = 0; i < eng->n_call_tags; i++)
        if (eng->call_tags[i] == id)
            return true;
    return false;
}

/* List the added tokens in the parts of the form. */
static int find_tags(struct qwick_engine *eng, struct qwick_err *e)
{
    const struct call_form *f = eng->call_form;
    const char *const parts[] = {
        f->open, f->close,    f->pre,       f->mid,     f->post,
        f->end,  f->key_open, f->key_close, f->key_end, f->quote};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        int32_t *ids;
        size_t n;
        if (!parts[i])
            continue;
        if (encode(eng, parts[i], strlen(parts[i]), &ids, &n, e))
            return -1;
        for (size_t k = 0; k < n; k++)
            if (bpe_is_added(eng->bpe, ids[k]) &&
                !engine_is_call_tag(eng, ids[k]) &&
                eng->n_call_tags < ENGINE_MAX_CALL_TAGS)
                eng->call_tags[eng->n_call_tags++] = ids[k];
        free(ids);
    }
    return 0;
}

static bool is_blank(const struct qwick_engine *eng, int32_t id)
{
    size_t n, i = 0;
    const char *p = bpe_token(eng->bpe, id, &n);
    while (i < n && strchr(" \t\r\n", p[i]))
        i++;
    return i == n;
}

/* Set *yes to whether a token opens or closes thinking. A tag that opens it may
 * be several tokens. */
static int marks_thinking(const struct qwick_engine *eng, int32_t id, bool *yes,
                          struct qwick_err *e)
{
    *yes = id == eng->think_open || id == eng->think_close;
    for (size_t i = 0; i < N_THINK_TAGS && !*yes; i++) {
        int32_t *ids;
        size_t n;
        if (bpe_added_id(eng->bpe, think_tags[i].close) != id)
            continue;
        if (encode(eng, think_tags[i].open, strlen(think_tags[i].open), &ids,
                   &n, e))
            return -1;
        *yes = n && bpe_is_added(eng->bpe, ids[0]);
        free(ids);
    }
    return 0;
}

/* Add the first added token of the text that is no tag of a call to the stop
 * ids. at_once: only if nothing except white space comes before it. */
static int add_end(struct qwick_engine *eng, const char *text, size_t n,
                   bool at_once, struct qwick_err *e)
{
    int32_t *ids;
    size_t n_ids;
    int rc = 0;
    if (encode(eng, text, n, &ids, &n_ids, e))
        return -1;
    for (size_t i = 0; i < n_ids && !rc; i++) {
        bool thinking;
        rc = marks_thinking(eng, ids[i], &thinking, e);
        bool ends = !thinking && bpe_is_added(eng->bpe, ids[i]) &&
                    !engine_is_call_tag(eng, ids[i]);
        if (ends && !rc)
            (void)config_add_stop(&eng->model.config, ids[i]);
        if (ends || (at_once && !is_blank(eng, ids[i])))
            break;
    }
    free(ids);
    return rc;
}

/* The text from word on, or NULL. */
static const char *after_word(const char *text, size_t n, const char *word)
{
    const char *p = memmem(text, n, word, strlen(word));
    return p ? p + strlen(word) : NULL;
}

static int probe_answer(struct qwick_engine *eng, struct qwick_err *e)
{
    char *text;
    size_t n;
    if (probe_render(eng, answered, &text, &n, e))
        return -1;
    const char *p = text ? after_word(text, n, ANSWER) : NULL;
    int rc = p ? add_end(eng, p, n - (size_t)(p - text), true, e) : 0;
    free(text);
    return rc;
}

static int probe_call(struct qwick_engine *eng, struct qwick_err *e)
{
    char *text = NULL;
    size_t n = 0;
    int rc = 0;
    for (size_t i = 0; i < sizeof called / sizeof *called && !text; i++)
        if (probe_render(eng, called[i], &text, &n, e))
            return -1;
    eng->call_form = text ? call_form_find(text, n, "f") : NULL;
    if (eng->call_form) {
        const char *p = after_word(text, n, VALUE);
        const char *also = eng->call_form->also_ends;
        int32_t id = also ? bpe_added_id(eng->bpe, also) : -1;
        rc = find_tags(eng, e) ||
             (p && add_end(eng, p, n - (size_t)(p - text), false, e));
        if (id >= 0)
            (void)config_add_stop(&eng->model.config, id);
    }
    free(text);
    return rc ? -1 : 0;
}

int engine_probe_template(struct qwick_engine *eng, struct qwick_err *e)
{
    if (!eng->form || !eng->bpe)
        return 0;
    return probe_answer(eng, e) || probe_call(eng, e) ? -1 : 0;
}
