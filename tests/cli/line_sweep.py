#!/usr/bin/env python3
"""Drive chats at terminals whose window changes, or with random keys.

line_sweep.py sizes|keys SESSIONS SEED

sizes: types, pastes (with and without marks) and resizes, in any order and down to
a window of 1x1. After each step the end of the screen must show the end of the line,
and at last the whole line must arrive as a message. keys: random bytes, sequences
of keys and windows. The chat must neither crash nor leave the terminal changed.
$QWICK and $MODEL say what runs, $T is a directory for files. Prints the number of sessions.
"""
import codecs, fcntl, json, os, random, signal, struct, sys, tempfile, termios, time, unicodedata
from on_pty import LIMIT, Pty

KIND, SESSIONS, SEED = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
PROMPT = ">>> "


def width(c):
    if unicodedata.combining(c):
        return 0
    return 2 if unicodedata.east_asian_width(c) in "WF" else 1


class Window:
    """What the editor writes, on a screen that does not move text when it is resized."""

    def __init__(self, rows, columns):
        self.rows, self.columns, self.y, self.x, self.rest = rows, columns, 0, 0, ""
        self.lines = [[] for _ in range(rows)]  # cells; the second half of a wide one is ""

    def resize(self, rows, columns):
        drop = max(0, self.y - rows + 1)
        self.lines = (self.lines[drop:] + [[] for _ in range(rows)])[:rows]
        self.lines = [l[:columns] for l in self.lines]
        self.y -= drop
        self.rows, self.columns, self.x = rows, columns, min(self.x, columns - 1)

    def csi(self, args, final):
        n = int(args) if args.isdigit() else 1
        if final == "A":
            self.y = max(0, self.y - n)
        elif final == "C":
            self.x = min(self.columns - 1, self.x + n)
        elif final == "J" and args == "":
            self.lines[self.y] = self.lines[self.y][:self.x]
            for l in self.lines[self.y + 1:]:
                l.clear()
        elif final == "J":
            self.lines = [[] for _ in range(self.rows)]
        elif final == "H":
            self.y = self.x = 0

    def put(self, c):
        line = self.lines[self.y]
        if width(c) == 0:
            if self.x and len(line) >= self.x:
                line[self.x - 1] += c
            return
        # the editor turns wrapping off: the last column takes what is too much
        x = min(self.x, self.columns - width(c))
        line += " " * (x - len(line))
        line[x:x + width(c)] = [c] + [""] * (width(c) - 1)
        self.x = x + width(c)

    def write(self, data):
        data = self.rest + data
        i = 0
        while i < len(data):
            c = data[i]
            if c == "\x1b":
                end = next((k for k in range(i + 2, len(data)) if data[k].isalpha()), None)
                if end is None:
                    break
                self.csi(data[i + 2:end], data[end])
                i = end
            elif c == "\r":
                self.x = 0
            elif c == "\n":
                if self.y + 1 == self.rows:
                    self.lines = self.lines[1:] + [[]]
                else:
                    self.y += 1
            elif c >= " ":
                self.put(c)
            i += 1
        self.rest = data[i:]

    def shows(self, text):
        """Whether the screen ends, where the cursor is, with the end of the text."""
        want = [[]]
        for c in text:
            used = sum(map(width, want[-1]))
            if width(c) > self.columns:
                c = "?"
            if c == "\n":
                want += [[], []] if used == self.columns else [[]]
            elif used + width(c) > self.columns:
                want.append([c])
            else:
                want[-1].append(c)
        if sum(map(width, want[-1])) == self.columns:
            want.append([])
        want = ["".join(l) for l in want][-self.rows:]
        got = ["".join(l) for l in self.lines[:self.y + 1]][-len(want):]
        return got == want and self.x == sum(map(width, want[-1]))


class Chat:
    def __init__(self, rows, columns):
        self.home = tempfile.mkdtemp(dir=os.environ["T"])
        self.p = Pty([os.environ["QWICK"], "chat", "-m", os.environ["MODEL"], "-n", "1",
                      "--greedy", "-c", "64", "-t", "1"], env={"XDG_STATE_HOME": self.home})
        self.window = Window(rows, columns)
        self.at, self.decoder = 0, codecs.getincrementaldecoder("utf-8")("replace")
        self.resize(rows, columns)
        self.p.prompt()

    def resize(self, rows, columns):
        self.read(0)
        self.window.resize(rows, columns)
        fcntl.ioctl(self.p.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds):
        more = self.p.read(seconds)
        text = self.decoder.decode(self.p.all[self.at:])
        self.at = len(self.p.all)
        self.window.write(text)
        return more

    def wait(self, what, *args):
        end = time.time() + LIMIT
        while not what(*args):
            if time.time() > end or not self.read(0.05):
                return False
        return True


def text_of(r, n):
    units = [*"abcdefgh ij klm é日本", "e\u0301"]
    return "".join(r.choice(units) for _ in range(n)).strip() or "x"


def one_of_sizes(r, session):
    sizes = [(1, 1), (1, 2), (2, 1), (1, 80), (40, 1), (2, 3), (3, 7), (5, 20), (12, 80),
             (24, 80), (50, 120), (r.randint(1, 60), r.randint(1, 200))]
    chat = Chat(*r.choice(sizes))
    line, steps = "", []

    def send(data, text):
        nonlocal line
        line += text
        chat.p.send(data)

    def lines(n):
        return "\n".join(text_of(r, r.randint(1, 90)) for _ in range(n))

    def mark_paste():
        text = lines(r.choice([1, 2, 13, 30, 70]))
        send(b"\x1b[200~" + text.replace("\n", "\r").encode() + b"\x1b[201~", text)

    def key():
        send(b"x", "x")

    def paste():
        text = text_of(r, r.choice([5, 300, 2000]))
        send(text.encode(), text)

    def resize():
        chat.resize(*r.choice(sizes))

    orders = [[mark_paste, resize, key], [paste, resize, key], [resize, mark_paste, resize, key],
              [r.choice([mark_paste, paste, resize, key]) for _ in range(12)]]
    for step in orders[session % len(orders)]:
        steps.append(step.__name__)
        step()
        if session % 3 and not chat.wait(chat.window.shows, PROMPT + line):
            raise AssertionError(f"session {session}, {steps}, {chat.window.rows}x"
                                 f"{chat.window.columns}: the end of {line[-200:]!r} "
                                 f"is not on the screen {chat.window.lines[-5:]!r}")
    chat.resize(24, 80)
    # the line arrives as a message, and the chat goes on; the history has messages
    # that do not fit the context, too
    chat.p.line("")
    chat.p.line("done")
    got = [json.loads(l) for l in open(chat.home + "/qwick/history")]
    want = [line, "done"] if line else ["done"]
    if got != want:
        same = os.path.commonprefix([got[0], line])
        raise AssertionError(f"session {session}, {steps}: {len(got) - 1} messages; "
                             f"{len(line)} characters, {len(same)} of them as typed, then "
                             f"{line[len(same):][:40]!r}")
    assert chat.p.end(b"\x04") == 0
    assert chat.p.settings() == chat.p.start[:4]
    os.close(chat.p.fd)


def some_keys(r):
    keys = [b"\x1b[A", b"\x1b[B", b"\x1b[C", b"\x1b[D", b"\x1b[H", b"\x1b[F", b"\x1b[3~",
            b"\x1b[1;5C", b"\x1b[1;5D", b"\x1bx\"", b"\x1bb", b"\x1bf", b"\x1bd", b"\x1b\x7f",
            b"\x1b", b"\x1b[", b"\x1b[200~", b"\x1b[201~", b"\x1b[200~a\rb\x1b[201~",
            b"\x1b9999", b"\x12", b"\x13", b"\x07", b"\x16", b"\x19", b"\x14", b"\x0b", b"\x15",
            b"\x17", b"\x08", b"\x0c", b"\t", b"/", b"/re\t", b"/read /\t", b"\r", b'"""\r',
            "日本".encode(), "e\u0301".encode(), "👩‍👩‍👧".encode(), b"a" * 300, b"word word "]
    # what would end the chat, stop it or write files
    never = {3, 4, 26, 28}
    out = b""
    for _ in range(r.randint(1, 40)):
        if r.random() < 0.7:
            out += r.choice(keys)
        else:
            out += bytes(b for b in r.randbytes(r.randint(1, 8)) if b not in never)
    return out


def one_of_keys(r, session):
    chat = Chat(r.randint(1, 40), r.randint(1, 100))
    sent = b""
    for _ in range(r.randint(5, 30)):
        keys = some_keys(r)
        sent += keys
        chat.p.send(keys)
        if r.random() < 0.3:
            chat.resize(r.randint(1, 40), r.randint(1, 100))
        if not chat.p.read(r.choice([0, 0.01, 0.05])):
            break
    sig = r.choice([signal.SIGTERM, signal.SIGHUP])
    chat.p.kill(sig)
    status = chat.p.end()
    assert status == -sig, f"session {session}: ended with {status} after {sent!r}"
    assert chat.p.settings() == chat.p.start[:4], f"session {session}: {sent!r}"
    os.close(chat.p.fd)


one = {"sizes": one_of_sizes, "keys": one_of_keys}[KIND]
for i in range(SESSIONS):
    one(random.Random(SEED * 1000003 + i), i)
print(f"{SESSIONS} sessions of {KIND}, seed {SEED}")
