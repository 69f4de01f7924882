#!/usr/bin/env bats
# How the Makefile handles its environment.

setup() {
    cd "$BATS_TEST_DIRNAME/../.."
    unset MAKEFLAGS MFLAGS MAKELEVEL SAN
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
    for name in ISA AVX2 AVX512 isa_flags OPT WARN LIBS; do
        env "$name=avx2" bash -c "$(declare -f compile_lines); compile_lines" |
            cmp - "$BATS_TEST_TMPDIR/plain"
    done
}

@test "a kernel template without its macros gives a clear error" {
    for name in k_f32.h x86/k_gemm_small.h x86/k_q8_avx.h x86/k_attn_bf16.h; do
        run "${CC:-cc}" -std=gnu11 -Iinclude -Isrc -fsyntax-only \
            -include "src/kernel/$name" -x c /dev/null
        [ "$status" -ne 0 ] || return 1
        [[ "$output" == *"#error"* ]] || return 1
    done
}
