/* --show-config: print where each value of an option comes from. */
#include <string.h>

#include "base/buf.h"
#include "cli/io/out.h"
#include "cli/opt/settings.h"

/* Append a text as it is, or as a JSON string if it could be misread. */
static void put_text(struct buf *b, const char *s)
{
    bool plain = *s && *s != ' ' && !strstr(s, "  ");
    for (const char *at = s; *at && plain; at++)
        plain = (unsigned char)*at >= ' ' && *at != 127 && *at != '"';
    (plain ? buf_puts : buf_json_cstr)(b, s);
}

/* Append the value of an option that a source sets. */
static void put_value(struct buf *b, const struct opt *o,
                      const union opt_value *v)
{
    const struct opt_flag_file *f = &v->flag_file;
    switch (o->type) {
    case OPT_FLAG:
        buf_puts(b, v->flag ? "on" : "off");
        break;
    case OPT_INT:
    case OPT_SIZE:
        buf_printf(b, "%lld", (long long)v->integer);
        break;
    case OPT_NUMBER:
        buf_json_double(b, v->number);
        break;
    case OPT_TEXT:
    case OPT_FILE:
    case OPT_CHOICE:
        put_text(b, v->text);
        break;
    case OPT_TEXTS:
    case OPT_FILES:
        for (size_t i = 0; i < v->texts.n; i++) {
            buf_puts(b, i ? " " : "");
            buf_json_cstr(b, v->texts.v[i]);
        }
        break;
    case OPT_INTS:
        for (size_t i = 0; i < v->ints.n; i++)
            buf_printf(b, "%s%lld", i ? "," : "", (long long)v->ints.v[i]);
        break;
    case OPT_FLAG_FILE:
        put_text(b, f->file ? f->file : f->on ? "on" : "off");
        break;
    case OPT_HEADING:
        break;
    }
}

enum { NAME_WIDTH = 20, VALUE_WIDTH = 24 };

void settings_put_row(struct buf *b, const struct opt_parsed *p,
                      const struct opt *o)
{
    const struct opt_source *s = &p->sources[o->id];
    buf_printf(b, "%-*s", NAME_WIDTH, o->name);
    size_t start = b->len;
    if (s->rank != OPT_UNSET)
        put_value(b, o, opt_value_at(p, o));
    else
        buf_puts(b, o->def                                            ? o->def
                    : o->type == OPT_FLAG || o->type == OPT_FLAG_FILE ? "off"
                                                                      : "-");
    size_t width = b->len - start;
    buf_printf(b, "%*s  %s\n",
               width < VALUE_WIDTH ? (int)(VALUE_WIDTH - width) : 0, "",
               s->rank == OPT_UNSET ? "default"
               : s->where           ? s->where
                                    : "command line");
}

static void put_head(struct buf *b, const struct opt_parsed *p)
{
    struct buf path = {0};
    buf_printf(b, "# verb: %s\n# config file: ", p->verb->name);
    settings_path(&path, "config");
    put_text(b, path.len ? path.data : "none, HOME is not set");
    if (path.len && p->a.no_config)
        buf_puts(b, ", ignored: no-config");
    else if (path.len && !settings_has_file(p->settings))
        buf_puts(b, ", does not exist");
    buf_putc(b, '\n');
    buf_free_part(&path, b);
}

int settings_show(const struct opt_parsed *p)
{
    struct buf b = {0};
    if (p->n_args)
        return opt_usage(p->verb,
                         "\"%s\": --show-config takes a verb, and no "
                         "other arguments",
                         p->args[0]);
    put_head(&b, p);
    for (const struct opt *o = NULL; (o = opt_next(p->verb, o));)
        if (o->id != OPT_show_config && (p->sources[o->id].rank != OPT_UNSET ||
                                         !o->single))
            settings_put_row(&b, p, o);
    return out_print(&b, out_write_names);
}
