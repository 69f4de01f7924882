#!/usr/bin/env bats
# How the Makefile handles its environment, and the guards in what it builds.
bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_DIRNAME/../.."
    unset MAKEFLAGS MFLAGS MAKELEVEL SAN
}

@test "make help: a line for each phony target, and all is the default" {
    run -0 make -s help
    printf '%s\n' "${lines[@]}" | cut -d ' ' -f 1 >"$BATS_TEST_TMPDIR/help"
    make -s -pn help 2>/dev/null | sed -n 's/^\.PHONY: //p' | tr ' ' '\n' |
        LC_ALL=C sort | diff - "$BATS_TEST_TMPDIR/help"
    run ! grep -vE '^[a-z-]+ +[^ ]' <<<"$output"
    make -pn help 2>/dev/null | grep -qx '\.DEFAULT_GOAL := all'
}

# The compile lines of files with and without kernels.
compile_lines() {
    make -n -B build/src/base/cpu.o build/src/kernel/x86/k_avx2.o \
        build/src/cli/main.o build/tests/test_base | grep -w -- -std=gnu11
}

@test "variables of the environment do not reach compile lines" {
    compile_lines >"$BATS_TEST_TMPDIR/plain"
    [ "$(wc -l <"$BATS_TEST_TMPDIR/plain")" -ge 4 ]
    grep -q -- -mavx2 "$BATS_TEST_TMPDIR/plain"
    for name in ISA AVX2 AVX512 isa_flags OPT WARN LIBS HARDEN HARDEN_LINK; do
        env "$name=avx2" bash -c "$(declare -f compile_lines); compile_lines" |
            cmp - "$BATS_TEST_TMPDIR/plain"
    done
}

@test "kernels are compiled without checks at run time, all else with them" {
    compile_lines >"$BATS_TEST_TMPDIR/plain"
    [ -n "$(scripts/hardening-flags.sh "${CC:-cc}" -O2)" ] || skip "an old compiler"
    grep -q -- '-fstack-protector-strong.*src/base/cpu.c' "$BATS_TEST_TMPDIR/plain"
    run ! grep -- '-fstack-protector.*src/kernel' "$BATS_TEST_TMPDIR/plain"
}

@test "a compiler that knows no guards gets no flags for them" {
    printf '#!/bin/sh\ncase "$*" in *SOURCE=3* | *protector*) exit 1 ;; esac\n' \
        >"$BATS_TEST_TMPDIR/old-cc"
    chmod +x "$BATS_TEST_TMPDIR/old-cc"
    run scripts/hardening-flags.sh "$BATS_TEST_TMPDIR/old-cc" -O2
    [ "$status" -eq 0 ]
    [ "$output" = "-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2" ]
    run scripts/hardening-flags.sh false -O2
    [ "$status" -eq 0 ]
    [ -z "$output" ]
}

# built FLAG…: what check-hardening.sh says of a small program.
built() {
    "${CC:-cc}" -O2 -fPIE -pie -Wl,-z,relro,-z,now -fstack-protector-strong \
        -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 "$@" \
        -o "$BATS_TEST_TMPDIR/small" "$BATS_TEST_TMPDIR/small.c"
    run scripts/check-hardening.sh "$BATS_TEST_TMPDIR/small"
}

@test "check-hardening.sh names each guard that is missing" {
    cat >"$BATS_TEST_TMPDIR/small.c" <<'TEXT'
#include <stdio.h>
#include <string.h>
int main(int n, char **v)
{
    char text[64];
    snprintf(text, sizeof text, "%s", v[0]);
    memmove(text, v[0], (size_t)n);
    return text[n];
}
TEXT
    built
    [ "$status" -eq 0 ]
    [ -z "$output" ]
    while IFS='|' read -r flag line; do
        built $flag
        [ "$status" -eq 1 ] || { echo "$flag: status $status"; return 1; }
        [ "$output" = "$BATS_TEST_TMPDIR/small: $line" ] ||
            { echo "$flag: $output"; return 1; }
    done <<'TEXT'
-no-pie|not position-independent
-Wl,-z,lazy|tables of functions stay writable (no full RELRO)
-Wl,-z,norelro|tables of functions stay writable (no full RELRO)
-Wl,-z,execstack|an executable stack
-fno-stack-protector|no guards in stack frames
-U_FORTIFY_SOURCE|no checked calls of libc (_FORTIFY_SOURCE)
-Wl,-rpath,/tmp|folders for libraries: [/tmp]
TEXT
    run scripts/check-hardening.sh "$BATS_TEST_TMPDIR/none"
    [ "$status" -ne 0 ]
}

@test "a kernel template without its macros gives a clear error" {
    for name in k_f32.h x86/k_gemm_small.h x86/k_q8_avx.h x86/k_attn_bf16.h; do
        run "${CC:-cc}" -std=gnu11 -Iinclude -Isrc -fsyntax-only \
            -include "src/kernel/$name" -x c /dev/null
        [ "$status" -ne 0 ] || return 1
        [[ "$output" == *"#error"* ]] || return 1
    done
}

@test "no circle of calls between directories, nor of more than 4 files" {
    local qwick=$(realpath "${QWICK:-./qwick}") build=build
    [ "$(dirname "$qwick")" = "$PWD" ] || build=$(dirname "$qwick")
    scripts/check-circles.sh "$build"
}

@test "check-circles.sh finds a circle, however its files are called" {
    local dir=$BATS_TEST_TMPDIR/tree name next
    mkdir -p "$dir/scripts" "$dir"/src/engine/{core,runs} "$dir"/build/src/engine/{core,runs}
    cp scripts/check-circles.sh "$dir/scripts"
    # compile_ring FILE…: each file calls the next one, and the last the first.
    compile_ring() {
        local all=("$@") i
        for i in "${!all[@]}"; do
            name=${all[i]} next=${all[(i + 1) % ${#all[@]}]}
            printf 'void %s(void);\nvoid %s(void) { %s(); }\n' "${next##*/}" \
                "${name##*/}" "${next##*/}" >"$dir/src/engine/$name.c"
            "${CC:-cc}" -c -o "$dir/build/src/engine/$name.o" "$dir/src/engine/$name.c"
        done
    }
    compile_ring core/a core/b core/c core/d
    "$dir/scripts/check-circles.sh"
    compile_ring core/a core/b core/c core/d core/e
    run -1 "$dir/scripts/check-circles.sh"
    [[ "$output" == "5 files call each other: "*engine/core/e* ]]
    rm "$dir/src/engine/core/"*
    compile_ring core/x runs/y
    run -1 "$dir/scripts/check-circles.sh" "$dir/build"
    [[ "$output" == "2 files call each other, in different directories: "* ]]
}
