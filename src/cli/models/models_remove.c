#include "cli/models/models_remove.h"

#include "base/buf.h"
#include "cli/io/confirm.h"
#include "cli/io/out.h"
#include "cli/io/units.h"
#include "cli/opt/aliases.h"
#include "file/json_writer.h"
#include "qwick_tools.h"

/* An alias is another name, which unalias removes. */
static int refuse_aliases(const struct opt_parsed *p)
{
    struct aliases all;
    struct qwick_err e;
    int status = msg_result(aliases_read(&all, &e), &e);
    for (size_t i = 1; i < p->n_args && !status; i++) {
        const struct alias *a = aliases_find(&all, p->args[i]);
        if (a)
            status = msg_refuse("%s: is an alias: name its model %s; unalias "
                                "removes the alias",
                                a->name, a->model);
    }
    aliases_free(&all);
    return status;
}

/* Find all names first: a misspelt one removes nothing. */
static int check_names(const struct opt_parsed *p)
{
    struct qwick_removal r;
    struct qwick_err e;
    for (size_t i = 1; i < p->n_args; i++) {
        if (qwick_removal_open(&r, p->args[i], &e))
            return msg_fail(&e);
        qwick_removal_close(&r);
    }
    return 0;
}

static int confirm(const char *name, const struct qwick_removal *r, bool force)
{
    struct buf what = {0};
    char size[32];
    size_text(r->n_bytes, "B", size);
    int status =
        buf_printf(&what, "%zu %s of %s in %s, %s", r->n_files,
                   plural(r->n_files, "file", "files"), name, r->path, size)
            ? msg_oom()
            : confirm_removal(what.data, force);
    buf_free(&what);
    return status;
}

/* Write the object of a removal. After a failure, r->n_bytes are the bytes that
 * were freed until then. */
static void put_removed(struct json_writer *w, const char *name,
                        const struct qwick_removal *r, bool whole)
{
    jw_object(w, NULL);
    jw_cstr(w, "name", name);
    jw_cstr(w, "path", r->path);
    jw_uint(w, "files", r->n_files);
    jw_uint(w, "bytes", r->n_bytes);
    jw_bool(w, "complete", whole);
    jw_end_object(w);
}

struct removed {
    struct json_writer *w; /* NULL: lines */
    struct buf lines;
    size_t n, bytes;
};

static int remove_one(struct removed *all, const char *name, bool force)
{
    struct qwick_removal r;
    struct qwick_err e;
    if (qwick_removal_open(&r, name, &e))
        return msg_fail(&e);
    int status = confirm(name, &r, force);
    if (status < 0) {
        status = msg_result(qwick_removal_run(&r, &e), &e);
        all->bytes += r.n_bytes;
        all->n += !status || r.n_bytes;
        if (all->w)
            put_removed(all->w, name, &r, !status);
        else if (!status || r.n_bytes)
            buf_printf(&all->lines, "%zu\t%s\n", r.n_bytes, name);
    }
    qwick_removal_close(&r);
    return status;
}

static int remove_all(const struct opt_parsed *p)
{
    struct buf out = {0};
    struct json_writer w;
    struct removed all = {0};
    int status = 0;
    if (p->a.json) {
        w = jw_line(&out);
        all.w = &w;
        jw_array(&w, "removed");
    }
    for (size_t i = 1; i < p->n_args && !status; i++)
        status = remove_one(&all, p->args[i], p->a.force);
    if (p->a.json) {
        jw_end_array(&w);
        jw_uint(&w, "bytes", all.bytes);
        jw_end_line(&w);
    } else {
        buf_append(&out, all.lines.data, all.lines.len);
    }
    buf_free_part(&all.lines, &out);
    if (status && !all.n)
        out.len = 0; /* an error, and nothing else */
    int printed = out_print(&out, out_write_names);
    return status ? status : printed;
}

int models_remove(struct opt_parsed *p)
{
    static const enum opt_id list_only[] = {OPT_no_speed, OPT_threads,
                                            OPT_names, OPT_NONE};
    int status = opt_no_effects(p, list_only, OPT_NONE, "with rm");
    if (status >= 0)
        return status;
    if (p->n_args < 2)
        return opt_usage(p->verb, "rm: needs the name of a model");
    if ((status = refuse_aliases(p)) || (status = check_names(p)))
        return status;
    return remove_all(p);
}
