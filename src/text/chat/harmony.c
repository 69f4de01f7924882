#include "text/chat/harmony.h"

#include <string.h>

/* The word behind `mark` in s[0..n): up to a blank or a tag. NULL: the mark is
 * not there. */
static const char *word_behind(const char *s, size_t n, const char *mark,
                               size_t *n_word)
{
    size_t len = strlen(mark);
    const char *p = n ? memmem(s, n, mark, len) : NULL;
    *n_word = 0;
    if (!p)
        return NULL;
    p += len;
    while (p + *n_word < s + n && !memchr(" \t\r\n<", p[*n_word], 5))
        ++*n_word;
    return p;
}

static bool word_equals(const char *s, size_t n, const char *word)
{
    return n == strlen(word) && (!n || !memcmp(s, word, n));
}

struct harmony_header harmony_read(const char *s, size_t n)
{
    /* they are no tools */
    static const char *const people[] = {"", "all", "user", "assistant"};
    struct harmony_header h = {.kind = HARMONY_IS_TEXT};
    size_t n_channel;
    const char *channel = word_behind(s, n, HARMONY_CHANNEL, &n_channel);
    h.recipient = word_behind(s, n, "to=", &h.n_recipient);
    h.final = channel && word_equals(channel, n_channel, "final");
    for (size_t i = 0; i < sizeof people / sizeof *people; i++)
        if (h.recipient && word_equals(h.recipient, h.n_recipient, people[i]))
            h.recipient = NULL;
    if (h.recipient)
        h.kind = HARMONY_IS_CALL;
    else if (channel && word_equals(channel, n_channel, "analysis"))
        h.kind = HARMONY_IS_THINKING;
    return h;
}

int harmony_put_call(struct buf *out, const struct harmony_header *h)
{
    return buf_puts(out, HARMONY_CHANNEL "commentary to=") ||
                   buf_append(out, h->recipient, h->n_recipient) ||
                   buf_puts(out, " <|constrain|>json" HARMONY_MESSAGE)
               ? -1
               : 0;
}
