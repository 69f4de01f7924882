/* The history of chat: the user's messages, in a file that several chats may
 * use at the same time. A line of the file is a JSON string, the oldest first.
 * Only the owner can read the file. */
#ifndef CLI_CHAT_HISTORY_H
#define CLI_CHAT_HISTORY_H

#include <stddef.h>

#include "base/err.h"

/* Maximum bytes of the file. Beyond them the older half is dropped. */
#define CHAT_HISTORY_MAX ((size_t)1 << 20)
/* Maximum bytes of a message that is kept. */
#define CHAT_HISTORY_ENTRY_MAX ((size_t)64 << 10)

/* Call entry for each message in the file at path, the oldest first. Lines that
 * are no JSON strings are left out. A missing file has no messages. Returns 0,
 * or -1 with *e set. */
int chat_history_load(const char *path,
                      void (*entry)(void *ctx, const char *text, size_t n),
                      void *ctx, struct qwick_err *e);

/* Append a message. Messages that other chats append at the same time are
 * kept. Returns 0, or -1 with *e set. */
int chat_history_add(const char *path, const char *text, size_t n,
                     struct qwick_err *e);

#endif
