#include "cli/answer/gen_kept.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/utf8.h"
#include "cli/answer/chat_input.h"
#include "cli/io/out.h"
#include "cli/io/state_file.h"
#include "file/save.h"

int gen_kept_check_session(const struct gen_job *j)
{
    size_t n = 1;
    if (j->a->session)
        (void)qwick_session_note(j->ses, &n);
    return n ? -1
             : opt_no_effect(j->p, OPT_keep, OPT_session,
                             "with a session that has no messages");
}

static const char *option_of(const struct gen_job *j)
{
    return j->a->keep ? "--keep" : "--continue";
}

int gen_kept_prepare(const struct gen_job *j)
{
    struct buf path = {0};
    struct qwick_err e;
    if (!j->a->keep && !j->a->go_on)
        return 0;
    int rc = state_kept_path(&path, option_of(j), &e) ||
             state_make_dir(path.data, &e);
    buf_free(&path);
    return rc ? msg_fail(&e) : 0;
}

int gen_kept_find(char **path)
{
    struct buf b = {0};
    struct qwick_err e;
    *path = NULL;
    if (state_kept_path(&b, "--continue", &e)) {
        buf_free(&b);
        return msg_fail(&e);
    }
    int fd = state_open(b.data, O_RDONLY, &e);
    if (fd >= 0) {
        close(fd);
        *path = buf_take(&b, NULL);
        return 0;
    }
    if (fd == -2)
        err_set(&e, QWICK_ERR_RUNTIME,
                "--continue: no conversation is kept (%s does not exist); "
                "--keep keeps one",
                b.data);
    buf_free(&b);
    return msg_fail(&e);
}

void gen_kept_hint(const struct qwick_chat *c)
{
    enum { SHOWN = 60 };
    struct qwick_message m;
    size_t i;
    if (!chat_input_last_user(c, &i, &m))
        return;
    const char *end = memchr(m.content, '\n', m.n_content);
    size_t n = end ? (size_t)(end - m.content) : m.n_content;
    bool cut = end || n > SHOWN;
    if (n > SHOWN)
        n = utf8_complete(m.content, SHOWN);
    msg_hint("goes on after \"%.*s%s\"", (int)n, m.content, cut ? "..." : "");
}

/* ---- writing ---- */

/* Append the messages of another conversation. */
static int add_all(struct qwick_chat *to, const struct qwick_chat *from,
                   struct qwick_err *e)
{
    char *json;
    size_t n;
    if (qwick_chat_json(from, &json, &n, e))
        return -1;
    int rc = qwick_chat_add_json(to, json, n, e);
    free(json);
    return rc;
}

/* Append the answer. The text of --prefill is its beginning, except inside a
 * think block, which later prompts do not show. */
static int add_answer(struct qwick_chat *c, const struct gen_job *j,
                      const struct qwick_result *r, struct qwick_err *e)
{
    struct buf text = {0};
    struct qwick_result whole = *r;
    if (!j->prefill.len || j->in_think)
        return qwick_chat_add_answer(c, r, e);
    if (buf_append(&text, j->prefill.data, j->prefill.len) ||
        buf_append(&text, r->text, r->n_text)) {
        buf_free(&text);
        return err_oom(e, r->n_text);
    }
    whole.text = text.data;
    whole.n_text = text.len;
    int rc = qwick_chat_add_answer(c, &whole, e);
    buf_free(&text);
    return rc;
}

int gen_kept_json(const struct gen_job *j, const struct qwick_result *r,
                  char **json, size_t *n, struct qwick_err *e)
{
    struct qwick_chat *c;
    size_t n_note = 0;
    const char *note =
        j->a->session ? qwick_session_note(j->ses, &n_note) : NULL;
    *json = NULL;
    *n = 0;
    if (j->mode != MODE_CHAT || (j->a->session && !n_note))
        return 0;
    if (qwick_chat_create(&c, e))
        return -1;
    int rc = (note && qwick_chat_add_json(c, note, n_note, e)) ||
             add_all(c, j->chat, e) || add_answer(c, j, r, e) ||
             qwick_chat_json(c, json, n, e);
    qwick_chat_free(c);
    return rc ? -1 : 0;
}

int gen_kept_write(const char *json, size_t n)
{
    struct buf path = {0};
    struct qwick_err e;
    int rc = state_kept_path(&path, "--keep", &e) ||
             save_put(path.data, SAVE_PRIVATE, json, n, &e);
    buf_free(&path);
    return rc ? msg_fail(&e) : 0;
}
