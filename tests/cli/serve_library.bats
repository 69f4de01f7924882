#!/usr/bin/env bats
# qwick serve without libmicrohttpd.
load helpers

setup() {
    common_setup
    mkdir "$T/lib"
}

# The loader finds this file first, and it is no library.
without_library() {
    : >"$T/lib/libmicrohttpd.so.12"
    LD_LIBRARY_PATH=$T/lib run --separate-stderr q "$@" </dev/null
}

@test "without libmicrohttpd, serve ends at once and names the package" {
    without_library serve --listen "unix:$T/sock"
    [ "$status" = 1 ]
    [ "$(wc -l <<<"$stderr")" = 1 ]
    [[ $stderr == "qwick: "*libmicrohttpd12* ]]
    [ ! -e "$T/sock" ]
}

@test "other verbs do not need libmicrohttpd" {
    without_library pwd
    [ "$status" = 0 ]
    [ "$output" = pwd ]
}
