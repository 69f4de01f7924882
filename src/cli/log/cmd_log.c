/* log: what was asked and answered. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "cli/io/confirm.h"
#include "cli/io/out.h"
#include "cli/io/state_file.h"
#include "cli/io/units.h"
#include "cli/log/log_print.h"
#include "cli/opt/opt.h"
#include "cli/opt/verbs.h"
#include "cli/store/conversation_store.h"
#include "cli/store/log_db.h"

/* ---- the log ---- */

/* Open the log; *l is NULL if there is none. Returns 0, or an exit status after
 * printing a message. */
static int open_log(struct log_db **l)
{
    struct buf path = {0};
    struct qwick_err e;
    *l = NULL;
    int rc = state_need_path(&path, STATE_LOG, "log", &e) ||
             log_db_open(l, path.data, &e);
    buf_free(&path);
    if (!rc && !*l)
        msg_hint("nothing is logged; --log logs an answer, and log = on in the "
                 "config file all of them");
    return msg_result(rc, &e);
}

/* Print the rows of a query. *any: there was one. */
static int print_rows(struct log_db *l, const struct log_query *q,
                      int (*fn)(void *, const struct log_row *))
{
    struct qwick_err e;
    int status = 0;
    if (!l)
        return 0;
    return log_db_each(l, q, fn, &status, &e) ? msg_fail(&e) : status;
}

/* ---- list and search ---- */

static int log_list(struct opt_parsed *p, struct log_query *q)
{
    struct log_db *l;
    int status = open_log(&l);
    if (!status)
        status = print_rows(l, q, p->a.json ? log_print_json : log_print_row);
    log_db_close(l);
    return status;
}

static int run_list(struct opt_parsed *p)
{
    struct log_query q = {.conversation = p->a.conversation,
                          .last = p->a.conversation ? 0 : 20};
    if (opt_given(p, OPT_last))
        q.last = p->a.last;
    return log_list(p, &q);
}

static int run_search(struct opt_parsed *p)
{
    struct log_query q = {.conversation = p->a.conversation,
                          .words = p->args + 1,
                          .n_words = p->n_args - 1};
    if (!q.n_words)
        return opt_usage(p->verb, "search: no words");
    for (size_t i = 0; i < q.n_words; i++)
        if (!*q.words[i])
            return opt_usage(p->verb, "search: a word is empty");
    if (opt_given(p, OPT_last))
        q.last = p->a.last;
    return log_list(p, &q);
}

/* ---- conversations ---- */

struct listed {
    bool json;
    int status;
};

static int list_conversation(void *ctx, const struct conversation *c)
{
    struct listed *l = ctx;
    struct buf b = {0};
    char when[32] = "";
    time_t t = (time_t)c->time;
    struct tm tm;
    if (gmtime_r(&t, &tm))
        strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
    if (l->json) {
        struct json_writer w = jw_line(&b);
        jw_cstr(&w, "conversation", c->name);
        jw_cstr(&w, "time", when);
        jw_uint(&w, "messages", c->n_messages);
        jw_cstr(&w, "model", c->model);
        jw_end_line(&w);
    } else {
        buf_printf(&b, "%-24s  ", c->name);
        log_put_time(&b, when);
        buf_printf(&b, "  %6zu %-8s  %s\n", c->n_messages,
                   plural(c->n_messages, "message", "messages"),
                   c->model ? c->model : "?");
    }
    return l->status = out_print(&b, out_write_names);
}

static int run_conversations(struct opt_parsed *p)
{
    struct listed l = {.json = p->a.json};
    struct qwick_err e;
    return conversation_each(list_conversation, &l, &e) ? msg_fail(&e)
                                                        : l.status;
}

/* Remove a conversation, then what the log has of it. */
static int remove_conversation(const char *name, bool force)
{
    const struct log_query q = {.conversation = name};
    struct buf what = {0};
    struct log_db *l;
    struct qwick_err e;
    int64_t n = 0;
    int rc = buf_printf(&what, "conversation %s with its answers", name)
                 ? msg_oom()
                 : confirm_removal(what.data, force);
    buf_free(&what);
    if (rc >= 0)
        return rc;
    int none = conversation_remove(name, &e);
    if (none < 0)
        return msg_fail(&e);
    if ((rc = open_log(&l)) != 0)
        return rc;
    if (l && log_db_remove(l, &q, &n, &e))
        rc = msg_fail(&e);
    else if (none && !n)
        rc = msg_failure("log: there is no conversation %s", name);
    log_db_close(l);
    return rc;
}

/* ---- show and rm ---- */

/* Read the ids after the verb's word. */
static int check_ids(const struct opt_parsed *p)
{
    int64_t id;
    for (size_t i = 1; i < p->n_args; i++)
        if (opt_int(p->args[i], &id) || id < 1)
            return opt_usage(p->verb, "%s: \"%s\": is no id of an answer",
                             p->args[0], p->args[i]);
    return -1;
}

/* The first exit status that is not 0 stays. */
static void keep_status(int *status, int one)
{
    *status = *status ? *status : one;
}

struct shown {
    int status;
    bool json, any;
};

static int show_row(void *ctx, const struct log_row *row)
{
    struct shown *s = ctx;
    if (!s->json && s->any)
        s->status = out_write("\n", 1) ? QWICK_ERR_RUNTIME : 0;
    s->any = true;
    if (s->status)
        return s->status;
    return s->json ? log_print_json(&s->status, row)
                   : log_print_whole(&s->status, row);
}

static int missing(const char *id)
{
    return msg_failure("log: there is no answer %s", id);
}

static int run_show(struct opt_parsed *p)
{
    struct shown s = {.json = p->a.json};
    struct qwick_err e;
    struct log_db *l;
    int r = check_ids(p), status;
    if (r >= 0)
        return r;
    if ((status = open_log(&l)) != 0)
        return status;
    if (p->n_args == 1 && l &&
        log_db_each(l, &(struct log_query){.last = 1}, show_row, &s, &e))
        status = msg_fail(&e);
    if (p->n_args == 1 && !status && !s.any)
        status = missing("yet");
    for (size_t i = 1; i < p->n_args && !s.status; i++) {
        struct log_query q = {0};
        bool before = s.any;
        (void)opt_int(p->args[i], &q.id);
        s.any = false;
        if (l && log_db_each(l, &q, show_row, &s, &e))
            keep_status(&status, msg_fail(&e));
        else if (!s.any)
            keep_status(&status, missing(p->args[i]));
        s.any |= before;
    }
    log_db_close(l);
    keep_status(&status, s.status);
    return status;
}

static int remove_rows(struct log_db *l, const struct log_query *q,
                       const char *id)
{
    struct qwick_err e;
    int64_t n = 0;
    if (l && log_db_remove(l, q, &n, &e))
        return msg_fail(&e);
    if (id && !n)
        return missing(id);
    msg_note("log: %lld answers are removed", (long long)n);
    return 0;
}

static int run_rm(struct opt_parsed *p)
{
    struct log_query q = {.conversation = p->a.conversation};
    struct log_db *l;
    int r = check_ids(p), status;
    if (r >= 0)
        return r;
    if ((p->n_args > 1) + p->a.all + (q.conversation != NULL) != 1)
        return opt_usage(p->verb, "rm: takes ids, --all or --conversation");
    if (p->n_args > 1 &&
        (r = opt_no_effect(p, OPT_force, OPT_NONE, "with ids")) >= 0)
        return r;
    if (q.conversation)
        return remove_conversation(q.conversation, p->a.force);
    if ((status = open_log(&l)) != 0)
        return status;
    if (p->a.all && (r = confirm_removal("all answers", p->a.force)) >= 0)
        status = r;
    else if (p->n_args == 1)
        status = remove_rows(l, &q, NULL);
    for (size_t i = 1; i < p->n_args; i++) {
        (void)opt_int(p->args[i], &q.id);
        keep_status(&status, remove_rows(l, &q, p->args[i]));
    }
    log_db_close(l);
    return status;
}

/* ---- the verb ---- */

static const struct sub {
    const char *name;
    int (*run)(struct opt_parsed *p);
    bool words; /* it takes arguments */
    enum opt_id options[5];
} subs[] = {
    {"list", run_list, false, {OPT_json, OPT_last, OPT_conversation}},
    {"search", run_search, true, {OPT_json, OPT_last, OPT_conversation}},
    {"show", run_show, true, {OPT_json}},
    {"conversations", run_conversations, false, {OPT_json}},
    {"rm", run_rm, true, {OPT_conversation, OPT_all, OPT_force}},
};

enum { N_SUBS = sizeof(subs) / sizeof(*subs) };

static bool sub_has(const struct sub *s, enum opt_id id)
{
    for (const enum opt_id *o = s->options; *o; o++)
        if (*o == id)
            return true;
    return false;
}

static int log_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    static const enum opt_id all[] = {OPT_json, OPT_last, OPT_conversation,
                                      OPT_all, OPT_force};
    const char *name = p->n_args ? p->args[0] : subs[0].name;
    const struct sub *s = subs;
    char why[40];
    (void)eng;
    while (s < subs + N_SUBS && strcmp(s->name, name) != 0)
        s++;
    if (s == subs + N_SUBS)
        return opt_usage(
            p->verb,
            "\"%s\": is none of list, search, show, conversations, "
            "rm; search finds words",
            name);
    if (!s->words && p->n_args > 1)
        return opt_usage(p->verb, "\"%s\": unexpected", p->args[1]);
    snprintf(why, sizeof(why), "with %s", s->name);
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        int r =
            sub_has(s, all[i]) ? -1 : opt_no_effect(p, all[i], OPT_NONE, why);
        if (r >= 0)
            return r;
    }
    return s->run(p);
}

const struct verb verb_log = {
    .bit = V_LOG,
    .name = "log",
    .group = VERBS_ANSWER,
    .args = "[list|search|show|conversations|rm] [WORDS|ID...]",
    .summary = "list, search or remove what was asked and answered",
    .about =
        "List the answers that --log, or log = on in the config file, has kept; the\n"
        "newest is the last line. search lists those whose prompt or answer has each of\n"
        "the words, in upper or lower case; a word in quotes may have blanks. show\n"
        "prints an answer with its prompt, its options and its times, without an ID the\n"
        "newest one. conversations lists those of --conversation. rm removes answers for\n"
        "good. The log is an SQLite database, $XDG_STATE_HOME/qwick/log/log.db, which\n"
        "only you can read.",
    .examples = "  qwick --log \"list files\" && qwick log show\n"
                "  qwick log search files\n"
                "  qwick log --last 100 --json\n",
    .check = conversation_check,
    .run = log_run,
};
