#include "model/module_pattern.h"

#include <stddef.h>
#include <string.h>

/* ---- regular expressions, by backtracking -------------------------------- */

enum { MAX_PATTERN = 400, MAX_STEPS = 20000, MAX_DEPTH = 1000 };

/* The steps and the depth that a match may still take. */
struct budget {
    int steps, depth;
};

/* The pattern that must match behind a group. */
struct rest {
    const char *p, *end;
    const struct rest *next;
    const char *from; /* not NULL: p repeats a group, of which a turn began
                         here */
};

static bool match_any(struct budget *left, const char *p, const char *end,
                      const char *s, const struct rest *rest);

/* Return the end of the atom at p: a character, an escape, a class or a group.
 * NULL if it is none, or not known. */
static const char *atom_end(const char *p, const char *end)
{
    if (p >= end || strchr("*+?{}|)^", *p))
        return NULL;
    if (*p == '\\')
        return end - p >= 2 ? p + 2 : NULL;
    if (*p == '[') {
        p += end - p >= 2 && p[1] == '^' ? 2 : 1;
        for (bool first = true; p < end && (*p != ']' || first); p++)
            first = false;
        return p < end ? p + 1 : NULL;
    }
    if (*p != '(')
        return p + 1;
    if (end - p >= 2 && p[1] == '?' && (end - p < 3 || p[2] != ':'))
        return NULL;
    p += end - p >= 2 && p[1] == '?' ? 3 : 1;
    while (p && p < end && *p != ')')
        p = strchr("*+?|^", *p) ? p + 1 : atom_end(p, end);
    return p && p < end ? p + 1 : NULL;
}

/* Whether a character is of the kind of an escape: digit, word or space. */
static bool in_escape(char kind, char c)
{
    bool digit = c >= '0' && c <= '9';
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    return kind == 'd'   ? digit
           : kind == 'w' ? digit || letter
           : kind == 's' ? c == ' ' || c == '\t'
                         : c == kind;
}

static bool in_class(const char *p, const char *end, char c)
{
    bool negated = p[1] == '^', found = false;
    for (p += negated ? 2 : 1; p < end - 1; p++) {
        if (*p == '\\' && p + 1 < end - 1) {
            found |= in_escape(*++p, c);
        } else if (p + 2 < end - 1 && p[1] == '-') {
            found |= c >= p[0] && c <= p[2];
            p += 2;
        } else {
            found |= c == *p;
        }
    }
    return found != negated;
}

/* Whether the atom [p, end) of one character matches c. */
static bool match_one(const char *p, const char *end, char c)
{
    return c && (*p == '.'    ? true
                 : *p == '['  ? in_class(p, end, c)
                 : *p == '\\' ? in_escape(p[1], c)
                              : c == *p);
}

static bool match_rest(struct budget *left, const char *s,
                       const struct rest *rest);
static bool match_atoms(struct budget *left, const char *p, const char *end,
                        const char *s, const struct rest *rest);

/* The work of match_atoms. */
static bool match_here(struct budget *left, const char *p, const char *end,
                       const char *s, const struct rest *rest)
{
    if (p == end)
        return match_rest(left, s, rest);
    if (*p == '$' || *p == '^')
        return (*p == '^' || !*s) && match_atoms(left, p + 1, end, s, rest);
    const char *atom = atom_end(p, end);
    if (!atom)
        return false;
    const char quantifier = atom < end && strchr("*+?", *atom) ? *atom : 0;
    const char *after = atom + (quantifier != 0);
    after += quantifier && after < end && *after == '?'; /* not greedy */
    if (*p == '(') {
        const struct rest again = {
            quantifier == '+' || quantifier == '*' ? p : after, end, rest,
            quantifier && quantifier != '?' ? s : NULL};
        const char *inner = p + (p[1] == '?' ? 3 : 1);
        return match_any(left, inner, atom - 1, s, &again) ||
               ((quantifier == '*' || quantifier == '?') &&
                match_atoms(left, after, end, s, rest));
    }
    size_t n = 0, least = quantifier == '*' || quantifier == '?' ? 0 : 1;
    size_t most = quantifier == '*' || quantifier == '+' ? (size_t)-1 : 1;
    while (n < most && match_one(p, atom, s[n]))
        n++;
    for (size_t i = n + 1; i-- > least;)
        if (match_atoms(left, after, end, s + i, rest))
            return true;
    return false;
}

/* Match atoms [p, end), then the rest. */
static bool match_atoms(struct budget *left, const char *p, const char *end,
                        const char *s, const struct rest *rest)
{
    if (left->steps <= 0 || left->depth <= 0)
        return false;
    left->steps--;
    left->depth--;
    bool found = match_here(left, p, end, s, rest);
    left->depth++;
    return found;
}

/* Behind a turn of a repeated group comes another one, if this one took
 * characters, or the rest of the pattern. */
static bool match_rest(struct budget *left, const char *s,
                       const struct rest *rest)
{
    if (!rest)
        return true;
    if (!rest->from)
        return match_atoms(left, rest->p, rest->end, s, rest->next);
    const char *after = atom_end(rest->p, rest->end) + 1;
    after += after < rest->end && *after == '?';
    return (s != rest->from &&
            match_atoms(left, rest->p, rest->end, s, rest->next)) ||
           match_atoms(left, after, rest->end, s, rest->next);
}

/* Match one of the alternatives in [p, end), then the rest. */
static bool match_any(struct budget *left, const char *p, const char *end,
                      const char *s, const struct rest *rest)
{
    for (const char *to = p;; to++) {
        while (to < end && *to != '|') {
            to = strchr("*+?^", *to) ? to + 1 : atom_end(to, end);
            if (!to)
                return false;
        }
        if (match_atoms(left, p, to, s, rest))
            return true;
        if (to == end)
            return false;
        p = to + 1;
    }
}

/* ---- */

/* After a failure, only the last star can take more. */
static bool match_glob(const char *p, const char *s)
{
    const char *star = NULL, *from = NULL;
    while (*s) {
        if (*p == '*') {
            star = p++;
            from = s;
        } else if (*p == *s) {
            p++;
            s++;
        } else if (star) {
            p = star + 1;
            s = ++from;
        } else {
            return false;
        }
    }
    while (*p == '*')
        p++;
    return !*p;
}

bool module_matches(const char *pattern, const char *module)
{
    struct budget left = {MAX_STEPS, MAX_DEPTH};
    if (strncmp(pattern, "re:", 3) != 0)
        return match_glob(pattern, module);
    size_t n = strlen(pattern + 3);
    return n <= MAX_PATTERN &&
           match_any(&left, pattern + 3, pattern + 3 + n, module, NULL);
}
