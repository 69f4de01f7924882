/* JSON strings as nodes of a grammar: automata over the decoded characters,
 * spelled in UTF-8 with the escapes of JSON. */
#ifndef TEXT_DFA_TEXT_H
#define TEXT_DFA_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct grammar;
struct dfa;

/* Which characters may be escaped. In the first two modes control characters,
 * '"' and '\' must be escaped, and '/' and characters outside of ASCII may be.
 * An escape is a short one or \uXXXX with hexadecimal digits of either case.
 * For a character above U+FFFF it is a pair of escaped surrogates. */
enum text_escapes {
    TEXT_ESCAPE_SOME, /* other ASCII is written plainly */
    TEXT_ESCAPE_ALL,  /* any character may be escaped */
    TEXT_ESCAPE_ONE,  /* escapes only where JSON demands them, short ones if
                         there are: equal strings have equal texts */
    TEXT_ESCAPE_NONE  /* all characters are written plainly: not JSON */
};

/* How many characters a text has; max < 0: no maximum. The limits are counted
 * and do not make the automaton larger. min > 0: dfa_can_wait(p). */
struct text_length {
    int64_t min, max;
};
#define TEXT_ANY_LENGTH ((struct text_length){0, -1})

/* Return the node of all JSON strings, with their quotes, whose characters p
 * accepts. GRAMMAR_NOTHING if there are none, or when the grammar fails. */
uint32_t text_string(struct grammar *g, const struct dfa *p,
                     enum text_escapes escapes, struct text_length length);

/* Return the node of these strings without their quotes. */
uint32_t text_body(struct grammar *g, const struct dfa *p,
                   enum text_escapes escapes, struct text_length length);

#endif
