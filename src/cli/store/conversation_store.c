#include "cli/store/conversation_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/key.h"
#include "cli/io/out.h"
#include "cli/io/state_file.h"
#include "file/fs.h"
#include "file/json.h"
#include "file/map.h"
#include "file/save.h"
#include "text/chat/chat_values.h"

/* Most bytes of a file: more than the text of a context. */
enum { MAX_BYTES = 1 << 30 };

#define SUFFIX ".json"

int conversation_check(struct opt_parsed *p)
{
    const char *name = p->a.conversation;
    return !name || state_is_name(name)
               ? -1
               : opt_usage(
                     p->verb,
                     "--conversation: \"%s\": a name has 1 to %d letters, "
                     "digits, \".\", \"_\" and \"-\", and does not begin "
                     "with \".\"",
                     name, STATE_NAME_MAX);
}

int conversation_check_answer(struct opt_parsed *p)
{
    if (p->a.conversation && p->sources[OPT_prefix_cache].rank == OPT_UNSET)
        p->a.prefix_cache.on = true;
    return conversation_check(p);
}

/* ---- the lock ---- */

/* The lock is a byte of one file, so that no file is left for each name that
 * was ever used. Two names with one byte would only wait for each other. */
int conversation_lock(const char *name, int *fd, struct qwick_err *e)
{
    struct buf path = {0};
    struct key k = key_start("conversation");
    key_add_text(&k, name, strlen(name));
    struct flock lock = {.l_type = F_WRLCK,
                         .l_whence = SEEK_SET,
                         .l_start = (off_t)(key_u64(&k) >> 2),
                         .l_len = 1};
    *fd = -1;
    int rc = state_need_path(&path, STATE_CONVERSATIONS ".lock",
                             "--conversation", e) ||
             state_make_dir(path.data, e);
    if (!rc) {
        *fd = state_open(path.data, O_RDWR | O_CREAT, e);
        rc = *fd < 0;
    }
    if (!rc && fcntl(*fd, F_OFD_SETLK, &lock)) {
        if (errno == EAGAIN || errno == EACCES)
            rc = err_set(e, QWICK_ERR_RUNTIME,
                         "conversation %s: another qwick has it", name);
        close(*fd);
        *fd = -1;
    }
    buf_free(&path);
    return rc ? -1 : 0;
}

/* ---- files ---- */

/* Read the member "model", and count the messages (NULL: do not). */
static int read_facts(const char *path, char **model, size_t *n_messages,
                      struct qwick_err *e)
{
    struct json_doc *doc = NULL;
    char *text;
    size_t n;
    *model = NULL;
    if (map_read_all(path, MAX_BYTES, &text, &n, e))
        return -1;
    int rc = json_parse(&doc, path, text, n, QWICK_ERR_RUNTIME, e);
    free(text);
    if (rc)
        return -1;
    const struct json_value *root = json_root(doc);
    const struct json_value *m = json_member(root, "model");
    const struct json_value *all = chat_values_of(root).messages;
    if (json_is(m, JSON_STRING) && !(*model = strdup(m->str)))
        rc = err_oom(e, m->len);
    if (n_messages)
        *n_messages = json_is(all, JSON_ARRAY) ? all->len : 0;
    json_free(doc);
    return rc;
}

int conversation_find(const char *name, char **path, char **model,
                      struct qwick_err *e)
{
    struct buf b = {0};
    *path = NULL;
    if (model)
        *model = NULL;
    int rc = state_conversation_path(&b, name, e);
    int fd = rc ? -1 : state_open(b.data, O_RDONLY, e);
    if (fd >= 0) {
        close(fd);
        rc = model ? read_facts(b.data, model, NULL, e) : 0;
    }
    if (rc || fd < 0) {
        buf_free(&b);
        return rc || fd != -2 ? -1 : 0;
    }
    *path = buf_take(&b, NULL);
    return 0;
}

void conversation_note_model(const char *name, const char *last,
                             const char *now)
{
    if (last && strcmp(last, now) != 0)
        msg_notice("conversation %s: goes on with %s; its last answer is by %s",
                   name, now, last);
}

int conversation_write(const char *name, const char *model, const char *json,
                       size_t n, struct qwick_err *e)
{
    struct buf b = {0}, path = {0};
    while (n && json[n - 1] == '\n')
        n--;
    /* an array of messages, or an object with them */
    bool array = n && json[0] == '[';
    buf_puts(&b, "{\"model\":");
    buf_json_cstr(&b, model);
    buf_puts(&b, array ? ",\"messages\":" : ",");
    buf_append(&b, json + !array, n - !array);
    buf_puts(&b, array ? "}\n" : "\n");
    int rc = b.failed ? err_oom(e, n)
                      : state_conversation_path(&path, name, e) ||
                            save_put(path.data, SAVE_PRIVATE, b.data, b.len, e);
    buf_free(&b);
    buf_free(&path);
    return rc ? -1 : 0;
}

int conversation_remove(const char *name, struct qwick_err *e)
{
    char *path;
    int fd, rc;
    if (conversation_find(name, &path, NULL, e))
        return -1;
    if (!path)
        return 1;
    rc = conversation_lock(name, &fd, e);
    if (!rc && unlink(path) && errno != ENOENT)
        rc = err_errno(e, path, "cannot remove");
    if (fd >= 0)
        close(fd);
    free(path);
    return rc;
}

/* Call fn for one file of the directory. *stop: it returned other than 0. */
static void visit(const char *dir, const char *file,
                  int (*fn)(void *, const struct conversation *), void *ctx,
                  int *stop)
{
    struct buf path = {0}, name = {0};
    struct conversation c = {0};
    struct qwick_err e;
    struct stat st;
    char *model = NULL;
    buf_append(&name, file, strlen(file) - strlen(SUFFIX));
    buf_printf(&path, "%s%s", dir, file);
    if (name.failed || path.failed) {
        *stop = msg_oom();
    } else if (state_is_name(name.data)) {
        if (read_facts(path.data, &model, &c.n_messages, &e))
            msg_warn("%s", e.msg);
        c.name = name.data;
        c.model = model;
        c.time = stat(path.data, &st) ? 0 : (int64_t)st.st_mtime;
        *stop = fn(ctx, &c);
    }
    free(model);
    buf_free(&path);
    buf_free(&name);
}

int conversation_each(int (*fn)(void *ctx, const struct conversation *c),
                      void *ctx, struct qwick_err *e)
{
    struct buf dir = {0};
    struct dir_list l = {0};
    int rc = state_need_path(&dir, STATE_CONVERSATIONS, "log", e), stop = 0;
    if (!rc && access(dir.data, F_OK) == 0)
        rc = dir_list_read(&l, dir.data, SIZE_MAX, e);
    for (size_t i = 0; i < l.n && !rc && !stop; i++)
        if (ends_in(l.v[i].name, SUFFIX))
            visit(dir.data, l.v[i].name, fn, ctx, &stop);
    dir_list_free(&l);
    buf_free(&dir);
    return rc;
}
