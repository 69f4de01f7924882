/* /v1/responses: OpenAI's Responses protocol without stored responses. A
 * response is a list of items: the thinking, the text, and each call of a tool
 * are items of their own, both in requests and in answers. */
#ifndef CLI_RESPONSES_H
#define CLI_RESPONSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cli/answer/body_members.h"
#include "file/json.h"

/* A function of a tool of type "namespace". The model knows it by a name that
 * has both names in it. */
struct response_tool {
    char *flat;         /* the model's name for it */
    char *space, *name; /* its names in requests and answers */
};

struct response_part;

/* chat_state.own of this form. */
struct responses {
    bool summary;    /* the thinking is the summary of its item */
    struct buf echo; /* members that a response copies from its request */
    struct response_tool *tools; /* [n_tools] of namespaces */
    size_t n_tools, cap_tools;

    /* Engine thread: the events and items that were sent, or would be sent if
     * there were a stream. */
    uint64_t n_events;
    struct buf output;                /* items that have ended */
    size_t n_items;                   /* of output */
    const struct response_part *open; /* the part of the item after these; NULL:
                                         there is no item */
    size_t from;                      /* where its text begins */
    struct buf logprobs;              /* of its text */
};

void responses_free(struct responses *o);

/* ---- responses_body.c: preparation thread ---- */

/* Return a body's name for a member of the record. */
const char *responses_member_name(const char *name);
/* Write the members of the record for a body, and set the first members of *o.
 * Returns 0, or -1 with *x->e and x->fault set. */
int responses_read_body(struct responses *o, struct body_reader *x);

/* Append the name that the model has for a function of a namespace. Returns 0,
 * or -1 when out of memory. */
int responses_flat_name(struct buf *out, const struct json_value *space,
                        const struct json_value *name);

/* ---- responses_input.c: preparation thread ---- */

/* Write the record's messages for "instructions" and "input". */
int responses_read_input(struct body_reader *x);

#endif
