#!/usr/bin/env python3
"""Calls of the system that fail, in each scenario: qwick ends as documented.

Usage: injection.py QWICK INJECT_SO DIR [--sample N] [--seed S] [--only RE]
                    [--most N] [--last N] [--matrix]

INJECT_SO is tests/faults/inject.c, built; it describes the kinds of calls and the
ways to fail. Each scenario (table SCENARIOS) runs undisturbed first, to count its
calls and to keep its results. Then its n-th call of a kind fails, each time in a
run of its own in a fresh directory: alone, and with all later calls of the kind.

--sample N takes N runs spread over all cells (scenario x kind x way x once or
from), chosen by the seed S; --only takes cells
that the regular expression RE matches; --most N takes at
most N values of n of a cell, spread evenly, --last N the last ones; --matrix prints a line for each scenario and
kind. JOBS=N runs N at once (default: one for each CPU).

Whatever fails:
  - the exit status is one that the table KINDS gives to the kind;
  - short and interrupted calls are no faults: status 0, and not a word about it;
  - with status 0, standard output and all files are those of the undisturbed run.
    A cache that cannot be used is a warning, and a missing entry;
  - with another status, standard error ends with one line about it, and standard
    output is empty, or a beginning of the answer, or whole lines of it;
  - no temporary file is left, and an output is absent or whole; the output of a
    batch, which a later run continues, may be cut;
  - the same command without a fault then gives the undisturbed results.

Ends with status 1 after up to twenty lines about runs that broke a rule (all of
them with --matrix).
"""

import collections
import concurrent.futures
import json
import os
import random
import re
import shutil
import subprocess
import sys

import tally

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEMO = ROOT + "/models/demo"
TINY = ROOT + "/tests/golden/models/tied-bf16"
LIMIT = 120  # seconds; a run takes about 50 ms

# kind: the ways it fails, and the exit statuses that then are right.
KINDS = {
    "alloc": ({"ENOMEM": {0, 1, 5}}),
    "mmap": ({"ENOMEM": {0, 1, 5}}),
    "open": ({"EIO": {0, 1, 3}, "EMFILE": {0, 1, 3}, "EACCES": {0, 1, 3}}),
    "read": ({"EIO": {0, 1, 3}, "EINTR": {0}, "one": {0}, "half": {0}}),
    "write": ({"EIO": {0, 1}, "ENOSPC": {0, 1}, "full": {0, 1}, "EINTR": {0}, "one": {0},
               "half": {0}}),
    "sync": ({"EIO": {0, 1}, "EINTR": {0, 1}}),
    "rename": ({"EIO": {0, 1}, "ENOSPC": {0, 1}}),
    "space": ({"ENOSPC": {0, 1}, "EIO": {0, 1}}),
    "mkdir": ({"EACCES": {0, 1}, "ENOSPC": {0, 1}}),
    "thread": ({"EAGAIN": {0}}),
}
HARMLESS = {"EINTR", "one", "half"}


class Scenario:
    """A command, its results, and what is in its directory before.

    stream  standard output grows while it runs: a failed run may have written a
            beginning of it (text) or whole lines of it (jsonl)
    outputs the files that it writes; cache: the directory of its cache
    resume  the output that a failed run may leave unfinished, to be continued"""

    def __init__(self, name, arguments, stream=None, outputs=(), cache=None, resume=None,
                 before=(), kinds=None):
        self.name, self.arguments, self.stream = name, arguments, stream
        self.outputs, self.cache, self.resume = outputs, cache, resume
        self.before, self.kinds = before, kinds
        self.directory = self.want = None


RECORDS = [{"prompt": "count lines in myfile"}, {"prompt": "list files", "n": 2, "temperature": 1},
           {"messages": [{"role": "user", "content": "show disk usage"}]}]
LONG = "".join("Line %d says how to list files in directory %d.\n" % (i, i) for i in range(8))
GENERATE = ["--think", "off", "-m", DEMO, "-t", "1", "-n", "6", "--seed", "1"]
BATCH = ["batch", "--exact", "--think", "off", "-m", DEMO, "-t", "1", "-n", "4", "--seed", "1", "-i", "in.jsonl"]

SCENARIOS = [
    Scenario("generate", ["generate", *GENERATE, "list files"], stream="text"),
    Scenario("generate -f, builtin", ["generate", "-q", "-t", "1", "-n", "3", "-f", "long.txt"],
             stream="text"),
    Scenario("generate --json", ["generate", *GENERATE, "--json", "--logprobs", "2", "hi"]),
    Scenario("generate --preload, threads",
             ["generate", "-m", DEMO, "-t", "3", "-n", "6", "--preload", "--seed", "1",
              "--json", "hi"]),
    Scenario("generate --jsonl --think-file",
             ["generate", *GENERATE, "-q", "--jsonl", "--think-file", "think", "hi"],
             stream="jsonl", outputs=["think"]),
    Scenario("session, new", ["generate", *GENERATE, "--save-session", "new.kv", "list files"],
             stream="text", outputs=["new.kv"]),
    Scenario("session, continued",
             ["generate", *GENERATE, "--session", "old.kv", "--save-session", "old.kv", "hi"],
             stream="text", outputs=["old.kv"],
             before=["generate", *GENERATE, "--save-session", "old.kv", "list files"]),
    Scenario("prefix cache, cold",
             ["generate", *GENERATE, "--exact", "-f", "long.txt", "--prefix-cache=cache", "hi"],
             stream="text", cache="cache"),
    Scenario("prefix cache, warm",
             ["generate", *GENERATE, "--exact", "-f", "long.txt", "--prefix-cache=cache", "how?"],
             stream="text", cache="cache",
             before=["generate", *GENERATE, "--exact", "-f", "long.txt",
                     "--prefix-cache=cache", "hi"]),
    Scenario("batch", BATCH, stream="jsonl"),
    Scenario("batch -o", [*BATCH, "-o", "out.jsonl"], resume="out.jsonl"),
    Scenario("batch -o, continued", [*BATCH, "-o", "out.jsonl"], resume="out.jsonl",
             before=[*BATCH, "-o", "out.jsonl", "--shard", "1/2"]),
    Scenario("batch -o, complete", [*BATCH, "-o", "out.jsonl"], resume="out.jsonl",
             before=[*BATCH, "-o", "out.jsonl"]),
    Scenario("batch --redo",
             ["batch", "--exact", "--think", "off", "-m", DEMO, "-t", "1", "-n", "3", "--seed", "1", "-i", "in.jsonl", "-o",
              "out.jsonl", "--redo"], resume="out.jsonl", before=[*BATCH, "-o", "out.jsonl"]),
    Scenario("batch --prefix-cache",
             [*BATCH, "-o", "out.jsonl", "--system-file", "long.txt",
              "--prefix-cache=cache"],
             resume="out.jsonl", cache="cache"),
    Scenario("embed", ["embed", "-q", "--exact", "-m", DEMO, "-t", "1", "hi", "list files"], stream="jsonl"),
    Scenario("embed -o", ["embed", "-q", "--exact", "-m", DEMO, "-t", "1", "--format", "npy", "-o", "v.npy",
                          "hi", "list files"], outputs=["v.npy"], resume="v.npy"),
    Scenario("quantize", ["quantize", "-m", TINY, "-t", "1", "-o", "out"], outputs=["out"]),
    Scenario("quantize --force", ["quantize", "-m", TINY, "-t", "1", "-o", "out", "--force",
                                  "--bits", "8"],
             outputs=["out"], before=["quantize", "-m", TINY, "-t", "1", "-o", "out"]),
    Scenario("quantize gguf", ["quantize", "-m", TINY, "-t", "1", "--format", "gguf", "-o",
                               "out.gguf"], outputs=["out.gguf"]),
    Scenario("run a gguf", ["generate", "-m", "tiny.gguf", "-t", "1", "-q", "--prompt-ids",
                            "1,2", "-n", "4", "--seed", "1", "--json"],
             before=["quantize", "-m", TINY, "-t", "1", "--format", "gguf", "--type", "Q8_0",
                     "-o", "tiny.gguf"]),
    Scenario("logits -o", ["logits", "-m", DEMO, "-t", "1", "-o", "l.safetensors", "hi"],
             outputs=["l.safetensors"]),
    Scenario("generate --keep", ["generate", *GENERATE, "--keep", "list files"], stream="text",
             outputs=[".local/state/qwick/last.json"],
             before=["generate", *GENERATE, "--keep", "hi"]),
    Scenario("models alias", ["models", "alias", "two=" + DEMO],
             outputs=[".config/qwick/aliases"],
             before=["models", "alias", "one=" + TINY]),
    Scenario("score --html", ["score", "-m", DEMO, "-t", "1", "--html", "s.html", "list files"],
             stream="text", outputs=["s.html"]),
]


# ---- what two runs have in common ------------------------------------------------

def without_times(value):
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items()
                if k not in ("timing", "load_ms", "cached_tokens")}
    return value


def line_of(line):
    try:
        return without_times(json.loads(line))
    except ValueError:
        return line


def lines_of(data):
    return [line_of(line) for line in data.split(b"\n")]


def content_of(path):
    """The content of a file or of a directory's files."""
    if os.path.isdir(path):
        return {name: content_of(os.path.join(path, name)) for name in sorted(os.listdir(path))}
    with open(path, "rb") as file:
        data = file.read()
    # answers that a later run adds come last
    return sorted(lines_of(data), key=str) if path.endswith(".jsonl") else data


def files_below(directory):
    return sorted(os.path.relpath(os.path.join(at, name), directory)
                  for at, dirs, names in os.walk(directory) for name in [*dirs, *names])


def is_error_record(line):
    return isinstance(line, dict) and "error" in line


class Fault:
    def __init__(self, scenario, kind, how, n, persistent):
        self.scenario, self.kind, self.how, self.n = scenario, kind, how, n
        self.persistent = persistent

    def environment(self):
        env = {"FAULT_CALL": self.kind, "FAULT_HOW": self.how, "FAULT_AT": str(self.n)}
        if self.persistent:
            env["FAULT_FROM"] = "1"
        return env

    def __str__(self):
        return "%s: %s %s %s %d" % (self.scenario.name, self.kind, self.how,
                                    "from" if self.persistent else "at", self.n)


class Sweep:
    def __init__(self, qwick, inject, folder):
        self.qwick, self.inject, self.folder = qwick, inject, folder

    def execute(self, directory, arguments, **fault):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "QWICK_", "XDG_"))}
        env.update(HOME=directory, TMPDIR=directory, LC_ALL="C.UTF-8", **fault)
        if fault:
            env["LD_PRELOAD"] = self.inject
        try:
            return subprocess.run([self.qwick, *arguments], cwd=directory, env=env,
                                  stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT,
                                  check=False)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(arguments, "hangs", b"", b"")

    def prepare(self, scenario, number):
        """Run undisturbed; the number of calls by kind."""
        s = scenario
        s.directory = "%s/before-%d" % (self.folder, number)
        os.makedirs(s.directory)
        with open(s.directory + "/in.jsonl", "w", encoding="ascii") as file:
            file.writelines(json.dumps(record) + "\n" for record in RECORDS)
        with open(s.directory + "/long.txt", "w", encoding="ascii") as file:
            file.write(LONG)
        if s.before:
            done = self.execute(s.directory, s.before)
            if done.returncode:
                sys.exit("%s: before: %s" % (s.name, done.stderr))
        s.files_before = set(files_below(s.directory))
        after = "%s/after-%d" % (self.folder, number)
        shutil.copytree(s.directory, after)
        count = "%s/count-%d" % (self.folder, number)
        done = self.execute(after, s.arguments, FAULT_COUNT=count)
        if done.returncode or b"error" in done.stderr:
            sys.exit("%s: undisturbed: status %s: %s" % (s.name, done.returncode, done.stderr))
        s.want, s.said = done.stdout, done.stderr
        s.files = set(files_below(after))
        s.results = {name: content_of(os.path.join(after, name))
                     for name in [*s.outputs, *([s.resume] if s.resume else [])]}
        s.previous = {name: content_of(os.path.join(s.directory, name))
                      for name in s.results if os.path.exists(os.path.join(s.directory, name))}
        with open(count, encoding="ascii") as file:
            s.counts = {k: int(v) for k, v in (line.split() for line in file)}

    # ---- the rules ----

    def complete(self, s, done, directory):
        """What is wrong with a run that ended with status 0, or None."""
        if lines_of(done.stdout) != lines_of(s.want):
            return "status 0, but another output: %r" % done.stdout[:200]
        for name, want in s.results.items():
            path = os.path.join(directory, name)
            if not os.path.exists(path) or content_of(path) != want:
                return "status 0, but %s is not that of the undisturbed run" % name
        return self.strange_files(s, directory)

    @staticmethod
    def strange_files(s, directory):
        """A file that the undisturbed run does not have. Directories of the cache may
        have another name than its own entries have; what counts are temporary files."""
        for name in files_below(directory):
            if name not in s.files and not (s.resume and name == s.resume + ".pending"):
                return "leaves %s" % name
        return None

    def failed(self, fault, done, directory):
        """What is wrong with a run that failed, or None."""
        s = fault.scenario
        errors = [x for x in done.stderr.splitlines() if not x.startswith(b"qwick: warning: ")]
        # the file for answers that are not due yet may fail, too
        if len(errors) != 1 and not (s.resume and len(errors) == 2):
            return "%d lines about an error: %r" % (len(errors), done.stderr[:300])
        if done.returncode == 5 and b"memory" not in errors[0]:
            return "status 5 without a word on memory: %r" % errors[0]
        # a failed write may cut the answer anywhere
        if fault.kind != "write" and not self.partial(s, done.stdout):
            return "output in spite of the error: %r" % done.stdout[:200]
        for name in s.outputs:
            path = os.path.join(directory, name)
            if name == "think" or not os.path.exists(path):
                if name in s.previous:
                    return "%s is gone" % name
                continue
            if content_of(path) not in (s.results[name], s.previous.get(name)):
                return "%s is neither absent nor whole" % name
        return self.strange_files(s, directory)

    @staticmethod
    def partial(s, out):
        if s.stream == "text":
            return s.want.startswith(out)
        if s.stream == "jsonl":
            *whole, cut = out.split(b"\n")
            want = lines_of(s.want)
            return all(line_of(x) in want or is_error_record(line_of(x)) for x in whole)
        return not out or lines_of(out) == lines_of(s.want)

    def complaint(self, fault, done, directory):
        s = fault.scenario
        if done.returncode not in KINDS[fault.kind][fault.how]:
            return "status %s: %r" % (done.returncode, done.stderr[:300])
        if not all(x.startswith(b"qwick: ") for x in done.stderr.splitlines()):
            return "a message that is not qwick's: %r" % done.stderr[:300]
        if fault.how in HARMLESS and fault.kind != "sync" and done.stderr != s.said:
            return "says %r" % done.stderr[:300]
        if done.returncode:
            why = self.failed(fault, done, directory)
        else:
            strange = [x for x in done.stderr.splitlines()
                       if not x.startswith((b"qwick: warning: ", b"qwick: note: "))]
            why = "status 0, but says %r" % strange if strange else \
                self.complete(s, done, directory)
        return why or self.again(s, done, directory)

    def again(self, s, done, directory):
        """What is wrong with the same command afterwards, without a fault, or None."""
        if not (s.resume or s.cache) and not done.returncode:
            return None
        if s.resume and os.path.exists(os.path.join(directory, s.resume)):
            path = os.path.join(directory, s.resume)
            content = content_of(path)
            if isinstance(content, list):
                # a record with an error counts as answered; remove its line
                with open(path, "rb") as file:
                    lines = file.read().split(b"\n")
                with open(path, "wb") as file:
                    file.write(b"\n".join(x for x in lines if not is_error_record(line_of(x))))
        if s.name == "session, continued" and not done.returncode:
            return None
        if "quantize" in s.name and os.path.exists(os.path.join(directory, s.outputs[0])) \
                and "--force" not in s.arguments:
            return None  # the new output is there, but was not synced
        if s.name == "session, continued" and content_of(directory + "/old.kv") != \
                s.previous["old.kv"]:
            return None  # likewise
        then = self.execute(directory, s.arguments)
        if then.returncode:
            return "the next run fails: %s: %r" % (then.returncode, then.stderr[:300])
        why = self.complete(s, then, directory)
        return "the next run: " + why if why else None

    def disturb(self, item):
        number, fault = item
        directory = "%s/%d" % (self.folder, number)
        shutil.copytree(fault.scenario.directory, directory)
        done = self.execute(directory, fault.scenario.arguments, **fault.environment())
        why = self.complaint(fault, done, directory)
        shutil.rmtree(directory)
        return fault, done.returncode, why


def spread(total, most, last):
    """At most `most` of the numbers 1..total, with the first and the last; with `last`,
    the last ones."""
    if last:
        return list(range(max(1, total - last + 1), total + 1))
    if total <= most:
        return list(range(1, total + 1))
    return sorted({1 + round(i * (total - 1) / (most - 1)) for i in range(most)})


def cells(scenarios, most, last):
    """For each scenario, kind, way and mode: its faults."""
    for s in scenarios:
        for kind, hows in KINDS.items():
            for how in hows:
                for persistent in (False, True):
                    if how == "full" and not persistent:
                        continue
                    faults = [Fault(s, kind, how, n, persistent)
                              for n in spread(s.counts[kind], most, last)]
                    if faults:
                        yield faults


def sample(all_cells, n, seed):
    """n faults, of different cells as far as there are enough; kinds in turn, because
    few cells are about the rarer ones."""
    chance = random.Random(seed)
    by_kind = collections.defaultdict(list)
    for faults in all_cells:
        by_kind[faults[0].kind].append(faults)
    for group in by_kind.values():
        chance.shuffle(group)
    taken = []
    while len(taken) < n and any(by_kind.values()):
        for group in by_kind.values():
            if group and len(taken) < n:
                taken.append(chance.choice(group.pop()))
    return taken


def may_match(only, s):
    """Whether the pattern may be about this scenario."""
    return any(re.search(only, str(Fault(s, kind, how, n, persistent)))
               for kind, hows in KINDS.items() for how in hows
               for n in (1, 10) for persistent in (False, True))


def print_matrix(results):
    rows = collections.defaultdict(lambda: (set(), collections.Counter()))
    for fault, status, why in results:
        calls, statuses = rows[fault.scenario.name, fault.kind]
        calls.add(fault.n)
        statuses["wrong" if why else status] += 1
    for (name, kind), (calls, statuses) in sorted(rows.items()):
        print("%-30s %-7s n 1..%-5d %5d runs: %s"
              % (name, kind, max(calls), sum(statuses.values()),
                 ", ".join("%d with %s" % (n, s) for s, n in sorted(statuses.items(), key=str))))


def main():
    args = tally.begin(("qwick", "inject", "folder"), {
        "sample": 0, "seed": 1, "only": "", "most": 10**9, "last": 0, "matrix": False})
    sweep = Sweep(args.qwick, args.inject, args.folder)
    jobs = int(os.environ.get("JOBS") or os.cpu_count())
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        scenarios = [s for s in SCENARIOS if may_match(args.only, s)]
        list(pool.map(sweep.prepare, scenarios, range(len(scenarios))))
        chosen = [c for c in cells(scenarios, args.most, args.last) if re.search(args.only, str(c[0]))]
        faults = sample(chosen, args.sample, args.seed) if args.sample else \
            [f for c in chosen for f in c]
        results = list(pool.map(sweep.disturb, enumerate(faults)))
    if args.matrix:
        print_matrix(results)
    statuses = collections.Counter(status for _, status, _ in results)
    bad = ["%s: %s" % (fault, why) for fault, _, why in results if why]
    tally.end(args, "%d injected faults in %d cells of %d scenarios, seed %d; exit statuses: %s"
              % (len(results), len(chosen), len(scenarios), args.seed,
                 ", ".join("%d with %s" % (n, s) for s, n in sorted(statuses.items(), key=str))),
              bad, len(results), None if args.matrix else 20)


if __name__ == "__main__":
    main()
