#include "targets.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/utf8.h"

const struct fuzz_target fuzz_targets[] = {
    {"json", fuzz_json},
    {"safetensors", fuzz_safetensors},
    {"header", fuzz_header},
    {"index", fuzz_index},
    {"gguf", fuzz_gguf},
    {"config", fuzz_config},
    {"generation", fuzz_generation},
    {"session", fuzz_session},
    {"adapter", fuzz_adapter},
    {"pooling", fuzz_pooling},
    {"manifest", fuzz_manifest},
    {"tokenizer", fuzz_tokenizer},
    {"tekken", fuzz_tekken},
    {"beside", fuzz_beside},
    {"tokenize", fuzz_tokenize},
    {"detokenize", fuzz_detokenize},
    {"chat", fuzz_chat},
    {"template", fuzz_template},
    {"stream", fuzz_stream},
    {"calls", fuzz_calls},
    {"regex", fuzz_regex},
    {"gbnf", fuzz_gbnf},
    {"lark", fuzz_lark},
    {"schema", fuzz_schema},
    {"records", fuzz_records},
    {"options", fuzz_options},
    {"csv", fuzz_csv},
    {"preset", fuzz_preset},
    {"openai", fuzz_openai},
    {"http", fuzz_http},
    {"body", fuzz_body},
    {0},
};

const struct fuzz_target *fuzz_find(const char *name)
{
    for (const struct fuzz_target *t = fuzz_targets; t->name; t++)
        if (strcmp(t->name, name) == 0)
            return t;
    return NULL;
}

_Noreturn void fuzz_fail(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    abort();
}

static void check_message(const char *msg)
{
    size_t n = strlen(msg), i = 0, k = 1;
    while (i < n && (k = utf8_decode(msg + i, n - i, NULL, NULL)) > 0)
        i += k;
    CHECK(n > 0 && k > 0);
}

int fuzz_one(const struct fuzz_target *t, const char *in, size_t n)
{
    struct qwick_err e = {0};
    /* memory of the exact size, so that a sanitizer sees each byte too many */
    char *copy = malloc(n ? n : 1);
    CHECK(copy);
    if (n)
        memcpy(copy, in, n);
    int rc = t->run(copy, n, &e);
    free(copy);
    if (rc) {
        CHECK(e.code >= QWICK_ERR_RUNTIME && e.code <= QWICK_ERR_MEMORY);
        check_message(e.msg);
    }
    return rc;
}

/* ---- files ---- */

static char dir[64];

static void remove_dir(void)
{
    DIR *d = opendir(dir);
    char path[400];
    for (struct dirent *f; d && (f = readdir(d)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", dir, f->d_name);
        (void)unlink(path);
    }
    if (d)
        closedir(d);
    (void)rmdir(dir);
}

const char *fuzz_path(const char *name)
{
    static char paths[4][256];
    static unsigned next;
    if (!*dir) {
        snprintf(dir, sizeof dir, "%s/qwick-fuzz-XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        CHECK(mkdtemp(dir));
        CHECK(atexit(remove_dir) == 0);
    }
    char *path = paths[next++ % 4];
    snprintf(path, sizeof *paths, "%s/%s", dir, name);
    return path;
}

const char *fuzz_file(const char *name, const void *data, size_t n)
{
    const char *path = fuzz_path(name);
    FILE *f = fopen(path, "wb");
    CHECK(f);
    CHECK(fwrite(data, 1, n, f) == n);
    CHECK(fclose(f) == 0);
    return path;
}
