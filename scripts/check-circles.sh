#!/bin/sh
# Check the calls between the files under src/, as their objects have them: a circle
# is a set of files each of which calls, directly or through others, all of them. No
# circle has files of two directories, and none has more than 4 files. Tables that
# name functions close no circle. Prints each circle that breaks a rule and exits 1;
# silent and 0 when all is well.
set -eu

if [ $# -gt 1 ]; then
    echo "Usage: scripts/check-circles.sh [BUILD]" >&2
    exit 2
fi
root=$(cd "$(dirname "$0")/.." && pwd)
cd "${1:-$root/build}/src"

# An object whose source is gone stays in a build.
find . -name '*.o' | LC_ALL=C sort | while read -r object; do
    [ ! -e "$root/src/${object%.o}.c" ] || echo "$object"
done | LC_ALL=C xargs nm -A -g | LC_ALL=C awk '
    # "./engine/core/open.o:0000000000000000 T name", or "…: U name".
    {
        file = $1
        sub(/^\.\//, "", file)
        sub(/\.o:.*/, "", file)
        if ($(NF - 1) == "U") {
            n_uses++
            user[n_uses] = file
            symbol[n_uses] = $NF
        } else if ($(NF - 1) ~ /^[TW]$/) {
            home[$NF] = file
        }
        if (!(file in calls))
            calls[file] = ""
    }

    # Tarjan. calls[file] lists files, each followed by a blank.
    function visit(file,    n, i, to, list)
    {
        number[file] = low[file] = ++n_visited
        stack[++top] = file
        on_stack[file] = 1
        n = split(calls[file], list, " ")
        for (i = 1; i <= n; i++) {
            to = list[i]
            if (!(to in number))
                visit(to)
            if (on_stack[to] && low[to] < low[file])
                low[file] = low[to]
        }
        if (low[file] == number[file])
            pop_circle(file)
    }

    function pop_circle(file,    names, n, rooms, room)
    {
        do {
            room = stack[top]
            names = stack[top] " " names
            on_stack[stack[top]] = 0
            sub(/[^\/]*$/, "", room)
            if (n++ == 0)
                rooms = room
            else if (room != rooms)
                rooms = ""
        } while (stack[top--] != file)
        # These circles are older than this check.
        if ((n > 4 || rooms == "") && names !~ /^(kernel|text)\//) {
            printf("%d files call each other%s: %s\n", n,
                   rooms == "" ? ", in different directories" : "", names)
            bad = 1
        }
    }

    END {
        for (i = 1; i <= n_uses; i++) {
            to = home[symbol[i]]
            if (to != "" && to != user[i] && !known[user[i], to]++)
                calls[user[i]] = calls[user[i]] to " "
        }
        for (file in calls)
            if (!(file in number))
                visit(file)
        exit bad
    }
'
