#include "cli/chat/chat_command.h"

#include <stdlib.h>
#include <string.h>

#include "base/word_distance.h"

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static const char *skip_blanks(const char *s)
{
    while (is_blank(*s))
        s++;
    return s;
}

/* Length of the name after the slash. */
static size_t name_length(const char *text)
{
    size_t n = 0;
    if (text[1] == '?')
        return 1;
    while ((text[1 + n] >= 'a' && text[1 + n] <= 'z') ||
           (text[1 + n] >= 'A' && text[1 + n] <= 'Z'))
        n++;
    return n;
}

bool chat_command_is(const char *text)
{
    if (*text != '/')
        return false;
    size_t n = name_length(text);
    return n && (!text[1 + n] || is_blank(text[1 + n]));
}

size_t chat_command_skip(const char *text)
{
    size_t n = strspn(text, " \t");
    return n && chat_command_is(text + n) ? n : 0;
}

static bool has_name(const struct chat_command *c, const char *name, size_t n)
{
    return strlen(c->name) == n && strncasecmp(c->name, name, n) == 0;
}

const struct chat_command *chat_command_find(const struct chat_command *rows,
                                             const char *text, const char **arg)
{
    size_t n = name_length(text);
    *arg = skip_blanks(text + 1 + n);
    for (; rows->name; rows++)
        if (has_name(rows, text + 1, n))
            return rows;
    return NULL;
}

const char *chat_command_near(const struct chat_command *rows, const char *text)
{
    char word[40];
    size_t n = name_length(text), n_begin = 0, least = n < 3 ? n : 3;
    const char *near = NULL, *begins = NULL;
    if (n >= sizeof(word))
        return NULL;
    for (size_t i = 0; i < n; i++)
        word[i] = (char)(text[1 + i] | 0x20); /* a lower case letter */
    word[n] = 0;
    for (; rows->name; rows++) {
        word_nearest(word, rows->name, &least, &near);
        if (strncmp(rows->name, word, n) == 0) {
            begins = rows->name;
            n_begin++;
        }
    }
    return n_begin == 1 ? begins : near;
}

/* Append a name in quotes; s is behind the first one. Returns the character
 * behind the second one; NULL: there is none. */
static const char *read_quoted(const char *s, struct buf *out)
{
    for (; *s && *s != '"'; s++) {
        if (*s == '\\' && (s[1] == '"' || s[1] == '\\'))
            s++;
        buf_putc(out, *s);
    }
    return *s ? s + 1 : NULL;
}

const char *chat_command_file(const char *arg, bool whole, struct buf *out,
                              const char **rest)
{
    const char *home = getenv("HOME"), *s = arg;
    *rest = "";
    if (strncmp(s + (*s == '"'), "~/", 2) == 0) {
        if (!home)
            return "HOME is not set";
        buf_puts(out, home);
        s = s + (*s == '"') + 1;
    } else if (*s == '"') {
        s++;
    }
    if (*arg == '"') {
        s = read_quoted(s, out);
        if (!s)
            return "has no second \"";
        if (*s && !is_blank(*s))
            return "text follows the second \" without a blank";
    } else {
        for (; *s && (whole || !is_blank(*s)); s++) {
            if (*s == '\\' && s[1])
                s++; /* Tab puts it before blanks */
            buf_putc(out, *s);
        }
    }
    *rest = skip_blanks(s);
    if (whole && **rest)
        return "text follows the second \"";
    return out->failed ? "out of memory" : NULL;
}
