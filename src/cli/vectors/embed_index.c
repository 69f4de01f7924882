#include "cli/vectors/embed_index.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"

/* Milliseconds between two commits, which wait for the disk. */
#define COMMIT_MS 1000

int embed_index_make_dir(const char *dir)
{
    struct stat st;
    if (mkdir(dir, 0777) == 0 || (stat(dir, &st) == 0 && S_ISDIR(st.st_mode)))
        return 0;
    return msg_errno(dir, "cannot create the directory");
}

/* A name that is a path on this machine becomes absolute. Names from settings
 * are paths only if they look so. */
int embed_index_model(const struct opt_parsed *p, const char **name,
                      char **path)
{
    const char *model = p->a.model;
    bool is_path = model && (!p->models.is_name || strchr("/.", *model));
    *path = is_path ? realpath(model, NULL) : NULL;
    *name = *path ? *path : model;
    return is_path && !*path && errno == ENOMEM ? -1 : 0;
}

/* Open the index for the vectors that *want describes. */
static int open_for(struct embed_index *x, const struct opt_parsed *p,
                    struct qwick_index_info *want)
{
    const char *type = p->a.index_type;
    struct qwick_index *old;
    struct qwick_err e = {0};
    char *path;
    want->f16 = type && strcmp(type, "f16") == 0;
    if (!type && qwick_index_open(&old, x->dir, NULL) == 0) {
        want->f16 = qwick_index_get_info(old)->f16;
        qwick_index_close(old);
    }
    if (embed_index_model(p, &want->model, &path))
        return msg_oom();
    int failed = qwick_index_append(&x->ix, x->dir, want, &e);
    free(path);
    return msg_result(failed, &e);
}

int embed_index_open(struct embed_index *x, const struct opt_parsed *p,
                     const struct qwick_embedder *m)
{
    struct qwick_index_info want = qwick_index_info_defaults();
    struct qwick_err e = {0};
    struct buf instruct = {0};
    x->dir = p->a.index;
    x->committed_ms = clock_ms();
    if (qwick_index_describe(&want, m, &e))
        return msg_fail(&e);
    if (p->a.instruct) { /* as the embedder composes it */
        buf_printf(&instruct, "Instruct: %s\nQuery:", p->a.instruct);
        want.prompt = buf_text(&instruct);
    }
    int status = instruct.failed ? msg_oom() : open_for(x, p, &want);
    buf_free(&instruct);
    return status;
}

int embed_index_id(struct buf *out, const struct texts_item *item)
{
    const struct json_value *id = json_get(item->value, "id");
    const struct line *l = item->line;
    if (json_is(id, JSON_STRING))
        return buf_append(out, id->str, id->len);
    if (item->id)
        return buf_puts(out, item->id);
    if (l && l->file)
        return buf_printf(out, "%s:%llu", l->file,
                          (unsigned long long)l->number);
    if (l)
        return buf_printf(out, "%llu", (unsigned long long)l->number);
    if (item->file)
        return buf_puts(out, strcmp(item->file, "-") ? item->file : "stdin");
    return buf_append(out, item->text, item->n);
}

/* Whether the index has an id, and with which text. */
enum state { IS_NEW, IS_OTHER, IS_SAME };

static int find(const struct embed_index *x, const struct qwick_index_row *row,
                enum state *state)
{
    struct qwick_index_row old;
    struct qwick_err e = {0};
    size_t at;
    *state = IS_NEW;
    if (qwick_index_find(x->ix, row->id, row->n_id, &at, &e))
        return msg_fail(&e);
    if (at == SIZE_MAX)
        return 0;
    if (qwick_index_get_row(x->ix, at, &old, &e))
        return msg_fail(&e);
    bool same = old.n_text == row->n_text &&
                memcmp(old.text, row->text, row->n_text) == 0;
    *state = same ? IS_SAME : IS_OTHER;
    return 0;
}

int embed_index_has(struct embed_index *x, const struct qwick_index_row *row,
                    bool *has)
{
    enum state state;
    int status = find(x, row, &state);
    *has = !status && state == IS_SAME;
    x->n_same += *has;
    return status;
}

int embed_index_put(struct embed_index *x, const struct qwick_index_row *row,
                    const float *vector)
{
    struct qwick_err e = {0};
    enum state state;
    int status = find(x, row, &state);
    if (status)
        return status;
    /* an id may come twice in one group */
    x->n_same += state == IS_SAME;
    x->n_new += state == IS_NEW;
    x->n_replaced += state == IS_OTHER;
    return state == IS_SAME
               ? 0
               : msg_result(qwick_index_add(x->ix, row, vector, &e), &e);
}

int embed_index_commit(struct embed_index *x, bool at_once)
{
    struct qwick_err e = {0};
    if (!x->ix || (!at_once && clock_ms() - x->committed_ms < COMMIT_MS))
        return 0;
    int status = msg_result(qwick_index_commit(x->ix, &e), &e);
    x->committed_ms = clock_ms();
    return status;
}

void embed_index_report(const struct embed_index *x)
{
    if (!x->ix)
        return;
    const struct qwick_index_info *info = qwick_index_get_info(x->ix);
    progress_clear();
    msg_notice("%s: %llu texts added, %llu replaced, %llu were there; now %zu",
               x->dir, (unsigned long long)x->n_new,
               (unsigned long long)x->n_replaced, (unsigned long long)x->n_same,
               info->n_rows - info->n_dead);
}

void embed_index_close(struct embed_index *x)
{
    qwick_index_close(x->ix);
    *x = (struct embed_index){0};
}
