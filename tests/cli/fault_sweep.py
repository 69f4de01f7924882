#!/usr/bin/env python3
"""Fail the n-th allocation of a command, for many n, and check what comes of it.

Usage: fault_sweep.py INJECT_SO DIR ONE MANY COMMAND...

INJECT_SO is tests/faults/inject.c, built. The command runs once undisturbed, to
count its allocations and to keep its output. Then every ONE-th allocation fails
by itself, each in a run of its own, and every MANY-th with all that follow it;
the last eight always. Whatever happens:

  - the exit status is 0, 1 or 5, and no signal ends the process;
  - with status 0 the output is that of the undisturbed run, times apart;
  - otherwise standard error is one line that begins with "qwick: " and, at
    status 5, speaks of memory, and standard output is empty; a stream (batch,
    --jsonl, --samples) may hold lines of the undisturbed run and error records;
  - no file is left in DIR but those that a successful run writes.

Prints one line: the number of allocations and of runs by exit status. Ends with
status 1 after up to ten lines about runs that broke a rule.
"""

import collections
import json
import os
import re
import shutil
import subprocess
import sys

TIMES = re.compile(rb"^load ms .*")


def without_times(line):
    """A line of output as two runs have it in common: without measured times."""
    try:
        answer = json.loads(line)
    except ValueError:
        return TIMES.sub(b"", line)
    if isinstance(answer, dict):
        answer.pop("timing", None)
        answer.pop("load_ms", None)
    return answer


def is_error_record(line):
    return isinstance(line, dict) and "error" in line


class Sweep:
    """One command and the directory that it runs in."""

    def __init__(self, inject, directory, command):
        self.inject, self.directory, self.command = inject, directory, command
        self.stream = not {"batch", "--jsonl", "--samples"}.isdisjoint(command)
        self.statuses = collections.Counter()
        self.complaints = []

    def run(self, **fault):
        """Run in an empty directory; the files that are left then, by name."""
        shutil.rmtree(self.directory, ignore_errors=True)
        os.mkdir(self.directory)
        env = dict(os.environ, LD_PRELOAD=self.inject, **fault)
        env.update(HOME=self.directory, TMPDIR=self.directory)
        done = subprocess.run(
            self.command,
            cwd=self.directory,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        return done, set(os.listdir(self.directory))

    def count(self):
        """The number of allocations of the undisturbed run."""
        count_file = self.directory + ".count"
        done, files = self.run(FAULT_COUNT=count_file)
        if done.returncode or done.stderr:
            sys.exit(f"undisturbed: status {done.returncode}, {done.stderr!r}")
        self.want, self.files = self.lines(done.stdout), files
        with open(count_file, encoding="ascii") as file:
            return int(dict(line.split() for line in file)["alloc"])

    @staticmethod
    def lines(out):
        return [without_times(line) for line in out.split(b"\n")]

    def allowed(self, out):
        """Whether a run that failed may have written this."""
        if not self.stream:
            return not out
        return all(x in self.want or is_error_record(x) for x in self.lines(out))

    def complaint(self, done, files):
        """What is wrong with a run, or None."""
        status, lines = done.returncode, done.stderr.splitlines()
        if status not in (0, 1, 5):
            return f"status {status}"
        if not all(line.startswith(b"qwick: ") for line in lines):
            return "a message that is not qwick's"
        if status == 0:
            if self.lines(done.stdout) != self.want:
                return "status 0, but another output"
            return None if files == self.files else f"files {sorted(files)}"
        if not self.allowed(done.stdout):
            return "output on standard output in spite of the error"
        if len(lines) != 1:
            return f"{len(lines)} lines on standard error"
        if status == 5 and b"memory" not in lines[0]:
            return "status 5 without a word on memory"
        return f"files {sorted(files)}" if files else None

    def disturb(self, n, persistent):
        fault = {"FAULT_AT": str(n)}
        if persistent:
            fault["FAULT_FROM"] = "1"
        done, files = self.run(**fault)
        self.statuses[done.returncode] += 1
        complaint = self.complaint(done, files)
        if complaint:
            mode = "from" if persistent else "at"
            self.complaints.append(
                f"{mode} {n}: {complaint}: status {done.returncode}, "
                f"stderr {done.stderr[:200]!r}, stdout {done.stdout[:200]!r}"
            )


def sample(total, stride):
    """Every stride-th of 1..total, and the last ones: after the output."""
    return sorted({*range(1, total + 1, stride), *range(max(1, total - 7), total + 1)})


def main():
    inject, directory, one, many, *command = sys.argv[1:]
    sweep = Sweep(inject, directory, command)
    total = sweep.count()
    for n in sample(total, int(one)):
        sweep.disturb(n, False)
    for n in sample(total, int(many)):
        sweep.disturb(n, True)
    statuses = ", ".join(f"{n} with {s}" for s, n in sorted(sweep.statuses.items()))
    name = " ".join(os.path.basename(word) for word in command)
    print(f"{name}: {total} allocations, exit statuses: {statuses}")
    for complaint in sweep.complaints[:10]:
        print(complaint)
    sys.exit(bool(sweep.complaints))


if __name__ == "__main__":
    main()
