#!/bin/sh
# Check that the binary and the shared library have the guards that the Makefile asks
# for: position-independent, tables of functions read-only from the start (full
# RELRO), no memory that is writable and executable, guarded stack frames, checked
# calls of libc, and no folders of their own for libraries. Prints a line for each
# guard that is missing and exits 1; silent and 0 when all are there.
#   scripts/check-hardening.sh [FILE...]
# Without FILE it reads $QWICK (./qwick) and the libqwick.so beside it.
set -eu

if [ $# -eq 0 ]; then
    if [ "${SAN:-}" = 1 ]; then
        echo "SKIP: sanitizers have checks of their own"
        exit 0
    fi
    cd "$(dirname "$0")/.."
    qwick=${QWICK:-./qwick}
    set -- "$qwick" "$(dirname "$qwick")/libqwick.so"
fi

bad=0
for file; do
    # A broken file, or none: readelf complains and the script ends.
    headers=$(LC_ALL=C readelf -W -h -l -d --dyn-syms "$file")
    printf '%s\n' "$headers" | awk -v file="$file" '
        function complain(what)
        {
            printf("%s: %s\n", file, what)
            bad = 1
        }

        $1 == "Type:" { type = $2 }
        $1 == "INTERP" { program = 1 }
        $1 == "GNU_RELRO" { relro = 1 }
        $1 == "GNU_STACK" {
            stack = 1
            if ($0 ~ / RWE /)
                complain("an executable stack")
        }
        $1 == "LOAD" && / RWE / { complain("a segment is writable and executable") }
        /\(FLAGS\)/ && /BIND_NOW/ { now = 1 }
        /\(FLAGS_1\)/ && /NOW/ { now = 1 }
        /\(FLAGS_1\)/ && /PIE/ { pie = 1 }
        /\(TEXTREL\)/ || (/\(FLAGS\)/ && /TEXTREL/) { complain("code is relocated") }
        /\((RPATH|RUNPATH)\)/ { complain("folders for libraries: " $NF) }
        $7 == "UND" && $8 ~ /^__stack_chk_fail(@|$)/ { guarded = 1 }
        $7 == "UND" && $8 ~ /^__[a-z_]+_chk(@|$)/ { fortified = 1 }

        END {
            if (type != "DYN" || (program && !pie))
                complain("not position-independent")
            if (!relro || !now)
                complain("tables of functions stay writable (no full RELRO)")
            if (!stack)
                complain("does not ask for a stack without code")
            if (!guarded)
                complain("no guards in stack frames")
            if (!fortified)
                complain("no checked calls of libc (_FORTIFY_SOURCE)")
            exit bad
        }' || bad=1
done
exit $bad
