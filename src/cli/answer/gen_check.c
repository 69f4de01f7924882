/* Checks of the options and words of a verb that answers one prompt, beyond the
 * rules of relations.c. */
#include <stdio.h>
#include <string.h>

#include "text/chat/code_block.h"
#include "cli/answer/answer_log.h"
#include "cli/answer/gen_job.h"
#include "cli/io/out.h"
#include "cli/opt/verbs.h"
#include "cli/store/conversation_store.h"

/* Several words are no prompt: say what they probably are. */
static int refuse_words(const struct opt_parsed *p, bool is_verb)
{
    const char *first = p->args[0], *near = verb_near(first);
    char hint[200] = "";
    if (is_verb && near && !verb_is_foreign(first))
        return opt_usage(p->verb, "\"%s\": no such verb, did you mean %s?",
                         first, near);
    if (is_verb && near)
        snprintf(hint, sizeof(hint), "; the verb for '%s' is '%s'", first,
                 near);
    else if (!strpbrk(first, " \t\n"))
        snprintf(hint, sizeof(hint), "; if %.60s is a model, use -m %.60s",
                 first, first);
    return common_refuse_words(p, "prompt", hint);
}

/* Whether the first argument may be a verb. After "--", and with --raw, it is
 * text. */
static bool may_be_verb(const struct opt_parsed *p)
{
    return p->verb == &verb_generate && p->n_plain && !p->a.raw;
}

void gen_warn_verb(const struct gen_job *j)
{
    const char *word = may_be_verb(j->p) ? j->p->args[0] : "";
    const char *near = verb_near(word);
    if (near)
        msg_warn("took '%s' as the prompt; the verb is '%s'", word, near);
    else if (verb_is_foreign(word))
        msg_warn("took '%s' as the prompt; qwick has no such verb", word);
}

static int check_words(const struct opt_parsed *p)
{
    if (p->n_args > 1 || (p->n_args && opt_given(p, OPT_prompt)))
        return refuse_words(p, may_be_verb(p));
    return -1;
}

static void check_think(struct opt_parsed *p)
{
    const char *think = p->a.think;
    bool suffix = p->a.suffix;
    p->a.raw |= suffix; /* its prompt is a text that goes on */
    if (p->a.raw)
        answer_drop_think(p, suffix ? OPT_suffix : OPT_raw,
                          suffix ? "with --suffix" : "with --raw");
    else if (think && strcmp(think, "off") == 0)
        opt_warn_no_effect(p, OPT_think_budget, OPT_think, "with --think off");
    else if (p->a.prompt_ids && think && strcmp(think, "on") == 0)
        opt_warn_no_effect(p, OPT_think, OPT_prompt_ids, "with --prompt-ids");
}

static int check_prompt(struct opt_parsed *p)
{
    const struct args *a = &p->a;
    int r;
    if ((r = check_words(p)) >= 0 || (r = preset_check(p)) >= 0)
        return r;
    if (p->n_args && a->prompt_ids)
        return opt_usage(p->verb,
                         "--prompt-ids: cannot be combined with a prompt");
    check_think(p);
    size_t dashes = a->chat_json && strcmp(a->chat_json, "-") == 0;
    dashes += a->system_file && strcmp(a->system_file, "-") == 0;
    dashes += a->tools && strcmp(a->tools, "-") == 0;
    for (size_t i = 0; i < a->file.n; i++)
        dashes += strcmp(a->file.v[i], "-") == 0;
    if (dashes > 1)
        return opt_usage(p->verb, "-: standard input is named %zu times",
                         dashes);
    if (dashes && a->no_stdin)
        return opt_usage(p->verb, "--no-stdin: but - names standard input");
    return -1;
}

/* With -x, a code block may begin in the text of --prefill but not end in
 * it. */
static int check_extract(const struct opt_parsed *p)
{
    const char *prefill = p->a.prefill;
    struct code_block c = {0};
    if (!p->a.extract || !prefill)
        return -1;
    bool bad = code_block_feed(&c, prefill, strlen(prefill));
    bool closed = c.state == CODE_BLOCK_CLOSED;
    code_block_free(&c);
    return bad      ? msg_oom()
           : closed ? opt_usage(p->verb, "--prefill: has a whole code block, "
                                         "which --extract would print")
                    : -1;
}

int gen_check(struct opt_parsed *p)
{
    int r;
    if ((r = check_prompt(p)) >= 0 || (r = answer_check(p)) >= 0 ||
        (r = constraint_check(p)) >= 0 ||
        (r = common_check_colours(p, OPT_confidence)) >= 0 ||
        (r = check_extract(p)) >= 0)
        return r;
    return (r = conversation_check_answer(p)) >= 0 ? r : answer_log_check(p);
}
