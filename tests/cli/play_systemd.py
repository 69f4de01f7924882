"""Plays systemd for a socket-activated service: it holds the listening sockets, starts the
service with LISTEN_FDS and NOTIFY_SOCKET, starts it again when a connection comes after
its end, and keeps its messages."""
import os
import select
import signal
import socket
import threading
import time


class Systemd:
    """A service with one socket for each path. A context manager: leaving it ends the
    service."""

    def __init__(self, command, *paths, notify, env=()):
        self.command, self.env = command, dict(env)
        self.listeners = []
        for path in paths:
            s = socket.socket(socket.AF_UNIX)
            s.bind(path)
            s.listen(64)
            self.listeners.append(s)
        self.notify_path = notify
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind("\0" + notify[1:] if notify.startswith("@") else notify)
        self.pid = None
        self.messages = []  # (time, pid of the service, text)
        self.ends = []      # status of each service that has ended
        self.over, self.ended = threading.Event(), threading.Event()
        self.threads = [threading.Thread(target=f) for f in (self.listen_for_messages, self.run)]

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.threads[1].join() # it ends the service, which has more to tell
        self.ended.set()
        self.threads[0].join()
        for s in (*self.listeners, self.notify):
            s.close()

    def start(self):
        pid = os.fork()
        if pid:
            self.pid = pid
            return
        try:
            fds = [os.dup(s.fileno()) for s in self.listeners]
            base = max(fds) + 1 + len(fds)
            for i, fd in enumerate(fds):
                os.dup2(fd, base + i)
            for i in range(len(fds)):
                os.dup2(base + i, 3 + i)
            os.closerange(3 + len(fds), 1000)
            env = {**os.environ, **self.env, "LISTEN_FDS": str(len(fds)),
                   "LISTEN_PID": str(os.getpid()), "NOTIFY_SOCKET": self.notify_path}
            if "WATCHDOG_USEC" in env:
                env["WATCHDOG_PID"] = str(os.getpid())
            os.execve(self.command[0], self.command, env)
        finally:
            os._exit(127)

    def run(self):
        while not self.over.is_set():
            if self.pid is None:
                if select.select(self.listeners, [], [], 0.05)[0]:
                    self.start()
                continue
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.ends.append(os.waitstatus_to_exitcode(status))
                self.pid = None
            else:
                time.sleep(0.01)
        if self.pid is not None:
            os.kill(self.pid, signal.SIGTERM)
            self.ends.append(os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]))

    def listen_for_messages(self):
        while not self.ended.is_set() or select.select([self.notify], [], [], 0)[0]:
            if select.select([self.notify], [], [], 0.05)[0]:
                text = self.notify.recv(4096).decode()
                self.messages.append((time.monotonic(), self.pid, text))

    def texts(self):
        return [m[2] for m in self.messages]

    def wait_for(self, true, what):
        limit = time.monotonic() + 60
        while not true():
            assert time.monotonic() < limit, (what, self.messages, self.ends)
            time.sleep(0.01)
