/* The options of generate, and checks of their combinations. */
#include <stdio.h>
#include <string.h>

#include "cli/answer/code_block.h"
#include "cli/answer/gen_job.h"
#include "cli/answer/gen_kept.h"
#include "cli/io/out.h"
#include "cli/opt/verbs.h"

#define ARG(field) offsetof(struct gen_args, field)

static const struct opt opts[] = {
    {.type = OPT_HEADING, .help = "Prompt"},
    OPT_ROWS_PROMPT(0),
    OPT_ROWS_PRESET(ARG(preset)),
    OPT_ROWS_TOOLS(ARG(tools), "definitions of tools that the model may call, "
                               "as JSON"),
    OPT_ROWS_TOOL_CHOICE(ARG(tool_choice)),
    OPT_ROWS_THINK(ARG(think)),
    OPT_ROWS_THINK_BUDGET(ARG(answer)),
    OPT_ROWS_TEMPLATE,
    {.name = "raw",
     .type = OPT_FLAG,
     .help = "no chat template: continue the text as it is",
     .offset = ARG(raw)},
    {.name = "prefill",
     .type = OPT_TEXT,
     .arg = "TEXT",
     .help = "begin the answer with TEXT (not printed)",
     .offset = ARG(prefill)},

    {.name = "keep",
     .type = OPT_FLAG,
     .help = "keep the conversation, for --continue",
     .access = OPT_KEEPS,
     .offset = ARG(keep)},
    OPT_ROWS_CONTINUE(ARG(go_on), "go on with the conversation that was kept "
                                  "last, and keep it"),
    {.name = "session",
     .type = OPT_FILE,
     .arg = "FILE",
     .help = "continue a session that --save-session wrote; the prompt is its "
             "next message",
     .offset = ARG(session)},
    {.name = "save-session",
     .type = OPT_FILE,
     .access = OPT_REWRITES,
     .arg = "FILE",
     .help = "write the prompt, the answer and their KV cache to FILE",
     .offset = ARG(save_session)},

    {.type = OPT_HEADING, .help = "Length"},
    OPT_ROWS_MAX_TOKENS(ARG(answer)),
    OPT_ROWS_CTX,
    OPT_ROWS_STOP(ARG(answer)),
    OPT_ROWS_ENDING(ARG(answer), "exit status 6"),

    OPT_ROWS_CONSTRAINT(ARG(constraint), "exit status 6"),

    OPT_ROWS_SAMPLING(ARG(answer)),
    OPT_ROWS_SEED(ARG(answer.seed)),

    {.name = "samples",
     .type = OPT_INT,
     .arg = "N",
     .imin = 1,
     .imax = ANSWER_MAX_SAMPLES,
     .def = "1",
     .help = "give N answers, each with a seed of its own; the prompt is "
             "evaluated once",
     .offset = ARG(samples)},

    {.type = OPT_HEADING, .help = "Output"},
    {.name = "extract",
     .letter = 'x',
     .type = OPT_FLAG,
     .help = "print only the first fenced code block; without one: exit status "
             "6",
     .offset = ARG(extract)},
    OPT_ROWS_SHOW_THINKING(ARG(show_thinking)),
    {.name = "think-file",
     .type = OPT_FILE,
     .arg = "FILE",
     .help = "write the thinking to FILE",
     .access = OPT_OPENS,
     .offset = ARG(think_file)},
    {.name = "json",
     .type = OPT_FLAG,
     .help = "print one JSON object when done",
     .offset = COMMON(json)},
    {.name = "jsonl",
     .type = OPT_FLAG,
     .help = "print a JSON object per token, then one when done",
     .offset = COMMON(jsonl)},
    OPT_ROWS_LOGPROBS(ARG(answer), ", with --json or --jsonl"),
    {.name = "no-newline",
     .type = OPT_FLAG,
     .help = "do not add a newline to a text that ends without one",
     .offset = ARG(no_newline)},
    {.name = "null",
     .letter = '0',
     .type = OPT_FLAG,
     .help = "end the text with a NUL byte instead of a newline",
     .offset = ARG(null)},
    {.name = "profile-timing",
     .type = OPT_FLAG_FILE,
     .arg = "FILE",
     .place = "profile-file",
     .access = OPT_OPENS,
     .help = "time every token and print a summary on stderr",
     .offset = ARG(profile)},
    {.name = "repeat",
     .type = OPT_INT,
     .arg = "N",
     .imin = 1,
     .imax = 1000,
     .def = "1",
     .help = "with --profile-timing: answer N times and report medians",
     .offset = ARG(repeat)},
    {.name = "profile-file",
     .type = OPT_FILE,
     .arg = "FILE",
     .help = "write the summary as JSON to FILE; turns --profile-timing on",
     .access = OPT_OPENS,
     .offset = ARG(profile_file)},
    {.name = "confidence",
     .type = OPT_FLAG,
     .help = "colour each token of the answer by its probability",
     .offset = ARG(confidence)},
    OPT_ROWS_COLOR,

    {.type = OPT_HEADING, .help = "Model and machine"},
    OPT_ROWS_MODEL,
    OPT_ROWS_THREADS,
    OPT_ROWS_KERNELS,
    OPT_ROWS_PREFILL,
    OPT_ROWS_LOOKUP(ARG(lookup)),
    OPT_ROWS_DRAFT(ARG(draft)),
    OPT_ROWS_PREFIX,
    OPT_ROWS_SANDBOX,
    OPT_ROWS_BASIC,
};

/* Several words are no prompt: say what they probably are. */
static int refuse_words(const struct gen_job *j, bool is_verb)
{
    const char *first = j->p.args[0], *near = verb_near(first);
    char hint[200] = "";
    if (is_verb && near && !verb_is_foreign(first))
        return opt_usage(j->verb, "\"%s\": no such verb, did you mean %s?",
                         first, near);
    if (is_verb && near)
        snprintf(hint, sizeof(hint), "; the verb for '%s' is '%s'", first,
                 near);
    else if (!strpbrk(first, " \t\n"))
        snprintf(hint, sizeof(hint), "; if %.60s is a model, use -m %.60s",
                 first, first);
    return common_refuse_words(&j->p, "prompt", hint);
}

/* Whether the first argument may be a verb. After "--", and with --raw, it is
 * text. */
static bool may_be_verb(const struct gen_job *j)
{
    return j->verb == &verb_generate && j->p.n_plain && !j->a.raw;
}

void gen_warn_verb(const struct gen_job *j)
{
    const char *word = may_be_verb(j) ? j->p.args[0] : "";
    const char *near = verb_near(word);
    if (near)
        msg_warn("took '%s' as the prompt; the verb is '%s'", word, near);
    else if (verb_is_foreign(word))
        msg_warn("took '%s' as the prompt; qwick has no such verb", word);
}

static int check_words(const struct gen_job *j)
{
    const struct opt_parsed *p = &j->p;
    const char *first = p->n_args ? p->args[0] : "";
    bool is_verb = may_be_verb(j);
    if (is_verb && verb_is_later(first))
        return opt_usage(j->verb,
                         "\"%s\": this version has no such verb; -p %s sends "
                         "it as a prompt",
                         first, first);
    if (p->n_args > 1 || (p->n_args && opt_given(p, "prompt")))
        return refuse_words(j, is_verb);
    return -1;
}

static void check_think(const struct gen_job *j)
{
    const char *think = j->a.think;
    if (j->a.raw)
        answer_drop_think(&j->p, think, "with --raw");
    else if (think && strcmp(think, "off") == 0)
        opt_warn_no_effect(&j->p, "think-budget", "with --think off");
    else if (j->a.prompt_ids && think && strcmp(think, "on") == 0)
        opt_warn_no_effect(&j->p, "think", "with --prompt-ids");
}

static int check_prompt(const struct gen_job *j)
{
    static const char *const with_raw[] = {
        "system",        "system-file", "chat-json",     "prefill",
        "show-thinking", "think-file",  "allow-special", "tools",
        "tool-choice",   NULL,
    };
    static const char *const with_ids[] = {
        "system", "system-file", "prefill", "allow-special",
        "tools",  "tool-choice", NULL,
    };
    static const char *const with_chat[] = {"system", "system-file", NULL};
    static const char *const with_files[] = {"file-names", NULL};
    static const char *const with_session[] = {
        "system", "system-file", "chat-json", "overflow",
        "tools",  "tool-choice", NULL,
    };
    static const char *const with_tools[] = {"tool-choice", NULL};
    static const char *const sources[] = {"prompt", "file", "chat-json",
                                          "preset", "prompt-template"};
    const struct opt_parsed *p = &j->p;
    int r;
    if ((r = check_words(j)) >= 0 || (r = preset_check(p, &j->a.preset)) >= 0)
        return r;
    const char *whole = j->a.prompt_ids  ? "prompt-ids"
                        : j->a.chat_json ? "chat-json"
                                         : NULL;
    for (size_t i = 0; whole && i < sizeof(sources) / sizeof(*sources); i++)
        if (strcmp(whole, sources[i]) != 0 &&
            (r = opt_conflict(p, whole, sources[i])) >= 0)
            return r;
    if (whole && p->n_args)
        return opt_usage(j->verb, "--%s: cannot be combined with a prompt",
                         whole);
    if (j->a.raw && (r = opt_no_effect(p, with_raw, "with --raw")) >= 0)
        return r;
    if (j->a.prompt_ids &&
        (r = opt_no_effect(p, with_ids, "with --prompt-ids")) >= 0)
        return r;
    check_think(j);
    if (j->a.chat_json &&
        (r = opt_no_effect(p, with_chat, "with --chat-json")) >= 0)
        return r;
    if ((r = opt_conflict(p, "system", "system-file")) >= 0)
        return r;
    if (!j->a.files.n && (r = opt_no_effect(p, with_files, "without -f")) >= 0)
        return r;
    if (!j->a.tools && !j->a.chat_json &&
        (r = opt_no_effect(p, with_tools, "without --tools")) >= 0)
        return r;
    for (size_t i = 0; with_session[i]; i++)
        if ((r = opt_conflict(p, "session", with_session[i])) >= 0)
            return r;
    size_t dashes = j->a.chat_json && strcmp(j->a.chat_json, "-") == 0;
    dashes += j->a.system_file && strcmp(j->a.system_file, "-") == 0;
    dashes += j->a.tools && strcmp(j->a.tools, "-") == 0;
    for (size_t i = 0; i < j->a.files.n; i++)
        dashes += strcmp(j->a.files.v[i], "-") == 0;
    if (dashes > 1)
        return opt_usage(j->verb, "-: standard input is named %zu times",
                         dashes);
    if (dashes && j->a.no_stdin)
        return opt_usage(j->verb, "--no-stdin: but - names standard input");
    return -1;
}

/* With -x, a code block may begin in the text of --prefill but not end in
 * it. */
static int check_extract(const struct gen_job *j)
{
    static const char *const with_extract[] = {"show-thinking", "confidence",
                                               NULL};
    const char *prefill = j->a.prefill;
    struct code_block c = {0};
    if (!j->a.extract)
        return -1;
    int r = opt_no_effect(&j->p, with_extract, "with --extract");
    if (r >= 0 || !prefill)
        return r;
    bool bad = code_block_feed(&c, prefill, strlen(prefill));
    bool closed = c.state == CODE_BLOCK_CLOSED;
    code_block_free(&c);
    return bad      ? msg_oom()
           : closed ? opt_usage(j->verb, "--prefill: has a whole code block, "
                                         "which --extract would print")
                    : -1;
}

static int check_output(const struct gen_job *j)
{
    static const char *const text_only[] = {"show-thinking", "no-newline",
                                            "null", "confidence", NULL};
    static const char *const json_only[] = {"logprobs", NULL};
    const struct opt_parsed *p = &j->p;
    bool json = j->a.c.json || j->a.c.jsonl;
    int r;
    if ((r = answer_check(p, &j->a.answer)) >= 0 ||
        (r = constraint_check(p, &j->a.constraint)) >= 0 ||
        (r = opt_conflict(p, "no-newline", "null")) >= 0)
        return r;
    if (json &&
        (r = opt_no_effect(p, text_only, "with --json or --jsonl")) >= 0)
        return r;
    if (!json &&
        (r = opt_no_effect(p, json_only, "without --json or --jsonl")) >= 0)
        return r;
    if ((r = common_check_colours(p, &j->a.c, "confidence")) >= 0)
        return r;
    return check_extract(j);
}

/* Every repeated run must do the same work, so options that carry state from
 * one run to the next are refused. */
static int check_repeat(struct gen_job *j)
{
    static const char *const repeat[] = {"repeat", NULL};
    static const char *const kept[] = {"session", "save-session",
                                       "prefix-cache", "cache-dir"};
    int r;
    if (!j->a.profile.on)
        return opt_no_effect(&j->p, repeat, "without --profile-timing");
    for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++)
        if ((r = opt_conflict(&j->p, "repeat", kept[i])) >= 0)
            return r;
    if (!opt_given(&j->p, "prefix-cache") && !opt_given(&j->p, "cache-dir"))
        j->a.c.prefix_cache = (struct opt_flag_file){0};
    return -1;
}

/* Samples share passes, so options about the passes or the session of one
 * answer are refused. */
static int check_samples(const struct gen_job *j)
{
    static const char *const single[] = {
        "session",    "save-session", "lookup",         "draft",
        "think-file", "profile-file", "profile-timing", "no-newline",
    };
    static const char *const samples[] = {"samples", NULL};
    const struct answer_args *a = &j->a.answer;
    int r;
    if (j->a.samples <= 1)
        return -1;
    for (size_t i = 0; i < sizeof(single) / sizeof(*single); i++)
        if ((r = opt_conflict(&j->p, "samples", single[i])) >= 0)
            return r;
    if (a->greedy || (opt_given(&j->p, "temp") && a->temp == 0))
        return opt_no_effect(&j->p, samples,
                             a->greedy ? "with --greedy" : "with --temp 0");
    return -1;
}

int gen_check(struct gen_job *j)
{
    struct gen_args *a = &j->a;
    int r = check_prompt(j);
    if (r >= 0 || (r = check_output(j)) >= 0)
        return r;
    if (a->profile_file && a->profile.file)
        return opt_usage(j->verb, "--profile-file: --profile-timing names a "
                                  "file as well");
    if (a->profile_file) {
        a->profile.on = true;
        a->profile.file = a->profile_file;
    }
    if ((r = gen_kept_check(j)) >= 0 || (r = check_samples(j)) >= 0)
        return r;
    return check_repeat(j);
}

const struct verb verb_generate = {
    .name = "generate",
    .args = "[PROMPT]",
    .summary = "answer a prompt (the default; also called run)",
    .about = "Answer one prompt with a language model on the CPU. The prompt "
             "is the files of\n-f, then piped standard input, then the "
             "argument, joined by blank lines. The\nanswer goes to stdout, "
             "everything else to stderr. A prompt that begins with -\nfollows "
             "--.",
    .examples = "  qwick \"list the files of a directory\"\n"
                "  qwick -f notes.txt -n 60 \"say this in one sentence\"\n"
                "  qwick --keep \"list files\" && qwick -C \"by size\"\n",
    OPT_TABLE(opts),
    .run = gen_run,
};
