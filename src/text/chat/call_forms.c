#include "text/chat/call_forms.h"

#include <string.h>

/* Tokens of DeepSeek: full-width bars, and blocks instead of blanks. */
#define DS(words)       "<\xEF\xBD\x9C" words "\xEF\xBD\x9C>"
#define DS_GAP          "\xE2\x96\x81"
#define DS_CALLS(which) DS("tool" DS_GAP "calls" DS_GAP which)
#define DS_CALL(which)  DS("tool" DS_GAP "call" DS_GAP which)
#define DS_SEP          DS("tool" DS_GAP "sep")

#define OBJECT_PRE "{\"name\": "
#define OBJECT_MID ", \"arguments\": "

static const struct call_form forms[] = {
    {.name = "qwen", /* Qwen2.5, Qwen3, Hermes, SmolLM3, Granite 4 */
     .kind = CALL_OBJECT,
     .hint = "<tool_call>{",
     .open = "<tool_call>",
     .close = "</tool_call>",
     .pre = "<tool_call>\n" OBJECT_PRE,
     .mid = OBJECT_MID,
     .post = "}\n</tool_call>",
     .sep = "\n"},
    {.name = "exaone", /* EXAONE 4 */
     .kind = CALL_OBJECT,
     .open = "<tool_call>",
     .close = "</tool_call>",
     .pre = "<tool_call>" OBJECT_PRE,
     .mid = OBJECT_MID,
     .post = "}</tool_call>",
     .sep = "\n"},
    {.name = "qwen-coder", /* Qwen3-Coder, Qwen3.5 */
     .kind = CALL_PARAMETERS,
     .hint = "<tool_call><function=",
     .open = "<tool_call>",
     .close = "</tool_call>",
     .pre = "<tool_call>\n<function=",
     .mid = ">\n",
     .post = "</function>\n</tool_call>",
     .sep = "\n",
     .key_open = "<parameter=",
     .key_close = ">",
     .key_end = "</parameter>",
     .last = "</function>",
     .lines = true},
    {.name = "seed", /* Seed-OSS */
     .kind = CALL_PARAMETERS,
     .hint = "<seed:tool_call><function=",
     .open = "<seed:tool_call>",
     .close = "</seed:tool_call>",
     .pre = "<seed:tool_call>\n<function=",
     .mid = ">\n",
     .post = "</function>\n</seed:tool_call>",
     .sep = "\n",
     .key_open = "<parameter=",
     .key_close = ">",
     .key_end = "</parameter>",
     .last = "</function>"},
    {.name = "glm", /* GLM-4.5 */
     .kind = CALL_PARAMETERS,
     .hint = "<arg_key>",
     .open = "<tool_call>",
     .close = "</tool_call>",
     .pre = "<tool_call>",
     .mid = "\n",
     .post = "</tool_call>",
     .sep = "\n",
     .key_open = "<arg_key>",
     .key_close = "</arg_key>\n<arg_value>",
     .key_end = "</arg_value>",
     .last = "</arg_value>"},
    {.name = "llama", /* Llama 3.1 to 3.3 */
     .kind = CALL_OBJECT,
     .pre = OBJECT_PRE,
     .mid = ", \"parameters\": ",
     .post = "}",
     .also_ends = "<|eom_id|>"},
    {.name = "mistral", /* Mistral 7B v0.3, Nemo */
     .kind = CALL_OBJECT,
     .hint = "[TOOL_CALLS][{",
     .open = "[TOOL_CALLS]",
     .begin = "[TOOL_CALLS][",
     .pre = OBJECT_PRE,
     .mid = OBJECT_MID,
     .post = "}",
     .sep = ", ",
     .end = "]",
     .short_ids = true},
    {.name = "mistral-spaced", /* Mistral Small 3.1 */
     .kind = CALL_OBJECT,
     .open = "[TOOL_CALLS]",
     .begin = "[TOOL_CALLS] [",
     .pre = OBJECT_PRE,
     .mid = OBJECT_MID,
     .post = "}",
     .sep = ", ",
     .end = "]",
     .short_ids = true},
    {.name = "mistral-args", /* Mistral Small 3.2, Ministral 3, Magistral */
     .kind = CALL_NAMED,
     .hint = "[ARGS]",
     .open = "[TOOL_CALLS]",
     .pre = "[TOOL_CALLS]",
     .mid = "[ARGS]",
     .id_open = "[CALL_ID]",
     .short_ids = true},
    {.name = "granite", /* Granite 3 */
     .kind = CALL_OBJECT,
     .hint = "<|tool_call|>",
     .open = "<|tool_call|>",
     .begin = "<|tool_call|>[",
     .pre = OBJECT_PRE,
     .mid = OBJECT_MID,
     .post = "}",
     .sep = ", ",
     .end = "]"},
    {.name = "phi", /* Phi-4-mini */
     .kind = CALL_OBJECT,
     .hint = "<|/tool_call|>",
     .open = "<|tool_call|>",
     .close = "<|/tool_call|>",
     .pre = "<|tool_call|>" OBJECT_PRE,
     .mid = OBJECT_MID,
     .post = "}<|/tool_call|>"},
    {.name = "deepseek", /* DeepSeek-R1 and models distilled from it */
     .kind = CALL_NAMED,
     .open = DS_CALLS("begin"),
     .close = DS_CALLS("end"),
     .begin = DS_CALLS("begin"),
     .pre = DS_CALL("begin") "function" DS_SEP,
     .mid = "\n```json\n",
     .post = "\n```" DS_CALL("end"),
     .sep = "\n",
     .end = DS_CALLS("end")},
    {.name = "harmony", /* gpt-oss, as channels.h writes its calls */
     .kind = CALL_NAMED,
     .hint = "<|channel|>commentary",
     .open = "<|channel|>commentary to=",
     .pre = "<|channel|>commentary to=functions.",
     .mid = " <|constrain|>json<|message|>",
     .single = true},
    {.name = "gemma", /* Gemma 4 */
     .kind = CALL_BARE,
     .hint = "<|tool_call>call:",
     .open = "<|tool_call>",
     .close = "<tool_call|>",
     .pre = "<|tool_call>call:",
     .mid = "",
     .post = "<tool_call|>",
     .quote = "<|\"|>"},
};

enum { N_FORMS = sizeof forms / sizeof *forms };

const struct call_form *call_form_at(size_t i)
{
    return i < N_FORMS ? &forms[i] : NULL;
}

const struct call_form *call_form_named(const char *name)
{
    for (size_t i = 0; name && i < N_FORMS; i++)
        if (strcmp(forms[i].name, name) == 0)
            return &forms[i];
    return NULL;
}

static bool is_blank(char c)
{
    return c && strchr(" \t\r\n", c) != NULL;
}

/* Return the length of the text at p[0..n) that is `part`, or 0. loose: it may
 * have white space between the bytes of the part. */
static size_t part_at(const char *p, size_t n, const char *part, bool loose)
{
    size_t i = 0;
    for (; *part; part++, i++) {
        while (loose && i && i < n && is_blank(p[i]))
            i++;
        if (i == n || p[i] != *part)
            return 0;
    }
    return i;
}

/* Whether p[0..n) begins with a call of the tool as the form writes it. */
static bool call_at(const struct call_form *f, const char *p, size_t n,
                    const char *name)
{
    const char *quote = f->kind == CALL_OBJECT ? "\"" : "";
    const char *const parts[] = {f->begin, f->pre, quote, name, quote, f->mid};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *part = parts[i] ? parts[i] : "";
        size_t len = part_at(p, n, part, false);
        if (len < strlen(part))
            return false;
        p += len;
        n -= len;
    }
    return true;
}

const struct call_form *call_form_find(const char *prompt, size_t n,
                                       const char *name)
{
    const struct call_form *found = NULL;
    for (size_t k = 0; k < N_FORMS; k++)
        for (size_t i = 0; i < n; i++)
            if (call_at(&forms[k], prompt + i, n - i, name))
                return &forms[k];
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < N_FORMS; k++)
            if (forms[k].hint &&
                part_at(prompt + i, n - i, forms[k].hint, true))
                found = &forms[k];
    return found;
}

/* The first byte of a part that is no white space; 0: there is none. */
static char first_mark(const char *part)
{
    while (is_blank(*part))
        part++;
    return *part;
}

/* The first byte of a call after the tag; 0: any. */
static char body_mark(const struct call_form *f)
{
    bool tagged = f->open && f->close && !f->begin;
    return tagged ? first_mark(f->pre + strlen(f->open)) : 0;
}

const struct call_form *call_form_of_byte(const struct call_form *f, char byte)
{
    if (!body_mark(f) || body_mark(f) == byte)
        return f;
    for (size_t i = 0; i < N_FORMS; i++)
        if (body_mark(&forms[i]) == byte && !strcmp(forms[i].open, f->open))
            return &forms[i];
    return f;
}

const char *call_form_name_end(const struct call_form *f, char room[3])
{
    char mark = f->kind == CALL_BARE ? '{' : first_mark(f->mid);
    memcpy(room, "\n<", 3);
    if (mark) {
        room[0] = mark;
        room[1] = '\0';
    }
    return room;
}
