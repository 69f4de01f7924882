/* The prompt of generate: read files, standard input and arguments, and encode
 * them into ids that fit the context. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "cli/answer/answer_log.h"
#include "cli/answer/chat_input.h"
#include "cli/answer/fill_in.h"
#include "cli/answer/gen_job.h"
#include "cli/io/out.h"
#include "cli/io/prompt.h"
#include "cli/opt/verbs.h"

static int no_prompt(const struct gen_job *j)
{
    const struct verb *v = j->p->verb;
    bool main_verb = v == &verb_generate;
    /* who has typed only "qwick" wants the first page */
    return msg_usage(main_verb ? NULL : v->name,
                     "no prompt; usage: qwick %s%s[OPTIONS] %s",
                     main_verb ? "" : v->name, main_verb ? "" : " ", v->args);
}

static int read_chat(struct gen_job *j, const char *path, struct qwick_err *e)
{
    char *json;
    size_t n;
    if (prompt_read(path, &json, &n, e))
        return msg_fail(e);
    struct tool_list own = {0}, *tools = &j->tools;
    const struct opt_parsed *p = j->p;
    int status, rc = qwick_chat_create(&j->chat, e) ||
                     qwick_chat_add_json(j->chat, json, n, e) ||
                     chat_input_check(j->chat, "chat: ", e) ||
                     tools_of_chat(&own, json, n, e);
    free(json);
    if (rc) {
        status = chat_input_fail(path, e);
    } else if (own.choice && p->a.tool_choice) {
        status = opt_usage(p->verb,
                           "--tool-choice: %s has a tool_choice as well", path);
    } else if (own.choice && tool_choice_read(&j->choice, own.choice, e)) {
        status = msg_stop(e->code, "%s: %s", prompt_name(path), e->msg);
    } else if (own.list.len && tools->list.len) {
        status = opt_usage(p->verb, "--tools: %s has tools as well", path);
    } else if (!own.list.len) {
        status = msg_result(tools_add(j->chat, &tools->list, e), e);
    } else {
        *tools = own;
        return 0;
    }
    tools_free(&own);
    return status;
}

/* Check the system prompt of the command line against that of a conversation. One
 * of a setting is for new conversations. */
static int check_kept_system(const struct gen_job *j)
{
    struct log_row row = {0};
    bool given = opt_row(j->p->verb, OPT_system) && j->system.data &&
                 !opt_is_setting(j->p, OPT_system) &&
                 !opt_is_setting(j->p, OPT_system_file);
    answer_log_chat(&row, j->chat);
    return given && (!row.system.s || row.system.n != j->system.len ||
                     memcmp(row.system.s, j->system.data, row.system.n) != 0)
               ? opt_usage(j->p->verb,
                           "--%s: conversation %s has %s system prompt",
                           j->p->a.system ? "system" : "system-file",
                           j->p->a.conversation,
                           row.system.s ? "another" : "no")
               : 0;
}

/* Whether the command line has a message for the chat of --chat-json: then
 * standard input may be a part of it, as of any prompt. */
static bool has_more(const struct gen_job *j)
{
    return j->arg || j->p->a.file.n;
}

static bool chat_is_stdin(const struct args *a)
{
    return a->chat_json && strcmp(a->chat_json, "-") == 0;
}

/* Add the prompt's text to the chat, as the user's next message. */
static int add_text(struct gen_job *j, struct qwick_err *e)
{
    return msg_result(
        qwick_chat_add(j->chat, "user", j->text.data, j->text.len, e), e);
}

/* Make the chat of --continue or --conversation: the kept messages, and the
 * prompt's text. There are none when a conversation begins. */
static int read_kept(struct gen_job *j, struct qwick_err *e)
{
    char *path;
    int status = gen_kept_find(j, &path);
    if (!status && !path)
        return 0;
    if (!status)
        status = read_chat(j, path, e);
    free(path);
    if (!status && j->p->a.conversation)
        status = check_kept_system(j);
    if (status)
        return status;
    gen_kept_hint(j->chat);
    return add_text(j, e);
}

/* Check the choice of tools against the tools and the options. Without tools, a
 * chat may have the choices auto and none, which have no effect. */
static int check_choice(const struct gen_job *j)
{
    const char *name = j->p->a.tool_choice ? "--tool-choice" : "tool_choice";
    bool calls =
        j->choice.kind == CHOICE_REQUIRED || j->choice.kind == CHOICE_TOOL;
    if (j->tools.list.len)
        return tool_choice_check(&j->choice, name, j->p);
    return calls || j->p->a.tool_choice
               ? opt_usage(j->p->verb, "%s: there are no tools", name)
               : -1;
}

/* Set j->arg. "-" is standard input, which is read anyway. */
static void set_arg(struct gen_job *j)
{
    j->arg = j->p->n_args ? j->p->args[0] : j->p->a.prompt;
    if (j->p->n_args && strcmp(j->arg, "-") == 0)
        j->arg = NULL;
    common_warn_file(j->p);
}

/* Refuse text on standard input beside a source that is the whole prompt. */
static int refuse_stdin(const struct gen_job *j, const char *whole)
{
    const struct args *a = &j->p->a;
    bool taken = a->no_stdin || chat_is_stdin(a) ||
                 (a->tools && strcmp(a->tools, "-") == 0);
    return !taken && stdin_has_data()
               ? opt_usage(j->p->verb,
                           "%s: cannot be combined with a prompt on standard "
                           "input; --no-stdin ignores it",
                           whole)
               : 0;
}

/* Read the texts of the prompt and of -s. records: those that stand before the
 * prompts of records. */
static int read_texts(struct gen_job *j, bool records, struct prompt_faults *f,
                      struct qwick_err *e)
{
    const struct args *a = &j->p->a;
    const struct prompt_sources sources = {
        .files = &a->file,
        .text = j->arg,
        .names = a->file_names,
        .no_stdin = records || a->no_stdin || chat_is_stdin(a),
        .exact = a->raw,
        .others = records,
        .refuse_empty = j->p->verb == &verb_choose};
    if (prompt_system(&j->system, a->system, a->system_file, a->raw, f, e) ||
        prompt_compose(&j->text, &sources, f, e) ||
        (!records && preset_apply(&j->text, j->p, e)))
        return msg_fail(e);
    return records || j->text.len ? 0 : no_prompt(j);
}

/* Read --prefill, and warn of the faults of all texts. */
static int read_prefill(struct gen_job *j, struct prompt_faults *f)
{
    const char *prefill = j->p->a.prefill;
    if (prefill && prompt_clean(&j->prefill, f, prefill, strlen(prefill)))
        return msg_oom();
    prompt_warn_faults(f, "prompt");
    return 0;
}

int gen_read_before(struct gen_job *j, struct qwick_err *e)
{
    struct prompt_faults faults = {0};
    int status = read_texts(j, true, &faults, e);
    return status ? status : read_prefill(j, &faults);
}

/* Read the chat of --chat-json, and the text of the command line if there is
 * one. */
static int read_chat_and_text(struct gen_job *j, struct prompt_faults *f,
                              struct qwick_err *e)
{
    int status = has_more(j) ? read_texts(j, false, f, e) : 0;
    if (!status)
        status = read_chat(j, j->p->a.chat_json, e);
    return status || !has_more(j) ? status : add_text(j, e);
}

int gen_read_input(struct gen_job *j, struct qwick_err *e)
{
    const struct args *a = &j->p->a;
    struct prompt_faults faults = {0};
    set_arg(j);
    const char *whole = a->prompt_ids                  ? "--prompt-ids"
                        : a->chat_json && !has_more(j) ? "--chat-json"
                                                       : NULL;
    int status = whole ? refuse_stdin(j, whole) : 0;
    if (status)
        return status;
    if (a->prompt_ids)
        return msg_result(prompt_ids("--prompt-ids", a->prompt_ids,
                                     strlen(a->prompt_ids), false, &j->ids,
                                     &j->n_ids, e),
                          e);
    if (a->tools && (status = tools_read(&j->tools, a->tools)) != 0)
        return status;
    if (tool_choice_parse(&j->choice, a->tool_choice))
        return msg_oom();
    status = a->chat_json ? read_chat_and_text(j, &faults, e)
                          : read_texts(j, false, &faults, e);
    if (status || ((a->go_on || a->conversation) && (status = read_kept(j, e)) != 0) ||
        (status = read_prefill(j, &faults)) != 0)
        return status;
    status = check_choice(j);
    return status < 0 ? 0 : status;
}

int gen_choose_mode(struct gen_job *j)
{
    static const enum opt_id need[] = {
        OPT_system,        OPT_system_file, OPT_chat_json,   OPT_prefill,
        OPT_allow_special, OPT_tools,       OPT_tool_choice, OPT_keep,
        OPT_go_on,         OPT_conversation, OPT_NONE};
    j->mode = j->p->a.prompt_ids ? MODE_IDS
              : j->p->a.raw      ? MODE_RAW
                                 : MODE_CHAT;
    if (j->mode == MODE_IDS)
        answer_drop_think_of(j->p, j->eng);
    if (j->mode != MODE_CHAT)
        return 0;
    int r = answer_choose_raw(j->p, need, j->eng);
    if (r == 0)
        j->mode = MODE_RAW;
    return r < 0 ? 0 : r;
}

/* Make a chat of the system prompt and the prompt's text. */
static int make_chat(struct gen_job *j, struct qwick_err *e)
{
    return qwick_chat_create(&j->chat, e) ||
                   chat_input_texts(j->chat, j->system.data, j->system.len,
                                    j->text.data, j->text.len, e) ||
                   tools_add(j->chat, &j->tools.list, e)
               ? -1
               : 0;
}

static int prompt_encode(struct gen_job *j, int32_t **ids, size_t *n_ids,
                         struct qwick_err *e)
{
    struct qwick_chat_options o = {.size = sizeof(o),
                                   .add_generation_prompt = true,
                                   .think = j->think,
                                   .allow_special = j->p->a.allow_special};
    if (overflow_parse(j->p->a.overflow) == OVERFLOW_ERROR)
        o.enough = prompt_enough(qwick_session_n_ctx(j->ses));
    if (j->p->a.suffix)
        return fill_in_encode(j->eng, "--suffix", j->text.data, j->text.len,
                              j->p->a.suffix, strlen(j->p->a.suffix),
                              opt_given(j->p, OPT_raw), ids, n_ids, e);
    if (j->mode == MODE_RAW) {
        size_t n_before; /* a text that goes on needs no token before it */
        const int32_t *before = qwick_session_tokens(j->ses, &n_before);
        return n_before
                   ? qwick_tokenize_after(j->eng, before[n_before - 1],
                                          j->text.data, j->text.len, true,
                                          o.enough, ids, n_ids, e)
                   : qwick_tokenize_prompt(j->eng, j->text.data, j->text.len,
                                           true, o.enough, ids, n_ids, e);
    }
    if (!j->chat && make_chat(j, e))
        return -1;
    if (j->p->a.session)
        return qwick_chat_continue(j->chat, j->ses, &o, j->prefill.data,
                                   j->prefill.len, ids, n_ids, &j->in_think, e);
    return qwick_chat_encode(j->chat, j->eng, &o, j->prefill.data,
                             j->prefill.len, ids, n_ids, &j->in_think, e);
}

int gen_control_id(const struct qwick_engine *eng, const char *text,
                   int32_t *id, struct qwick_err *e)
{
    int32_t *ids;
    size_t n;
    *id = -1;
    if (!qwick_engine_info(eng)->has_tokenizer)
        return 0;
    if (qwick_tokenize(eng, text, strlen(text), true, &ids, &n, e))
        return -1;
    if (n == 1)
        *id = ids[0];
    free(ids);
    return 0;
}

bool gen_ids_in_think(const struct qwick_engine *eng, const int32_t *ids,
                      size_t n)
{
    const struct qwick_info *i = qwick_engine_info(eng);
    while (n > 0 && ids[n - 1] != i->think_open_id &&
           ids[n - 1] != i->think_close_id)
        n--;
    return n > 0 && ids[n - 1] == i->think_open_id;
}

static int too_long(const struct gen_job *j, size_t limit, struct qwick_err *e)
{
    bool refuse = overflow_parse(j->p->a.overflow) == OVERFLOW_ERROR;
    return prompt_too_long(j->n_ids, limit, refuse ? " (see --overflow)" : "",
                           e);
}

/* Keep `keep` ids and decode them. Characters that the cut broke at either end
 * are dropped. */
static int cut_text(struct gen_job *j, enum overflow how, const int32_t *ids,
                    size_t n, size_t keep, struct buf *out, struct qwick_err *e)
{
    size_t head = overflow_head(how, keep);
    for (int part = 0; part < 2; part++) {
        const int32_t *v = part ? ids + n - (keep - head) : ids;
        size_t n_bytes = 0, skip = 0, len = part ? keep - head : head;
        char *text = NULL;
        if (len == 0)
            continue;
        if (qwick_detokenize(j->eng, v, len, false, &text, &n_bytes, e))
            return -1;
        if (part)
            while (skip < n_bytes && (text[skip] & 0xc0) == 0x80)
                skip++;
        else
            n_bytes = utf8_complete(text, n_bytes);
        int r = buf_append(out, text + skip, n_bytes - skip);
        free(text);
        if (r)
            return err_oom(e, n_bytes);
    }
    return 0;
}

/* Shorten the last user text until the prompt has at most `target` tokens; the
 * template's own text is never cut. */
static int prompt_shorten(struct gen_job *j, enum overflow how, size_t target,
                          size_t limit, struct qwick_err *e)
{
    int32_t *text_ids = NULL;
    size_t n, keep;
    struct buf cut = {0};
    struct qwick_message m;
    size_t i;
    int r = -1;
    if (!chat_input_last_user(j->chat, &i, &m))
        return too_long(j, limit, e);
    if (qwick_tokenize(j->eng, m.content, m.n_content, j->p->a.allow_special,
                       &text_ids, &n, e))
        return -1;
    keep = n;
    while (j->n_ids > target) {
        size_t excess = j->n_ids - target;
        int32_t *ids;
        size_t n_ids;
        if (excess >= keep) {
            too_long(j, limit, e);
            goto done;
        }
        keep -= excess;
        cut.len = 0;
        if (cut_text(j, how, text_ids, n, keep, &cut, e) ||
            qwick_chat_replace(j->chat, i, cut.data, cut.len, e) ||
            prompt_encode(j, &ids, &n_ids, e))
            goto done;
        free(j->ids);
        j->ids = ids;
        j->n_ids = n_ids;
    }
    r = 0;
done:
    buf_free(&cut);
    free(text_ids);
    return r;
}

/* Make the prompt fit the session's context by the rule of --overflow. A prompt
 * that is cut leaves room for -n tokens, else for a quarter of the context. */
static int prompt_fit(struct gen_job *j, struct qwick_err *e)
{
    enum overflow how = overflow_parse(j->p->a.overflow);
    size_t limit = qwick_session_n_ctx(j->ses), before = j->n_ids, room;
    if (j->n_ids <= limit) /* the last token of an answer needs no room in the
                              context */
        return 0;
    if (how == OVERFLOW_ERROR)
        return too_long(j, limit, e);
    room = j->p->a.max_tokens ? (size_t)j->p->a.max_tokens : limit / 4;
    if (room > limit / 2)
        room = limit / 2;
    if (room < 1)
        room = 1;
    if (limit <= room)
        return too_long(j, limit, e);
    if (j->mode == MODE_CHAT) {
        if (prompt_shorten(j, how, limit - room, limit, e))
            return -1;
    } else {
        j->n_ids = overflow_cut(how, j->ids, j->n_ids, limit - room);
    }
    j->n_dropped = before - j->n_ids;
    msg_warn("prompt: %zu of %zu tokens dropped to fit the context of %zu",
             j->n_dropped, before, limit);
    return 0;
}

int gen_encode(struct gen_job *j, struct qwick_err *e)
{
    double t = clock_ms();
    if (j->mode == MODE_IDS) {
        if (prompt_check_ids(j->ids, j->n_ids,
                             qwick_engine_info(j->eng)->vocab_size, e))
            return -1;
        j->in_think =
            !j->p->a.raw && gen_ids_in_think(j->eng, j->ids, j->n_ids);
    } else {
        if (prompt_encode(j, &j->ids, &j->n_ids, e))
            return -1;
        if (j->n_ids == 0)
            return err_usage(e, "prompt: it has no tokens after normalization");
    }
    if (j->p->a.session && j->mode != MODE_CHAT && gen_continue(j, e))
        return -1;
    j->tokenize_ms = clock_ms() - t;
    return prompt_fit(j, e);
}
