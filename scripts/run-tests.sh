#!/usr/bin/env bash
# Run the tests, as many files at once as there are CPUs, and end with a line
# "N passed, N failed".
#   QWICK  the binary      TESTS  folder of unit test programs
#   T=NAME  only files whose name holds NAME (several: T="batch json")
#   JOBS=N  files at once  SAN=1  the build has sanitizers: tests that inject
#                          faults or set limits skip
set -u
cd "$(dirname "$0")/.."
export QWICK=${QWICK:-$PWD/qwick} TESTS=${TESTS:-build/tests} SAN=${SAN:-}
export QWICK_TEST_TOKENIZER=${QWICK_TEST_TOKENIZER:-build/testdata/qwen3-tokenizer}
unset QWICK_MODEL HF_HUB_CACHE HF_HOME NO_COLOR OPENBLAS_CORETYPE
# Python itself, in place of a script that chooses a version each time.
if python=$(python3 -c 'import sys; print(sys.executable)' 2>/dev/null); then
    PATH=${python%/*}:$PATH
fi
jobs=${JOBS:-$(nproc)}
# sanitizers make everything slower by a factor of ten
limit=900
[ -z "$SAN" ] || limit=2400

# One CPU for each file, where there are enough: the threads of several files
# would wait for each other, and threads that wait spin. qwick then starts one
# thread if a test does not set a number. Files about threads have all CPUs.
pin=()
if command -v taskset >/dev/null; then
    IFS=, read -r -a list <<<"$(taskset -cp $$ | sed 's/.*: //')"
    for range in "${list[@]}"; do
        mapfile -t -O ${#pin[@]} pin < <(seq "${range%-*}" "${range#*-}")
    done
fi
[ ${#pin[@]} -ge "$jobs" ] && [ "$jobs" -gt 1 ] || pin=()
cpus="${pin[*]}"

# on_cpu FILE COMMAND...: run it on the CPU of this job.
on_cpu()
{
    local own
    read -r -a own <<<"$cpus"
    case $1 in
    *threads* | *cpus*) own=() ;;
    esac
    shift
    if [ ${#own[@]} -gt 0 ]; then
        set -- taskset -c "${own[job % ${#own[@]}]}" "$@"
    fi
    "$@"
}

# run_file FILE: run one file of tests; its output and its counts go to $logs.
run_file()
{
    local file=$1 name log ok bad rc cpu start=$SECONDS
    name=$(basename "$file")
    log=$logs/$name.log
    case $file in
    *.sh) "$file" ;;
    *.c) on_cpu "$file" timeout "$limit" "$TESTS/$(basename "$file" .c)" ;;
    *.bats) on_cpu "$file" timeout "$limit" bats --tap "$file" ;;
    esac >"$log" 2>&1 </dev/null
    rc=$?
    times >"$log.times"
    cpu=$(awk -F'[ms ]+' 'END { printf "%.1f", $1 * 60 + $2 + $3 * 60 + $4 }' "$log.times")
    case $file in
    *.sh) ok=0 bad=0 ;;
    *.c)
        ok=$(grep -c '^\[       OK \]' "$log")
        bad=$(grep -c '^\[  FAILED  \] [A-Za-z_0-9]*$' "$log")
        ;;
    *.bats)
        ok=$(grep -c '^ok ' "$log")
        bad=$(grep -c '^not ok ' "$log")
        ;;
    esac
    # a script has no lines to count; a crash or a time-out leaves none
    if [ "$rc" -ne 0 ] && [ "$bad" -eq 0 ]; then
        printf '%s: exit status %d\n' "$name" "$rc" >>"$log"
        bad=1
    elif [ $((ok + bad)) -eq 0 ]; then
        ok=1
    fi
    printf '%d %d\n' "$ok" "$bad" >"$logs/$name.count"
    # one file's output at a time
    {
        flock 9
        printf '== %s: %d passed, %d failed, %d s, %s s of CPU\n' "$file" "$ok" "$bad" \
            $((SECONDS - start)) "$cpu"
        cat "$log"
    } 9>"$logs/lock"
}

wanted()
{
    local word
    [ -n "${T:-}" ] || return 0
    for word in $T; do
        case $1 in *"$word"*) return 0 ;; esac
    done
    return 1
}

# Temporary files in memory, where there is room for them and programs may run: on
# ext4 a new file beside recently deleted ones takes 0.3 ms.
memory=
if [ -z "${TMPDIR:-}" ] && memory=$(mktemp -d /dev/shm/qwick-tests.XXXXXX 2>/dev/null); then
    room=$(df -Pk "$memory" | awk 'NR == 2 { print $4 }')
    free=$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo)
    if [ "${room:-0}" -ge 4000000 ] && [ "${free:-0}" -ge 8000000 ] &&
        cp /bin/true "$memory" && "$memory/true" 2>/dev/null; then
        export TMPDIR=$memory
    fi
fi

logs=$(mktemp -d)
export logs limit cpus
export -f run_file on_cpu
trap 'rm -rf "$logs" ${memory:+"$memory"}' EXIT

# The files that take longest begin first, so that none is left for the end.
longest="batch.bats pull_hostile.bats progress.bats faults.bats pictures.bats
    man.bats test_lookup.c test_geometry.c test_batch.c endings.bats models.bats
    check_kernels.c check_products.c check_attn.c test_engine.c test_embed.c cache.bats
    test_pass.c embed.bats
    pull.bats check_q8.c gguf.bats prompt.bats install.bats library.bats"
files=()
for name in $longest; do
    for file in tests/unit/$name tests/cli/$name; do
        [ -e "$file" ] && files+=("$file")
    done
done
for file in scripts/check-layers.sh scripts/check-hardening.sh tests/unit/*.c tests/cli/*.bats; do
    case " ${files[*]} " in *" $file "*) ;; *) files+=("$file") ;; esac
done

# run_files JOBS FIRST: run the files named on standard input, on the CPUs from
# FIRST on.
run_files()
{
    first=$2 xargs -0 -r -n1 -P "$1" --process-slot-var=slot \
        bash -c 'job=$((slot + first)) run_file "$1"' -
}

# Files that wait most of the time run beside the others, one after the other.
waiting=" pull_hostile.bats progress.bats pull.bats faults.bats pictures.bats
    interrupt.bats gguf.bats signals.bats terminal.bats injection.bats choose.bats
    completion.bats build.bats "
calm=()
busy=()
for file in "${files[@]}"; do
    wanted "$file" || continue
    if [ "$jobs" -gt 1 ] && [[ $waiting == *" ${file##*/} "* ]]; then
        calm+=("$file")
    else
        busy+=("$file")
    fi
done
{ [ ${#calm[@]} -eq 0 ] || printf '%s\0' "${calm[@]}"; } | run_files 1 $((jobs - 1)) &
{ [ ${#busy[@]} -eq 0 ] || printf '%s\0' "${busy[@]}"; } | run_files "$jobs" 0
wait

passed=0
failed=0
for count in "$logs"/*.count; do
    [ -e "$count" ] || continue
    read -r ok bad <"$count"
    passed=$((passed + ok))
    failed=$((failed + bad))
done
for log in "$logs"/*.log; do
    [ -e "$log" ] || continue
    grep -hE '^(not ok|\[  FAILED  \] [A-Za-z_0-9]*$|[A-Za-z_.]*: exit status [0-9]+$)' "$log" |
        sed "s|^|$(basename "$log" .log): |"
done
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
