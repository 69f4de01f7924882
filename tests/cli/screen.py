#!/usr/bin/env python3
"""Run a command on a terminal and show what its screen looked like.

screen.py [--columns N] [--term T] [--out FILE | --pipe FILE] [--stdin FILE]
          [--keep FILE] [--raw FILE] [--may-wrap] [--pause S] [--preload LIB]
          [--interrupt TEXT] -- COMMAND...

stderr is the terminal. stdout is, too; or FILE with --out; with --pipe a pipe
that a reader copies to FILE and, a line at a time, to the terminal, as
`COMMAND | jq` does. Prints the last screen; --keep writes every screen that
differed from the one before, --raw the bytes. --pause stops the command for S
seconds once it has used 0.1 s of a CPU: what appears after a delay then appears
without as much work. --preload sets LD_PRELOAD for it. --interrupt sends SIGINT once the screen shows TEXT. The exit
status is the command's, or 1 where a line was
wrapped.
"""
import argparse, fcntl, os, pty, select, signal, struct, subprocess, sys, termios
import threading, time

a = argparse.ArgumentParser()
a.add_argument("--columns", type=int, default=80)
a.add_argument("--term", default="xterm")
a.add_argument("--out")
a.add_argument("--pipe")
a.add_argument("--keep")
a.add_argument("--raw")
a.add_argument("--stdin")
a.add_argument("--may-wrap", action="store_true")
a.add_argument("--pause", type=float, default=0)
a.add_argument("--preload")
a.add_argument("--interrupt")
a.add_argument("command", nargs="+")
a = a.parse_args()


class Screen:
    """CR, LF, EL and printable characters of one column."""

    def __init__(self, columns):
        self.columns, self.lines, self.x, self.wrapped, self.rest = columns, [""], 0, 0, b""
        self.seen = []

    def write(self, data):
        data = self.rest + data
        i = 0
        while i < len(data):
            c = data[i:i + 1]
            if c == b"\x1b":
                end = next((k for k in range(i + 2, len(data)) if data[k:k + 1].isalpha()), None)
                if end is None:
                    break
                if data[i:end + 1] == b"\x1b[K":
                    self.lines[-1] = self.lines[-1][:self.x]
                i = end + 1
                continue
            if c == b"\r":
                self.x = 0
            elif c == b"\n":
                self.lines.append("")
                self.x = 0
            else:
                if self.x == self.columns:
                    self.lines.append("")
                    self.x, self.wrapped = 0, self.wrapped + 1
                line = self.lines[-1].ljust(self.x)
                self.lines[-1] = line[:self.x] + c.decode("latin-1") + line[self.x + 1:]
                self.x += 1
            i += 1
        self.rest = data[i:]
        shot = self.text()
        if not self.seen or self.seen[-1] != shot:
            self.seen.append(shot)

    def text(self):
        return "\n".join(l.rstrip() for l in self.lines)


master, slave = pty.openpty()
fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, a.columns, 0, 0))
env = dict(os.environ, TERM=a.term)
env.pop("COLUMNS", None)
if not a.term:
    env.pop("TERM")
if a.preload:
    env["LD_PRELOAD"] = a.preload
reader = None
stdout = slave
if a.out:
    stdout = open(a.out, "wb")
elif a.pipe:
    r, stdout = os.pipe()

    def copy():
        with open(a.pipe, "wb") as out:
            while data := os.read(r, 65536):
                out.write(data)
                os.write(slave, b"".join(b"[read %d]\n" % len(l) for l in data.splitlines()))

    reader = threading.Thread(target=copy)
stdin = open(a.stdin, "rb") if a.stdin else subprocess.DEVNULL
p = subprocess.Popen(a.command, stdin=stdin, stdout=stdout, stderr=slave, env=env)


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pause():
    while p.poll() is None and cpu_seconds(p.pid) < 0.1:
        time.sleep(0.01)
    if p.poll() is None:
        p.send_signal(signal.SIGSTOP)
        time.sleep(a.pause)
        p.send_signal(signal.SIGCONT)


if a.pause:
    threading.Thread(target=pause).start()
if a.out:
    stdout.close()
elif a.pipe:
    os.close(stdout)
    reader.start()
screen, raw = Screen(a.columns), b""
while True:
    ready, _, _ = select.select([master], [], [], 0.05)
    if ready:
        data = os.read(master, 65536)
        raw += data
        screen.write(data)
        if a.interrupt and a.interrupt in screen.text():
            p.send_signal(signal.SIGINT)
            a.interrupt = None
    elif p.poll() is not None and not (reader and reader.is_alive()):
        break
if a.keep:
    open(a.keep, "w").write(("\n" + "-" * a.columns + "\n").join(screen.seen) + "\n")
if a.raw:
    open(a.raw, "wb").write(raw)
print(screen.text())
if screen.wrapped and not a.may_wrap:
    sys.exit(f"{screen.wrapped} lines were wrapped")
sys.exit(p.returncode if p.returncode >= 0 else 128 - p.returncode)
