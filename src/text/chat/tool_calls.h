/* Takes the tool calls out of an answer that comes in pieces. The calls have
 * the form that the model's template shows, see call_forms.h.
 *
 * White space around calls is dropped. A call that is malformed, names no tool,
 * or has no end stays in the text, and the first of these is an error. A
 * closing tag inside a JSON string, or inside a parameter, belongs to the call.
 * Where the whole answer is a call, one that does not begin as a call is text.
 */
#ifndef TEXT_TOOL_CALLS_H
#define TEXT_TOOL_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "file/json.h"
#include "file/json_pieces.h"
#include "file/json_writer.h"
#include "text/chat/call_forms.h"

struct tool_call {
    char *name;
    struct buf arguments; /* a JSON object, as Python's json.dumps writes it */
    size_t at;            /* bytes of the text that come before it */
};

/* Calls of the block that is being read. */
struct calls_begun {
    struct tool_call *v; /* [n] with the beginning of their arguments */
    size_t n, cap;
    size_t at; /* n > 0: where the rest begins in held */
    bool in_json;
    struct json_pieces json; /* of the last call's arguments */
};

/* The calls of an answer. All zeros but tools, form, and perhaps the members
 * that the caller may set, is the start. */
struct tool_calls {
    const struct call_form *form;   /* NULL: the answer is text */
    const struct json_value *tools; /* an array of definitions; borrowed */
    uint64_t id;                    /* from which the ids of calls are made */
    const char *id_prefix;          /* of these ids; NULL: "call" */
    /* A constraint holds calls to their form. So one is known when it begins,
       and no text of it can become text of the answer. */
    bool certain;
    bool one; /* only the first call may be known when it begins */

    struct tool_call *v; /* [n] */
    size_t n, cap;
    struct buf text;  /* the text outside of calls that is certain */
    struct buf error; /* why the first bad call is bad; empty: there is none */

    struct buf held; /* the bytes behind text: white space, then the beginning
                        of a tag or of a call */
    struct calls_begun begun; /* with certain */
    size_t n_bad;    /* calls that stay in the text */
    bool decided;    /* the answer cannot become a call as a whole */
    bool in_call;
    size_t body;    /* in_call: where the call begins in held, after its tag */
    size_t matched; /* bytes of the awaited tag at the end of held */
    const struct call_form *own; /* of the call; NULL: not known yet */
    bool in_string, escaped;     /* what the next byte of JSON is in */
    bool cut; /* the answer ended inside a call */
    bool broken; /* with certain: a call is malformed all the same. Nothing more
                    is read, and the answer counts as cut */
    bool after_call;             /* the last call has no text behind it yet */
};

/* Read the next piece of the answer. Pieces may end anywhere. Returns 0, or -1
 * when out of memory. */
int tool_calls_feed(struct tool_calls *c, const char *s, size_t n);

/* The answer has ended: a call without an end is an error. Returns 0, or -1
 * when out of memory. */
int tool_calls_end(struct tool_calls *c);

/* Return call i as far as it is known: the calls v[n] are followed by those
 * that have begun. *whole: its arguments have their end. NULL: it has not
 * begun. A call that is cut, or broken, stays begun. */
const struct tool_call *tool_calls_at(const struct tool_calls *c, size_t i,
                                      bool *whole);

/* Forget all calls but the first n. */
void tool_calls_keep(struct tool_calls *c, size_t n);

/* The answer has ended, as tool_calls_end says; but the text of a call that is
 * cut is dropped, even if only its tag has begun. is_cut: the model did not end
 * the answer. */
int tool_calls_end_without_cut(struct tool_calls *c, bool is_cut);

/* Bytes of a call's id, with its NUL. */
enum { TOOL_CALL_ID = 32 };

/* Write the id of call i to out. Returns out. */
const char *tool_calls_id(const struct tool_calls *c, size_t i,
                          char out[TOOL_CALL_ID]);
/* Write the member "id" of call i. */
void tool_calls_write_id(struct json_writer *w, const struct tool_calls *c,
                         size_t i);
/* Write call i as an object of OpenAI's form. */
void tool_calls_write(struct json_writer *w, const char *key,
                      const struct tool_calls *c, size_t i);

void tool_calls_free(struct tool_calls *c);

/* Return the object of a tool's definition that has its "name": the definition
 * itself, or its "function". */
const struct json_value *tool_definition(const struct json_value *tool);

/* Return the definition of a tool: the object that has its "name" and perhaps
 * "parameters". NULL if there is none with this name. */
const struct json_value *tool_find(const struct json_value *tools,
                                   const char *name, size_t n);

#endif
