#!/bin/sh
# Print the flags against attacks that a compiler knows, on one line.
#   scripts/hardening-flags.sh COMPILER [FLAG...]
# A flag that makes the compiler complain, together with the given ones, is left
# out: an old compiler does not know it, or -O0 rules it out.
set -u

if [ $# -lt 1 ]; then
    echo "Usage: scripts/hardening-flags.sh COMPILER [FLAG...]" >&2
    exit 2
fi

# known COMPILER FLAG...: the compiler takes the flags without a word.
known()
{
    echo '#include <string.h>' |
        "$@" -D_GNU_SOURCE -Werror -x c -S -o /dev/null - >/dev/null 2>&1
}

# The best of each: checks of libc's calls, then guards of the stack. A compiler
# may define a level of its own, so that is undefined first.
fortify="-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE="
guard=-fstack-protector-strong

# Most compilers know all, which takes one call to see.
# shellcheck disable=SC2086 # fortify is two words
if known "$@" ${fortify}3 $guard; then
    echo "${fortify}3 $guard"
    exit 0
fi
flags=
for level in 3 2; do
    # shellcheck disable=SC2086
    if known "$@" $fortify$level; then
        flags=$fortify$level
        break
    fi
done
if known "$@" $guard; then
    flags="$flags $guard"
fi
echo $flags
