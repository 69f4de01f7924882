#include "file/find_model.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/word_distance.h"
#include "file/fs.h"
#include "file/hub_cache.h"
#include "file/stores.h"

/* Where the type of a GGUF file begins in "ID:TYPE" or "DIRECTORY:TYPE", at the
 * colon; NULL: spec has none. */
static const char *find_type(const char *spec)
{
    const char *slash = strrchr(spec, '/');
    return strchr(slash ? slash : spec, ':');
}

/* Whether one of the places with this title exists. */
static bool has_store(const struct stores *s, const char *title)
{
    for (size_t i = 0; i < s->n_places; i++)
        if (s->places[i].exists && strcmp(s->places[i].title, title) == 0)
            return true;
    return false;
}

/* The stores without any directory, in brackets, with commas. The places of a
 * store follow each other. */
static void list_absent(const struct stores *s, char *out, size_t n)
{
    size_t at = 0;
    const char *title = "";
    for (size_t i = 0; i < s->n_places && at < n; i++) {
        const char *next = s->places[i].title;
        if (strcmp(next, title) == 0 || has_store(s, next) ||
            strcmp(next, HUB_TITLE) == 0)
            continue;
        int len = snprintf(out + at, n - at, "%s%s",
                           at ? ", " : " (not on this machine: ", next);
        at += len > 0 ? (size_t)len : 0;
        title = next;
    }
    if (at && at < n)
        snprintf(out + at, n - at, ")");
}

/* The places that exist, and where the Hugging Face cache would be, with
 * commas; then the stores that do not exist. */
static void list_places(const struct stores *s, char *out, size_t n)
{
    size_t at = 0;
    const char *title = "";
    out[0] = '\0';
    for (size_t i = 0; i < s->n_places && at < n; i++) {
        const struct store_place *p = &s->places[i];
        if (!p->exists && strcmp(p->title, HUB_TITLE) != 0)
            continue;
        int len = snprintf(out + at, n - at, "%s%s%s%s", at ? ", " : "",
                           strcmp(p->title, title) ? p->title : "",
                           strcmp(p->title, title) ? " " : "", p->path);
        at += len > 0 ? (size_t)len : 0;
        title = p->title;
    }
    if (!at)
        at = (size_t)snprintf(out, n,
                              HUB_TITLE " (HOME is not set)");
    if (at < n)
        list_absent(s, out + at, n - at);
}

/* Whether two names have the same digits in the same order. A model with
 * another number is another model, and no misspelt name. */
static bool same_digits(const char *a, const char *b)
{
    static const char digits[] = "0123456789";
    for (;; a++, b++) {
        a += strcspn(a, digits);
        b += strcspn(b, digits);
        if (*a != *b || !*a)
            return *a == *b;
    }
}

/* How many typing errors turn a into b; upper and lower case do not count.
 * SIZE_MAX: it is another name. */
static size_t errors_between(const char *a, const char *b)
{
    char lower[2][40];
    const char *names[] = {a, b};
    for (int k = 0; k < 2; k++) {
        size_t n = strlen(names[k]);
        if (n >= sizeof(lower[k]))
            return SIZE_MAX;
        for (size_t i = 0; i <= n; i++)
            lower[k][i] = (char)tolower((unsigned char)names[k][i]);
    }
    return same_digits(a, b) ? word_distance(lower[0], lower[1]) : SIZE_MAX;
}

/* Whether a longer name begins with a word: "qwen3:4b" means Qwen3-4B-Q4_K_M.
 */
static bool begins_name(const char *name, const char *word)
{
    size_t n = strlen(word), i = 0;
    while (i < n && (tolower((unsigned char)name[i]) ==
                         tolower((unsigned char)word[i]) ||
                     (name[i] == '-' && strchr(":_ ", word[i]))))
        i++;
    return n > 2 && i == n && name[n] && strchr("-_.:", name[n]);
}

/* What names the model that the user probably meant; NULL: none is near. Of
 * those whose names begin with the word, it is the one with the shortest name.
 */
static const char *near_model(const struct stores *s, const char *spec)
{
    const char *slash = strrchr(spec, '/'), *last = slash ? slash + 1 : spec;
    size_t n = strlen(last), least = n > 5 ? 3 : n > 2 ? 2 : 1, near = s->n;
    size_t begun = s->n;
    for (size_t i = 0; i < s->n; i++) {
        const struct store_model *m = &s->v[i];
        size_t by_id = errors_between(spec, m->id);
        size_t by_name = errors_between(last, m->name);
        size_t d = by_id < by_name ? by_id : by_name;
        if (m->is_copy || m->fault)
            continue;
        if (begins_name(m->name, last) &&
            (begun == s->n || strlen(m->name) < strlen(s->v[begun].name)))
            begun = i;
        if (d >= least)
            continue;
        least = d;
        near = i;
    }
    near = near < s->n ? near : begun;
    return near < s->n ? stores_spec(s, near) : NULL;
}

/* Nothing has the name. */
static int err_missing(const char *spec, bool only_name,
                       const struct hub_found *hub, const struct stores *s,
                       struct qwick_err *e)
{
    char places[640];
    struct stat st;
    bool is_file = ends_in(spec, ".gguf");
    list_places(s, places, sizeof places);
    if (only_name && (is_file || stat(spec, &st) == 0))
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: no model has this name in %s; a path in the "
                       "current directory is written ./%s",
                       spec, places, spec);
    const char *near = near_model(s, spec);
    if (near)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: no such %s, and no model has this name; did you "
                       "mean %s?%s%s",
                       spec, is_file ? "file" : "directory", near,
                       hub->is_id ? " If not, download it with qwick pull "
                                  : "",
                       hub->has_org ? spec
                       : hub->is_id ? "ORG/NAME"
                                    : "");
    if (is_file || !hub->is_id)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: no such %s, and no model has this name in %s", spec,
                       is_file ? "file" : "directory", places);
    if (hub->other_revision)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: no such directory, and " HUB_TITLE " has "
                       "not its revision %s: download it with qwick pull %s; "
                       "looked in %s",
                       spec, hub->revision, spec, places);
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: no such directory, and not in %s: download it with "
                   "qwick pull %s",
                   spec, places, hub->has_org ? spec : "ORG/NAME");
}

/* Search the stores, unless spec is a path. */
static int search_stores(char **path, const char *spec, bool only_name,
                         const struct hub_found *hub, struct qwick_err *e)
{
    struct stores s = {0};
    bool found = false;
    if (strchr("/.~", *spec))
        return err_set(e, QWICK_ERR_MODEL, "%s: no such %s", spec,
                       ends_in(spec, ".gguf") ? "file" : "directory");
    if (stores_scan(&s, NULL, e))
        return -1;
    *path = stores_find(&s, spec, &found, e);
    int rc =
        found ? (*path ? 0 : -1) : err_missing(spec, only_name, hub, &s, e);
    stores_free(&s);
    return rc;
}

/* Set *path to the file or directory that "~/…" names; NULL: there is none. No
 * shell has expanded it in a variable, an alias or quotes. */
static int search_home(char **path, const char *spec, struct qwick_err *e)
{
    const char *home = getenv("HOME");
    struct stat st;
    if (strncmp(spec, "~/", 2) != 0 || !home)
        return 0;
    if (asprintf(path, "%s%s", home, spec + 1) < 0) {
        *path = NULL;
        return err_oom(e, strlen(spec));
    }
    if (stat(*path, &st)) {
        free(*path);
        *path = NULL;
    }
    return 0;
}

/* base: spec without ":TYPE". */
static int search(char **path, const char **type, const char *spec,
                  const char *base, bool only_name, struct qwick_err *e)
{
    struct stat st;
    struct hub_found hub;
    if (*type && !only_name && stat(base, &st) == 0) {
        *path = strdup(base);
        return *path ? 0 : err_oom(e, strlen(base) + 1);
    }
    if (search_home(path, base, e) || *path)
        return *path ? 0 : -1;
    if (hub_find(&hub, base, e))
        return -1;
    *path = hub.dir;
    if (*path)
        return 0;
    *type = NULL;
    return search_stores(path, spec, only_name, &hub, e);
}

/* Whether a name of a model can only be a path. */
static bool find_model_is_path(const char *spec)
{
    size_t dots = strspn(spec, ".");
    return *spec == '/' || *spec == '~' ||
           ((dots == 1 || dots == 2) && (!spec[dots] || spec[dots] == '/'));
}

char *find_model_same_name(const char *spec)
{
    struct stat st;
    struct hub_found hub;
    return find_model_is_path(spec) || stat(spec, &st) ||
                   hub_find(&hub, spec, NULL)
               ? NULL
               : hub.dir;
}

int find_model(char **path, const char **type, const char *spec, bool only_name,
               struct qwick_err *e)
{
    struct stat st;
    *path = NULL;
    *type = NULL;
    only_name = only_name && !find_model_is_path(spec);
    if (!only_name && stat(spec, &st) == 0) {
        *path = strdup(spec);
        return *path ? 0 : err_oom(e, strlen(spec) + 1);
    }
    int err = only_name ? ENOENT : errno;
    if (err != ENOENT && err != ENOTDIR)
        return err_set(e, QWICK_ERR_MODEL, "%s: cannot open: %s", spec,
                       strerror(err));
    const char *colon = find_type(spec);
    char *base = colon ? strndup(spec, (size_t)(colon - spec)) : strdup(spec);
    if (!base)
        return err_oom(e, strlen(spec) + 1);
    *type = colon ? colon + 1 : NULL;
    int rc = search(path, type, spec, base, only_name, e);
    free(base);
    return rc;
}
