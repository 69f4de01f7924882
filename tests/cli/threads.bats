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

# Two memory nodes with a CPU each: a library that opens files of $NODES in place
# of the system's, and reports when a thread cannot change its CPUs.
two_nodes() {
    mapfile -t cpus < <(python3 -c 'import os
print(*sorted(os.sched_getaffinity(0)), sep="\n")')
    [ "${#cpus[@]}" -ge 2 ] || skip "one CPU"
    mkdir -p "$T/nodes/node/node0" "$T/nodes/node/node1"
    echo 0-1 >"$T/nodes/node/online"
    echo "${cpus[0]}" >"$T/nodes/node/node0/cpulist"
    echo "${cpus[1]}" >"$T/nodes/node/node1/cpulist"
    cat >"$T/nodes.c" <<'END'
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int open(const char *path, int flags, ...)
{
    static const char system[] = "/sys/devices/system";
    char other[4096];
    va_list ap;
    va_start(ap, flags);
    int mode = flags & O_CREAT ? va_arg(ap, int) : 0;
    va_end(ap);
    if (!strncmp(path, system, sizeof system - 1)) {
        snprintf(other, sizeof other, "%s%s", getenv("NODES"),
                 path + sizeof system - 1);
        path = other;
    }
    return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int sched_setaffinity(pid_t pid, size_t bytes, const cpu_set_t *set)
{
    static int calls;
    int rc = syscall(SYS_sched_setaffinity, pid, bytes, set);
    if (rc || calls++ == 20)
        fprintf(stderr, rc ? "refused\n" : "many calls\n");
    return rc;
}
END
    cc -shared -fPIC -o "$T/nodes.so" "$T/nodes.c"
}

# Run qwick on two nodes with the CPUs of the first two.
on_nodes() {
    NODES=$T/nodes LD_PRELOAD=$T/nodes.so \
        taskset -c "${cpus[0]},${cpus[1]}" "$QWICK" "$@" </dev/null
}

@test "threads are bound to memory nodes, also in the sandbox" {
    two_nodes
    want=$(q -t 2 -n 16 "list all files")
    for o in bind "bind --preload" "interleave --preload"; do
        # shellcheck disable=SC2086
        run -0 --separate-stderr on_nodes -v -t 2 -n 16 --numa $o "list all files"
        [ "$output" = "$want" ]
        [[ $stderr != *refused* ]]
        case $o in
        bind*)
            [[ $stderr == *"numa: 2 threads on 2 memory nodes: 1 on node 0, 1 on node 1"* ]]
            [[ $stderr == *"many calls"* ]]
            ;;
        *)
            # a container may forbid it
            [[ $stderr == *"spread over"* ]]
            [[ $stderr != *"many calls"* ]]
            ;;
        esac
    done
    # more threads than CPUs, and one CPU
    run -0 --separate-stderr on_nodes -t 3 -n 1 --numa bind a
    [[ $stderr == *"warning: numa: 3 threads on 2 CPUs are not bound"* ]]
    run -0 --separate-stderr env NODES="$T/nodes" LD_PRELOAD="$T/nodes.so" \
        taskset -c "${cpus[1]}" "$QWICK" -t 1 -n 1 --numa bind a </dev/null
    [[ $stderr == *"warning: numa: has no effect, all CPUs that can be used are on one memory node"* ]]
}

@test "--numa changes no answer on this machine, and warns where it does nothing" {
    want=$(q -t 2 -n 16 "list all files")
    for mode in off bind interleave; do
        [ "$(q -q -t 2 -n 16 --numa $mode --preload "list all files")" = "$want" ]
    done
    run -0 --separate-stderr q -n 1 --numa interleave a
    [[ $stderr == *"warning: numa: interleave has no effect without preload"* ]]
    run -2 q -n 1 --numa distribute a
    [[ $output == *'--numa: "distribute" is none of off|interleave|bind'* ]]
}

@test "SLURM_CPUS_PER_TASK limits the default number of threads" {
    # plan CPUS ARGS...: what plan says under Slurm
    plan() {
        local cpus=$1
        shift
        SLURM_CPUS_PER_TASK=$cpus q plan --no-speed --json "$@" |
            jget '[o["threads"], o["threads_default"], o["slurm_cpus"]]'
    }
    all=$(env -u SLURM_CPUS_PER_TASK "$QWICK" plan --no-speed --json </dev/null |
        jget 'o["threads"]')
    [ "$(plan '')" = "[$all, $all, None]" ]
    [ "$(plan 1)" = "[1, 1, 1]" ]
    [ "$(plan 1 -t 2)" = "[2, 1, 1]" ]
    [ "$(QWICK_THREADS=2 plan 1)" = "[2, 1, 1]" ]
    [ "$(plan 100000)" = "[$all, $all, 100000]" ]
    [ "$(plan $((all + 1)))" = "[$all, $all, $((all + 1))]" ]
    run -0 env SLURM_CPUS_PER_TASK=1 "$QWICK" plan --no-speed </dev/null
    [[ $output == *"threads      1: "*" quota, 1 CPU of a task in Slurm"* ]]
    run -0 env SLURM_CPUS_PER_TASK=1 "$QWICK" -v -n 1 a </dev/null
    [[ $output == *", 1 threads of "* ]]
    # the variable is not ours, so a bad value is one warning, however many models
    for bad in 0 -1 +1 x 1x '1 ' 1.5 99999999999999999999; do
        run -0 --separate-stderr env SLURM_CPUS_PER_TASK="$bad" "$QWICK" plan \
            --no-speed --json </dev/null
        [ "$(jget 'o["threads"]' <<<"$output")" = "$all" ]
        [ "$stderr" = "qwick: warning: SLURM_CPUS_PER_TASK: \"$bad\": is no number of CPUs and is ignored" ]
    done
    export SLURM_CPUS_PER_TASK=all
    run -0 --separate-stderr q --draft models/demo -n 1 a
    [ "$(grep -c SLURM <<<"$stderr")" -eq 1 ]
    # and none where no thread is counted
    for args in "plan --no-speed -t 1" "count a" "--version"; do
        # shellcheck disable=SC2086
        run -0 --separate-stderr q $args
        [ -z "$stderr" ]
    done
    run -0 --separate-stderr q -q plan --no-speed
    [ -z "$stderr" ]
}
