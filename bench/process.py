#!/usr/bin/env python3
"""Start-up and peak memory of whole qwick processes.

usage: process.py QWICK OPTIONS MODEL_DIR...

OPTIONS, one argument, go to every run of a model: '-t 1', or '' for none.
Prints Markdown rows: start of the process to the first byte of the answer to a
prompt of one token, beside a decode step of the same model (medians of 15 runs,
warm page cache), and the peak resident memory of a run of 512 + 128 tokens
beside what its weights and its KV cache need.
"""
import json
import os
import random
import statistics
import subprocess
import sys
import time

RUNS = 15


def first_byte(args):
    """Milliseconds from the start to the first byte of output."""
    start = time.perf_counter()
    with subprocess.Popen(args, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE) as child:
        os.read(child.stdout.fileno(), 1)
        elapsed = (time.perf_counter() - start) * 1e3
        child.stdout.read()
        if child.wait() != 0:
            sys.exit(f"{args[:4]}…: exit status {child.returncode}")
    return elapsed


def output(args):
    return json.loads(subprocess.run(args, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE,
                                     check=True).stdout)


def peak_bytes(args):
    child = subprocess.Popen(args, stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{args[:4]}…: exit status {child.returncode}")
    return usage.ru_maxrss * 1024


def short_row(name, args):
    times = [first_byte(args) for _ in range(RUNS)]
    print(f"| {name} | {statistics.median(times):.1f} "
          f"({min(times):.1f} to {max(times):.1f}) | | |")


def model_row(qwick, options, model):
    prompt = ["--raw", "--greedy", "--ignore-eos", "a"]
    base = [qwick, *options, "-m", model, *prompt]
    times, steps = [], []
    for _ in range(RUNS):
        times.append(first_byte([*base, "-n", "1"]))
        timing = output([*base, "-n", "9", "--json",
                         "--profile-timing"])["timing"]
        steps.append(statistics.median(timing["per_token_ms"]))
    first, step = statistics.median(times), statistics.median(steps)
    print(f"| {os.path.basename(model)}, one token | {first:.1f} "
          f"({min(times):.1f} to {max(times):.1f}) | {step:.1f} "
          f"| {first - step:.1f} |")


def memory_row(qwick, options, model):
    info = output([qwick, "inspect", "-m", model, "--json"])
    rng = random.Random(1)
    ids = ",".join(str(rng.randrange(150000)) for _ in range(512))
    peak = peak_bytes([qwick, *options, "-m", model, "--prompt-ids", ids, "-n",
                       "128", "--greedy", "--ignore-eos"])
    weights = info["weight_bytes"]
    kv = 640 * info["kv_token_bytes"]
    print(f"| {os.path.basename(model)} | {peak / 1e6:.1f} "
          f"| {weights / 1e6:.1f} | {kv / 1e6:.1f} "
          f"| {(peak - weights - kv) / 1e6:.1f} |")


def main():
    qwick, options, models = sys.argv[1], sys.argv[2].split(), sys.argv[3:]
    print("| start to first byte, ms | median (least to most) | decode step "
          "| more than a step |\n|---|---:|---:|---:|")
    if not options:
        short_row("`qwick --help`", [qwick, "--help"])
        short_row("`qwick --version`", [qwick, "--version"])
        short_row("built-in model, one answer",
                  [qwick, "list all listening tcp ports"])
    for model in models:
        model_row(qwick, options, model)
    print("\n| peak memory, 512 + 128 tokens, MB | peak | weights | KV | more "
          "|\n|---|---:|---:|---:|---:|")
    for model in models:
        memory_row(qwick, options, model)


if __name__ == "__main__":
    main()
