#include "cli/chat/chat_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/answer/answer_opts.h"
#include "cli/io/out.h"
#include "cli/opt/common.h"
#include "cli/opt/settings.h"
#include "cli/opt/verbs.h"

const char chat_unset[] = "";

/* ---- the changes ---- */

int chat_set_begin(struct chat_settings *s, struct opt_parsed *p)
{
    *s = (struct chat_settings){.p = p, .base = malloc(sizeof *p)};
    if (!s->base)
        return msg_oom();
    *s->base = *p;
    return 0;
}

/* Take all changes back. The lists of base are shared, the others are not. */
static void set_restore(struct chat_settings *s)
{
    for (const struct opt *o = NULL; (o = opt_next(s->p->verb, o));) {
        struct strings *list = opt_value_at(s->p, o);
        const struct strings *old = opt_value_at(s->base, o);
        if (o->live && o->type == OPT_TEXTS && list->v != old->v)
            free(list->v);
    }
    *s->p = *s->base;
}

void chat_set_end(struct chat_settings *s)
{
    if (s->base)
        set_restore(s);
    free(s->base);
    s->base = NULL;
}

/* Apply the change of one option. */
static int set_apply(struct chat_settings *s, const struct opt *o)
{
    const char *value = s->changed[o->id];
    const char *where = o->id == OPT_model ? "/model" : "/set";
    char name[64];
    if (!value)
        return -1;
    snprintf(name, sizeof(name), "%s %s", where, o->name);
    opt_unset(s->p, o);
    return value == chat_unset
               ? -1
               : opt_set_default(s->p, o, OPT_LINE, where, name, value);
}

/* A change would take away an option that the running chat depends on. */
static int set_check_lost(const struct chat_settings *s, const struct opt *by)
{
    for (const struct opt *o = NULL; (o = opt_next(s->p->verb, o));)
        if (!o->live && opt_given(s->base, o->id) && !opt_given(s->p, o->id))
            return opt_usage(s->p->verb,
                             "/set %s: cannot be combined with --%s, which "
                             "cannot change during a chat",
                             by->name, o->name);
    return -1;
}

/* Apply all changes, of which one is new. Returns -1, or an exit status. */
static int set_apply_all(struct chat_settings *s, const struct opt *new)
{
    struct opt_parsed *p = s->p;
    int r = -1;
    set_restore(s);
    for (const struct opt *o = NULL; r < 0 && (o = opt_next(p->verb, o));)
        r = set_apply(s, o);
    if (r >= 0 || (r = opt_check_relations(p)) >= 0 ||
        (r = set_check_lost(s, new)) >= 0 || (r = answer_check(p)) >= 0)
        return r;
    if (s->changed[OPT_model])
        r = common_resolve_alias(p, OPT_model, &p->models.alias,
                                 &p->models.is_name);
    return r;
}

int chat_set_change(struct chat_settings *s, const struct opt *o,
                    const char *value)
{
    const char *before = s->changed[o->id];
    char *own = value && value != chat_unset ? strdup(value) : NULL;
    if (value && value != chat_unset &&
        (!own || settings_keep(s->p->settings, own)))
        return msg_oom();
    s->changed[o->id] = own ? own : value;
    int r = set_apply_all(s, o);
    if (r >= 0) {
        s->changed[o->id] = before;
        (void)set_apply_all(s, o); /* as it was, so nothing is refused */
    }
    return r < 0 ? 0 : r;
}

/* ---- names ---- */

const struct opt *chat_set_find(const struct opt_parsed *p, const char *command,
                                const char *name)
{
    static const struct {
        enum opt_id id;
        const char *command;
    } own[] = {{OPT_model, "/model NAME"},
               {OPT_system, "/system TEXT"},
               {OPT_system_file, "/system TEXT"}};
    name += strspn(name, "-");
    const struct opt *o = opt_find(p->verb, name);
    const char *near = o ? NULL : opt_meant(p->verb, name);
    if (o && o->live)
        return o;
    for (size_t i = 0; o && i < sizeof(own) / sizeof(*own); i++)
        if (own[i].id == o->id) {
            msg_error("%s %s: %s changes it", command, name, own[i].command);
            return NULL;
        }
    if (o)
        msg_error("%s %s: cannot change during a chat", command, name);
    else
        msg_error("%s %s: no such option%s%s%s", command, name,
                  DID_YOU_MEAN(near), near ? "?" : "; /set lists them");
    return NULL;
}

void chat_set_put(struct buf *b, const struct opt_parsed *p,
                  const struct opt *o)
{
    if (o) {
        settings_put_row(b, p, o);
        return;
    }
    while ((o = opt_next(p->verb, o)))
        if (o->live)
            settings_put_row(b, p, o);
}

/* Append words between '|'. */
static int put_choices(struct buf *out, const char *choices)
{
    int bad = 0;
    for (; *choices; choices += strspn(choices, "|")) {
        size_t n = strcspn(choices, "|");
        bad |= buf_append(out, choices, n) | buf_putc(out, '\n');
        choices += n;
    }
    return bad;
}

int chat_set_words(struct buf *out, const char *words, size_t n)
{
    char name[64];
    int bad = 0;
    while (n && strchr(" \t", words[n - 1]))
        n--;
    if (n >= sizeof(name))
        return 0;
    memcpy(name, words, n);
    name[n] = 0;
    for (const struct opt *o = NULL; (o = opt_next(&verb_chat, o));) {
        if (o->live && !n)
            bad |= buf_printf(out, "%s\n", o->name);
        if (o->live && strcmp(o->name, name) == 0)
            bad |= put_choices(out, o->choices            ? o->choices
                                    : o->type == OPT_FLAG ? "on|off"
                                                          : "");
    }
    return bad ? -1 : 0;
}
