/* Grammars in GBNF, the form of llama.cpp (grammars/README.md there). */
#ifndef TEXT_GBNF_H
#define TEXT_GBNF_H

#include <stddef.h>
#include <stdint.h>

struct grammar;

/* Add the rules in text[0..n) to g and return the rule "root".
 *
 *     # a comment
 *     root  ::= "a" [b-z^] item* ( "x" | "y"{2,3} )?
 *     item  ::= [^\n"\x41\u00e9\U0001F600] .
 *
 * Rule names have letters, digits and "-". Literals and classes know the
 * escapes \n \r \t \\ \" \[ \] \- \^ \xHH \uHHHH \UHHHHHHHH. "." is any code
 * point. A rule ends with its line, except that lines may break inside of
 * parentheses, after "::=" and after "|". "<[12]>" is a token by its id,
 * "<think>" one by its text, and with "!" before it any other one; see
 * grammar_set_tokens.
 *
 * On failure the grammar has the error, which begins with "line N: ". */
uint32_t gbnf_compile(struct grammar *g, const char *text, size_t n);

#endif
