#!/usr/bin/env python3
"""Run public suites of JSON schemas, from copies that variables name.

usage: check_suites.py SCHEMA_SERVER [--report FILE] [--lenient | --validator]
                       [--outputs N] [--seed N]

JSON_SCHEMA_TEST_SUITE: a copy of the JSON-Schema-Test-Suite; its drafts from 4 to
2020-12. MASKBENCH: a folder of MaskBench's files, {"schema", "tests"}. Documents
of the suites are values: any order of their members counts. BFCL: the folder
bfcl_eval/data of the Berkeley Function Calling Leaderboard. With --outputs,
N random documents under random schemas of MaskBench are judged by
python3-jsonschema. With --lenient, schemas are weakened where they cannot be
held, and the validator checks each document at its end. --validator runs the suites
on the validator alone.

SCHEMA_SERVER is build/tests/schema_server. --report writes what failed, by
file. Exit status 1: an invalid document was admitted, or the program crashed.
"""
import argparse
import collections
import decimal
import glob
import json
import os
import random
import re
import sys
import time

import bfcl
from server import Ended, Server

DRAFTS = {
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft4": "http://json-schema.org/draft-04/schema#",
}
EMPTY = "nothing satisfies", "no text can match"
# "not checked": an invalid document is admitted, and the compiler said that a
# format has no effect, or the schema is about the content of a string
KINDS = "unsound", "not checked", "valid refused", "unknown"
COLUMNS = "tests", "compiled", "right", *KINDS, "refused"


def dump(v):
    return json.dumps(v, ensure_ascii=False, separators=(",", ":"))


def problems_of(message):
    """The problems of a refusal."""
    message = re.sub(r"; and \d+ more$", "", message)
    return re.split(r"; (?=#)|\n", message.removeprefix("S: "))


def reason_of(problem):
    """A problem without its place and its values: what it has in common with
    others."""
    place, _, rest = problem.partition(": ")
    keyword = place.rsplit("/", 1)[-1] if place.startswith("#/") else ""
    rest = re.sub(r'"[^"]*"', '"…"', rest or place)
    return keyword[:30] + ": " + re.sub(r"\d+", "N", rest)[:90]


class Schema:
    """A schema that the server has compiled or refused. One that nothing
    satisfies counts as compiled: it admits nothing."""

    def __init__(self, server, schema, validator=False):
        self.server = server
        self.validator = validator
        self.crashed = False
        self.stopped = 0  # invalid documents that only the validator refused
        start = time.monotonic()
        self.message = self.call(lambda: server.schema(dump(schema)))
        self.seconds = time.monotonic() - start
        self.ok = self.message.split(":")[0] == "ok"
        self.remarks = self.message[len("ok: "):] if self.ok else ""
        # in draft 4, 1.0 is no integer
        self.draft4 = isinstance(schema, dict) and \
            "draft-04" in str(schema.get("$schema"))
        # contentMediaType and contentEncoding are annotations
        self.content = '"content' in dump(schema)
        if validator:
            self.message = self.call(lambda: server.checks("0"))
            self.ok = self.message.split(":")[0] in ("yes", "no")
        problems = problems_of(self.message)
        self.empty = len(problems) == 1 and any(e in problems[0]
                                                for e in EMPTY)
        self.empty &= not validator
        self.compiled = self.ok or self.empty

    def call(self, question):
        if self.crashed:
            return "error: S: crashed"
        try:
            return question().removeprefix("error: ")
        except Ended:
            self.crashed = True
            self.server.start()
            return "S: crashed"

    def judge(self, test):
        """Return "right" or one of KINDS, and a note."""
        if self.empty:
            answer = "no: " + self.message
        elif self.validator:
            answer = self.call(lambda: self.server.checks(dump(test["data"])))
        else:
            answer = self.call(lambda: self.server.admits(
                dump(test["data"]), self.draft4 and not test["valid"]))
        if answer == "yes" and "weakened " in self.remarks:
            answer = self.call(lambda: self.server.checks(dump(test["data"])))
            self.stopped += answer.startswith("no") and not test["valid"]
        admitted, _, note = answer.partition(": ")
        if admitted not in ("yes", "no"):
            return "unknown", note
        if (admitted == "yes") == test["valid"]:
            return "right", ""
        if test["valid"]:
            return "valid refused", note
        # a name that no draft has may be an annotation
        checked = "format " not in self.remarks and not self.content
        return ("unsound" if checked else "not checked"), self.remarks


class Report:
    def __init__(self, path):
        self.path = path
        self.lines = []
        self.bad = 0

    def say(self, line="", loud=True):
        self.lines.append(line)
        if loud:
            print(line, flush=True)

    def write(self):
        if self.path:
            with open(self.path + ".new", "w") as f:
                f.write("\n".join(self.lines) + "\n")
            os.replace(self.path + ".new", self.path)


# ---- JSON-Schema-Test-Suite --------------------------------------------------

def run_file(server, draft, path, failures, validator):
    counts = collections.Counter()
    for case in json.load(open(path)):
        schema = case["schema"]
        if isinstance(schema, dict) and "$schema" not in schema:
            schema = {"$schema": DRAFTS[draft], **schema}
        s = Schema(server, schema, validator)
        where = "%s/%s: %s" % (draft, os.path.basename(path),
                               case["description"])
        counts["tests"] += len(case["tests"])
        if not s.compiled:
            counts["refused"] += len(case["tests"])
            failures["refused"].append("%s: %s" % (where, s.message))
            continue
        counts["compiled"] += len(case["tests"])
        for test in case["tests"]:
            kind, note = s.judge(test)
            counts[kind] += 1
            if kind != "right":
                failures[kind].append("%s: %s  %s  %s" % (
                    where, test["description"], dump(test["data"])[:100],
                    note))
    return counts


def run_suite(server, folder, report, validator):
    failures = collections.defaultdict(list)
    total = collections.Counter()
    for draft in DRAFTS:
        files = sorted(glob.glob("%s/tests/%s/*.json" % (folder, draft)))
        files += sorted(glob.glob("%s/tests/%s/optional/**/*.json"
                                  % (folder, draft), recursive=True))
        report.say("%-44s" % draft + " ".join("%13s" % c for c in COLUMNS))
        of_draft = collections.Counter()
        for path in files:
            counts = run_file(server, draft, path, failures, validator)
            of_draft += counts
            name = os.path.relpath(path, "%s/tests/%s" % (folder, draft))
            report.say("  %-42s" % name + " ".join(
                "%13s" % (counts[c] or "-") for c in COLUMNS))
        report.say("  %-42s" % "all" + " ".join(
            "%13d" % of_draft[c] for c in COLUMNS))
        total += of_draft
    report.say("%-44s" % "all drafts" + " ".join(
        "%13d" % total[c] for c in COLUMNS))
    report.bad += total["unsound"]
    for kind in *KINDS, "refused":
        report.say("\n%s, by case:" % kind, loud=False)
        for line in failures[kind]:
            report.say("  " + line, loud=False)


# ---- MaskBench -----------------------------------------------------------------

class MaskBench:
    def __init__(self, server, report, validator):
        self.server = server
        self.validator = validator
        self.report = report
        self.counts = collections.Counter()
        self.reasons = collections.defaultdict(list)
        self.failures = collections.defaultdict(list)
        self.slow = []

    def file(self, path):
        name = os.path.basename(path)
        data = json.load(open(path))
        s = Schema(self.server, data["schema"], self.validator)
        self.slow.append((s.seconds, name))
        self.counts["files"] += 1
        if not s.compiled:
            self.counts["refused"] += 1
            for reason in {reason_of(m) for m in problems_of(s.message)}:
                self.reasons[reason].append(name)
            return
        self.counts["compiled"] += 1
        right = True
        for i, test in enumerate(data["tests"]):
            kind, note = s.judge(test)
            self.counts["valid" if test["valid"] else "invalid"] += 1
            if kind == "right":
                continue
            right = False
            self.counts[kind] += 1
            self.failures[kind].append("%s test %d: %s" % (name, i,
                                                           note[-160:]))
        self.counts["stopped"] += s.stopped
        self.counts["passing"] += right
        if s.crashed:
            self.reasons["crashed"].append(name)

    def say(self):
        c = self.counts
        self.report.say(
            "MaskBench: %d of %d files compile, %d pass all their tests; "
            "of %d invalid documents %d admitted, %d with formats that have "
            "no effect, %d refused only at the end; of %d valid ones %d "
            "refused; unknown %d"
            % (c["compiled"], c["files"], c["passing"], c["invalid"],
               c["unsound"], c["not checked"], c["stopped"], c["valid"],
               c["valid refused"], c["unknown"]))
        self.report.bad += c["unsound"] + len(self.reasons["crashed"])
        self.report.say("refused, by reason (a file may have several):")
        reasons = sorted(self.reasons.items(), key=lambda r: -len(r[1]))
        for i, (reason, names) in enumerate(reasons):
            self.report.say("  %5d  %s  [%s]" % (
                len(names), reason, " ".join(names[:3])), loud=i < 30)
        for kind in KINDS:
            self.report.say("%s, by file:" % kind, loud=False)
            for line in self.failures[kind]:
                self.report.say("  " + line, loud=False)
        self.report.say("slowest to compile: " + ", ".join(
            "%s %.0f ms" % (name, 1000 * t)
            for t, name in sorted(self.slow, reverse=True)[:10]), loud=False)

    def run(self, folder):
        for path in sorted(glob.glob(folder + "/*.json")):
            self.file(path)
        self.say()


# ---- random outputs ------------------------------------------------------------

def is_integer(_, v):
    """Whether a value is an integer; numbers with a point are Decimals."""
    if isinstance(v, decimal.Decimal):
        return v == v.to_integral_value()
    return isinstance(v, int) and not isinstance(v, bool)


def make_judge(schema):
    """Return a function that says what is wrong with a document, or None."""
    import jsonschema
    import schemas
    base = jsonschema.validators.validator_for(
        schema, default=jsonschema.Draft202012Validator)
    types = base.TYPE_CHECKER
    if base is not jsonschema.Draft4Validator:  # there 1.0 is no integer
        types = types.redefine("integer", is_integer)
    validator = jsonschema.validators.extend(
        base, {"pattern": schemas.pattern}, type_checker=types)
    checker = base.FORMAT_CHECKER
    judge = validator(schemas.parse(dump(schema)), format_checker=checker)

    def wrong(text):
        for error in judge.iter_errors(schemas.parse(text)):
            return "%s: %s" % (error.json_path, error.message[:200])
        return None
    return wrong


def check_output(server, rng, path, counts):
    """Draw one document. Return what is wrong with it, or None."""
    schema = json.load(open(path))["schema"]
    s = Schema(server, schema)
    if not s.ok:
        counts["refused"] += 1
        return None
    raw = server.walk(rng.getrandbits(40), rng.choice([20, 100, 400]))
    if raw is None:
        counts["unfinished"] += 1
        return None
    try:
        wrong = make_judge(schema)(raw.decode())
    except (re.error, RecursionError) as e:
        counts["not judged: " + type(e).__name__] += 1
        return None
    except Exception as e:  # of references and types that are not supported
        counts["not judged: " + type(e).__name__] += 1
        return None
    counts["invalid" if wrong else "valid"] += 1
    return wrong and "%s\n    %s" % (wrong, raw.decode()[:600])


def run_outputs(server, folder, args, report):
    rng = random.Random(args.seed)
    files = sorted(glob.glob(folder + "/*.json"))
    counts = collections.Counter()
    while counts["valid"] + counts["invalid"] < args.outputs:
        path = rng.choice(files)
        wrong = check_output(server, rng, path, counts)
        if wrong:
            report.bad += 1
            report.say("  %s: %s" % (os.path.basename(path), wrong))
    report.say("random outputs, seed %d: %s" % (args.seed, ", ".join(
        "%s %d" % c for c in sorted(counts.items()))))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--report")
    p.add_argument("--lenient", action="store_true")
    p.add_argument("--validator", action="store_true")
    p.add_argument("--outputs", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    server, report = Server(args.program), Report(args.report)
    if args.lenient:
        server.options("lenient")
    for variable, run in ("MASKBENCH", MaskBench(server, report, args.validator).run), \
            ("JSON_SCHEMA_TEST_SUITE", lambda folder: run_suite(
                server, folder, report, args.validator)), \
            ("BFCL", lambda folder: bfcl.run(server, folder, report)):
        if os.environ.get(variable):
            run(os.environ[variable])
        else:
            report.say("SKIP: %s names no copy of the suite" % variable)
    if args.outputs and os.environ.get("MASKBENCH"):
        run_outputs(server, os.environ["MASKBENCH"], args, report)
    report.write()
    return 1 if report.bad else 0


if __name__ == "__main__":
    sys.exit(main())
