#!/usr/bin/env python3
"""Check answers under generated schemas.

usage: check_answers.py QWICK [--count N] [--seed N] [--tokens N] [--least N]

Each schema constrains one answer of the demo model at temperature 2. qwick must
exit 0 with a document that an independent validator accepts, or exit 6 because
the answer was cut; at least 95% (--least) must be the former. Exit status 0: so it is; 1:
it is not; 77: python3-jsonschema is not installed.
"""
import argparse
import json
import subprocess
import sys

try:
    import schemas
except ImportError as e:
    print("SKIP: %s" % e)
    sys.exit(77)


def answer(args, seed, text, indent):
    command = [args.qwick, "generate", "--think", "off", "--temp", "2",
               "--seed", str(seed), "-n", str(args.tokens), "-t", "1",
               "--no-newline", "--json-schema", text]
    if indent:
        command += ["--json-indent", str(indent)]
    return subprocess.run(command + ["list files"], capture_output=True,
                          stdin=subprocess.DEVNULL)


def check(args, seed, counts):
    """Return what is wrong with one answer, or None."""
    schema = schemas.make_schema(seed, closed=True)
    text = json.dumps(schema, ensure_ascii=seed % 2 == 0)
    run = answer(args, seed, text, 2 if seed % 4 == 0 else 0)
    if run.returncode == 2 and (b"nothing satisfies" in run.stderr
                                or b"no text can match" in run.stderr):
        counts["refused"] += 1
        return None
    if run.returncode == 6:
        counts["cut"] += 1
        return None
    if run.returncode != 0:
        return "exit status %d: %s" % (run.returncode, run.stderr.decode())
    counts["complete"] += 1
    try:
        doc = run.stdout.decode()
        if schemas.is_valid(text, doc) and \
                not schemas.repeats_key(doc, schema):
            return None
    except ValueError:
        pass
    return "not valid: %r" % run.stdout


def main():
    p = argparse.ArgumentParser()
    p.add_argument("qwick")
    for name, value in ("count", 100), ("seed", 1), ("tokens", 3000), \
            ("least", 95):
        p.add_argument("--" + name, type=int, default=value)
    args = p.parse_args()
    counts = dict.fromkeys(["complete", "cut", "refused"], 0)
    bad = 0
    for seed in range(args.seed, args.seed + args.count):
        wrong = check(args, seed, counts)
        if wrong:
            bad += 1
            print("schema %d: %s\n  %s" % (
                seed, wrong,
                json.dumps(schemas.make_schema(seed, closed=True))))
    print(", ".join("%s %d" % c for c in counts.items()))
    if 100 * counts["complete"] < \
            args.least * (counts["complete"] + counts["cut"]):
        print("fewer than %d%% are complete" % args.least)
        bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
