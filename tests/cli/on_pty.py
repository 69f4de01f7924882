"""Drive a program at a terminal of its own: tests import Pty.

    p = Pty(["./qwick", "chat"])
    p.wait_for(b">>> ")      # reads output until it holds this text
    p.send(b"list files\\r")
    assert p.end(b"\\x04") == 0

The program is the leader of a session whose terminal this is, so Ctrl-C and
Ctrl-Z are signals. wait_for looks only at output after the last match.
"""
import fcntl, os, pty, re, select, signal, struct, termios, time

LIMIT = float(os.environ.get("PTY_LIMIT", 60))  # seconds; more than a slow machine needs


class Pty:
    def __init__(self, command, env=None, columns=200):
        go, start = os.pipe()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                os.read(go, 1)
                os.execvpe(command[0], command,
                           {**os.environ, "TERM": "xterm", **(env or {})})
            finally:
                os._exit(127)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ,
                    struct.pack("HHHH", 40, columns, 0, 0))
        self.all, self.at, self.status = b"", 0, None
        self.start = termios.tcgetattr(self.fd)
        # only now: the command soon changes the settings
        os.write(start, b"x")
        os.close(go)
        os.close(start)

    def read(self, seconds):
        """Read what comes within this time; false at the end."""
        ready, _, _ = select.select([self.fd], [], [], seconds)
        if not ready:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # the other side is closed
            data = b""
        self.all += data
        return bool(data)

    def wait_for(self, text):
        """Wait for a text; returns the output up to its end, without escapes."""
        end = time.time() + LIMIT
        while True:
            i = self.all.find(text, self.at)
            if i >= 0:
                got = self.all[self.at:i + len(text)]
                self.at = i + len(text)
                return plain(got)
            if time.time() > end or not self.read(1):
                raise AssertionError(
                    f"no {text!r} in {self.all[self.at:]!r}, before it "
                    f"{self.all[:self.at]!r}")

    def send(self, data):
        os.write(self.fd, data)

    def line(self, text):
        """Send a line, and return what it prints up to the next prompt."""
        self.send(text.encode() + b"\r")
        self.wait_for(b"\x1b[?2004l")  # the editor has left the line
        return self.prompt()

    def prompt(self):
        """Wait until the editor is ready; returns the output before it."""
        got = self.wait_for(b"\x1b[?2004h")
        return got[:got.rfind("\n") + 1].strip()

    def settings(self):
        """The settings of the terminal, without the number of characters that
        a read waits for, which has no meaning in lines."""
        return termios.tcgetattr(self.fd)[:4]

    def end(self, data=b""):
        """Send the last data; returns the exit status, or minus the signal."""
        if data:
            self.send(data)
        end = time.time() + LIMIT
        while self.read(0.2):
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = status
                break
            assert time.time() < end, f"it does not end: {self.all!r}"
        while self.status is None:
            self.status = os.waitpid(self.pid, 0)[1]
        while select.select([self.fd], [], [], 0)[0] and self.read(0):
            pass
        return os.waitstatus_to_exitcode(self.status)

    def wait_blocked(self):
        """Wait until the program and its children need no CPU, without reading
        their output: they then wait until the terminal takes more. A thread that
        waits for a CPU needs one."""
        def used():
            threads = []
            for pid in [self.pid] + self.children():
                for t in os.listdir(f"/proc/{pid}/task"):
                    stat = open(f"/proc/{pid}/task/{t}/stat").read()
                    fields = stat.rpartition(")")[2].split()
                    threads.append(fields[:1] + fields[11:13])
            return threads
        end, before = time.time() + LIMIT, None
        while before != used() or any(t[0] == "R" for t in before):
            before = used()
            time.sleep(0.3)
            assert time.time() < end

    def children(self):
        return [int(p) for p in
                open(f"/proc/{self.pid}/task/{self.pid}/children").read().split()]

    def kill(self, sig):
        os.kill(self.pid, sig)


def plain(data):
    """Text without escape sequences and carriage returns."""
    text = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", data)
    return text.replace(b"\r", b"").decode(errors="replace")
