/* The form of gpt-oss's answers, "harmony": messages, each with a header that
 * names its channel, and perhaps whom it is for.
 *
 *     <|start|>assistant<|channel|>analysis<|message|>TEXT<|end|>
 *
 * The channel "analysis" is thinking. A message to a tool is a call: "to=" is
 * before the channel or after it. Other messages are text for the user: those
 * of "final" are the answer, those of "commentary" come before calls. */
#ifndef TEXT_HARMONY_H
#define TEXT_HARMONY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

#define HARMONY_START    "<|start|>"
#define HARMONY_CHANNEL  "<|channel|>"
#define HARMONY_MESSAGE  "<|message|>"
#define HARMONY_END      "<|end|>"
#define HARMONY_TURN     HARMONY_START "assistant" /* begins a message */
#define HARMONY_THINKING HARMONY_CHANNEL "analysis" HARMONY_MESSAGE
#define HARMONY_FINAL    HARMONY_CHANNEL "final" HARMONY_MESSAGE

enum harmony_kind { HARMONY_IS_TEXT, HARMONY_IS_THINKING, HARMONY_IS_CALL };

/* What a header says. */
struct harmony_header {
    enum harmony_kind kind;
    bool final;            /* the channel is "final" */
    const char *recipient; /* [n_recipient] of a call, in the header */
    size_t n_recipient;
};

/* Read a header: the text up to HARMONY_MESSAGE, from HARMONY_START on or from
 * behind it. A header of another form is that of a text. */
struct harmony_header harmony_read(const char *s, size_t n);

/* Append the beginning of a call in the form that tool_calls.h reads, for all
 * the spellings that models have. */
int harmony_put_call(struct buf *out, const struct harmony_header *h);

#endif
