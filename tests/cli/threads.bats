#!/usr/bin/env bats
# qwick when threads cannot be created.
load helpers

# A library that replaces pthread_create: it fails from call $FAIL_FROM on.
setup() {
    common_setup
    if [ -n "$SAN" ]; then
        skip "injects faults"
    fi
    cat >"$T/fail.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *),
                   void *arg)
{
    static atomic_int calls;
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *),
                void *) = dlsym(RTLD_NEXT, "pthread_create");
    if (atomic_fetch_add(&calls, 1) + 1 >= atoi(getenv("FAIL_FROM")))
        return EAGAIN;
    return real(t, a, fn, arg);
}
END
    cc -shared -fPIC -o "$T/fail.so" "$T/fail.c"
}

# with_threads N ARGS...: run qwick; N - 1 threads can be created.
with_threads() {
    local n=$1
    shift
    timeout 60 env FAIL_FROM="$n" LD_PRELOAD="$T/fail.so" "$QWICK" "$@" </dev/null
}

# The lines of a batch's output without their times.
answers() {
    python3 -c 'import json, sys
for line in open(sys.argv[1]):
    o = json.loads(line)
    del o["timing"]
    print(o)' "$1"
}

@test "generate answers with fewer threads" {
    want=$(q -t 4 -n 8 "list all files")
    for n in 1 2 3 4 5 6 7 8 9 10 1000; do
        run -0 --separate-stderr with_threads $n -t 4 -n 8 "list all files"
        [ "$output" = "$want" ]
    done
    # and prints a note
    run -0 --separate-stderr with_threads 3 -t 8 -n 1 a
    [[ $stderr == *"2 of 8 threads could be started"* ]] ||
        [[ $stderr == *"1 of 8 threads could be started"* ]]
}

@test "batch answers with fewer threads" {
    for i in 1 2 3 4 5; do
        printf '{"id":%d,"prompt":"list %d files"}\n' $i $i
    done >"$T/in"
    q batch --exact --seed 1 -t 4 -n 4 -i "$T/in" -o "$T/want"
    for n in 1 2 3 4 5 6 7 8 9 10 1000; do
        mkdir "$T/$n"
        run -0 with_threads $n batch --exact --seed 1 -t 4 -n 4 \
            -i "$T/in" -o "$T/$n/out"
        answers "$T/$n/out" | cmp - <(answers "$T/want")
        [ "$(ls -A "$T/$n")" = out ]
    done
}

@test "quantize writes with fewer threads" {
    local model=tests/golden/models/tied-bf16
    q quantize -m $model -o "$T/want" --group 32
    for n in 1 2 3 4 5 6 7 8 9 10 1000; do
        mkdir "$T/$n"
        run -0 with_threads $n quantize -t 4 -m $model -o "$T/$n/out" \
            --group 32
        diff -r "$T/want" "$T/$n/out"
        [ "$(ls -A "$T/$n")" = out ]
    done
}
