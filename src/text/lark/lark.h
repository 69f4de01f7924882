/* Grammars in the form of Lark, as far as llguidance documents it. */
#ifndef TEXT_LARK_H
#define TEXT_LARK_H

#include <stddef.h>
#include <stdint.h>

struct grammar;

/* Add the rules and terminals in text[0..n) to g and return the rule "start".
 *
 *     start: "[" item ("," item)* "]"     // a comment
 *     item: NUMBER -> number
 *         | "x"i~2..3 | /[a-z]+/ | %json {"type": "null"}
 *     NUMBER: "0".."9"+
 *     %import common.WS
 *     %ignore WS
 *
 * Rules have lower case names, terminals upper case ones. What %ignore names
 * may follow each terminal of a rule, string and regular expression. A text is
 * one of the grammar if it can be divided into terminals in any way: they are
 * not greedy, and priorities have no effect. Rules may begin with themselves.
 * Lark's terminals of "common" can be imported.
 *
 * Refused, by name: templates, attributes of rules, other modules and
 * directives, the operators & and ~ for terminals, and flags of regular
 * expressions other than i, s and u. The flag i is about ASCII letters. Tokens
 * are written as in gbnf.h, without "!".
 *
 * On failure the grammar has the error, which begins with "line N, column M: ".
 */
uint32_t lark_compile(struct grammar *g, const char *text, size_t n);

#endif
