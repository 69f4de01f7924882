#include "file/hub_target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "file/hub_cache.h"
#include "file/stores.h"

/* How other stores lose a model. */
static const struct {
    const char *store, *how;
} others[] = {
    {"ollama", "is Ollama's: remove it with ollama rm"},
    {"lmstudio", "is LM Studio's: remove it in My Models there"},
    {"llama.cpp", "is llama.cpp's, which has no command for that: remove the "
                  "file with rm"},
    {"modelscope", "is ModelScope's: remove it with modelscope clear-cache"},
    {"path", "is in your QWICK_MODEL_PATH: remove it with rm"},
};

/* The models that a spec means so far. */
struct matches {
    const char *spec;
    struct hub_target t; /* the first one in the cache */
    uint64_t dev, ino;   /* of its path itself */
    const char *store;   /* of a model elsewhere */
    const char *path;    /* its path */
    size_t n;
    struct buf ids; /* of all, with commas */
    struct qwick_err *e;
};

/* The part of a path below a directory of the cache: "models--ORG--NAME/…". */
static const char *below_cache(const struct stores *s, const char *path)
{
    for (size_t i = 0; i < s->n_places; i++) {
        const char *root = s->places[i].path;
        size_t n = strlen(root);
        while (n > 1 && root[n - 1] == '/')
            n--;
        if (strcmp(s->places[i].title, HUB_TITLE) != 0 ||
            strncmp(path, root, n) != 0 || path[n] != '/')
            continue;
        path += n;
        return path + strspn(path, "/");
    }
    return NULL;
}

/* Whether the repository at path holds a model that is listed. */
static bool has_models(const struct stores *s, const char *path)
{
    size_t n = strlen(path);
    for (size_t i = 0; i < s->n; i++)
        if (strncmp(s->v[i].path, path, n) == 0 && s->v[i].path[n] == '/')
            return true;
    return false;
}

/* Split the path of a model, or of its repository. */
static int split(struct hub_target *t, const struct stores *s, const char *path,
                 bool file, struct qwick_err *e)
{
    static const char snapshots[] = "/snapshots/";
    const char *below = below_cache(s, path);
    size_t repo = below ? strcspn(below, "/") : 0;
    *t = (struct hub_target){0};
    if (!below || strncmp(below, "models--", 8) != 0)
        return err_set(e, QWICK_ERR_MODEL, "%s: is no model of " HUB_TITLE,
                       path);
    t->repo = strndup(path, (size_t)(below - path) + repo);
    below += repo;
    bool ok = t->repo;
    if (strncmp(below, snapshots, sizeof snapshots - 1) == 0) {
        below += sizeof snapshots - 1;
        size_t n = strcspn(below, "/");
        t->snapshot = strndup(below, n);
        t->file = file && below[n] ? strdup(below + n + 1) : NULL;
        ok = ok && t->snapshot && (t->file || !file || !below[n]);
    } else if (ok) {
        t->all = !has_models(s, t->repo);
    }
    if (ok)
        return 0;
    hub_target_free(t);
    return err_oom(e, strlen(path));
}

/* Add a model of the cache, unless it is there already. */
static int add_hub(struct matches *m, const struct stores *s, const char *path,
                   const char *id, bool file)
{
    struct hub_target t;
    struct stat st = {0};
    struct buf whole = {0};
    if (split(&t, s, path, file, m->e))
        return -1;
    if (buf_printf(&whole, "%s%s%s%s%s", t.repo,
                   t.snapshot ? "/snapshots/" : "",
                   t.snapshot ? t.snapshot : "", t.file ? "/" : "",
                   t.file ? t.file : "")) {
        buf_free(&whole);
        hub_target_free(&t);
        return err_oom(m->e, strlen(path));
    }
    int missing = lstat(whole.data, &st);
    buf_free(&whole);
    if (m->t.repo && !missing && st.st_ino == m->ino && st.st_dev == m->dev) {
        hub_target_free(&t);
        return 0;
    }
    buf_printf(&m->ids, "%s%s", m->n++ ? ", " : "", id);
    if (m->t.repo) {
        hub_target_free(&t);
        return 0;
    }
    m->t = t;
    m->dev = st.st_dev;
    m->ino = st.st_ino;
    return 0;
}

/* Where ":TYPE" begins; the end if there is none. */
static size_t id_length(const char *id)
{
    const char *slash = strrchr(id, '/');
    const char *colon = strchr(slash ? slash : id, ':');
    return colon ? (size_t)(colon - id) : strlen(id);
}

/* Whether a text is the path, with or without slashes at its end. */
static bool is_path(const char *path, const char *spec)
{
    size_t n = strlen(path);
    return strncmp(spec, path, n) == 0 && spec[n + strspn(spec + n, "/")] == 0;
}

static int add_model(struct matches *m, const struct stores *s,
                     const struct store_model *v)
{
    bool hub = strcmp(v->store, "huggingface") == 0;
    bool exact = strcmp(v->name, m->spec) == 0 || strcmp(v->id, m->spec) == 0 ||
                 is_path(v->path, m->spec);
    size_t n = id_length(v->id);
    bool repo =
        hub && v->id[n] && strncmp(v->id, m->spec, n) == 0 && !m->spec[n];
    if ((!exact && !repo) || (!hub && v->is_copy))
        return 0;
    if (hub)
        return add_hub(m, s, v->path, v->id, exact);
    buf_printf(&m->ids, "%s%s (%s)", m->n++ ? ", " : "", v->id, v->path);
    m->store = v->store;
    m->path = v->path;
    return 0;
}

/* A repository of this id in which a removal was interrupted: the next one ends
 * it. */
static int add_repository(struct matches *m, const struct stores *s)
{
    size_t n = strcspn(m->spec, "@:");
    for (size_t i = 0; i < s->n && !m->n; i++) {
        const struct store_model *v = &s->v[i];
        const char *below = below_cache(s, v->path);
        if (strcmp(v->store, "huggingface") != 0 || !below ||
            strncmp(v->id, m->spec, n) != 0 || !strchr("@:", v->id[n]))
            continue;
        char *repo =
            strndup(v->path, (size_t)(below - v->path) + strcspn(below, "/"));
        if (!repo)
            return err_oom(m->e, strlen(v->path));
        int rc =
            hub_has_leftovers(repo) ? add_hub(m, s, repo, v->id, false) : 0;
        free(repo);
        if (rc)
            return -1;
    }
    return 0;
}

static int collect_matches(struct matches *m, const struct stores *s)
{
    struct hub_found hub = {0};
    struct qwick_err why; /* the list says more about a fault */
    int rc = 0;
    if (!m->spec[id_length(m->spec)] && !hub_find(&hub, m->spec, &why) &&
        hub.dir)
        rc = add_hub(m, s, hub.dir, m->spec, false);
    free(hub.dir);
    for (size_t i = 0; i < s->n && !rc; i++)
        rc = add_model(m, s, &s->v[i]);
    if (!rc && !m->n && strchr(m->spec, '/'))
        rc = add_repository(m, s);
    return rc || !m->ids.failed ? rc : err_oom(m->e, m->ids.len);
}

static const char *how_elsewhere(const char *store)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i].store, store) == 0)
            return others[i].how;
    return "is another program's";
}

static int err_none(const struct matches *m)
{
    struct stat st;
    if (lstat(m->spec, &st) == 0)
        return err_usage(m->e, "%s: is not in " HUB_TITLE ": remove it with rm",
                         m->spec);
    return err_set(m->e, QWICK_ERR_MODEL,
                   "%s: no model has this name: qwick models lists their "
                   "names",
                   m->spec);
}

int hub_target_find(struct hub_target *t, const char *spec, struct qwick_err *e)
{
    struct matches m = {.spec = spec, .e = e};
    struct stores s;
    *t = (struct hub_target){0};
    if (stores_scan(&s, NULL, e))
        return -1;
    int rc = collect_matches(&m, &s);
    if (!rc && !m.n)
        rc = err_none(&m);
    else if (!rc && m.n > 1)
        rc = err_usage(e, "%s: %zu models have this name: choose one of %s",
                       spec, m.n, m.ids.data);
    else if (!rc && m.store)
        rc = err_usage(e, "%s: %s: %s", spec, m.path, how_elsewhere(m.store));
    if (rc)
        hub_target_free(&m.t);
    *t = m.t;
    buf_free(&m.ids);
    stores_free(&s);
    return rc;
}
