#include "cli/opt/preset.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/io/out.h"
#include "cli/io/prompt.h"
#include "cli/opt/settings.h"
#include "cli/opt/verbs.h"
#include "file/fs.h"
#include "file/map.h"

static const char suffix[] = ".txt";

/* ---- names -------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    const struct dir_entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* The names of the prompts in a directory, sorted. A directory that cannot be
 * read has none. Returns 0, or -1 when out of memory. */
static int list_names(const char *path, struct dir_list *l)
{
    size_t skip = sizeof(suffix) - 1, n = 0;
    struct qwick_err e;
    if (dir_list_read(l, path, SIZE_MAX, &e))
        return e.code == QWICK_ERR_MEMORY ? -1 : 0;
    for (size_t i = 0; i < l->n; i++) {
        char *name = l->v[i].name;
        size_t len = strlen(name);
        if (len <= skip || strcmp(name + len - skip, suffix) != 0) {
            free(name);
            continue;
        }
        name[len - skip] = 0;
        l->v[n++].name = name;
    }
    l->n = n;
    if (n)
        qsort(l->v, n, sizeof(*l->v), by_name);
    return 0;
}

/* The name that the user probably meant; NULL: none. */
static const char *nearest(const struct dir_list *l, const char *name)
{
    const char *best = NULL;
    size_t least = strlen(name) < 4 ? 2 : 3;
    for (size_t i = 0; i < l->n; i++)
        word_nearest(name, l->v[i].name, &least, &best);
    return best;
}

/* There is no file `path` for a name: list the names in its directory. */
static int no_such(const char *name, const char *path, struct qwick_err *e)
{
    enum { MAX_LISTED = 300 };
    char *dir = strndup(path, (size_t)(strrchr(path, '/') - path));
    struct dir_list l = {0};
    struct buf text = {0};
    int bad = !dir || list_names(dir, &l);
    const char *near = nearest(&l, name);
    if (near)
        bad |= buf_printf(&text, ", did you mean %s", near);
    bad |= buf_puts(&text, l.n ? "; there are: " : "; the directory has none");
    for (size_t i = 0; i < l.n && !bad; i++) {
        if (text.len > MAX_LISTED) {
            bad = buf_printf(&text, " and %zu more", l.n - i);
            break;
        }
        bad = buf_printf(&text, "%s%s", i ? ", " : "",
                         ERR_SHOW(l.v[i].name, strlen(l.v[i].name)));
    }
    if (!bad && access(name, F_OK) == 0)
        bad = buf_printf(&text, "; -T ./%s is the file here", name);
    bad ? err_oom(e, text.len)
        : err_usage(e, "%s: -T %s: no such prompt%s", dir, name, text.data);
    buf_free(&text);
    dir_list_free(&l);
    free(dir);
    return -1;
}

/* ---- the file ----------------------------------------------------------- */

static bool is_dashes(const char *line, size_t n)
{
    while (n && strchr(" \t\r", line[n - 1]))
        n--;
    return n == 3 && memcmp(line, "---", 3) == 0;
}

static size_t line_length(const char *s)
{
    return strcspn(s, "\n");
}

/* The first line "---" from s on, whose number is *line; NULL: there is none.
 * *line becomes its number. */
static char *find_dashes(char *s, size_t *line)
{
    for (;; ++*line) {
        size_t n = line_length(s);
        if (is_dashes(s, n))
            return s;
        if (!s[n])
            return NULL;
        s += n + 1;
    }
}

static bool is_option(const char *name)
{
    return opt_verb_with(name) != NULL;
}

enum looks { LOOKS_TEXT, LOOKS_SET, LOOKS_OPTION, LOOKS_YAML };

/* What the first line that is neither blank nor a comment looks like: "WORD =",
 * "OPTION =" or "OPTION:". *line: its number, counted from *line on. */
static enum looks first_line(const char *s, size_t *line)
{
    char name[64];
    size_t n;
    while (s[n = strspn(s, " \t\r")] == '\n' || s[n] == '#') {
        s += line_length(s);
        if (!*s)
            return LOOKS_TEXT;
        s++;
        ++*line;
    }
    s += n;
    n = 0;
    while (n + 1 < sizeof(name) &&
           (islower((unsigned char)s[n]) || isdigit((unsigned char)s[n]) ||
            s[n] == '-' || s[n] == '_')) {
        name[n] = s[n];
        n++;
    }
    name[n] = 0;
    s += n + strspn(s + n, " \t");
    if (n && *s == '=' && s[1] != '=')
        return is_option(name) ? LOOKS_OPTION : LOOKS_SET;
    return n && *s == ':' && is_option(name) ? LOOKS_YAML : LOOKS_TEXT;
}

/* The text is s, whose first line has this number. */
static void set_text(struct preset *s, const char *text, size_t n, size_t line)
{
    s->text = text;
    s->n = n - (n && text[n - 1] == '\n');
    s->text_line = line;
}

int preset_split(struct preset *s, size_t n, struct qwick_err *e)
{
    n = prompt_unix_text(s->data, n);
    char *at = s->data, *end = s->data + n, *dashes;
    size_t line = 1, first, last;
    *end = 0;
    bool begins = is_dashes(at, line_length(at));
    if (begins) {
        at += line_length(at);
        at += *at == '\n';
        line++;
    }
    first = last = line;
    dashes = find_dashes(at, &last);
    enum looks looks = begins ? LOOKS_OPTION : first_line(at, &first);
    if (looks == LOOKS_YAML && dashes)
        return err_usage(
            e, "%s:%zu: an option is OPTION = VALUE, not OPTION: VALUE",
            s->path, first);
    if (looks == LOOKS_OPTION && !dashes)
        return err_usage(
            e, "%s:%zu: is an option, but no line \"---\" ends the options",
            s->path, begins ? 1 : first);
    if (!dashes || (looks != LOOKS_OPTION && looks != LOOKS_SET)) {
        set_text(s, at, (size_t)(end - at), line);
        return 0;
    }
    s->options = at;
    s->line = line;
    char *text = dashes + line_length(dashes);
    text += *text == '\n';
    *dashes = 0;
    set_text(s, text, (size_t)(end - text), last + 1);
    return 0;
}

/* Read the file of a name with a slash, which may be a pipe. */
static int read_path(struct preset *s, size_t *n, struct qwick_err *e)
{
    if (map_read_all(s->path, SETTINGS_MAX, &s->data, n, e))
        return -1;
    return memchr(s->data, 0, *n) ? err_usage(e, "%s: has a NUL byte", s->path)
                                  : 0;
}

/* Read prompts/NAME.txt. */
static int read_name(struct preset *s, const char *name, size_t *n,
                     struct qwick_err *e)
{
    struct buf path = {0}, sub = {0};
    int bad = buf_printf(&sub, "prompts/%s%s", name, suffix) ||
              settings_path(&path, sub.data);
    buf_free(&sub);
    if (bad) {
        buf_free(&path);
        return err_oom(e, path.len);
    }
    if (!path.len)
        return err_usage(
            e, "-T %s: there is no directory of prompts, HOME is not set",
            name);
    s->path = buf_take(&path, NULL);
    if (settings_read_file(s->path, &s->data, n, e))
        return -1;
    return s->data ? 0 : no_such(name, s->path, e);
}

int preset_open(struct preset **out, const char *name, struct qwick_err *e)
{
    struct preset *s = calloc(1, sizeof(*s));
    size_t n = 0;
    int rc;
    *out = s;
    if (!s)
        return err_oom(e, sizeof(*s));
    if (strchr(name, '/')) {
        s->path = strdup(name);
        rc = s->path ? read_path(s, &n, e) : err_oom(e, strlen(name));
    } else {
        rc = read_name(s, name, &n, e);
    }
    if (rc || preset_split(s, n, e)) {
        preset_free(s);
        *out = NULL;
        return -1;
    }
    return 0;
}

void preset_free(struct preset *s)
{
    if (!s)
        return;
    free(s->path);
    free(s->data);
    free(s);
}

/* ---- the options -------------------------------------------------------- */

bool preset_given(const struct args *a)
{
    return a->preset || a->prompt_template;
}

/* The length of the name in NAME=VALUE; 0: it has none. */
static size_t name_length(const char *set)
{
    const char *equals = strchr(set, '=');
    size_t n = equals ? (size_t)(equals - set) : 0;
    return template_is_name(set, n) ? n : 0;
}

const char *preset_value(const struct args *a, const char *name, size_t n)
{
    for (size_t i = 0; n && i < a->set.n; i++)
        if (name_length(a->set.v[i]) == n && memcmp(a->set.v[i], name, n) == 0)
            return a->set.v[i] + n + 1;
    return NULL;
}

int preset_check(const struct opt_parsed *p)
{
    const struct args *a = &p->a;
    for (size_t i = 0; i < a->set.n; i++) {
        const char *s = a->set.v[i];
        size_t n = name_length(s);
        if (!n)
            return opt_usage(p->verb, "--set %s: is not NAME=VALUE", s);
        if (preset_value(a, s, n) != s + n + 1)
            return opt_usage(p->verb, "--set %.*s: is given twice", (int)n, s);
    }
    return -1;
}

int preset_template(struct prompt_template *t, const struct opt_parsed *p,
                    const struct template_names *known, struct qwick_err *e)
{
    const struct args *a = &p->a;
    const struct preset *s = settings_preset(p->settings);
    const char *name = s ? s->path : "--prompt-template";
    const char *text = s ? s->text : a->prompt_template;
    struct buf clean = {0};
    *t = (struct prompt_template){0};
    if (!preset_given(a))
        return 0;
    int rc = utf8_sanitize(&clean, text, s ? s->n : strlen(text))
                 ? err_oom(e, 0)
                 : prompt_template_parse(t, name, buf_text(&clean), clean.len,
                                         s ? s->text_line : 1, known, e);
    buf_free(&clean);
    return rc;
}

int preset_check_values(const struct prompt_template *t, const struct args *a,
                        struct qwick_err *e)
{
    for (size_t i = 0; i < a->set.n; i++) {
        const char *s = a->set.v[i];
        size_t n = name_length(s);
        if (!prompt_template_find(t, s, n))
            return err_usage(e, "--set %.*s: %s has no {%.*s}", (int)n, s,
                             t->name, (int)n, s);
    }
    return 0;
}

int preset_unset(const struct prompt_template *t,
                 const struct template_part *field, struct qwick_err *e)
{
    const char *name = ERR_SHOW(field->s, field->n);
    return err_usage(e,
                     "%s:%zu: {%s} has no value; --set %s=VALUE gives it one, "
                     "and {{%s}} is the text {%s}",
                     t->name, field->line, name, name, name, name);
}

/* ---- generate ----------------------------------------------------------- */

struct values {
    const struct prompt_template *t;
    const struct args *a;
    const struct buf *input;
    struct buf clean; /* the last value of --set */
};

static int get_value(void *ctx, const struct template_part *field,
                     const char **s, size_t *n, struct qwick_err *e)
{
    struct values *v = ctx;
    if (field->n == 0) {
        *s = v->input->data;
        *n = v->input->len;
        return 0;
    }
    const char *value = preset_value(v->a, field->s, field->n);
    if (!value)
        return preset_unset(v->t, field, e);
    v->clean.len = 0;
    if (utf8_sanitize(&v->clean, value, strlen(value)))
        return err_oom(e, strlen(value));
    *s = v->clean.len ? v->clean.data : "";
    *n = v->clean.len;
    return 0;
}

/* Refuse an input without a place, and a place without an input. */
static int check_input(const struct prompt_template *t, size_t n,
                       struct qwick_err *e)
{
    const struct template_part *place = prompt_template_find(t, "", 0);
    if (n && !place)
        return err_usage(e, "%s: has no {} for the input", t->name);
    if (!n && place)
        return err_usage(
            e, "%s:%zu: {} needs an input: an argument, -f or standard input",
            t->name, place->line);
    return 0;
}

int preset_apply(struct buf *text, const struct opt_parsed *p,
                 struct qwick_err *e)
{
    const struct args *a = &p->a;
    struct prompt_template t = {0};
    struct values v = {.t = &t, .a = a, .input = text};
    struct buf out = {.max = text->max};
    if (!preset_given(a))
        return 0;
    int rc = preset_template(&t, p, NULL, e) || preset_check_values(&t, a, e) ||
             check_input(&t, text->len, e) ||
             prompt_template_fill(&t, get_value, &v, &out, e);
    if (!rc) {
        buf_free(text);
        *text = out;
        out = (struct buf){0};
    }
    buf_free(&out);
    buf_free(&v.clean);
    prompt_template_free(&t);
    return rc ? -1 : 0;
}
