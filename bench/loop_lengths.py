#!/usr/bin/env python3
"""How long do normal texts repeat one sequence? Chooses the loop guard's default.

usage: bench/loop_lengths.py QWICK MODEL FILE...   (or - : names on standard input)

The loop guard fires when the last N tokens are one sequence, repeated three times
or more. Each file is split into pieces of 4096 tokens, about the length of a long
answer. For each kind of file (its suffix) a row shows the number of pieces, and how
many of them the guard would cut at several N."""
import collections
import json
import os
import subprocess
import sys

LIMITS = (50, 100, 150, 200, 300, 400, 500, 600, 800, 1000, 1500)
PIECE, GRAM, BYTES = 4096, 6, 1 << 16


def repeats(ids):
    """Yield (period, length) of the stretches that repeat a sequence three times or
    more. Two equal runs of GRAM tokens give a candidate for the period."""
    last, seen, n = {}, {}, len(ids)
    for i in range(n - GRAM + 1):
        gram = tuple(ids[i:i + GRAM])
        at = last.get(gram)
        last[gram] = i
        if at is None:
            continue
        period = i - at
        if seen.get(period, 0) > i:
            continue
        lo, hi = i, i + GRAM
        while lo > period and ids[lo - 1] == ids[lo - 1 - period]:
            lo -= 1
        while hi < n and ids[hi] == ids[hi - period]:
            hi += 1
        seen[period] = hi
        if hi - lo >= 2 * period:
            yield period, hi - lo + period


def main():
    qwick, model, *names = sys.argv[1:]
    if names == ["-"]:
        names = sys.stdin.read().split("\n")[:-1]
    texts = []
    for name in names:
        try:
            with open(name, "rb") as f:
                text = f.read(BYTES).decode("utf-8", "strict")
        except (OSError, UnicodeDecodeError):
            continue
        if text:
            texts.append((name, text))
    lines = "".join(json.dumps({"text": t}) + "\n" for _, t in texts)
    out = subprocess.run([qwick, "tokenize", "--jsonl", "-m", model], text=True,
                         input=lines, stdout=subprocess.PIPE, check=True).stdout
    rows = collections.defaultdict(lambda: [0] * (1 + len(LIMITS)))
    worst = []
    for (name, _), line in zip(texts, out.splitlines()):
        ids = json.loads(line)["ids"]
        kind = os.path.splitext(name)[1] or os.path.basename(name)
        for start in range(0, len(ids), PIECE):
            found = list(repeats(ids[start:start + PIECE]))
            rows[kind][0] += 1
            for k, limit in enumerate(LIMITS):
                rows[kind][1 + k] += any(length >= limit and 3 * period <= limit
                                         for period, length in found)
            if found:
                period, length = max(found, key=lambda x: x[1])
                worst.append((length, period, name))
    print("%-10s %8s" % ("kind", "pieces"), *("%6d" % n for n in LIMITS))
    for kind, row in sorted(rows.items()):
        print("%-10s %8d" % (kind, row[0]), *("%6d" % n for n in row[1:]))
    total = [sum(c) for c in zip(*rows.values())]
    print("%-10s %8d" % ("all", total[0]), *("%6d" % n for n in total[1:]))
    for length, period, name in sorted(worst, reverse=True)[:40]:
        print("%6d tokens, period %4d: %s" % (length, period, name), file=sys.stderr)


main()
