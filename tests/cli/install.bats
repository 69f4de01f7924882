#!/usr/bin/env bats
# make install and make uninstall.
load helpers

setup() {
    common_setup
    command -v make >/dev/null || skip "no make"
    # use the tested build, and drop the options of a make that runs this test
    unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
    local build=$(realpath --relative-to=. "$(dirname "$QWICK")")
    [ "$build" != . ] || build=build
    MAKE_ARGS=(--no-print-directory -s "BUILD=$build" "SAN=${SAN:-}" CI=1
        "DESTDIR=$T/dest dir" PREFIX=/usr)
    ROOT="$T/dest dir/usr"
    VERSION=$(sed -n 's/^#define QWICK_VERSION "\(.*\)"$/\1/p' include/qwick.h)
}

installed() {
    (cd "$T/dest dir" && find . ! -type d | sort)
}

@test "make install: the files, and a program that works from there" {
    run -0 make "${MAKE_ARGS[@]}" install
    [ "$(installed)" = "./usr/bin/qwick
./usr/bin/qwick-pull
./usr/include/qwick.h
./usr/include/qwick_tools.h
./usr/lib/libqwick.a
./usr/lib/libqwick.so
./usr/lib/libqwick.so.1
./usr/lib/libqwick.so.1.$VERSION
./usr/lib/pkgconfig/qwick.pc
./usr/share/bash-completion/completions/qwick
$(printf './usr/share/doc/qwick/%s\n' CHANGELOG.md LICENSE LICENSE.demo-model README.md \
        docs/*.md examples/* contrib/*.md contrib/*/*.* \
        contrib/git/* contrib/*/*/* | sed 's|qwick/docs/|qwick/|' | sort)
./usr/share/fish/vendor_completions.d/qwick.fish
$(cd man && printf './usr/share/man/man1/%s\n' *.1 | sort)
./usr/share/zsh/site-functions/_qwick" ]
    cd "$T"
    export PATH="$ROOT/bin:$PATH"
    run -0 --separate-stderr qwick --no-stdin "list all listening tcp ports"
    [ -n "$output" ]
    [ -z "$stderr" ]
    run -0 qwick-pull --help
    [[ $output == "usage: qwick-pull"* ]]
    for pair in bash:bash-completion/completions/qwick \
        zsh:zsh/site-functions/_qwick fish:fish/vendor_completions.d/qwick.fish; do
        qwick completion "${pair%%:*}" | cmp - "$ROOT/share/${pair#*:}"
    done
    # bash-completion and zsh find the scripts by themselves
    if [ -r /usr/share/bash-completion/bash_completion ]; then
        run -0 env XDG_DATA_DIRS="$ROOT/share" bash --norc -c '
            . /usr/share/bash-completion/bash_completion
            _completion_loader qwick
            complete -p qwick'
        [[ $output == "complete -F _qwick qwick" ]]
    fi
    if command -v zsh >/dev/null; then
        run -0 zsh -f -c "fpath=('$ROOT/share/zsh/site-functions' \$fpath)
            autoload -Uz compinit && compinit -u -D
            print \$_comps[qwick]"
        [ "$output" = _qwick ]
    fi

    # nothing is left, not even the directory of its own
    cd "$BATS_TEST_DIRNAME/../.."
    run -0 make "${MAKE_ARGS[@]}" uninstall
    [ -z "$(installed)" ]
    [ ! -e "$ROOT/share/doc/qwick" ]
}

@test "all global symbols of the libraries begin with qwick_" {
    local dir=$(dirname "$QWICK")
    nm -D --defined-only "$dir/libqwick.so" >"$T/shared"
    nm -g --defined-only "$dir/libqwick.a" >"$T/static"
    for list in shared static; do
        grep -q ' T qwick_engine_open$' "$T/$list"
        grep -E '^[0-9a-f]+ . ' "$T/$list" >"$T/symbols"
        run -1 grep -vE ' T qwick_[a-z_]+$' "$T/symbols"
    done
    # they are exactly the functions of the headers
    grep -ohE 'qwick_[a-z_]+\(' include/*.h | tr -d '(' | sort -u >"$T/header"
    for list in shared static; do
        grep -oE 'qwick_[a-z_]+$' "$T/$list" | sort -u >"$T/names"
        run -0 comm -23 "$T/names" "$T/header"
        [ -z "$output" ]
    done
    cmp <(grep -oE 'qwick_[a-z_]+$' "$T/shared" | sort) \
        <(grep -oE 'qwick_[a-z_]+$' "$T/static" | sort)
    readelf -d "$dir/libqwick.so" | grep -q 'SONAME.*\[libqwick.so.1\]'
}

@test "the command that a hint names is installed, and is next to the built binary" {
    run -0 make "${MAKE_ARGS[@]}" install
    export HF_HUB_CACHE=$T/cache
    for id in Qwen/Qwen3-0.6B Qwen/Qwen3-0.6B@v1; do
        run -3 --separate-stderr "$ROOT/bin/qwick" -m $id --no-stdin hi
        # "…: download it with COMMAND VERB ARGUMENTS"
        read -r command verb arguments <<<"${stderr##*download it with }"
        [ "$command $verb $arguments" = "qwick pull $id" ]
        # the script is beside both; it accepts the arguments, and then fails at
        # the network
        for command in "$ROOT/bin/qwick" "$QWICK"; do
            [ -x "$(dirname "$command")/qwick-pull" ]
            HF_ENDPOINT=https://127.0.0.1:1 \
                run -1 "$command" "$verb" "$arguments"
            [[ $output == "qwick-pull: "*"127.0.0.1"* ]]
        done
    done
}

@test "no message names a file of the source tree" {
    # strings in the sources that name a directory or a script of the tree; #include
    # names rooms such as cli/bench
    run grep -rnE '^[^#]*"[^"]*((scripts|bench|tests|docs)/|\.sh[^a-z"])' src
    echo "$output"
    [ "$status" -eq 1 ]
}
