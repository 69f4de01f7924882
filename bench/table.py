#!/usr/bin/env python3
"""Medians and spreads over several runs of `qwick bench --json`, as Markdown.

usage: table.py FILE...

A file is one run of one model and level; files that measured the same things
are put together, line by line: the median of the runs' medians, and the least
and the most of all their timed runs.
"""
import json
import statistics
import sys


def key_of(run, line):
    return (run["weights_dtype"], run["isa"], line["test"],
            line.get("tokens", line.get("depth")), line["batch"],
            line["threads"])


def main():
    lines = {}
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as f:
            run = json.load(f)
        for line in run["results"]:
            lines.setdefault(key_of(run, line), []).append(line)
    print("| weights | kernels | test | tokens | batch | threads | tok/s "
          "| limit | of limit | least, most | runs |")
    print("|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for key, found in lines.items():
        def median(field):
            return statistics.median(x[field] for x in found)

        unit = "GB/s" if "gb_s" in found[0] else "GFLOP/s"
        least = min(x["least_percent"] for x in found)
        most = max(x["most_percent"] for x in found)
        print("| %s | %s | %s | %d | %d | %d " % key
              + f"| {median('tok_s'):.1f} | {median('limit'):.1f} {unit} "
              f"| {median('percent_of_limit'):.1f}% "
              f"| {least:.1f}, {most:.1f}% | {len(found)} |")


if __name__ == "__main__":
    main()
