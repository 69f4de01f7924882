#!/usr/bin/env bash
# Kill a batch with SIGKILL again and again, resume it each time, and compare
# with a run that nobody disturbed: byte by byte in order, and as a set of lines
# with --unordered. Prints how many lines the output had at each kill, and the
# verdict; exits 1 when something is lost, doubled or different.
#
#   bench/resume.sh [RECORDS [KILLS]]      1000 and 20 by default
#
# A kill comes when the output has grown by a part of the records that leaves as
# much for each round. The answers' times differ from run to run, so they are
# left out of the comparison, and so are cache hits: a resumed run has other
# neighbours. QWICK is the binary.
set -eu
cd "$(dirname "$0")/.."
export QWICK=${QWICK:-$PWD/qwick}
unset QWICK_MODEL
export QWICK_NO_CONFIG=on
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

python3 - "$dir" "${1:-1000}" "${2:-20}" <<'PY'
import json, os, random, signal, subprocess, sys, time

tmp, n_records, n_kills = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
random.seed(1)
words = "list show find count open files sockets users lines disks large old by name size date".split()
with open(f"{tmp}/in", "w") as out:
    for i in range(n_records):
        text = " ".join(random.choice(words) for _ in range(random.randint(2, 9)))
        out.write(json.dumps({"id": i, "prompt": text}) + "\n")


def command(name, how):
    return [os.environ["QWICK"], "batch", "--exact", "--seed", "1", "--temp", "0.8",
            "-n", "12", "-i", f"{tmp}/in", "-o", f"{tmp}/{name}", *how]


def lines(path):
    """Complete ones."""
    try:
        with open(path, "rb") as f:
            return f.read().count(b"\n")
    except FileNotFoundError:
        return 0


def bare(path):
    """The file without what depends on the clock and on neighbours, in bytes."""
    out = []
    with open(path, "rb") as f:
        for line in f:
            o = json.loads(line)
            del o["timing"], o["usage"]["cached_tokens"]
            out.append(json.dumps(o).encode() + b"\n")
    return out


def disturbed(name, how):
    path = f"{tmp}/{name}"
    at, torn = [], 0
    for kill in range(n_kills):
        before = lines(path)
        until = before + max(1, (n_records - before) // (n_kills - kill + 1))
        p = subprocess.Popen(command(name, how), stdin=subprocess.DEVNULL)
        while p.poll() is None and lines(path) < until:
            time.sleep(0.0005)
        time.sleep(random.uniform(0, 0.01))  # anywhere in the next passes
        p.send_signal(signal.SIGKILL)
        if p.wait() != -signal.SIGKILL:
            sys.exit(f"round {kill + 1}: ended by itself, status {p.returncode}")
        with open(path, "rb") as f:
            torn += not f.read().endswith(b"\n")
        at.append(lines(path))
    subprocess.run(command(name, how), stdin=subprocess.DEVNULL, check=True)
    print(f"  killed at lines {' '.join(map(str, at))}; {torn} cut within a line")
    return bare(path)


bad = False
subprocess.run(command("want", []), stdin=subprocess.DEVNULL, check=True)
want = bare(f"{tmp}/want")
for how, order in ([], list), (["--unordered"], sorted):
    print(" ".join(how) or "in order", flush=True)
    got = disturbed("out" + "".join(how), how)
    same = b"".join(order(got)) == b"".join(order(want))
    bad |= not same
    print(f"  {len(got)} lines of {len(want)}: {'equal' if same else 'DIFFERENT'}"
          f" to an undisturbed run, {'sorted' if how else 'byte by byte'}")
sys.exit(bad)
PY
