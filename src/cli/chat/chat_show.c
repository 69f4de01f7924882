/* What a chat shows of itself: its facts and its messages. */
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "cli/chat/chat_job.h"
#include "cli/io/out.h"
#include "cli/io/prompt.h"

/* Of a message that is cut. */
enum { SHOWN_LINES = 20, SHOWN_BYTES = 2000 };

/* Return how many of s[0..n) are shown: whole characters, and no newlines at
 * the end. */
static size_t shown_length(const char *s, size_t n)
{
    size_t k = n > SHOWN_BYTES ? utf8_complete(s, SHOWN_BYTES) : n, lines = 0;
    for (size_t i = 0; i < k; i++)
        if (s[i] == '\n' && ++lines == SHOWN_LINES)
            k = i;
    while (k && s[k - 1] == '\n')
        k--;
    return k;
}

static void show_message(const struct qwick_message *m, bool cut)
{
    struct buf b = {0};
    bool answers = m->n_role == 9 && memcmp(m->role, "assistant", 9) == 0;
    bool asks = m->n_role == 4 && memcmp(m->role, "user", 4) == 0;
    size_t n = cut ? shown_length(m->content, m->n_content) : m->n_content;
    if (asks)
        buf_puts(&b, ">>> ");
    else if (!answers)
        buf_printf(&b, "%.*s: ", (int)m->n_role, m->role);
    buf_append(&b, m->content, n);
    while (b.len && b.data[b.len - 1] == '\n')
        b.len--;
    buf_putc(&b, '\n');
    if (cut && n < prompt_drop_newline(m->content, m->n_content))
        buf_printf(&b, "... (%zu more bytes; /show chat prints all)\n",
                   m->n_content - n);
    (void)out_print(&b, out_write);
}

void chat_show_messages(const struct chat *c, size_t i, bool cut)
{
    struct qwick_message m;
    for (; i < qwick_chat_length(c->j.chat); i++)
        if (!qwick_chat_at(c->j.chat, i, &m, NULL) && m.content)
            show_message(&m, cut);
}

void chat_show_last(const struct chat *c)
{
    size_t i;
    if (chat_last_user(c, &i))
        chat_show_messages(c, i, true);
}

/* Where the conversation is kept. */
static void show_place(const struct chat *c)
{
    if (c->j.p->a.conversation)
        chat_say("kept as:     conversation %s", c->j.p->a.conversation);
    if (c->session)
        chat_say("kept as:     session %s", c->session);
}

/* The options that something sets. */
static void show_options(const struct chat *c)
{
    struct buf b = {0};
    for (const struct opt *o = NULL; (o = opt_next(c->j.p->verb, o));)
        if (o->live && opt_given(c->j.p, o->id))
            chat_set_put(&b, c->j.p, o);
    if (b.len)
        chat_say("options:\n%.*s", (int)b.len - 1, b.data);
    buf_free(&b);
}

int chat_show(struct chat *c)
{
    struct qwick_message m;
    if (strcmp(c->arg, "chat") == 0) {
        chat_show_messages(c, 0, false);
        return 0;
    }
    if (*c->arg) {
        msg_error("/show: \"%s\": expected chat, or nothing", c->arg);
        return 0;
    }
    chat_say("model:       %s", c->model.opened.name);
    chat_say("context:     %zu of %zu tokens", chat_tokens(c),
             (size_t)c->model.opened.limit);
    chat_say("messages:    %zu", qwick_chat_length(c->j.chat));
    show_place(c);
    if (chat_has_system(c->j.chat) && !qwick_chat_at(c->j.chat, 0, &m, NULL))
        chat_say("system:      %.*s", (int)shown_length(m.content, m.n_content),
                 m.content);
    show_options(c);
    return 0;
}
