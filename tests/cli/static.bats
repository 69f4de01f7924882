#!/usr/bin/env bats
# make static: one file without libraries, and the parts that it lacks.
load helpers

# The objects are those of the tested build, so this links only.
setup_file() {
    local build library
    [ -z "${SAN:-}" ] || skip "sanitizers need their libraries"
    command -v make >/dev/null || skip "no make"
    cd "$BATS_TEST_DIRNAME/../.."
    for library in c m utf8proc nettle; do
        [ -e "$("${CC:-cc}" -print-file-name=lib$library.a)" ] ||
            skip "no lib$library.a"
    done
    build=$(realpath --relative-to=. "$(dirname "${QWICK:-./qwick}")")
    [ "$build" != . ] || build=build
    env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u MAKEOVERRIDES \
        make --no-print-directory -s CI=1 "BUILD=$build" static
    export DYNAMIC=${QWICK:-$PWD/qwick} QWICK=$PWD/$build/static/qwick
}

@test "a static binary needs no library, and keeps its guards" {
    LC_ALL=C readelf -W -h -l -d "$QWICK" >"$T/headers"
    grep -q 'Type: *DYN' "$T/headers" # position-independent
    grep -q GNU_RELRO "$T/headers"
    run ! grep -E 'INTERP|\(NEEDED\)|GNU_STACK.* RWE |LOAD.* RWE ' "$T/headers"
    [ -x "$(dirname "$QWICK")/qwick-pull" ]
}

@test "a static binary works where there is no other file" {
    mkdir "$T/root"
    cp "$QWICK" "$T/root/qwick"
    unshare -rR "$T/root" /qwick --version >"$T/version" 2>"$T/why" ||
        skip "no namespaces: $(head -n 1 "$T/why")"
    run -0 --separate-stderr unshare -rR "$T/root" /qwick "list files" </dev/null
    [ "$output" = ls ]
    [ -z "$stderr" ]
}

@test "a static binary gives the same answers" {
    both() {
        equal "$("$QWICK" "$@" 2>&1 </dev/null)" "$("$DYNAMIC" "$@" 2>&1 </dev/null)" ||
            { echo "$*"; return 1; }
    }
    both --exact "list all listening tcp ports"
    both --exact --seed 3 --temp 1 "count lines"
    both tokenize "ünïcode, 數字 and 123"
    both score --exact "ls -l"
    both choose --exact -a ls -a pwd "list files"
    both embed -q --exact "list files" pwd
    both --json-schema '{"enum":["tar","zip"]}' "extract a tar.gz archive"
    both inspect -m "$MODELS/../no-such-model"
}

@test "a static binary refuses serve and log by name, and answers without OpenBLAS" {
    fails 1 "qwick: serve: this build has no server: it is static, and cannot load libmicrohttpd.so.12" serve
    fails 1 "qwick: log: this build has no log: it is static, and cannot load libsqlite3.so.0" log
    q serve --help | grep -q -- --listen
    # what --log cannot keep is a warning
    run -0 --separate-stderr q --log "list files"
    [ "$output" = ls ]
    [ "$stderr" = "qwick: warning: the answer is not logged: log: this build has no log: it is static, and cannot load libsqlite3.so.0" ]
    q version -v | grep -q '^libraries  glibc .*, static: no server, log or OpenBLAS$'
    # products of floats for which other builds load OpenBLAS
    q inspect -m "$MODELS/tied-bf16" --isa ref --json | grep -q '"gemm":"own"'
    "$DYNAMIC" inspect -m "$MODELS/tied-bf16" --isa ref --json | grep -q '"gemm":"openblas"'
}
