#!/usr/bin/env bash
# Build and test the static binary, and compare its size and its start with those of
# the dynamic one. Prints SKIP and the reason where a library has no archive.
#   RUNS=N  starts of each (default 200)
set -u
cd "$(dirname "$0")/.." || exit
runs=${RUNS:-200}
dynamic=./qwick static=build/static/qwick

for library in c m utf8proc nettle; do
    [ -e "$("${CC:-gcc}" -print-file-name=lib$library.a)" ] || {
        echo "SKIP: there is no lib$library.a"
        exit 0
    }
done
make --no-print-directory -s -j"$(nproc)" all static CI=1 && bats tests/cli/static.bats || exit 1

# without_debug FILE: its size in MiB without what only debuggers read.
without_debug()
{
    objcopy --strip-all "$1" build/static/stripped
    stat -c %s build/static/stripped | awk '{ printf "%.1f", $1 / 1048576 }'
}

# Print the median milliseconds of one start of each: of a verb that needs no model,
# and of a short answer. They take turns.
python3 - "$runs" "$dynamic" "$static" <<'PY'
import statistics, subprocess, sys, time
runs, programs = int(sys.argv[1]), sys.argv[2:]
for name, arguments in (("--version", ["--version"]),
                        ("an answer of one token", ["--no-config", "-n", "1", "-t", "1", "hi"])):
    spent = {p: [] for p in programs}
    for i in range(runs):
        for p in programs if i % 2 else programs[::-1]:
            start = time.perf_counter()
            subprocess.run([p] + arguments, stdin=subprocess.DEVNULL, check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            spent[p].append(1000 * (time.perf_counter() - start))
    print("%s, median ms of %d: %.2f dynamic, %.2f static" %
          (name, runs, *(statistics.median(spent[p]) for p in programs)))
PY
rc=$?
echo "MiB: $(without_debug $dynamic) dynamic, $(without_debug $static) static"
exit $rc
