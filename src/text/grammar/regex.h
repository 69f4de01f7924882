/* Regular expressions as nodes of a grammar. */
#ifndef TEXT_REGEX_H
#define TEXT_REGEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct grammar;

/* How the text is compared with the expression. */
enum regex_mode {
    REGEX_WHOLE, /* the whole text matches */
    REGEX_SEARCH /* some part of the text matches */
};

/* Add the expression re[0..n), valid UTF-8, to g and return its node.
 *
 * Syntax: literals, ".", classes with ranges and ^, \d \w \s \D \W \S (ASCII,
 * and \s also the other white space of ECMAScript), \p{…} and \P{…}, \t \n \r
 * \f \v \0 \xHH \uHHHH \u{H…} \cX, escaped punctuation, groups ( ), (?: ) and
 * (?<name> ), lookahead (?= ) and (?! ), the assertions ^ $ \b \B, "|", and the
 * repetitions * + ? {m} {m,} {m,n}, also with a ? after them, which does not
 * change the language. "." is any code point except \n, \r, U+2028 and U+2029.
 * Refuses by name, with their position: back references, lookbehind, inline
 * flags, and possessive repetitions.
 *
 * An expression with lookahead, \b, \B, or with ^ or $ elsewhere than at the
 * ends, becomes the node of an automaton.
 *
 * On failure returns GRAMMAR_NOTHING, and the grammar has the error. If `where`
 * is not NULL, the error begins with it: "WHERE: character 7: …". */
uint32_t regex_compile(struct grammar *g, const char *where, const char *re,
                       size_t n, enum regex_mode mode);

/* Like regex_compile, for dfa_of_node only: the node may have assertions and
 * lookahead inside. Sets *looks if it does. */
uint32_t regex_parse(struct grammar *g, const char *where, const char *re,
                     size_t n, enum regex_mode mode, bool *looks);

#endif
