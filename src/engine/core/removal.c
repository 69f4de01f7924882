/* Removing models of the Hugging Face cache. */
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "file/hub_target.h"
#include "qwick_tools.h"

struct qwick_removal_state {
    struct hub_target target;
    struct hub_removal *removal;
    char *path;
};

int qwick_removal_open(struct qwick_removal *r, const char *name,
                       struct qwick_err *e)
{
    *r = (struct qwick_removal){.state = calloc(1, sizeof *r->state)};
    struct qwick_removal_state *s = r->state;
    if (!s)
        return err_oom(e, sizeof *s);
    int rc = hub_target_find(&s->target, name, e);
    const struct hub_target *t = &s->target;
    if (!rc && asprintf(&s->path, "%s%s%s%s%s", t->repo,
                        t->snapshot ? "/snapshots/" : "",
                        t->snapshot ? t->snapshot : "", t->file ? "/" : "",
                        t->file ? t->file : "") < 0) {
        s->path = NULL;
        rc = err_oom(e, 4096);
    }
    if (!rc)
        rc = hub_removal_open(&s->removal, t, &r->n_files, &r->n_bytes, e);
    r->path = s->path;
    if (rc)
        qwick_removal_close(r);
    return rc;
}

int qwick_removal_run(struct qwick_removal *r, struct qwick_err *e)
{
    return hub_removal_run(r->state->removal, &r->n_bytes, e);
}

void qwick_removal_close(struct qwick_removal *r)
{
    if (r->state) {
        hub_removal_close(r->state->removal);
        hub_target_free(&r->state->target);
        free(r->state->path);
        free(r->state);
    }
    *r = (struct qwick_removal){0};
}
