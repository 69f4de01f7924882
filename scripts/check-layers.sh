#!/bin/sh
# Check the #include lines and a few calls under src/ against the layers:
#
#   layer    may include (besides itself, the public headers and the C library)
#   base     -
#   file     base
#   text     base, file/json.h, file/json_scan.h, file/json_writer.h
#   kernel   base
#   model    base, file, kernel
#   engine   base, file, text, kernel, model
#   convert  base, file, text, kernel, model, engine
#   cli      base, file/json.h, file/json_writer.h, file/csv.h, file/map.h,
#            file/safetensors.h, file/save.h, file/fs.h, text/prompt_template.h,
#            text/unicode.h,
#            text/chat/{call_forms,chat_values,code_block,tool_calls,tool_value}.h
#
# cli has rooms. A room may include itself and those before it:
#
#   io < http < opt < report < sandbox < store < answer < input < rooms of verbs
#   < main.c and verbs.c
#
# Rooms of verbs do not include each other. A room of cli or text has at most 40
# files, so that a fact is found by its place.
#
# The files that cli may include are the formats of its own inputs and results
# (JSON records, the chats and tool calls in them, tensors of logits) and what
# writes them; models it sees through the public headers only.
#
# Libraries and instruction sets stay in the one file that wraps them, nothing
# above kernel asks for a level of kernels, and below cli nothing prints, exits or
# aborts. Prints each offending line and exits 1; silent and 0 when all is well.
set -eu

if [ $# -gt 1 ]; then
    echo "Usage: scripts/check-layers.sh [SOURCE_ROOT]" >&2
    exit 2
fi
cd "${1:-$(dirname "$0")/..}"

# shellcheck disable=SC2016 # the dollars are awk's
find src -type f \( -name '*.c' -o -name '*.h' \) | LC_ALL=C sort |
    LC_ALL=C xargs awk '
    BEGIN {
        allowed["base"] = ""
        allowed["file"] = "base/"
        allowed["text"] = "base/ file/json.h file/json_pieces.h " \
            "file/json_scan.h file/json_writer.h"
        allowed["kernel"] = "base/"
        allowed["model"] = "base/ file/ kernel/"
        allowed["engine"] = "base/ file/ text/ kernel/ model/"
        allowed["convert"] = "base/ file/ text/ kernel/ model/ engine/"
        allowed["cli"] = "base/ file/json.h file/json_writer.h file/csv.h " \
            "file/map.h file/safetensors.h file/save.h file/fs.h " \
            "text/prompt_template.h text/unicode.h text/chat/call_forms.h " \
            "text/chat/chat_values.h " \
            "text/chat/code_block.h text/chat/tool_calls.h " \
            "text/chat/tool_value.h"

        # Rooms of cli: the number of each that others build on; 0: of verbs.
        split("io http opt report sandbox store answer input", order, " ")
        for (i in order)
            rank[order[i]] = i
        MOST = 40

        # System headers that belong in certain files only.
        home["utf8proc.h"] = "^src/text/unicode\\.c$"
        home["nettle/"] = "^src/file/blob_sum\\.c$"
        home["cblas"] = "^src/kernel/gemm\\.c$"
        home["dlfcn.h"] = "^src/base/dynlib\\.c$"
        home["microhttpd.h"] = "^src/cli/http/http_mhd\\.h$"
        home["sqlite3.h"] = "^src/cli/store/sqlite\\.h$"
        home["immintrin.h"] = "^src/kernel/x86/"
        home["x86intrin.h"] = home["immintrin.h"]

        call = "(^|[^A-Za-z0-9_])(v?printf|puts|putchar|perror|_?exit|" \
            "_Exit|quick_exit|abort)[ \t]*\\("
        stream = "(^|[^A-Za-z0-9_])(stdout|stderr|STD(OUT|ERR)_FILENO)" \
            "([^A-Za-z0-9_]|$)"
        isa = "(^|[^A-Za-z0-9_])(ISA_[A-Z0-9]+|enum isa|isa_(name|parse)|" \
            "cpu_(has|best|identify)|kernels_get)([^A-Za-z0-9_]|$)"
    }

    function complain(why)
    {
        printf("%s:%d: %s: %s\n", FILENAME, FNR, why, $0)
        bad = 1
    }

    # The line without comments; without what stands in quotes, too.
    function code_of(line,    out, c, quote)
    {
        out = ""
        while (line != "") {
            if (in_comment) {
                c = index(line, "*/")
                if (!c)
                    return out
                line = substr(line, c + 2)
                in_comment = 0
                continue
            }
            c = substr(line, 1, 1)
            if (quote != "") {
                if (c == "\\")
                    line = substr(line, 2)
                else if (c == quote)
                    quote = ""
            } else if (c == "\"" || c == "\047") {
                quote = c
            } else if (substr(line, 1, 2) == "//") {
                return out
            } else if (substr(line, 1, 2) == "/*") {
                in_comment = 1
                line = substr(line, 2)
            } else {
                out = out c
            }
            line = substr(line, 2)
        }
        return out
    }

    function check_own(target,    n, i, list)
    {
        if (target ~ /^qwick(_tools)?\.h$/ || index(target, layer "/") == 1)
            return
        n = split(allowed[layer], list, " ")
        for (i = 1; i <= n; i++)
            if (target == list[i] ||
                (list[i] ~ /\/$/ && index(target, list[i]) == 1))
                return
        complain(layer " may not include " target)
    }

    # Check the rooms of an include of cli by cli.
    function check_room(target,    to)
    {
        if (layer != "cli" || index(target, "cli/") != 1 || room == "")
            return
        split(target, to, "/")
        if (to[2] == room)
            return
        if (!(to[2] in rank))
            complain("cli/" room " may not include a room of verbs")
        else if (room in rank && rank[to[2]] > rank[room])
            complain("cli/" room " may not include cli/" to[2])
    }

    function check_system(target,    key)
    {
        for (key in home)
            if (index(target, key) == 1 && FILENAME !~ home[key])
                complain(target " does not belong here")
    }

    FNR == 1 {
        in_comment = 0
        split(FILENAME, path, "/")
        layer = path[2]
        room = path[4] == "" ? "" : path[3]
        if ((layer == "cli" || layer == "text") && ++files[layer "/" room] == MOST + 1)
            complain("src/" layer "/" room " has more than " MOST " files")
        name = FILENAME
        sub(/.*\//, "", name)
        if (!(layer in allowed))
            complain("no such layer: " layer)
        if (name in seen)
            complain("file name used twice, see " seen[name])
        seen[name] = FILENAME
    }

    {
        was_comment = in_comment
        code = code_of($0)
    }

    !was_comment && /^[ \t]*#[ \t]*include/ {
        target = $0
        sub(/^[ \t]*#[ \t]*include[ \t]*["<]/, "", target)
        sub(/[">].*/, "", target)
        # A library is one in quotes as well.
        check_system(target)
        if ($0 ~ /"/) {
            check_own(target)
            check_room(target)
        }
    }

    layer != "cli" && code ~ call { complain("prints, exits or aborts") }
    layer != "cli" && code ~ stream { complain("uses a standard stream") }

    layer != "kernel" && FILENAME !~ /^src\/base\/cpu/ && code ~ isa {
        complain("names an instruction set; ask struct kernel_tuning")
    }

    END { exit bad }
' || exit 1
