#include "file/stores.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/rng.h"
#include "file/hub_cache.h"

enum { MAX_PLACES = 4, SHOWN_MODELS = 8 };

struct store {
    const char *name, *title;
    struct place places[MAX_PLACES];
    int (*scan)(struct store_scan *scan, const char *root);
};

static const struct store known[] = {
    {"ollama",
     "Ollama's store",
     {{"OLLAMA_MODELS", ""},
      {"HOME", "/.ollama/models"},
      {NULL, "/usr/share/ollama/.ollama/models"}},
     scan_ollama},
    {"lmstudio",
     "LM Studio's store",
     {{"HOME", "/.lmstudio/models"}, {"HOME", "/.cache/lm-studio/models"}},
     scan_tree},
    {"llama.cpp",
     "llama.cpp's cache",
     {{"LLAMA_CACHE", ""},
      {"XDG_CACHE_HOME", "/llama.cpp"},
      {"HOME", "/.cache/llama.cpp"}},
     scan_tree},
    {"modelscope",
     "ModelScope's cache",
     {{"MODELSCOPE_CACHE", ""}, {"HOME", "/.cache/modelscope"}},
     scan_modelscope},
};

enum { N_KNOWN = sizeof known / sizeof *known };

/* ---- searching ------------------------------------------------------------
 */

static void free_model(struct store_model *m)
{
    free(m->name);
    free(m->id);
    free(m->path);
    free(m->fault);
}

/* The part of an id behind its last slash. A revision may also hold slashes. */
static const char *last_part(const char *id)
{
    const char *at = strchr(id, '@'), *part = id;
    for (const char *s = id; *s && s != at; s++)
        if (*s == '/')
            part = s + 1;
    return part;
}

/* The model that another path to the same directory or file has added; NULL:
 * none. */
static struct store_model *find_same(const struct stores *s, uint64_t dev,
                                     uint64_t ino)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i].ino == ino && s->v[i].dev == dev && !s->v[i].fault &&
            !s->v[i].is_copy)
            return &s->v[i];
    return NULL;
}

static bool is_link(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

int scan_add(struct store_scan *scan, const char *id, const char *name,
             const char *path, const char *fault)
{
    struct stores *s = scan->s;
    struct stat st = {0};
    if (s->n == STORES_MAX_MODELS) {
        s->cut = true;
        return 0;
    }
    if (ARRAY_RESERVE(s->v, s->cap, s->n + 1, scan->e))
        return -1;
    if (!fault && stat(path, &st))
        st = (struct stat){0}; /* opening it will say why */
    struct store_model m = {
        .store = scan->store,
        .name = strdup(name ? name : last_part(id)),
        .id = strdup(id),
        .path = strdup(path),
        .fault = fault ? strdup(fault) : NULL,
        .unfinished = scan->unfinished,
        .dev = st.st_dev,
        .ino = st.st_ino,
    };
    if (!m.name || !m.id || !m.path || (fault && !m.fault)) {
        free_model(&m);
        return err_oom(scan->e, strlen(id) + strlen(path));
    }
    struct store_model *same = m.ino ? find_same(s, m.dev, m.ino) : NULL;
    if (same) {
        m.is_copy = is_link(path) || !is_link(same->path);
        same->is_copy = !m.is_copy;
    }
    s->v[s->n++] = m;
    return 0;
}

int scan_add_unreadable(struct store_scan *scan, const char *id,
                        const char *name, const char *path,
                        const struct qwick_err *why)
{
    if (why->code == QWICK_ERR_MODEL)
        return scan_add(scan, id, name, path, err_without_name(why, path));
    return err_set(scan->e, why->code, "%s", why->msg);
}

/* Search one directory, unless it was searched before. */
static int search(struct stores *s, const char *store, const char *title,
                  const char *path,
                  int (*scan)(struct store_scan *, const char *),
                  const volatile int *interrupt, struct qwick_err *e)
{
    struct stat st;
    struct store_scan one = {.s = s,
                             .store = store,
                             .entries = STORES_MAX_ENTRIES,
                             .interrupt = interrupt,
                             .e = e};
    for (size_t i = 0; i < s->n_places; i++)
        if (strcmp(s->places[i].path, path) == 0)
            return 0;
    if (ARRAY_RESERVE(s->places, s->cap_places, s->n_places + 1, e))
        return -1;
    struct store_place *p = &s->places[s->n_places];
    *p = (struct store_place){title, strdup(path), stat(path, &st) == 0};
    if (!p->path)
        return err_oom(e, strlen(path) + 1);
    s->n_places++;
    return p->exists ? scan(&one, path) : 0;
}

/* Search the places [n] of a store whose variables are set. */
static int search_all(struct stores *s, const char *store, const char *title,
                      const struct place *places, size_t n,
                      int (*scan)(struct store_scan *, const char *),
                      const volatile int *interrupt, struct qwick_err *e)
{
    struct buf path = {0};
    int rc = 0;
    for (size_t i = 0; i < n && places[i].below && !rc; i++) {
        int has = place_path(&places[i], &path);
        if (has < 0)
            rc = err_oom(e, 4096);
        else if (has)
            rc = search(s, store, title, path.data, scan, interrupt, e);
    }
    buf_free(&path);
    return rc;
}

/* The directories of $QWICK_MODEL_PATH, with colons between them. */
static int search_path(struct stores *s, const volatile int *interrupt,
                       struct qwick_err *e)
{
    const char *at = getenv("QWICK_MODEL_PATH");
    while (at && *at) {
        size_t n = strcspn(at, ":");
        char *dir = strndup(at, n);
        if (!dir)
            return err_oom(e, n + 1);
        int rc = n ? search(s, "path", "QWICK_MODEL_PATH's", dir, scan_tree,
                            interrupt, e)
                   : 0;
        free(dir);
        if (rc)
            return -1;
        at += n + (at[n] == ':');
    }
    return 0;
}

int stores_scan(struct stores *s, const volatile int *interrupt,
                struct qwick_err *e)
{
    *s = (struct stores){0};
    int rc = search_all(s, "huggingface", HUB_TITLE, hub_places,
                        HUB_N_PLACES, scan_hub, interrupt, e) ||
             search_path(s, interrupt, e);
    for (size_t i = 0; i < N_KNOWN && !rc; i++)
        rc = search_all(s, known[i].name, known[i].title, known[i].places,
                        MAX_PLACES, known[i].scan, interrupt, e);
    if (rc)
        stores_free(s);
    return rc ? -1 : 0;
}

void stores_free(struct stores *s)
{
    for (size_t i = 0; i < s->n; i++)
        free_model(&s->v[i]);
    for (size_t i = 0; i < s->n_places; i++)
        free(s->places[i].path);
    free(s->v);
    free(s->places);
    free(s->keys);
    *s = (struct stores){0};
}

/* ---- names ----------------------------------------------------------------
 */

/* Compares n bytes with a string of n bytes. */
static bool equals(const char *s, const char *with, size_t n, bool exact)
{
    return strlen(s) == n &&
           (exact ? memcmp(s, with, n) : strncasecmp(s, with, n)) == 0;
}

/* The texts that name a model. */
enum { N_TEXTS = 6 };
struct part {
    const char *s;
    size_t n;
};

static size_t texts_of(const struct store_model *m, struct part t[N_TEXTS])
{
    const char *tail = last_part(m->id), *colon = strchr(tail, ':');
    const char *slash = strrchr(m->path, '/');
    const char *file = slash ? slash + 1 : m->path;
    size_t n_type = colon ? strlen(colon) : 0;
    const struct part all[N_TEXTS] = {{m->name, strlen(m->name)},
                                      {m->id, strlen(m->id)},
                                      {tail, strlen(tail)},
                                      {file, strlen(file)},
                                      {m->id, strlen(m->id) - n_type},
                                      {tail, strlen(tail) - n_type}};
    memcpy(t, all, sizeof all);
    return n_type ? N_TEXTS : N_TEXTS - 2;
}

static bool is_named(const struct store_model *m, const char *spec, bool exact)
{
    struct part t[N_TEXTS];
    size_t n = texts_of(m, t);
    for (size_t i = 0; i < n; i++)
        if (equals(spec, t[i].s, t[i].n, exact))
            return true;
    return false;
}

/* How well a model matches. Of all models that match, those with the lowest
 * rank count. */
enum { N_RANKS = 4 };

static int rank_of(const struct store_model *m, const char *spec)
{
    int faulty = m->fault ? 2 : 0;
    return is_named(m, spec, true)    ? faulty
           : is_named(m, spec, false) ? faulty + 1
                                      : N_RANKS;
}

/* Whether a and b are the same directory or file. */
static bool is_same(const struct store_model *a, const struct store_model *b)
{
    return a == b || (a->ino && a->ino == b->ino && a->dev == b->dev);
}

/* ---- the index ---- */

static uint64_t hash_text(const struct stores *s, struct part t)
{
    uint64_t h = s->seed;
    for (size_t i = 0; i < t.n; i++)
        h = hash_mix(h ^ (uint64_t)tolower((unsigned char)t.s[i]),
                     0x9FB21C651E98DF25u);
    return h;
}

static int by_hash(const void *x, const void *y)
{
    const struct store_key *a = x, *b = y;
    return a->hash != b->hash ? (a->hash > b->hash ? 1 : -1)
                              : (a->model > b->model) - (a->model < b->model);
}

int stores_index(struct stores *s, struct qwick_err *e)
{
    s->keys = calloc(s->n * N_TEXTS + 1, sizeof *s->keys);
    if (!s->keys)
        return err_oom(e, s->n * N_TEXTS * sizeof *s->keys);
    s->seed = rng_random_seed();
    for (size_t i = 0; i < s->n; i++) {
        struct part t[N_TEXTS];
        size_t n = texts_of(&s->v[i], t);
        for (size_t k = 0; k < n; k++)
            s->keys[s->n_keys++] =
                (struct store_key){hash_text(s, t[k]), (uint32_t)i};
    }
    qsort(s->keys, s->n_keys, sizeof *s->keys, by_hash);
    return 0;
}

/* The models that a text may mean, ascending; without an index, all. A model
 * may be there several times. */
struct candidates {
    const struct stores *s;
    size_t at, end; /* in keys, or in v */
};

static struct candidates candidates_of(const struct stores *s, const char *spec)
{
    struct candidates c = {s, 0, s->keys ? s->n_keys : s->n};
    if (!s->keys)
        return c;
    uint64_t h = hash_text(s, (struct part){spec, strlen(spec)});
    while (c.at < c.end) {
        size_t mid = c.at + (c.end - c.at) / 2;
        if (s->keys[mid].hash < h)
            c.at = mid + 1;
        else
            c.end = mid;
    }
    while (c.end < s->n_keys && s->keys[c.end].hash == h)
        c.end++;
    return c;
}

static size_t candidate(const struct candidates *c, size_t k)
{
    return c->s->keys ? c->s->keys[k].model : k;
}

/* Whether a candidate before k is the same model and has the rank. */
static bool counted(const struct candidates *c, const char *spec, size_t k,
                    int rank)
{
    const struct store_model *v = c->s->v, *m = &v[candidate(c, k)];
    for (size_t i = c->at; i < k; i++) {
        const struct store_model *other = &v[candidate(c, i)];
        if (is_same(other, m) && rank_of(other, spec) == rank)
            return true;
    }
    return false;
}

/* stores_match, which may stop when there are `most` models. */
static size_t store_match(const struct stores *s, const char *spec, size_t *at,
                          size_t most)
{
    const struct candidates c = candidates_of(s, spec);
    size_t n = 0;
    int best = N_RANKS;
    for (size_t k = c.at; k < c.end && (best > 0 || n < most); k++) {
        size_t i = candidate(&c, k);
        int rank = rank_of(&s->v[i], spec);
        if (rank < best) {
            best = rank;
            *at = i;
            n = 1;
        } else if (rank == best && best < N_RANKS &&
                   !counted(&c, spec, k, rank)) {
            n++;
        }
    }
    return n;
}

size_t stores_match(const struct stores *s, const char *spec, size_t *at)
{
    return store_match(s, spec, at, SIZE_MAX);
}

const char *stores_spec(const struct stores *s, size_t i)
{
    const struct store_model *m = &s->v[i];
    const char *texts[] = {m->name, m->id};
    size_t at = 0;
    for (size_t k = 0; k < 2; k++)
        if (!strchr("/.", texts[k][0]) &&
            store_match(s, texts[k], &at, 2) == 1 && is_same(&s->v[at], m))
            return texts[k];
    return m->path;
}

/* Names of the models that spec means, with commas, cut at n bytes. */
static void store_list(const struct stores *s, const char *spec, size_t first,
                       char *out, size_t n)
{
    const struct candidates c = candidates_of(s, spec);
    int rank = rank_of(&s->v[first], spec);
    size_t at = 0, shown = 0;
    out[0] = '\0';
    for (size_t k = c.at; k < c.end && at < n && shown <= SHOWN_MODELS; k++) {
        size_t i = candidate(&c, k);
        if (rank_of(&s->v[i], spec) != rank || counted(&c, spec, k, rank))
            continue;
        int len = snprintf(out + at, n - at, "%s%s", at ? ", " : "",
                           shown++ == SHOWN_MODELS ? "..." : stores_spec(s, i));
        at += len > 0 ? (size_t)len : 0;
    }
}

char *stores_find(const struct stores *s, const char *spec, bool *found,
                  struct qwick_err *e)
{
    char all[800];
    size_t at = 0, n = stores_match(s, spec, &at);
    *found = n > 0;
    if (!n)
        return NULL;
    const struct store_model *m = &s->v[at];
    if (n > 1) {
        store_list(s, spec, at, all, sizeof all);
        err_set(e, QWICK_ERR_MODEL,
                "%s: %zu models have this name: choose one of %s", spec, n,
                all);
        return NULL;
    }
    if (m->fault) {
        err_set(e, QWICK_ERR_MODEL, "%s: %s: %s", spec, m->path, m->fault);
        return NULL;
    }
    char *path = strdup(m->path);
    if (!path)
        err_oom(e, strlen(m->path) + 1);
    return path;
}
