/* The text around calls of tools, where the model decides whether to call one:
 * any bytes up to the mark that begins a call. The mark is the opening tag of
 * the form. Where the whole answer is a call, it is the beginning of the object
 * up to the value of "name". */
#ifndef TEXT_TOOLS_TEXT_H
#define TEXT_TOOLS_TEXT_H

#include <stddef.h>
#include <stdint.h>

struct call_form;
struct grammar;

/* Return the node of any text. */
uint32_t tools_any_text(struct grammar *g);

/* Return the node of all texts without the mark. */
uint32_t tools_text_before(struct grammar *g, const struct call_form *form);

/* Return the node of all texts that end with the mark and have no other one. */
uint32_t tools_text_to_mark(struct grammar *g, const struct call_form *form);

/* The same for a tag, which is not empty. */
uint32_t tools_text_to_tag(struct grammar *g, const char *tag);

/* Return how many bytes of a call as the form writes it are the mark. */
size_t tools_mark_length(const struct call_form *form);

#endif
