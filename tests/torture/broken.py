#!/usr/bin/env python3
"""Checkpoints with one fault each: qwick refuses each with one line that names the
file, or runs where the format allows it.

Usage: broken.py QWICK DIR [--every N] [--only WORD] [--list]

Writes the checkpoints under DIR, one after the other. --every N takes each N-th
case, --only WORD those with WORD in the name, --list prints what each case came to.
JOBS=N runs N at once (default: one for each CPU).

For each case:
  - the run ends within a limit, no signal ends it, and it needs little memory;
  - "refuse": status 3, nothing on standard output, and one line on standard error,
    which begins "qwick: " and names the file at fault;
  - "run": status 0, and the output of the intact checkpoint;
  - "any": either refused, or status 0 with a valid output;
  - "template": refused, too, or status 2 if the template refuses this chat;
  - "not finite": status 1 with these words; "spoilt": that, or a valid output.
Prints the number of cases by class and result, and up to twenty lines about cases
that went wrong; ends with status 1 if there are any.
"""

import collections
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import threading

import checkpoints
import faults

LIMIT = 60  # seconds; a run takes about 10 ms
MEMORY = 400 << 10  # KiB


def answer(out):
    """What two equal runs have in common."""
    o = json.loads(out)
    for key in ("timing", "model", "load_ms"):
        o.pop(key, None)
    return o


class Runner:
    def __init__(self, qwick, folder):
        self.qwick, self.folder = qwick, folder
        self.sanitized = os.environ.get("SAN") == "1"
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("HF_", "QWICK_", "XDG_"))}
        self.env.update(HOME=folder, LC_ALL="C.UTF-8")
        self.shared, self.wants, self.lock = {}, {}, threading.Lock()

    def share(self, base):
        """Write the files of an intact checkpoint once; cases link to them."""
        for i, data in enumerate(base.files.values()):
            if id(data) not in self.shared:
                path = "%s/%s-%d" % (self.folder, base.kind, i)
                with open(path, "wb") as file:
                    file.write(data)
                # holds the bytes, so that no others get their id
                self.shared[id(data)] = path, data

    def want(self, case):
        """The output of the intact checkpoint."""
        key = (case.base.kind, case.command)
        with self.lock:
            if key not in self.wants:
                intact = faults.Case("intact", case.base, {}, command=case.command)
                folder = "%s/intact-%s" % (self.folder, case.base.kind)
                status, out, err, _ = self.run(intact, folder)
                if status:
                    raise RuntimeError("%s, intact: status %d: %s" % (case.base.kind, status, err))
                self.wants[key] = answer(out)
            return self.wants[key]

    def skipped(self):
        """Lines about the cases that cannot run here: root reads locked files, and
        another user may not reach qwick."""
        if os.getuid() != 0:
            return []
        try:
            subprocess.run([self.qwick, "count", "a"], check=True, capture_output=True,
                           user=faults.NOBODY, cwd=self.folder, env=self.env)
        except (OSError, subprocess.CalledProcessError):
            return ["locked files: only root reaches " + self.qwick]
        return []

    def run(self, case, folder):
        shutil.rmtree(folder, ignore_errors=True)
        checkpoints.write(folder, {**case.base.files, **case.files}, self.shared)
        command = [self.qwick, *case.arguments(folder)]
        out_path, err_path = folder + ".out", folder + ".err"
        with open(out_path, "wb") as out, open(err_path, "wb") as err:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=err, env=self.env, cwd=self.folder,
                                       user=case.user)
            timer = threading.Timer(LIMIT, process.kill)
            timer.start()
            _, status, usage = os.wait4(process.pid, 0)
            timer.cancel()
            process.returncode = status = os.waitstatus_to_exitcode(status)
        result = status, checkpoints.load(out_path), checkpoints.load(err_path), usage.ru_maxrss
        for path in (out_path, err_path):
            os.remove(path)
        shutil.rmtree(folder)
        return result

    def complaint(self, case, status, out, err, memory):
        """What is wrong, or None."""
        lines = err.splitlines()
        if status < 0:
            return "killed by signal %d%s" % (-status, " (the limit?)" if status == -9 else "")
        if memory > MEMORY and not self.sanitized:
            return "%d KiB of memory" % memory
        if any(c < 32 for line in lines for c in line):
            return "control bytes on standard error"
        if status == 0:
            if case.want in ("refuse", "template", "not finite"):
                return "accepted"
            try:
                got = answer(out)
            except ValueError:
                return "no JSON on standard output"
            if case.want == "run" and got != self.want(case):
                return "another output: %s for %s" % (got, self.want(case))
            return None
        if case.want == "run":
            return "refused"
        spoilt = case.want in ("not finite", "spoilt")
        if status not in {"template": (2, 3), "not finite": (1,), "spoilt": (1,)}.get(case.want, (3,)):
            return "status %d" % status
        if out:
            return "output in spite of the error"
        if len(lines) != 1 or not lines[0].startswith(b"qwick: "):
            return "%d lines" % len(lines)
        if spoilt:
            return None if b"not finite" in err else "other words"
        if b"is a text encoder" in err:  # nothing is broken
            return None
        if not names(case, err.decode("utf-8", "replace").strip()):
            return "does not name %s" % " or ".join(case.at)
        return None

    def check(self, item):
        number, case = item
        folder = "%s/%d" % (self.folder, number)
        status, out, err, memory = self.run(case, folder)
        why = self.complaint(case, status, out, err, memory)
        said = err.decode("utf-8", "replace").strip().replace(folder, "DIR")[:240]
        return case, status, said, why


def names(case, line):
    """Whether the line names one of the files that may be at fault."""
    if re.search(r": tensor \S+: missing", line):
        return True  # of several files, so the line names the tensor and the folder
    return any(re.search(r"(?<![\w.-])%s(?![\w-])" % re.escape(name), line) for name in case.at)


def take(pool, run, items, window):
    """Like pool.map, with few items ahead: a case holds its files."""
    ahead = collections.deque()
    for item in items:
        ahead.append(pool.submit(run, item))
        if len(ahead) >= window:
            yield ahead.popleft().result()
    while ahead:
        yield ahead.popleft().result()


def main():
    args = sys.argv[1:]
    qwick, folder = os.path.abspath(args[0]), os.path.abspath(args[1])
    every, only, listing = 1, "", False
    rest = iter(args[2:])
    for word in rest:
        if word == "--every":
            every = int(next(rest))
        elif word == "--only":
            only = next(rest)
        elif word == "--list":
            listing = True
        else:
            sys.exit("unknown option " + word)
    os.makedirs(folder, exist_ok=True)
    runner = Runner(qwick, folder)
    skipped = runner.skipped()

    def chosen():
        wanted = (c for c in faults.all_cases() if only in c.full_name())
        for number, case in enumerate(wanted):
            if number % every == 0 and not (skipped and case.locked):
                runner.share(case.base)
                yield number, case

    counts = collections.defaultdict(collections.Counter)
    bad = []
    jobs = int(os.environ.get("JOBS") or os.cpu_count())
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for case, status, said, why in take(pool, runner.check, chosen(), 2 * jobs):
            counts[case.area]["wrong" if why else "refused" if status else "ran"] += 1
            if why:
                bad.append("%s: %s: status %d: %s" % (case.full_name(), why, status, said))
            if listing:
                print("%s\t%s\t%d\t%s" % (case.full_name(), case.want, status, said))
    total = 0
    for area, c in sorted(counts.items()):
        total += sum(c.values())
        print("%s: %d cases: %d refused, %d ran, %d wrong"
              % (area, sum(c.values()), c["refused"], c["ran"], c["wrong"]))
    for line in skipped:
        print("SKIP: " + line)
    print("%d cases, %d wrong" % (total, len(bad)))
    for line in bad if listing else bad[:20]:
        print(line)
    sys.exit(bool(bad) or not total)


if __name__ == "__main__":
    main()
