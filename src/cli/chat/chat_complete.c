#include "cli/chat/chat_complete.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "cli/io/escape.h"

enum { MOST_LISTED = 100 };

/* The names with the beginning that was typed. */
struct names {
    char **names;
    size_t n, cap;
};

static int add_name(struct names *c, const char *name)
{
    if (ARRAY_RESERVE(c->names, c->cap, c->n + 1, NULL) ||
        !(c->names[c->n] = strdup(name)))
        return -1;
    c->n++;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Collect the files whose path begins with `path`. A directory gets a slash. */
static int find_files(struct names *c, const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    size_t n_dir = (size_t)(base - path), n_base = strlen(base);
    struct buf full = {0};
    const struct dirent *entry;
    DIR *dir;
    int bad =
        buf_append(&full, path, n_dir) || (!n_dir && buf_puts(&full, "."));
    dir = bad ? NULL : opendir(full.data);
    while (!bad && dir && (entry = readdir(dir)) != NULL) {
        const char *name = entry->d_name;
        if (strncmp(name, base, n_base) != 0 || !escape_is_plain(name) ||
            (*name == '.' && *base != '.') || strcmp(name, ".") == 0 ||
            strcmp(name, "..") == 0)
            continue;
        full.len = n_dir;
        bad = buf_puts(&full, name);
        if (!bad && is_directory(full.data))
            bad = buf_putc(&full, '/');
        bad = bad || add_name(c, full.data + n_dir);
    }
    if (dir)
        closedir(dir);
    buf_free(&full);
    return bad ? -1 : 0;
}

/* Append a part of a name so that chat_command_file reads it. */
static int put_escaped(struct buf *out, const char *s, size_t n, bool quoted)
{
    int bad = 0;
    for (size_t i = 0; i < n; i++) {
        if (strchr(quoted ? "\"\\" : "\"\\ ", s[i]))
            bad |= buf_putc(out, '\\');
        bad |= buf_putc(out, s[i]);
    }
    return bad ? -1 : 0;
}

/* Append what all names share after their first n_typed bytes, and what follows
 * a name that is the only one. */
static int put_shared(const struct names *c, size_t n_typed, bool quoted,
                      struct buf *out)
{
    const char *first = c->names[0], *last = c->names[c->n - 1];
    size_t n = 0;
    while (first[n] && first[n] == last[n])
        n++;
    while (n > n_typed && ((unsigned char)first[n] & 0xc0) == 0x80)
        n--; /* whole characters */
    int bad = put_escaped(out, first + n_typed, n - n_typed, quoted);
    if (c->n == 1 && (!n || first[n - 1] != '/'))
        bad |= buf_puts(out, quoted ? "\" " : " ");
    return bad;
}

static int put_list(const struct names *c, struct buf *out)
{
    size_t n = c->n < MOST_LISTED ? c->n : MOST_LISTED;
    int bad = 0;
    for (size_t i = 0; i < n; i++)
        bad |= buf_printf(out, "%s%s", i ? "  " : "", c->names[i]);
    if (c->n > n)
        bad |= buf_printf(out, "  and %zu more", c->n - n);
    return bad | buf_putc(out, '\n');
}

/* Find the beginning of the last word of an argument. *quoted: it is in double
 * quotes, which are not closed. */
static const char *last_word(const char *s, const char *end, bool *quoted)
{
    const char *word = s;
    *quoted = false;
    for (; s < end; s++) {
        if (*s == '\\' && s + 1 < end)
            s++;
        else if (*s == '"' && (*quoted || s == word))
            *quoted = !*quoted;
        else if (*s == ' ' && !*quoted)
            word = s + 1;
    }
    return word;
}

/* Read a word as chat_command_file does. Returns false if it names no file. */
static bool read_word(const char *word, size_t n, bool quoted, struct buf *path)
{
    struct buf text = {0};
    const char *rest;
    bool good = !buf_append(&text, word, n) &&
                !buf_puts(&text, quoted ? "\"" : "") &&
                !chat_command_file(text.data, false, path, &rest);
    buf_free(&text);
    return good && !buf_puts(path, "");
}

static int find_commands(struct names *c, const struct chat_command *rows,
                         const char *begin, size_t n)
{
    int bad = 0;
    for (; rows->name && !bad; rows++)
        if (strncmp(rows->name, begin, n) == 0)
            bad = add_name(c, rows->name);
    return bad;
}

/* Find the words that a command says may follow arg[0..n_before). */
static int find_words(struct names *c, const struct chat_command *row,
                      const char *arg, size_t n_before, const char *typed)
{
    struct buf words = {0};
    int bad = row->words(&words, arg, n_before);
    for (char *at = words.data, *end; !bad && words.len && *at; at = end) {
        end = at + strcspn(at, "\n");
        end += *end ? (*end = 0, 1) : 0;
        if (strncmp(at, typed, strlen(typed)) == 0 && escape_is_plain(at))
            bad = add_name(c, at);
    }
    buf_free(&words);
    return bad;
}

/* Complete the last word of an argument, which is at arg. */
static int find_arguments(struct names *c, const struct chat_command *row,
                          const char *arg, const char *word, const char *typed,
                          size_t *n_typed)
{
    const char *slash = strrchr(typed, '/');
    int bad = 0;
    *n_typed = strlen(typed);
    if (row && row->words)
        bad = find_words(c, row, arg, (size_t)(word - arg), typed);
    if (bad || c->n ||
        (row && row->words && (!*typed || !strchr("./~", *typed))))
        return bad;
    *n_typed = strlen(slash ? slash + 1 : typed);
    return find_files(c, typed);
}

int chat_complete(const struct chat_command *rows, const char *line, size_t n,
                  struct buf *insert, struct buf *list)
{
    const char *blank = n ? memchr(line, ' ', n) : NULL;
    struct names c = {0};
    struct buf path = {0};
    bool quoted = false;
    size_t n_typed = 0;
    int bad = 0;
    if (!n || *line != '/')
        return 0;
    if (!blank) {
        n_typed = n - 1;
        bad = find_commands(&c, rows, line + 1, n_typed);
    } else {
        const char *word = last_word(blank + 1, line + n, &quoted);
        const char *arg;
        const struct chat_command *row = chat_command_find(rows, line, &arg);
        if (read_word(word, (size_t)(line + n - word), quoted, &path))
            bad = find_arguments(&c, row, blank + 1, word, path.data, &n_typed);
    }
    if (c.n && !bad) {
        qsort(c.names, c.n, sizeof(*c.names), by_name);
        bad = put_shared(&c, n_typed, quoted, insert);
        if (!insert->len && c.n > 1)
            bad |= put_list(&c, list);
    }
    for (size_t i = 0; i < c.n; i++)
        free(c.names[i]);
    free(c.names);
    buf_free(&path);
    return bad ? -1 : 0;
}
