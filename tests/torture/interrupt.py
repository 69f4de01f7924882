#!/usr/bin/env python3
"""Work that is interrupted: afterwards everything is consistent, and the same
command gives the results of an undisturbed run.

Usage: interrupt.py QWICK INJECT_SO DIR [--runs N] [--seed S] [--only WORD]

INJECT_SO is tests/faults/inject.c, built. --runs N: about N runs of each check
(default 60). The checks:

  moments   SIGKILL before the n-th write, sync, rename, mkdir or change of a size,
            and in the middle of the n-th write, in each scenario of injection.py
            that writes files
  random    SIGKILL at a random time of these scenarios
  batch     a batch is killed at random times until it is done
  cache     four runs write to one prefix cache, and two of them are killed
  pull      qwick-pull is killed at random times until it is done, with
            tests/cli/hub_server.py
  mapped    the files of the model are truncated, replaced or deleted while an
            answer is written
  stop      SIGSTOP, then SIGCONT
  slow      a reader that takes the output in small pieces, with pauses: memory
            does not grow with the output
  closed    standard input, output and error closed, in all combinations

Ends with status 1 after up to twenty lines about runs that broke a rule.
"""

import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import injection
import tally

REPO = injection.ROOT
KINDS = ("write", "sync", "rename", "space", "mkdir")


class Interrupts(injection.Sweep, tally.Tally):
    def __init__(self, qwick, inject, folder, chance, runs):
        injection.Sweep.__init__(self, qwick, inject, folder)
        tally.Tally.__init__(self)
        self.chance, self.runs = chance, runs
        self.number = 0

    def fresh(self, scenario=None):
        self.number += 1
        path = "%s/run-%d" % (self.folder, self.number)
        if scenario:
            shutil.copytree(scenario.directory, path)
        else:
            os.makedirs(path)
        return path

    def environment(self, directory, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "QWICK_", "XDG_"))}
        env.update(HOME=directory, TMPDIR=directory, LC_ALL="C.UTF-8", **more)
        return env

    def start(self, directory, arguments, **more):
        options = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        options.update(more)
        return subprocess.Popen([self.qwick, *arguments], cwd=directory,
                                env=self.environment(directory), **options)

    # ---- after SIGKILL ----

    def whole(self, s, directory):
        """What is wrong with the outputs right after SIGKILL, or None."""
        for name in s.outputs:
            path = os.path.join(directory, name)
            if name == "think":
                continue
            if not os.path.exists(path):
                if name in s.previous:
                    return "%s is gone" % name
            elif injection.content_of(path) not in (s.results[name], s.previous.get(name)):
                return "%s is neither absent nor whole" % name
        return None

    def rerun(self, s, directory):
        """What is wrong with the same command after SIGKILL, or None."""
        done_before = all(
            os.path.exists(os.path.join(directory, name)) and
            injection.content_of(os.path.join(directory, name)) == s.results[name]
            for name in s.outputs) and s.outputs
        if done_before and ("--force" not in s.arguments and "quantize" in s.name
                            or s.name == "session, continued"):
            return None  # nothing is left to do, or the input is the output
        then = self.execute(directory, s.arguments)
        if then.returncode:
            return "the next run fails: %s: %r" % (then.returncode, then.stderr[:300])
        if "quantize" not in s.name:
            remove_temporary(directory)
        why = self.complete(s, then, directory)
        return "the next run: " + why if why else None

    def moments(self):
        faults = []
        for s in self.writers():
            for kind in KINDS:
                for how in ("kill", "torn") if kind == "write" else ("kill",):
                    faults += [injection.Fault(s, kind, how, n, False)
                               for n in range(1, s.counts[kind] + 1)]
        self.chance.shuffle(faults)
        for fault in faults[:5 * self.runs]:
            s = fault.scenario
            directory = self.fresh(s)
            done = self.execute(directory, s.arguments, **fault.environment())
            why = "status %s" % done.returncode if done.returncode != -signal.SIGKILL else None
            self.note("moments", fault, why or self.whole(s, directory) or self.rerun(s, directory))

    def writers(self):
        return [s for s in self.scenarios if s.outputs or s.resume or s.cache]

    def random(self):
        spans = {}
        for i in range(self.runs):
            s = self.chance.choice(self.writers())
            if s.name not in spans:
                start = time.monotonic()
                self.execute(self.fresh(s), s.arguments)
                spans[s.name] = time.monotonic() - start
            directory = self.fresh(s)
            process = self.start(directory, s.arguments)
            try:
                process.wait(self.chance.uniform(0, spans[s.name]))
            except subprocess.TimeoutExpired:
                process.kill()
            process.communicate()
            self.note("random", "%s, kill %d" % (s.name, i),
                      self.whole(s, directory) or self.rerun(s, directory))

    def batch(self):
        """One output, many kills."""
        directory = self.fresh()
        with open(directory + "/in.jsonl", "w", encoding="ascii") as file:
            for i in range(max(20, self.runs)):
                file.write(json.dumps({"prompt": "list %d files" % i, "n": 1 + i % 3}) + "\n")
        command = ["batch", "--exact", "-q", "-t", "1", "-n", "12", "--temp", "1", "--seed", "4",
                   "-i", "in.jsonl", "-o"]
        start = time.monotonic()
        want = self.execute(directory, [*command, "want.jsonl"])
        span = time.monotonic() - start
        kills = 0
        while kills < self.runs:
            process = self.start(directory, [*command, "out.jsonl"])
            try:
                process.wait(self.chance.uniform(0, span / 4 + 0.02))
                break
            except subprocess.TimeoutExpired:
                process.send_signal(self.chance.choice([signal.SIGKILL, signal.SIGKILL,
                                                        signal.SIGTERM]))
                kills += 1
            process.communicate()
        last = self.execute(directory, [*command, "out.jsonl"])
        why = None
        if last.returncode or want.returncode:
            why = "statuses %s, %s: %r" % (last.returncode, want.returncode, last.stderr)
        elif injection.content_of(directory + "/out.jsonl") != \
                injection.content_of(directory + "/want.jsonl"):
            why = "other answers than those of one run"
        elif os.path.exists(directory + "/out.jsonl.pending"):
            why = "leaves out.jsonl.pending"
        self.note("batch", "%d kills" % kills, why)
        self.counts["batch"] += kills - 1

    def cache(self):
        directory = self.fresh()
        questions = ["how?", "what?", "where?", "why?"]
        with open(directory + "/long.txt", "w", encoding="ascii") as file:
            file.write(injection.LONG)
        command = ["generate", "--exact", "-q", "-t", "1", "-n", "4", "-f", "long.txt"]
        wants = [self.execute(directory, [*command, q]).stdout for q in questions]
        for i in range(max(1, self.runs // 4)):
            cached = [*command, "--prefix-cache=cache"]
            runs = [self.start(directory, [*cached, q]) for q in questions]
            for victim in self.chance.sample(runs, 2):
                time.sleep(self.chance.uniform(0, 0.05))
                victim.kill()
            outs = [run.communicate() for run in runs]
            why = None
            for run, out, want in zip(runs, outs, wants):
                if run.returncode == 0 and (out[0] != want or out[1]):
                    why = "another answer, or a warning: %r" % (out,)
            then = self.execute(directory, [*cached, questions[i % 4]])
            if then.returncode or then.stdout != wants[i % 4]:
                why = "the next run: %r" % then.stderr
            listed = self.execute(directory, ["cache", "ls", "--json", "--dir", "cache"])
            if any(e["damaged"] for e in json.loads(listed.stdout)["entries"]):
                why = "a damaged entry"
            self.note("cache", "round %d" % i, why)
            if i % 3 == 2:
                self.execute(directory, ["cache", "clear", "--dir", "cache"])
        left = [n for n in injection.files_below(directory) if ".tmp-" in n]
        if len(left) > 2 * self.runs:
            self.note("cache", "at the end", "%d temporary files" % len(left))

    # ---- qwick-pull ----

    def pull(self):
        if not shutil.which("curl"):
            print("SKIP: pull: no curl")
            return
        directory = self.fresh()
        model = directory + "/hub/good/m"
        os.makedirs(model)
        chance = random.Random(7)
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            with open(model + "/" + name, "w", encoding="ascii") as file:
                json.dump({"model_type": "qwen3", "of": name}, file)
        with open(model + "/model.safetensors", "wb") as file:
            file.write(chance.randbytes(3_000_000))
        port = directory + "/port"
        server = subprocess.Popen([sys.executable, REPO + "/tests/cli/hub_server.py",
                                   directory + "/hub", port, directory + "/log"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.pull_from(directory, port)
        finally:
            server.kill()
            server.wait()

    def pull_from(self, directory, port):
        for _ in range(200):
            if os.path.exists(port) and os.path.getsize(port):
                break
            time.sleep(0.05)
        with open(port, encoding="ascii") as file:
            url = "http://127.0.0.1:" + file.read().strip()

        def launch(cache):
            env = self.environment(directory, HF_ENDPOINT=url, HF_HUB_CACHE=cache,
                                   no_proxy="127.0.0.1")
            return subprocess.Popen([REPO + "/scripts/qwick-pull", "--allow-http", "good/m"],
                                    cwd=directory, env=env, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                    start_new_session=True)

        start = time.monotonic()
        first = launch(directory + "/want")
        error = first.communicate()[1]
        span = time.monotonic() - start
        if first.returncode:
            self.note("pull", "undisturbed", repr(error))
            return
        want = tree(directory + "/want")
        for round_ in range(max(1, self.runs // 10)):
            cache = "%s/cache-%d" % (directory, round_)
            for _ in range(4):
                process = launch(cache)
                try:
                    process.wait(self.chance.uniform(0, span))
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                self.counts["pull"] += 1
            process = launch(cache)
            error = process.communicate()[1]
            why = "status %d: %r" % (process.returncode, error) if process.returncode else None
            if not why and tree(cache) != want:
                why = "another cache: %s" % sorted(tree(cache).items() ^ want.items())[:4]
            self.note("pull", "round %d" % round_, why)

    # ---- while an answer is written ----

    def mapped(self):
        command = ["-q", "-t", "1", "-n", "300", "--ignore-eos", "-m", "m", "list files"]
        want = None
        for i in range(max(3, self.runs // 4)):
            what = ("truncate", "replace", "delete")[i % 3]
            directory = self.fresh()
            shutil.copytree(injection.DEMO, directory + "/m")
            if want is None:
                want = self.execute(directory, command).stdout
            process = self.start(directory, command)
            out = os.read(process.stdout.fileno(), 1)
            weights = directory + "/m/model.safetensors"
            if what == "truncate":
                os.truncate(weights, self.chance.randrange(0, 100_000))
            elif what == "replace":
                with open(directory + "/m/new", "wb") as file:
                    file.write(b"nothing")
                os.rename(directory + "/m/new", weights)
            else:
                shutil.rmtree(directory + "/m")
            rest, err = process.communicate()
            out += rest
            why = None
            if what != "truncate":
                if process.returncode or out != want or err:
                    why = "status %d, %r" % (process.returncode, err)
            elif process.returncode != 1 or not want.startswith(out) or \
                    err != b"qwick: a mapped file was truncated while in use\n":
                # the run may have been done with the file already
                if (process.returncode, out, err) != (0, want, b""):
                    why = "status %d, %r" % (process.returncode, err)
            self.note("mapped", what, why)

    def stop(self):
        command = ["-q", "--exact", "-t", "2", "-n", "200", "--ignore-eos", "--raw", "list files"]
        directory = self.fresh()
        want = self.execute(directory, command).stdout
        for i in range(max(1, self.runs // 6)):
            process = self.start(directory, command)
            for _ in range(3):
                time.sleep(self.chance.uniform(0, 0.03))
                process.send_signal(signal.SIGSTOP)
                time.sleep(0.01)
                process.send_signal(signal.SIGCONT)
            out, err = process.communicate(timeout=injection.LIMIT)
            why = None if (process.returncode, out, err) == (0, want, b"") else \
                "status %d, %r" % (process.returncode, err)
            self.note("stop", "run %d" % i, why)

    def slow(self):
        """Two lengths of output: the memory differs by what the context takes, not by
        what the reader has not read."""
        directory = self.fresh()
        peaks = {}
        for reader in ("fast", "slow"):
            process = self.start(directory, ["-q", "--jsonl", "--raw", "-t", "1", "-n", "1000",
                                             "--ignore-eos", "--logprobs", "50", "list files"])
            out, held = b"", 0
            while piece := os.read(process.stdout.fileno(), 1 << 16):
                out += piece
                if reader == "slow" and held < 20:
                    held += 1
                    time.sleep(0.02)
            process.stderr.close()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            peaks[reader] = usage.ru_maxrss, process.returncode, len(out.splitlines())
            process.stdout.close()
        why = None
        if any(p[1] for p in peaks.values()) or peaks["fast"][2] != peaks["slow"][2]:
            why = "statuses or lines differ: %s" % peaks
        # the output has 5.7 MB; resident pages of the mapped model differ by some 2 MB
        elif peaks["slow"][0] > peaks["fast"][0] + 4096:
            why = "%d KiB for a slow reader, %d for a fast one" % (peaks["slow"][0],
                                                                   peaks["fast"][0])
        self.note("slow", "--jsonl", why)

    def closed(self):
        directory = self.fresh()
        commands = [["-q", "-n", "4", "--no-stdin", "list files"], ["tokenize", "list files"],
                    ["embed", "-q", "--exact", "hi"], ["choose", "-q", "-a", "x", "-a", "y", "hi"],
                    ["inspect", "--json"], ["score", "-q", "hi"],
                    ["logits", "-q", "--exact", "hi"], ["count", "hi"]]
        for command in commands[:max(2, self.runs // 6)]:
            want = self.execute(directory, command)
            for which in range(8):
                close = [fd for fd in range(3) if which & 1 << fd]
                process = self.start(
                    directory, command, stdin=subprocess.DEVNULL,
                    preexec_fn=lambda fds=tuple(close): [os.close(fd) for fd in fds])
                out, err = process.communicate(timeout=injection.LIMIT)
                status = 1 if 1 in close else want.returncode
                why = None
                if process.returncode != status:
                    why = "status %d: %r" % (process.returncode, err)
                elif 1 not in close and injection.lines_of(out) != injection.lines_of(want.stdout):
                    why = "another output"
                elif 1 in close and 2 not in close and not err.startswith(b"qwick: stdout"):
                    why = "says %r" % err
                self.note("closed", "%s, closed: %s" % (command[0], close), why)


def remove_temporary(directory):
    """What SIGKILL leaves beside an output, under a name of its own. Only quantize,
    whose files are large, removes it in the next run."""
    for name in injection.files_below(directory):
        if re.search(r"\.tmp[-.][0-9a-f]+$", name):
            os.remove(os.path.join(directory, name))


def tree(directory):
    """The files below, with checksums and the targets of links."""
    found = {}
    for name in injection.files_below(directory):
        path = os.path.join(directory, name)
        if os.path.islink(path):
            found[name] = os.readlink(path)
        elif os.path.isfile(path):
            with open(path, "rb") as file:
                found[name] = hashlib.sha256(file.read()).hexdigest()
    return found


CHECKS = ("moments", "random", "batch", "cache", "pull", "mapped", "stop", "slow", "closed")


def main():
    args = tally.begin(("qwick", "inject", "folder"), {"runs": 60, "seed": 1, "only": ""})
    checks = args.only.split(",") if args.only else CHECKS
    sweep = Interrupts(args.qwick, args.inject, args.folder, random.Random(args.seed), args.runs)
    sweep.scenarios = injection.SCENARIOS if {"moments", "random"} & set(checks) else []
    for number, scenario in enumerate(sweep.scenarios):
        sweep.prepare(scenario, number)
    for check in checks:
        getattr(sweep, check)()
    n = sum(sweep.counts.values())
    tally.end(args, "%d interruptions, seed %d: %s" % (n, args.seed, sweep.by_name()),
              sweep.bad, n)


if __name__ == "__main__":
    main()
