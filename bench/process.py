#!/usr/bin/env python3
"""Time and peak memory of whole qwick processes.

usage: process.py QWICK MODEL_DIR TOKENIZER_TEXT

Prints Markdown rows: start-up (medians and the fastest of 15 runs, warm page
cache) and the peak resident memory of a run of 512 + 128 tokens.
"""
import os
import random
import statistics
import subprocess
import sys
import time

RUNS = 15


def run(args):
    """Milliseconds and peak resident bytes of one process."""
    start = time.perf_counter()
    child = subprocess.Popen(args, stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    elapsed = (time.perf_counter() - start) * 1e3
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{args[:4]}…: exit status {child.returncode}")
    return elapsed, usage.ru_maxrss * 1024


def row(name, args):
    times = [run(args)[0] for _ in range(RUNS)]
    print(f"| {name} | {statistics.median(times):.1f} ms | {min(times):.1f} ms |")


def main():
    qwick, model = sys.argv[1:3]
    print("| process | median | fastest |\n|---|---|---|")
    row("`qwick --help`", [qwick, "--help"])
    row("`qwick --version`", [qwick, "--version"])
    one = ["--raw", "-n", "1", "--greedy", "a"]
    row("demo model, one token", [qwick, *one])
    row("demo model, one answer", [qwick, "list all listening tcp ports"])
    row("0.6B shape, one token", [qwick, "-m", model, *one])
    rng = random.Random(1)
    ids = ",".join(str(rng.randrange(150000)) for _ in range(512))
    _, peak = run([qwick, "-m", model, "--prompt-ids", ids, "-n", "128",
                   "--greedy", "--ignore-eos"])
    weights = os.path.getsize(os.path.join(model, "model.safetensors"))
    print(f"\n512 + 128 tokens: peak resident memory {peak / 1e6:.1f} MB, of "
          f"which weights {weights / 1e6:.1f} MB, KV cache "
          f"{640 * 28 * 8 * 128 * 4 / 1e6:.1f} MB (f16).")


if __name__ == "__main__":
    main()
