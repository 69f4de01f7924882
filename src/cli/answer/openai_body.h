/* Bodies of OpenAI's chat completions, for batch's requests of this format and
 * for serve. A body becomes a record that request.h describes. */
#ifndef CLI_OPENAI_BODY_H
#define CLI_OPENAI_BODY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "cli/answer/body_members.h"
#include "cli/answer/request.h"
#include "file/json.h"
#include "file/json_writer.h"

/* Most samples of a request to serve, as OpenAI's clients and servers have
 * them. */
enum { OPENAI_MAX_N = 8 };

/* After body_begin: write the members of the record for a body. Returns 0, or
 * -1 with *x->e set. */
int openai_read_body(struct body_reader *x);

/* The same for the members that a body of /v1/completions shares with one of
 * chat completions. others: its other members, with NULL at the end. */
int openai_read_completion(struct body_reader *x, const char *const *others);

/* ---- for other forms of OpenAI's bodies ---- */

/* Write the record's constraint for a format of answers of this type. v: has
 * "schema" and "strict"; holder is its name in messages. name: of the member at
 * fault. */
int openai_put_format(struct body_reader *x, const char *name,
                      const struct json_value *type, const char *holder,
                      const struct json_value *v);
/* Write whether the model thinks, and the variables of the template, for an
 * effort (NULL: none) and for chat_template_kwargs of the body. */
void openai_put_effort(struct body_reader *x, const struct json_value *effort);
/* The row of chat_template_kwargs. */
int body_template_args(struct body_reader *x, const struct body_member *row,
                       const struct json_value *m);

/* Return the name in a body of a record's member. */
const char *openai_member_name(const char *name);

#endif
