#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "cli/answer/answer_json.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "cli/io/prompt.h"
#include "cli/io/signals.h"
#include "cli/opt/common.h"
#include "cli/opt/opt.h"
#include "cli/opt/verbs.h"
#include "cli/sandbox/open_model.h"
#include "file/safetensors.h"
#include "qwick.h"

struct candidate {
    int32_t id;
    float logit;
};

struct job {
    const struct verb *verb;
    struct opt_parsed *p;
    struct args *a; /* of p */
    struct buf text;
    int32_t *ids;
    size_t n_ids;
    struct qwick_engine *eng;
    struct qwick_session *ses;
    struct st_writer *writer;
    struct qwick_err row_err; /* error of a row callback */
    struct buf out;           /* table or JSON of the rows so far */
    struct json_writer json;  /* writes into out */
    struct candidate *top;    /* [k + 1] */
    size_t k, n_rows;
};

/* ---- the likeliest ---- */

static bool likelier(struct candidate a, struct candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* The k likeliest ids of a row, in order. They are kept in a heap whose root is
 * the least likely one, and sorted at the end. */
static void sift_down(struct candidate *h, size_t n, size_t i)
{
    for (;;) {
        size_t c = 2 * i + 1;
        if (c >= n)
            return;
        if (c + 1 < n && likelier(h[c], h[c + 1]))
            c++;
        if (!likelier(h[i], h[c]))
            return;
        struct candidate t = h[i];
        h[i] = h[c];
        h[c] = t;
        i = c;
    }
}

static int by_rank(const void *a, const void *b)
{
    struct candidate x = *(const struct candidate *)a;
    struct candidate y = *(const struct candidate *)b;
    return likelier(y, x) - likelier(x, y);
}

static void find_top(struct candidate *h, size_t k, const float *logits,
                     size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct candidate c = {(int32_t)i, logits[i]};
        if (i < k) {
            h[i] = c;
            if (i + 1 == k)
                for (size_t s = k / 2 + 1; s-- > 0;)
                    sift_down(h, k, s);
        } else if (likelier(c, h[0])) {
            h[0] = c;
            sift_down(h, k, 0);
        }
    }
    qsort(h, k, sizeof(*h), by_rank);
}

/* log(sum(exp(v))), in double and relative to the maximum, so that exp does not
 * overflow. */
static double log_sum_exp(const float *v, size_t n)
{
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++)
        if ((double)v[i] > max)
            max = v[i];
    for (size_t i = 0; i < n; i++)
        sum += exp((double)v[i] - max);
    return max + log(sum);
}

/* Append the token's text as JSON, or "-" if it has none. */
static int put_text(struct buf *b, const struct job *j, int32_t id)
{
    char *text;
    size_t n;
    int bad = token_text(j->eng, id, &text, &n);
    bad |= text ? buf_json_string(b, text, n) : buf_putc(b, '-');
    free(text);
    return bad | buf_putc(b, '\n');
}

/* A terminal gets a table for people. */
static int put_table(struct job *j, size_t pos, double lse)
{
    struct buf *b = &j->out;
    int bad = 0;
    if (j->a->all)
        bad |= buf_printf(b, "%sposition %zu, after id %d\n",
                          j->n_rows ? "\n" : "", pos, j->ids[pos]);
    if (!j->n_rows || j->a->all)
        bad |= buf_printf(b, "%8s %12s %12s %9s  %s\n", "id", "logit",
                          "logprob", "prob", "text");
    for (size_t i = 0; i < j->k && !bad; i++) {
        double logit = j->top[i].logit, lp = logit - lse;
        bad |= buf_printf(b, "%8d %12.6f %12.6f %8.4f%%  ", j->top[i].id, logit,
                          lp, 100 * exp(lp));
        bad |= put_text(b, j, j->top[i].id);
    }
    return bad;
}

/* Files and pipes get lines with tabs, for cut and awk. */
static int put_tabs(struct job *j, size_t pos, double lse)
{
    struct buf *b = &j->out;
    int bad = 0;
    for (size_t i = 0; i < j->k && !bad; i++) {
        double logit = j->top[i].logit, lp = logit - lse;
        if (j->a->all)
            bad |= buf_printf(b, "%zu\t", pos);
        bad |= buf_printf(b, "%d\t%.6f\t%.6f\t%.6f\t", j->top[i].id, logit, lp,
                          exp(lp));
        bad |= put_text(b, j, j->top[i].id);
    }
    return bad;
}

static int put_json(struct job *j, size_t pos, double lse)
{
    struct json_writer *w = &j->json;
    jw_object(w, NULL);
    jw_uint(w, "pos", pos);
    jw_array(w, "top");
    for (size_t i = 0; i < j->k; i++) {
        double logit = j->top[i].logit;
        jw_object(w, NULL);
        json_token(w, j->eng, j->top[i].id);
        jw_double(w, "logit", logit);
        jw_double(w, "logprob", logit - lse);
        jw_end_object(w);
    }
    jw_end_array(w);
    jw_end_object(w);
    return jw_status(w);
}

static int put_row(struct job *j, size_t pos, const float *logits)
{
    size_t vocab_size = qwick_engine_info(j->eng)->vocab_size;
    double lse = log_sum_exp(logits, vocab_size);
    find_top(j->top, j->k, logits, vocab_size);
    int bad = j->a->json     ? put_json(j, pos, lse)
              : out_is_tty() ? put_table(j, pos, lse)
                             : put_tabs(j, pos, lse);
    j->n_rows++;
    return bad ? err_oom(&j->row_err, j->out.len) : 0;
}

static int on_row(void *ctx, size_t pos, const float *logits)
{
    struct job *j = ctx;
    size_t vocab_size = qwick_engine_info(j->eng)->vocab_size;
    for (size_t i = 0; i < vocab_size; i++)
        if (!isfinite(logits[i]))
            return err_set(&j->row_err, QWICK_ERR_RUNTIME,
                           "logits: not finite at position %zu: the weights "
                           "hold NaN, infinities or values too large",
                           pos);
    if (j->writer)
        return st_writer_data(j->writer, logits, vocab_size * sizeof(*logits),
                              &j->row_err);
    return put_row(j, pos, logits);
}

/* ---- the work ---- */

static int rows(struct job *j, struct qwick_err *e)
{
    if (j->a->all) {
        int r =
            qwick_session_all_logits(j->ses, j->ids, j->n_ids, on_row, j, e);
        if (r && j->row_err.code)
            *e = j->row_err;
        return r;
    }
    if (qwick_session_sync(j->ses, j->ids, j->n_ids, e))
        return -1;
    if (on_row(j, j->n_ids - 1, qwick_session_logits(j->ses)) == 0)
        return 0;
    *e = j->row_err;
    return -1;
}

static int write_file(struct job *j, struct qwick_err *e)
{
    size_t vocab_size = qwick_engine_info(j->eng)->vocab_size;
    /* ids first: I64 data must begin at a multiple of 8 */
    struct st_out_tensor t[2] = {
        {"input_ids", DT_I64, 1, {j->n_ids}, NULL},
        {"logits", DT_F32, 2, {j->a->all ? j->n_ids : 1, vocab_size}, NULL},
    };
    int64_t *wide = malloc(j->n_ids * sizeof(*wide));
    int r = -1;
    if (!wide)
        return err_oom(e, j->n_ids * sizeof(*wide));
    for (size_t i = 0; i < j->n_ids; i++)
        wide[i] = j->ids[i];
    if (st_writer_open(&j->writer, j->a->output, t, 2, e))
        goto done;
    if (st_writer_data(j->writer, wide, j->n_ids * sizeof(*wide), e) ||
        rows(j, e)) {
        st_writer_abort(j->writer);
        goto done;
    }
    r = st_writer_close(j->writer, e);
done:
    j->writer = NULL;
    free(wide);
    return r;
}

static int print(struct job *j, struct qwick_err *e)
{
    size_t vocab_size = qwick_engine_info(j->eng)->vocab_size;
    struct json_writer *w = &j->json;
    j->k = j->a->top ? (size_t)j->a->top : 10;
    if (j->k > vocab_size)
        j->k = vocab_size;
    j->top = malloc((j->k + 1) * sizeof(*j->top));
    if (!j->top)
        return err_oom(e, j->k * sizeof(*j->top));
    if (j->a->json) {
        *w = jw_line(&j->out);
        jw_cstr(w, "model", qwick_engine_info(j->eng)->model);
        json_ids(w, "input_ids", j->ids, j->n_ids);
        jw_array(w, "positions");
    }
    if (rows(j, e))
        return -1;
    return j->a->json && jw_end_line(w) ? err_oom(e, j->out.len) : 0;
}

static int encode(struct job *j, struct qwick_err *e)
{
    const struct qwick_info *info = qwick_engine_info(j->eng);
    if (j->a->prompt_ids)
        return prompt_check_ids(j->ids, j->n_ids, info->vocab_size, e);
    if (j->a->chat) {
        if (strcmp(info->template_name, "none") == 0)
            return err_usage(e, "--chat: has no effect with a checkpoint that "
                                "has no chat template");
        struct qwick_chat_options o = {.size = sizeof(o),
                                       .add_generation_prompt = true,
                                       .think = QWICK_THINK_AUTO};
        struct qwick_chat *chat;
        bool in_think;
        int r = -1;
        if (qwick_chat_create(&chat, e))
            return -1;
        if (!qwick_chat_add(chat, "user", j->text.data, j->text.len, e))
            r = qwick_chat_encode(chat, j->eng, &o, NULL, 0, &j->ids, &j->n_ids,
                                  &in_think, e);
        qwick_chat_free(chat);
        return r;
    }
    return qwick_tokenize_prompt(j->eng, j->text.data, j->text.len, true, 0,
                                 &j->ids, &j->n_ids, e);
}

static int logits_check(struct opt_parsed *p)
{
    if (p->n_args > 1 || (p->n_args && opt_given(p, OPT_prompt)))
        return common_refuse_words(p, "text", "");
    if (p->n_args && p->a.prompt_ids)
        return opt_usage(p->verb,
                         "--prompt-ids: cannot be combined with a text");
    if (p->a.output && strcmp(p->a.output, "-") == 0)
        p->a.output = "/dev/stdout";
    return -1;
}

static int read_input(struct job *j, struct qwick_err *e)
{
    const char *text = j->p->n_args ? j->p->args[0] : j->a->prompt;
    if (j->p->n_args && strcmp(text, "-") == 0)
        text = NULL; /* "-" is standard input, which is read when there is no
                        argument */
    common_warn_file(j->p);
    if (!j->a->prompt_ids) {
        const struct prompt_sources sources = {.files = &j->a->file,
                                               .text = text,
                                               .no_stdin = j->a->no_stdin,
                                               .exact = !j->a->chat};
        struct prompt_faults faults = {0};
        if (prompt_compose(&j->text, &sources, &faults, e))
            return msg_fail(e);
        prompt_warn_faults(&faults, "prompt");
        if (!j->text.len)
            return opt_usage(j->verb,
                             "no text; usage: qwick logits [OPTIONS] [TEXT]");
        return 0;
    }
    if (!j->a->no_stdin && stdin_has_data())
        return opt_usage(j->verb,
                         "--prompt-ids: cannot be combined with a text on "
                         "standard input; --no-stdin ignores it");
    return msg_result(prompt_ids("--prompt-ids", j->a->prompt_ids,
                                 strlen(j->a->prompt_ids), false, &j->ids,
                                 &j->n_ids, e),
                      e);
}

static int logits(struct job *j)
{
    struct qwick_err e = {0};
    int status = read_input(j, &e);
    if (status || (status = open_model(&j->eng, j->p, false)) != 0)
        return status;
    if (encode(j, &e) ||
        qwick_session_create(&j->ses, j->eng, (size_t)j->a->ctx, &e))
        return msg_fail(&e);
    if (j->n_ids == 0)
        return msg_refuse("text: it has no tokens after normalization");
    size_t limit = qwick_session_n_ctx(j->ses);
    if (j->n_ids > limit)
        return msg_stop(QWICK_ERR_CONTEXT,
                        "prompt: %zu tokens do not fit the context of %zu",
                        j->n_ids, limit);
    /* catch signals, so that an interrupted -o removes its temporary file */
    signals_catch();
    qwick_session_interrupt(j->ses, signals_flag());
    progress_start("logits");
    progress_items("tokens", 0, 0, j->n_ids, 0);
    qwick_session_progress(j->ses, progress_step, NULL);
    int failed = j->a->output ? write_file(j, &e) : print(j, &e);
    progress_stop();
    if (failed)
        return *signals_flag() ? (int)QWICK_ERR_RUNTIME : msg_fail(&e);
    return j->out.len && out_write(j->out.data, j->out.len) ? 1 : 0;
}

static int logits_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    struct job j = {.verb = p->verb, .p = p, .a = &p->a, .eng = eng};
    int status = logits(&j);
    qwick_session_free(j.ses);
    qwick_engine_close(j.eng);
    buf_free(&j.text);
    buf_free(&j.out);
    free(j.ids);
    free(j.top);
    return status;
}

const struct verb verb_logits = {
    .bit = V_LOGITS,
    .needs_logits = true,
    .name = "logits",
    .group = VERBS_TOKENS,
    .args = "[TEXT]",
    .summary = "the model's scores for the next token",
    .about = "Print the likeliest next tokens after a text, or write all "
             "logits to a file.\nThe logits come straight from the model, "
             "before any mask or sampling.",
    .examples = "  qwick logits \"ls -l\"\n"
                "  qwick logits --all --json \"ls -l\" >logits.json\n",
    .check = logits_check,
    .run = logits_run,
};
