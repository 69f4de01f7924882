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

@test "of a libmicrohttpd that lacks functions, serve names the version to install" {
    echo 'int MHD_start_daemon;' |
        "${CC:-cc}" -shared -fPIC -o "$T/libmicrohttpd.so.12" -x c - || skip "no compiler"
    LD_LIBRARY_PATH=$T fails 1 "libmicrohttpd.so.12 is too old for serve; install package libmicrohttpd12 0.9.75 or later" serve
}

@test "other verbs do not need libmicrohttpd" {
    without_library pwd
    [ "$status" = 0 ]
    [ "$output" = pwd ]
}
