#!/usr/bin/env python3
"""Limits and environments: qwick ends with a message, or gives the same answer.

Usage: limits.py QWICK DIR [--dense N] [--only WORD]

--dense N: N values of each limit (default 40). The checks:

  memory    RLIMIT_AS, from too little for the dynamic linker to enough
  files     RLIMIT_NOFILE, from 0 descriptors on
  size      RLIMIT_FSIZE, for each verb that writes files
  stack     RLIMIT_STACK, from 32 KiB on
  threads   RLIMIT_NPROC, as a user who may start no thread
  full      outputs on a small tmpfs; needs root
  readonly  everything on a file system that cannot be written; needs root
  places    no HOME, no environment, a working directory that is deleted or that may
            not be read
  locale    C, POSIX, none, and locales with a decimal comma, which localedef
            compiles in DIR, without their order of words: nothing is sorted

Ends with status 1 after up to twenty lines about runs that broke a rule.
"""

import os
import resource
import shutil
import subprocess

import injection
import tally

NOBODY = 65534
# LC_COLLATE, which takes half of localedef's time, is left out.
CATEGORIES = ("LC_IDENTIFICATION", "LC_CTYPE", "LC_TIME", "LC_NUMERIC", "LC_MONETARY",
              "LC_MESSAGES", "LC_PAPER", "LC_NAME", "LC_ADDRESS", "LC_TELEPHONE",
              "LC_MEASUREMENT")
ANSWER = ["generate", "-t", "1", "-n", "8", "--seed", "1", "--think", "off", "--json",
          "list files"]
# verbs that write files: their arguments and the file
WRITERS = [
    (["generate", *ANSWER[1:], "--save-session", "OUT/s.kv"], "s.kv"),
    (["generate", "-q", "-n", "4", "--think-file", "OUT/think", "list files"], None),
    (["batch", "--exact", "-t", "1", "-n", "4", "--think", "off", "--seed", "1", "-i",
      "in.jsonl", "-o", "OUT/out.jsonl"], "out.jsonl"),
    (["embed", "-q", "--exact", "-t", "1", "--format", "npy", "-o", "OUT/v.npy", "hi"], "v.npy"),
    (["logits", "-t", "1", "-o", "OUT/l.safetensors", "hi"], "l.safetensors"),
    (["quantize", "-m", injection.TINY, "-t", "1", "-o", "OUT/q"], "q"),
    (["quantize", "-m", injection.TINY, "-t", "1", "--format", "gguf", "-o", "OUT/q.gguf"],
     "q.gguf"),
]
CACHED = ["generate", "--exact", *ANSWER[1:], "-f", "long.txt", "--prefix-cache=OUT/cache"]


class Limits(tally.Tally):
    def __init__(self, qwick, folder, dense):
        super().__init__()
        self.qwick, self.folder, self.dense = qwick, folder, dense
        self.skipped = []
        self.number = 0
        for name, text in (("long.txt", injection.LONG), ("in.jsonl", '{"prompt":"list files"}\n')):
            with open(folder + "/" + name, "w", encoding="ascii") as file:
                file.write(text)
        self.want = self.run(ANSWER)

    def run(self, arguments, limit=None, out=None, env=None, **options):
        """limit: (number, value) of setrlimit."""
        if env is None:
            env = {"HOME": self.folder, "LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]}
        if out:
            arguments = [a.replace("OUT", out, 1) for a in arguments]
        preexec = options.pop("preexec_fn", None)
        if limit:
            def preexec():
                resource.setrlimit(limit[0], (limit[1], limit[1]))
        options.setdefault("cwd", self.folder)
        return subprocess.run([self.qwick, *arguments], env=env, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=120, check=False,
                              preexec_fn=preexec, **options)

    def new(self):
        self.number += 1
        path = "%s/out-%d" % (self.folder, self.number)
        os.mkdir(path)
        return path

    def judge(self, done, want, statuses):
        """What is wrong with a run, or None."""
        lines = done.stderr.splitlines()
        if done.returncode == 0:
            if injection.lines_of(done.stdout) != injection.lines_of(want.stdout):
                return "status 0, but another output"
            strange = [x for x in lines if not x.startswith(b"qwick: warning: ")]
            return "status 0, but says %r" % strange if strange else None
        if done.returncode not in statuses:
            return "status %d: %r" % (done.returncode, done.stderr[:300])
        lines = [x for x in lines if not x.startswith(b"qwick: warning: ")]
        # the file for answers that are not due yet may fail, too
        if len(lines) > 1:
            lines = [x for x in lines if b".pending" not in x]
        if len(lines) != 1 or not lines[0].startswith(b"qwick: "):
            return "says %r" % done.stderr[:300]
        if done.returncode == 5 and b"memory" not in lines[0]:
            return "status 5 without a word on memory: %r" % lines[0]
        return None

    def memory(self):
        low, high = 4 << 20, 1 << 30
        for arguments in (ANSWER, ["generate", "-t", "3", "--preload", *ANSWER[3:]],
                          ["embed", "--exact", "-q", "-t", "2", "hi", "you"],
                          ["quantize", "-m", injection.TINY, "-t", "2", "-o", "OUT/q"]):
            want = self.run(arguments, out=self.new())
            for i in range(self.dense):
                size = int(low * (high / low) ** (i / max(1, self.dense - 1)))
                limit = (resource.RLIMIT_AS, size)
                # the loader and the libraries' constructors come before us
                if self.run(["--version"], limit).returncode:
                    self.counts["memory"] += 1
                    continue
                out = self.new()
                done = self.run(arguments, limit, out=out)
                # libgomp ends the process itself when it gets no memory
                why = None if b"libgomp: " in done.stderr else \
                    self.judge(done, want, {5})
                if not why and done.returncode and os.listdir(out):
                    why = "leaves %s" % os.listdir(out)
                self.note("memory", "%s, %d KiB" % (arguments[0], size >> 10), why)

    def files(self):
        for arguments in (ANSWER, ["generate", "-m", injection.DEMO, *ANSWER[1:]], CACHED):
            want = self.run(arguments, out=self.new())
            for n in range(0, min(24, self.dense)):
                done = self.run(arguments, (resource.RLIMIT_NOFILE, n), out=self.new())
                # without a descriptor, there are no shared libraries
                why = None if done.returncode == 127 else \
                    self.judge(done, want, {1, 3})
                self.note("files", "%s, %d descriptors" % (arguments[0], n), why)

    def size(self):
        for arguments, name in WRITERS:
            want_dir = self.new()
            want = self.run(arguments, out=want_dir)
            for i in range(self.dense):
                # stdout and stderr are pipes, to which the limit does not apply
                n = 0 if i == 0 else int(16 * 1.6 ** (i * 24 / self.dense))
                out = self.new()
                done = self.run(arguments, (resource.RLIMIT_FSIZE, n), out=out)
                self.note("size", "%s, %d bytes" % (arguments[:2], n),
                          self.judge(done, want, {1}) or
                          self.output(done, out, want_dir, name))
        out = self.new()
        want = self.run(CACHED, out=out)
        for n in (0, 100, 4096, 100_000):
            done = self.run(CACHED, (resource.RLIMIT_FSIZE, n), out=self.new())
            why = self.judge(done, want, ())
            self.note("size", "prefix cache, %d bytes" % n, why)

    @staticmethod
    def output(done, out, want_dir, name):
        """What is wrong with the output in a directory, or None."""
        left = os.listdir(out)
        strange = [x for x in left if x not in (name, "think") and not x.endswith(".pending")]
        if strange:
            return "leaves %s" % strange
        if not name or name == "out.jsonl" and done.returncode:
            return None
        if name not in left:
            return None if done.returncode else "no output"
        if injection.content_of(os.path.join(out, name)) != \
                injection.content_of(os.path.join(want_dir, name)):
            return "another output"
        return None

    def stack(self):
        for arguments in (ANSWER, ["tokenize", "list files"], ["inspect", "--json"],
                          ["generate", *ANSWER[1:], "--regex", "((a|b)*c){1,9}"]):
            want = self.run(arguments)
            for kib in (32, 64, 128, 256, 1024, 8192, 65536)[-max(2, self.dense // 5):]:
                done = self.run(arguments, (resource.RLIMIT_STACK, kib << 10))
                self.note("stack", "%s, %d KiB" % (arguments[0], kib),
                          self.judge(done, want, {5}) if done.returncode != want.returncode or
                          kib >= 256 else None)

    def threads(self):
        if os.getuid() != 0:
            self.skipped.append("threads: only root can become another user")
            return
        try:
            subprocess.run([self.qwick, "--version"], user=NOBODY, capture_output=True,
                           cwd="/", check=True)
        except (OSError, subprocess.CalledProcessError):
            self.skipped.append("threads: another user does not reach " + self.qwick)
            return
        for t in (1, 2, 4, 16):
            arguments = ["generate", "-t", str(t), "--exact", *ANSWER[3:]]
            want = self.run(arguments)

            def limit():
                # the limit does not bind root, so it is set before the change
                resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            done = self.run(arguments, cwd="/", preexec_fn=limit,
                            env={"HOME": "/", "LC_ALL": "C.UTF-8"})
            why = self.judge(done, want, ())
            if not why and t > 1 and b"threads" not in done.stderr:
                why = "no warning about fewer threads: %r" % done.stderr
            self.note("threads", "-t %d" % t, why)

    # ---- file systems ----

    def mount(self, path, options):
        os.makedirs(path, exist_ok=True)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", path],
                              capture_output=True, check=False)
        return done.returncode == 0

    def full(self):
        path = self.folder + "/small"
        for arguments, name in WRITERS:
            want_dir = self.new()
            want = self.run(arguments, out=want_dir)
            for pages in sorted({1, 2, 3, *range(4, 100, max(1, 200 // self.dense))}):
                if os.getuid() != 0 or not self.mount(path, "size=%d" % (4096 * pages)):
                    self.skipped.append("full: no permission to mount a tmpfs")
                    return
                try:
                    done = self.run(arguments, out=path)
                    why = self.judge(done, want, {1}) or \
                        self.output(done, path, want_dir, name)
                finally:
                    subprocess.run(["umount", path], check=True)
                self.note("full", "%s, %d pages" % (arguments[:2], pages), why)

    def readonly(self):
        path = self.folder + "/readonly"
        if os.getuid() != 0 or not self.mount(path, "size=1m"):
            self.skipped.append("readonly: no permission to mount a tmpfs")
            return
        try:
            shutil.copy(self.folder + "/long.txt", path)
            shutil.copy(self.folder + "/in.jsonl", path)
            subprocess.run(["mount", "-o", "remount,ro", path], check=True)
            env = {"HOME": path, "LC_ALL": "C.UTF-8"}
            self.note("readonly", "an answer", self.judge(
                self.run(ANSWER, cwd=path, env=env), self.want, ()))
            want = self.run(CACHED, out=self.new())
            done = self.run(CACHED, cwd=path, env=env, out=path)
            self.note("readonly", "prefix cache", self.judge(done, want, ()) or (
                None if b"warning: prefix cache" in done.stderr else "no warning"))
            for arguments, _ in WRITERS:
                done = self.run(arguments, cwd=path, env=env, out=path)
                why = None if done.returncode == 1 and b"Read-only" in done.stderr \
                    and done.stderr.count(b"\n") == 1 else \
                    "status %d: %r" % (done.returncode, done.stderr)
                self.note("readonly", arguments[:2], why)
        finally:
            subprocess.run(["umount", path], check=True)

    # ---- places and locales ----

    def places(self):
        for name, env in (("no HOME", {"PATH": os.environ["PATH"]}), ("no environment", {}),
                          ("HOME is a file", {"HOME": "/dev/null"}),
                          ("no such HOME", {"HOME": self.new() + "/missing/home"}),
                          ("a HOME that is not absolute", {"HOME": "x"})):
            self.note("places", name, self.judge(self.run(ANSWER, env=env), self.want, ()))
            if name != "a HOME that is not absolute":
                self.note("places", name + ", cache", self.judge(
                    self.run(["generate", *ANSWER[1:], "--prefix-cache"], env=env), self.want, ()))
        gone = self.new()

        def leave():
            os.chdir(gone)
            os.rmdir(gone)
        done = self.run(ANSWER, preexec_fn=leave)
        self.note("places", "deleted working directory", self.judge(done, self.want, ()))
        if os.getuid() == 0 and not self.skipped_user():
            locked = self.new()
            os.chmod(locked, 0o700)

            def become():
                os.chdir(locked)
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            done = self.run(ANSWER, preexec_fn=become, env={"HOME": "/"})
            self.note("places", "locked working directory", self.judge(done, self.want, ()))

    def skipped_user(self):
        try:
            subprocess.run([self.qwick, "--version"], user=NOBODY, capture_output=True,
                           cwd="/", check=True)
        except (OSError, subprocess.CalledProcessError):
            self.skipped.append("locked working directory: another user does not reach "
                                + self.qwick)
            return True
        return False

    def locale(self):
        arguments = ["generate", *ANSWER[1:], "--temp", "0.5", "--top-p", "0.9", "--logprobs", "2"]
        want = self.run(arguments)
        vectors = ["embed", "-q", "--exact", "--format", "tsv", "hi"]
        want_vectors = self.run(vectors)
        locales = [("C", {}), ("POSIX", {}), (None, {}), ("nonexistent", {})]
        for name in ("de_DE", "tr_TR", "fr_FR"):
            path = self.folder + "/locale"
            os.makedirs(path, exist_ok=True)
            with open(path + "/source", "w", encoding="ascii") as source:
                for category, of in [("LC_COLLATE", "POSIX"), *((c, name) for c in CATEGORIES)]:
                    source.write('%s\ncopy "%s"\nEND %s\n' % (category, of, category))
            try:
                subprocess.run(["localedef", "-i", path + "/source", "-f", "UTF-8",
                                path + "/" + name],
                               check=True, capture_output=True)
            except (OSError, subprocess.CalledProcessError):
                self.skipped.append("locale %s: localedef does not have it" % name)
                continue
            locales.append((name, {"LOCPATH": path}))
        for name, env in locales:
            env = {"HOME": self.folder, **env}
            if name:
                env.update(LC_ALL=name, LANG=name)
            self.note("locale", name, self.judge(self.run(arguments, env=env), want, ()))
            self.note("locale", name, self.judge(self.run(vectors, env=env), want_vectors, ()))
            wrong = self.run(["--temp", "0,5", "hi"], env=env)
            self.note("locale", name, None if wrong.returncode == 2 else "takes 0,5")


CHECKS = ("memory", "files", "size", "stack", "threads", "full", "readonly", "places", "locale")


def main():
    args = tally.begin(("qwick", "folder"), {"dense": 40, "only": ""})
    limits = Limits(args.qwick, args.folder, args.dense)
    for check in args.only.split(",") if args.only else CHECKS:
        getattr(limits, check)()
    for line in limits.skipped:
        print("SKIP: " + line)
    n = sum(limits.counts.values())
    tally.end(args, "%d runs: %s" % (n, limits.by_name()), limits.bad, n)


if __name__ == "__main__":
    main()
