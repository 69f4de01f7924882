"""Complete command lines in an interactive shell, as a user does.

complete_line.py SHELL SETUP LINE...

Starts bash, zsh or fish on a pseudo-terminal, runs the lines of the file SETUP,
types each LINE and the tabulator key, and prints the words of the line as the
shell then reads them, one line for each LINE: <word><word>...
"""
import os
import pty
import re
import select
import sys
import time

COMMANDS = {
    "bash": ["bash", "--noprofile", "--norc", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
LIMIT = 30  # seconds for one answer


def read_until(fd, pattern, text=""):
    end = time.monotonic() + LIMIT
    while not re.search(pattern, text, re.S):
        left = end - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            sys.exit("no %r in %r" % (pattern, text))
        try:
            data = os.read(fd, 65536)
        except OSError:
            data = b""
        if not data:
            sys.exit("the shell ended: %r" % text)
        text += data.decode("utf-8", "replace")
    return text


def main():
    shell, setup, lines = sys.argv[1], sys.argv[2], sys.argv[3:]
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(TERM="dumb", PS1="> ")
        os.execvp(shell, COMMANDS[shell])
    for n, line in enumerate(["source '%s'" % setup] + lines):
        # the shell reads what follows only when it waits for a line
        mark = "mark-%d-" % n
        os.write(fd, ("printf '%%s%%s\\n' %s done\r" % mark).encode())
        read_until(fd, mark + "done")
        if n == 0:
            os.write(fd, line.encode() + b"\r")
            continue
        # to the beginning of the line: make it a command that prints its words
        os.write(fd, line.encode() + b"\t\x01printf '<%s>' " + mark.encode() + b" \r")
        text = read_until(fd, "<%s>(?:<[^>]*>)*" % mark + r"\S*\s")
        print(re.findall("<%s>((?:<[^>]*>)*)" % mark, text)[-1])
    os.close(fd)


main()
