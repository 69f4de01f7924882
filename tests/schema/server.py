"""The program build/tests/schema_server, which answers questions about schemas."""
import subprocess


class Ended(Exception):
    """The program ended in the middle of an answer."""


class Server:
    def __init__(self, program):
        self.program = program
        self.words = ""
        self.start()

    def start(self):
        self.p = subprocess.Popen([self.program], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE)
        if self.words:
            self.options(self.words)

    def ask(self, line, data=b""):
        answer = b""
        try:
            self.p.stdin.write(line.encode() + b"\n" + data)
            self.p.stdin.flush()
            answer = self.p.stdout.readline()
        except BrokenPipeError:
            pass
        if not answer:
            raise Ended("the server ended at: " + line)
        return answer.decode(errors="replace").rstrip("\n")

    def schema(self, text, indent=0):
        data = text.encode()
        return self.ask("S %d %d" % (indent, len(data)), data)

    def tools(self, text, form):
        data = text.encode()
        return self.ask("C %s %d" % (form, len(data)), data)

    def options(self, words):
        """Options of the next schemas: "any" order of members, "lenient"."""
        self.words = words
        return self.ask("O " + words)

    def matches(self, text):
        data = text.encode("utf-8", "surrogatepass")
        return self.ask("M %d" % len(data), data) == "yes"

    def admits(self, text, literal=False):
        """Whether an order of members is admitted: "yes", "no: …" or
        "unknown: …"."""
        data = text.encode("utf-8", "surrogatepass")
        return self.ask("D %d %d" % (literal, len(data)), data)

    def checks(self, text):
        """What the validator says: "yes", "no: …" or "error: …"."""
        data = text.encode("utf-8", "surrogatepass")
        return self.ask("V %d" % len(data), data)

    def matches_tokens(self, text, seed):
        data = text.encode()
        return self.ask("T %d %d" % (seed, len(data)), data)

    def walk(self, seed, most):
        n = int(self.ask("W %d %d" % (seed, most)))
        return None if n < 0 else self.p.stdout.read(n)
