#!/usr/bin/env python3
"""JSON texts through each entry that reads JSON, and damaged UTF-8 through each entry
that reads text.

Usage: texts.py QWICK DIR [--every N] [--only json|utf8]

The JSON cases are made from the grammar of RFC 8259, in three classes: texts that a
parser must accept, must refuse, and those that the RFC leaves to it (numbers out of
range, lone surrogates, bytes that are no UTF-8, a byte order mark, repeated names).
Each case is the value of a member that its entry ignores, so that the document
around it is valid:

  accept  the result is that of the document without the member
  refuse  an error with the entry's status and one line; in a stream of records, an
          error in the record's place, and the others are answered
  either  one of the two

The cases of UTF-8 are made from the definition in the Unicode Standard (table 3-7):
all lengths, first and last code points, lone continuations, truncated sequences,
overlong forms, surrogates, values above U+10FFFF, bytes that never occur,
noncharacters, and text after damage. qwick reads each as what Python makes of it, with
U+FFFD for each maximal damaged part; tokenize keeps the bytes.

--every N takes every N-th case of entries that need a process for each case, and more
of the others.
Ends with status 1 after up to twenty lines about cases that went wrong.
"""

import collections
import json
import os
import shutil
import subprocess
import sys

import injection
import tally

TOKENIZE_KEEPS = ["tokenize", "-f", "text", "--json"]


# ---- JSON ------------------------------------------------------------------------

def accepted():
    """Values that RFC 8259 admits: (name, bytes)."""
    for text in ("null", "true", "false", "0", "-0", "1", "-1", "10", "1.5", "-0.25", "1e3",
                 "1E3", "1e+3", "1E-3", "1.5e2", "0e0", "0.0", "123456789012345678",
                 "-9007199254740993", "0.1234567890123456789", "1.0e-10", '""', "[]", "{}"):
        yield "literal " + text, text.encode()
    for space in " ", "\t", "\n", "\r", " \t\n\r ":
        for form in "{s}[{s}1{s},{s}2{s}]{s}", '{s}{{{s}"a"{s}:{s}1{s},{s}"b"{s}:{s}2{s}}}{s}':
            yield "space %r in %s" % (space, form[3]), form.format(s=space).encode()
    for escape in '\\"', "\\\\", "\\/", "\\b", "\\f", "\\n", "\\r", "\\t", "\\u0041", "\\u00e9", \
            "\\u20AC", "\\uABcd", "\\u0000", "\\ud83d\\ude00", "\\uD834\\uDD1E", "\\u2028", \
            "\\ufffe", "\\uffff", "\\\\u0041", "\\\\\\\\", "\\u0022", "\\u005c", "\\udbff\\udfff":
        yield "escape " + escape, ('"%s"' % escape).encode()
        yield "escape %s in a name" % escape, ('{"%s": 1}' % escape).encode()
    for char in "\x7f", "\u0080", "\u00e9", "\u2028", "\u2029", "\u20ac", "\ufffd", "\ufffe", \
            "\uffff", "\U00010000", "\U0001f600", "\U0010ffff", "\u200b", "/", "'", "[", "{", ",":
        yield "character U+%04X" % ord(char), ('"%s"' % char).encode()
    for nested in "[[]]", "[[[[[1]]]]]", '{"a":{"b":{"c":[]}}}', '[{"a":[{}]}]', '[1,null,"x",{}]', \
            '{"":0}', '{"a":1,"A":2}', '[[1,2],[3,[4]]]', '[""]', '{"a\\u0000b":1}', \
            '{"a":[],"b":{}}', "[1, 2,3 ,4]", '["\\"", "]"]', '{"a":"}"}', "[-1, -0.0]":
        yield "nested " + nested, nested.encode()
    yield "20 levels", b"[" * 20 + b"]" * 20
    yield "a long text", b'"' + b"x" * 5000 + b'"'
    yield "many elements", b"[" + b",".join([b"0"] * 2000) + b"]"
    yield "many members", b"{" + b",".join(b'"k%d":%d' % (i, i) for i in range(500)) + b"}"


def refused():
    """What is no value: (name, bytes). None of them ends the member and begins another
    one, so the document around it is no JSON either."""
    for text in ("", "nul", "nulll", "Null", "TRUE", "tru", "fals", "falsee", "True", "nil", "undefined",
                 "NaN", "nan", "Infinity", "-Infinity", "inf", "+1", "-", "--1", "+", ".5", "-.5",
                 "5.", "-5.", "1.e3", "1e", "1e+", "1E-", "1ee2", "1e1.5", "1.2.3", "01", "-01",
                 "00", "0x1F", "0b1", "1_000", "1,000.", "1 000", "- 1", "1e 3", "1f", "1n", "0.e1",
                 "٣", "½", "1/2", "a", "'a'", "`a`", '"', '"a', 'a"', "\\u0041", '"a" "b"', '"a"b',
                 '"a"+"b"', "[", "]", "[1", "1]", "[1,", "[1,]", "[,1]", "[,]", "[1,,2]", "[1 2]",
                 "[1;2]", "[1:2]", '["a":1]', "[1}", "{1]", "{", "}", '{"a"}', '{"a":}', '{"a":1',
                 '{"a":1,}', '{,"a":1}', '{"a":1,,"b":2}', '{"a" 1}', '{"a"::1}', '{"a":1 "b":2}',
                 '{"a":1;"b":2}', "{a:1}", "{'a':1}", "{1:1}", "{null:1}", '{"a",1}', '{"a":1:2}',
                 "{[]:1}", "[[]", "[]]", "{{}}", "{}}", "[{}", "[}", "{]", "[1]]", "[]{}", "{}[]",
                 "[] 1", "1 2", "null null", "(1)", "<a>", "#", "*", "@", "$", "\\", "~", "/", "//",
                 "1//x", "/*x*/1", "1/*x*/", "[1,/*x*/2]", "# x", "--", "1;", ";", ":", ",", "1,",
                 "...", "[...]", "{...}", "{**a}", "true false", "trueX", "[true", "[nul]", "[Nan]",
                 "{\"a\":tru}", "\ufeff1", "\u00a01", "\u2028", "\u200b1", "1\u0085", "\x0c1", "\x0b1"):
        yield "text " + repr(text), text.encode()
    for escape in "\\a", "\\v", "\\0", "\\x41", "\\'", "\\ ", "\\u", "\\u0", "\\u00", "\\u004", \
            "\\u00g1", "\\uD8", "\\u{41}", "\\U00000041", "\\u 041", "\\u-041", "\\", "\\\n", "\\N", \
            "\\é", "\\u12x4", "\\8", "\\e", "\\s":
        yield "escape " + escape, ('"%s"' % escape).encode()
        yield "escape %s in a name" % escape, ('{"%s": 1}' % escape).encode()
    for code in range(0x20):
        yield "control %02x in a text" % code, b'"a%cb"' % code
        if code not in (9, 10, 13):
            yield "control %02x" % code, b"%c1" % code
    for byte in b"\x7f\x80\xc3\xff\xfe":
        yield "byte %02x" % byte, b"%c1" % byte
    yield "brackets without an end", b"[" * 1000
    yield "braces without an end", b'{"a":' * 1000
    yield "UTF-16", "[1]".encode("utf-16-le")


def either():
    """What RFC 8259 leaves to a parser: (name, bytes)."""
    for text in ("1e400", "-1e400", "1e-400", "123456789012345678901234567890", "-" + "9" * 40,
                 "0." + "1" * 400, "1" * 400, '{"a":1,"a":2}', '{"a":1,"a":1}', '{"":1,"":2}'):
        yield "number or name " + text[:20], text.encode()
    for escape in "\\ud800", "\\udc00", "\\ude00\\ud83d", "\\ud83dx", "\\ud83d\\u0041", \
            "\\ud83d\\ud83d", "\\uD83D\\n", "x\\udfff":
        yield "surrogate " + escape, ('"%s"' % escape).encode()
    for name, data in damaged_utf8():
        # raw control characters are refused already
        if b'"' not in data and b"\\" not in data and all(c >= 0x20 for c in data):
            yield "UTF-8, " + name, b'"' + data + b'"'
    yield "500 levels", b"[" * 500 + b"]" * 500
    yield "100000 levels", b"[" * 100_000 + b"]" * 100_000


def json_cases():
    for want, cases in (("accept", accepted), ("refuse", refused), ("either", either)):
        for name, data in cases():
            yield want, name, data


# ---- UTF-8 -----------------------------------------------------------------------

def whole_utf8():
    """Texts that are UTF-8: (name, bytes)."""
    for n, (first, last) in enumerate(((0x01, 0x7f), (0x80, 0x7ff), (0x800, 0xffff),
                                       (0x10000, 0x10ffff)), 1):
        for code in (first, last):
            yield "%d bytes, U+%04X" % (n, code), chr(code).encode()
    for code in (0xd7ff, 0xe000, 0xfffd, 0xfdd0, 0xfdef, 0xfffe, 0xffff, 0x1fffe, 0x1ffff,
                 0x10fffe, 0xfeff, 0x200b):
        yield "U+%04X" % code, b"a" + chr(code).encode() + b"b"
    yield "Greek", "κόσμε".encode()
    yield "NUL", b"a\0b"


def damaged_utf8():
    """Texts that are not: (name, bytes)."""
    for byte in (0x80, 0xbf, 0xc0, 0xc1, 0xf5, 0xf8, 0xfc, 0xfe, 0xff):
        yield "byte %02x" % byte, b"%c" % byte
        yield "byte %02x between letters" % byte, b"a%cb" % byte
    for n in range(2, 8):
        yield "%d lone continuations" % n, b"\x80\xbf\x80\xbf\x80\xbf\x80"[:n]
    yield "all continuations", bytes(range(0x80, 0xc0))
    for lead in range(0xc0, 0x100, 7):
        yield "lone lead %02x" % lead, b"%c " % lead
    for text in ("é", "ࠀ", "\uffff", "\U00010000", "\U0010ffff", "€", "😀"):
        data = text.encode()
        for n in range(1, len(data)):
            yield "%s cut to %d" % (data.hex(), n), data[:n]
            yield "%s cut to %d, letter" % (data.hex(), n), data[:n] + b"x"
            yield "%s cut to %d, again" % (data.hex(), n), data[:n] + data
            yield "%s without its first %d" % (data.hex(), n), data[n:]
    for name, data in (("/ in 2", "c0af"), ("/ in 3", "e080af"), ("/ in 4", "f08080af"),
                       ("/ in 5", "f8808080af"), ("/ in 6", "fc80808080af"), ("NUL in 2", "c080"),
                       ("NUL in 3", "e08080"), ("NUL in 4", "f0808080"), ("U+7F in 2", "c1bf"),
                       ("U+7FF in 3", "e09fbf"), ("U+FFFF in 4", "f08fbfbf"),
                       ("U+1FFFFF in 5", "f887bfbfbf"), ("U+110000", "f4908080"),
                       ("U+1FFFFF", "f7bfbfbf"), ("U+3FFFFFF", "fbbfbfbfbf")):
        yield "overlong or too large: " + name, bytes.fromhex(data)
    for pair in ("eda080", "edadbf", "edae80", "edafbf", "edb080", "edbfbf", "eda080edb080",
                 "edadbfedbfbf"):
        yield "surrogates " + pair, bytes.fromhex(pair)
    yield "text after damage", b"one \xe2\x82 two \xf0\x9f\x98 three \xff four"
    yield "damage at the end", "ein Maß ".encode() + b"\xe2\x82"


class Texts(tally.Tally):
    def __init__(self, qwick, folder, every):
        super().__init__()
        self.qwick, self.folder, self.every = qwick, folder, every

    def run(self, arguments, data=b""):
        env = {"HOME": self.folder, "LC_ALL": "C.UTF-8"}
        return subprocess.run([self.qwick, *arguments], env=env, input=data, capture_output=True,
                              cwd=self.folder, timeout=120, check=False)

    def write(self, name, data):
        with open(self.folder + "/" + name, "wb") as file:
            file.write(data)

    # ---- JSON in files ----

    def entries(self):
        """Entries that take a document: name, its bytes before and after the case's
        value, the file, the command, statuses of a refusal."""
        for name in os.listdir(injection.DEMO):
            shutil.copy(injection.DEMO + "/" + name, self.folder + "/m/" + name)
        sharded = injection.ROOT + "/tests/golden/models/sharded-bf16"
        for name in os.listdir(sharded):
            shutil.copy(sharded + "/" + name, self.folder + "/s/" + name)
        files = [("m/config.json", ["inspect", "--json", "-m", "m"], (3,)),
                 ("m/tokenizer.json", ["tokenize", "-m", "m", "hi"], (3,)),
                 ("m/tokenizer_config.json", ["render", "-m", "m",
                                              '[{"role":"user","content":"hi"}]'], (3,)),
                 ("m/generation_config.json", ["generate", "-q", "--exact", "-n", "2", "-m", "m",
                                               "hi"], (3,)),
                 ("s/model.safetensors.index.json", ["inspect", "--json", "-m", "s"], (3,))]
        for name, command, statuses in files:
            with open(self.folder + "/" + name, "rb") as file:
                data = file.read().strip()
            yield name, b'{"zz":', b"," + data[1:], name, command, statuses
        yield ("--chat-json", b'{"zz":', b',"messages":[{"role":"user","content":"hi"}]}', "doc",
               ["generate", "-q", "--exact", "-n", "2", "--chat-json", "doc"], (1, 2))
        yield ("a message", b'[{"role":"user","content":"hi","zz":', b"}]", "doc",
               ["generate", "-q", "--exact", "-n", "2", "--chat-json", "doc"], (1, 2))
        yield ("render", b'[{"role":"user","content":"hi","zz":', b"}]", "doc",
               ["render", "-f", "doc"], (1, 2))
        yield ("--json-schema", b'{"type":"boolean","default":', b"}", "doc",
               ["generate", "-q", "--exact", "--json-schema", "doc", "hi"], (2,))
        yield ("--tools", b'[{"type":"function","function":{"name":"f","zz":', b"}}]", "doc",
               ["generate", "-q", "--exact", "-n", "2", "--chat-template", "template", "--tools",
                "doc", "hi"], (1, 2, 6))

    def files(self):
        os.makedirs(self.folder + "/m")
        os.makedirs(self.folder + "/s")
        self.write("template", b"{% for m in messages %}{{ m.content }}"
                   b"{% for c in m.tool_calls or [] %}<tool_call>\n"
                   b'{"name": "{{ c.function.name }}", "arguments": '
                   b"{{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}"
                   b"{% endfor %}{% if tools %}T{% endif %}")
        shift = 0
        for name, head, tail, path, command, statuses in self.entries():
            self.write(path, head + b"1" + tail)
            want = self.run(command)
            if want.returncode not in (0, 6):
                sys.exit("%s: undisturbed: %r" % (name, want.stderr))
            shift += 1
            for number, (kind, case, value) in enumerate(json_cases()):
                if (number + shift) % self.every:
                    continue
                self.write(path, head + value + tail)
                done = self.run(command)
                self.note("json in " + name, "%s %s" % (kind, case),
                          self.judge(kind, done, want, statuses))
            self.write(path, head + b"1" + tail)

    @staticmethod
    def judge(kind, done, want, statuses):
        lines = done.stderr.splitlines()
        if done.returncode == want.returncode and kind != "refuse":
            if injection.lines_of(done.stdout) != injection.lines_of(want.stdout):
                return "another result"
            return None
        if done.returncode == want.returncode and not lines:
            return "accepted"
        if kind == "accept":
            return "status %d: %r" % (done.returncode, done.stderr[:200])
        if done.returncode not in statuses:
            return "status %d: %r" % (done.returncode, done.stderr[:200])
        if done.stdout or len(lines) != 1 or not lines[0].startswith(b"qwick: "):
            return "says %r, and prints %r" % (done.stderr[:200], done.stdout[:100])
        return None

    # ---- JSON in records ----

    def records(self):
        entries = [
            ("batch", b'{"prompt_ids":[5,6],"zz":', ["batch", "-q", "--exact", "-n", "1"]),
            ("tokenize", b'{"text":"hi","zz":', ["tokenize", "--jsonl"]),
            ("detokenize", b'{"ids":[5],"zz":', ["detokenize", "--jsonl"]),
            ("count", b'{"text":"hi","zz":', ["count", "--jsonl"]),
            ("render", b'{"messages":[{"role":"user","content":"hi"}],"zz":',
             ["render", "--jsonl"]),
            ("embed", b'{"text":"hi","zz":', ["embed", "-q", "--exact", "--jsonl"]),
            ("score", b'{"text":"hi","zz":', ["score", "-q", "--exact", "--jsonl"]),
            ("choose", b'{"prompt":"hi","zz":',
             ["choose", "-q", "--exact", "--jsonl", "-a", "a", "-a", "b"]),
        ]
        cases = [c for c in json_cases() if b"\n" not in c[2]][::max(1, self.every // 10)]
        for name, head, command in entries:
            good = head + b"1}"
            data = b"".join(head + value + b"}\n" + good + b"\n" for _, _, value in cases)
            done = self.run(command, data)
            lines = done.stdout.split(b"\n")[:-1]
            if done.returncode != 1 or len(lines) != 2 * len(cases):
                self.note("json in records of " + name, "the stream",
                          "status %d, %d lines for %d records: %r"
                          % (done.returncode, len(lines), 2 * len(cases), done.stderr[:200]))
                continue
            want = self.record(lines[1])
            for i, (kind, case, _) in enumerate(cases):
                got, after = self.record(lines[2 * i]), self.record(lines[2 * i + 1])
                why = None
                if after != want:
                    why = "the next record is not answered: %s" % after
                elif "error" in got and kind == "accept":
                    why = "refused: %s" % got["error"]
                elif "error" not in got and kind == "refuse":
                    why = "accepted"
                elif "error" not in got and got != want:
                    why = "another answer: %s" % got
                self.note("json in records of " + name, "%s %s" % (kind, case), why)

    @staticmethod
    def record(line):
        record = injection.without_times(json.loads(line))
        for key in ("line", "id", "key", "seed"):
            record.pop(key, None)
        return record

    def json(self):
        self.records()
        self.files()

    # ---- UTF-8 ----

    def utf8(self):
        answer = ["generate", "-q", "--exact", "--raw", "-n", "1", "--json", "--seed", "1",
                  "--logprobs", "1"]
        os.makedirs(self.folder + "/u")
        cases = [*whole_utf8(), *damaged_utf8()]
        for number, (name, data) in enumerate(cases):
            self.write("text", data)
            done = self.run([*TOKENIZE_KEEPS])
            ids = " ".join(map(str, json.loads(done.stdout)["ids"])) if not done.returncode else ""
            back = self.run(["detokenize"], ids.encode())
            self.note("utf8 kept by tokenize", name, None if back.stdout == data else
                      "%r for %r: %r" % (back.stdout, data, done.stderr + back.stderr))
            if number % self.every:
                continue
            text = data.decode("utf-8", "replace").encode()
            want = self.answer(self.run([*answer, "-f", "-"], b"x " + text + b" y"))
            ways = [("-f FILE", self.file(answer, b"x " + data + b" y")),
                    ("standard input", self.run(answer, b"x " + data + b" y"))]
            if b"\0" not in data:
                ways.append(("argument", self.run([*answer, b"x " + data + b" y"])))
            for way, done in ways:
                got = self.answer(done)
                self.note("utf8 in " + way, name, None if got and got == want else
                          "%s for %s" % (got, want))

    def file(self, answer, data):
        self.write("text", data)
        return self.run([*answer, "-f", "text"])

    @staticmethod
    def answer(done):
        """What depends on each token of the prompt: the log-probabilities."""
        if done.returncode:
            return done.stderr
        o = injection.without_times(json.loads(done.stdout))
        return o["usage"]["prompt_tokens"], o["tokens"], o["logprobs"]


def main():
    args = tally.begin(("qwick", "folder"), {"every": 1, "only": ""})
    texts = Texts(args.qwick, args.folder, args.every)
    for check in (args.only,) if args.only else ("json", "utf8"):
        getattr(texts, check)()
    for name, n in sorted(texts.counts.items()):
        print("%s: %d cases" % (name, n))
    kinds = collections.Counter(kind for kind, _, _ in json_cases())
    n = sum(texts.counts.values())
    tally.end(args, "%d cases (JSON: %s; UTF-8: %d)"
              % (n, ", ".join("%d to %s" % (n, kind) for kind, n in kinds.items()),
                 len([*whole_utf8(), *damaged_utf8()])), texts.bad, n)


if __name__ == "__main__":
    main()
