#!/usr/bin/env python3
"""What docs/stability.md promises, as lines of text.

usage: stable_interface.py QWICK               print today's interface
       stable_interface.py QWICK --check FILE  print the lines of FILE that it lacks

Lines: verbs; options with their verb, letter and kind of value; enumerators with their
numbers, members of structs with their places and functions of the public headers;
members of JSON objects with their types. Runs in the root of the repository.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

# verbs with arguments and standard input whose result is JSON
OBJECTS = {
    "generate": (["--json", "-n", "2", "--logprobs", "2", "--seed", "1", "list files"], ""),
    "generate --jsonl": (["--jsonl", "-n", "2", "list files"], ""),
    "generate --profile-timing": (["--json", "--profile-timing", "-n", "3", "--ignore-eos",
                                   "list files"], ""),
    "batch": (["batch", "-n", "2"], '{"id":1,"prompt":"list files"}\n'),
    "choose": (["choose", "--json", "-a", "ls", "-a", "pwd", "list files"], ""),
    "score": (["score", "--json", "ls -l"], ""),
    "embed": (["embed", "-q", "--jsonl"], '{"text":"list files"}\n'),
    "rerank": (["rerank", "--json", "--query", "list files", "ls", "pwd"], ""),
    "count": (["count", "--json", "ls"], ""),
    "tokenize": (["tokenize", "--json", "ls"], ""),
    "detokenize": (["detokenize", "--json", "100", "200"], ""),
    "logits": (["logits", "--json", "tar x"], ""),
    "inspect": (["inspect", "--json"], ""),
    "plan": (["plan", "--json"], ""),
}


def run(qwick, args, stdin=""):
    given = {"input": stdin} if stdin else {"stdin": subprocess.DEVNULL}
    p = subprocess.run([qwick, "--no-config", *args], text=True, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, **given)
    if p.returncode:
        sys.exit("qwick %s: status %d: %s" % (" ".join(args), p.returncode, p.stderr))
    return p.stdout


def options(qwick):
    """From the completion of fish, which has a line for each option."""
    verbs = []
    for line in run(qwick, ["completion", "fish"]).splitlines():
        m = re.match(r"set -g __qwick_verbs (.*)", line)
        if m:
            verbs = m[1].split()
            yield from ("verb " + v for v in verbs)
        m = re.match(r"complete -c qwick (?:-n '?(?:__qwick_for |)([^-']*)'? )?"
                     r"-l ([a-z0-9-]+)(.*)", line)
        if not m:
            continue
        rest = re.sub(r" -d '.*", "", m[3])
        letter = re.search(r" -s (.)", rest)
        value = "value" if re.search(r" -(x|r|rF|xF)\b", rest) else "flag"
        for verb in (m[1] or "").split() or ["all"]:
            yield "option %s --%s%s %s" % (verb, m[2], " -" + letter[1] if letter else "", value)


def headers():
    text = subprocess.run([os.environ.get("CC", "cc"), "-E", "-P", "-Iinclude",
                           "include/qwick_tools.h"], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    text = re.sub(r"__attribute__\(\([^()]*(\([^()]*\))?\)\)", "", text)
    text = " ".join(text.split())
    for kind, name, body in re.findall(r"\b(enum|struct) (qwick_\w+) \{(.*?)\};", text):
        number = -1
        for i, part in enumerate(x.strip() for x in re.split("[,;]" if kind == "enum" else ";",
                                                             body) if x.strip()):
            if kind == "struct":
                yield "struct %s %d %s" % (name, i, part)
                continue
            constant, _, value = (x.strip() for x in part.partition("="))
            number = int(value, 0) if value else number + 1
            yield "enum %s %s %d" % (name, constant, number)
    for declaration in re.findall(r"(?<=[;}]) ([^;{}]*\bqwick_\w+\([^;{}]*\));", text):
        if not declaration.startswith("typedef"):
            yield "function " + declaration.strip()


def members(verb, value, path=""):
    if isinstance(value, dict):
        for name, v in value.items():
            yield from members(verb, v, path + "." + name)
    else:
        kind = {str: "text", bool: "bool", list: "array", type(None): "null"}
        yield "json %s %s %s" % (verb, path or ".", kind.get(type(value), "number"))
        if isinstance(value, list) and value and isinstance(value[0], (dict, list)):
            yield from members(verb, value[0], path + "[]")


def objects(qwick):
    for verb, (args, stdin) in OBJECTS.items():
        for line in run(qwick, args, stdin).splitlines():
            yield from members(verb, json.loads(line))
    with tempfile.TemporaryDirectory() as d:
        index = d + "/index"
        run(qwick, ["embed", "-q", "--index", index, "list files", "pwd"])
        for line in run(qwick, ["similar", "-q", "--json", index, "disk"]).splitlines():
            yield from members("similar", json.loads(line))


def main():
    qwick = sys.argv[1]
    today = set(options(qwick)) | set(headers()) | set(objects(qwick))
    if len(sys.argv) == 2:
        print("\n".join(sorted(today)))
        return
    nulls = {line.rsplit(" ", 1)[0] for line in today if line.endswith(" null")}
    lost = 0
    for line in open(sys.argv[3], encoding="utf-8"):
        line = line.rstrip("\n")
        known = line in today or line.startswith("json ") and (
            line.rsplit(" ", 1)[0] in nulls or line.endswith(" null"))
        if line and line[0] != "#" and not known:
            print(line)
            lost = 1
    sys.exit(lost)


main()
