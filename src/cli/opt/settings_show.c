/* --show-config: print where each value of an option comes from. */
#include <string.h>

#include "base/buf.h"
#include "cli/io/out.h"
#include "cli/opt/settings.h"

/* Append a text as it is, or as a JSON string if it could be misread. */
static int put_text(struct buf *b, const char *s)
{
    bool plain = *s && *s != ' ' && !strstr(s, "  ");
    for (const char *at = s; *at && plain; at++)
        plain = (unsigned char)*at >= ' ' && *at != 127 && *at != '"';
    return plain ? buf_puts(b, s) : buf_json_cstr(b, s);
}

static int put_texts(struct buf *b, const struct strings *t)
{
    int bad = 0;
    for (size_t i = 0; i < t->n; i++) {
        bad |= i ? buf_puts(b, " ") : 0;
        bad |= buf_json_cstr(b, t->v[i]);
    }
    return bad;
}

static int put_ints(struct buf *b, const struct opt_ints *list)
{
    int bad = 0;
    for (size_t i = 0; i < list->n; i++)
        bad |= buf_printf(b, "%s%lld", i ? "," : "", (long long)list->v[i]);
    return bad;
}

/* Append the value of an option that a source sets. */
static int put_value(struct buf *b, const struct opt *o, const void *value)
{
    const struct opt_flag_file *f = value;
    switch (o->type) {
    case OPT_FLAG:
        return buf_puts(b, *(const bool *)value ? "on" : "off");
    case OPT_INT:
    case OPT_SIZE:
        return buf_printf(b, "%lld", (long long)*(const int64_t *)value);
    case OPT_NUMBER:
        return buf_json_double(b, *(const double *)value);
    case OPT_TEXT:
    case OPT_FILE:
    case OPT_CHOICE:
        return put_text(b, *(const char *const *)value);
    case OPT_TEXTS:
    case OPT_FILES:
        return put_texts(b, value);
    case OPT_INTS:
        return put_ints(b, value);
    case OPT_FLAG_FILE:
        return f->file ? put_text(b, f->file)
                       : buf_puts(b, f->on ? "on" : "off");
    case OPT_HEADING:
        break;
    }
    return 0;
}

enum { NAME_WIDTH = 20, VALUE_WIDTH = 24 };

static int put_row(struct buf *b, const struct opt_parsed *p,
                   const struct opt *o)
{
    const struct opt_source *s = &p->sources[o->id];
    int bad = buf_printf(b, "%-*s", NAME_WIDTH, o->name);
    size_t start = b->len;
    if (s->rank != OPT_UNSET)
        bad |= put_value(b, o, opt_value_at(p, o));
    else
        bad |= buf_puts(b, o->def ? o->def
                           : o->type == OPT_FLAG || o->type == OPT_FLAG_FILE
                               ? "off"
                               : "-");
    size_t width = b->len - start;
    bad |= buf_printf(b, "%*s  %s\n",
                      width < VALUE_WIDTH ? (int)(VALUE_WIDTH - width) : 0, "",
                      s->rank == OPT_UNSET  ? "default"
                      : s->rank == OPT_LINE ? "command line"
                                            : s->where);
    return bad;
}

static int put_head(struct buf *b, const struct opt_parsed *p)
{
    struct buf path = {0};
    int bad = buf_printf(b, "# verb: %s\n# config file: ", p->verb->name);
    bad |= settings_path(&path, "config");
    bad |= path.len ? put_text(b, path.data)
                    : buf_puts(b, "none, HOME is not set");
    if (path.len && p->a.no_config)
        bad |= buf_puts(b, ", ignored: no-config");
    else if (path.len && !settings_has_file(p->settings))
        bad |= buf_puts(b, ", does not exist");
    bad |= buf_putc(b, '\n');
    buf_free(&path);
    return bad;
}

int settings_show(const struct opt_parsed *p)
{
    struct buf b = {0};
    if (p->n_args)
        return opt_usage(p->verb,
                         "\"%s\": --show-config takes a verb, and no "
                         "other arguments",
                         p->args[0]);
    int bad = put_head(&b, p);
    for (const struct opt *o = NULL; (o = opt_next(p->verb, o)) && !bad;)
        if (o->id != OPT_show_config && (p->sources[o->id].rank != OPT_UNSET ||
                                         !o->single))
            bad = put_row(&b, p, o);
    return out_print(&b, bad, out_write_names);
}
