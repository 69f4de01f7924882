#!/usr/bin/env bats
# The man pages against the option tables, and their examples.
load helpers

# Read the pages and the help texts, for the Python programs below.
python_pages() {
    cat >"$T/pages.py" <<'PY'
import glob, os, re, subprocess, sys

def plain(text):
    """roff source without fonts and escapes."""
    text = re.sub(r"\\f.", "", text)
    for a, b in ((r"\-", "-"), (r"\(aq", "'"), (r"\(ti", "~"), (r"\(ha", "^"),
                 (r"\(ga", "`"), (r"\&", ""), (r"\e", "\\")):
        text = text.replace(a, b)
    return text

class Page:
    def __init__(self, path):
        self.path = path
        self.name = os.path.basename(path)[:-2]
        self.source = open(path, encoding="utf-8").read()
        self.text = plain(self.source)
        parts = re.split(r"^\.SH (.*)\n", self.text, flags=re.M)
        self.titles = parts[1::2]
        self.sections = dict(zip(parts[1::2], parts[2::2]))
        # name: (letter, tag, paragraphs) of each option with a paragraph
        self.options = {}
        for tag, body in re.findall(
                r"^\.TP\n(-.*)\n((?:(?!\.TP|\.S[SH]|\.PP).*\n|\.PP\n\.RS.*\n)*)",
                self.sections.get("OPTIONS", ""), re.M):
            letter, name, rest = re.match(
                r"(?:-(\w), )?--([a-z-]+)(.*)", tag).groups()
            assert name not in self.options, (self.name, name)
            self.options[name] = (letter or "", rest.strip(),
                                  " ".join(body.split()))
        # page: {name: letter} of "These are described in page(1): -m/--model"
        self.elsewhere = {}
        for page, names in re.findall(
                r"^These are described in ([a-z-]+)\(1\):([^.]*)\.",
                self.sections.get("OPTIONS", ""), re.M):
            self.elsewhere[page] = {
                name: letter for letter, name in
                re.findall(r"(?:-(\w)/)?--([a-z-]+)", names)}

pages = {p.name: p for p in map(Page, sorted(glob.glob("man/*.1")))}

def run_help(topic):
    return subprocess.run([os.environ["QWICK"], "help", topic], check=True,
                          capture_output=True, text=True).stdout

verbs = re.findall(r"^  ([a-z]+) {2,}\S", run_help("verbs"), re.M)
assert "generate" in verbs and "version" in verbs

def entries(text):
    """name: (letter, value, the whole entry) of each option in a page."""
    found, entry = {}, None
    for line in text.split("\n"):
        m = re.match(r"  (?:-(.), |    )--([a-z][a-z-]*)(\S*)( ?\S*)", line)
        if m:
            value = m[3] or (m[4].strip() if not m[4].isspace() else "")
            entry = [m[1] or "", value, line]
            found[m[2]] = entry
        elif entry and line.startswith(" " * 20):
            entry[2] += " " + line.strip()
        else:
            entry = None
    return found

# name: (entry, verbs that have it) of the shared options
shared = {}
for name, entry in entries(run_help("options")).items():
    entry[2], _, have = entry[2].partition(" Verbs: ")
    shared[name] = (entry, have.split() or verbs)

def help_options(verb):
    """The options in the page of a verb, and the shared ones that it has. The page
    lists the letters of these, and the number of the others."""
    text = run_help(verb)
    found = entries(text)
    mine = {n: list(e) for n, (e, have) in shared.items() if verb in have}
    assert not set(found) & set(mine), (verb, set(found) & set(mine))
    line = re.search(r"^Shared options .*: ((?:-\w )+)and (\d+) more$", text, re.M)
    for entry in mine.values():
        if "-" + entry[0] not in line[1].split():
            entry[0] = ""  # the letter means another option of this verb
    assert sorted("-" + e[0] for e in mine.values() if e[0]) == sorted(line[1].split())
    assert sum(not e[0] for e in mine.values()) == int(line[2]), (verb, line[0])
    return {**found, **mine}
PY
    export QWICK
    PYTHONPATH=$T python3 -
}

@test "each verb has a page, and each page a verb" {
    python_pages <<'PY'
from pages import *
assert set(pages) == {"qwick"} | {"qwick-" + v for v in verbs}
overview = pages["qwick"]
tags = re.findall(r"^\.TP\n([a-z]+)$",
                  overview.sections["DESCRIPTION"], re.M)
assert tags == verbs, (tags, verbs)
also = re.findall(r"([a-z-]+)\(1\)", overview.sections["SEE ALSO"])
assert set(also) == set(pages) - {"qwick"}, also
PY
}

@test "each page has its sections, and refers to pages that exist" {
    python_pages <<'PY'
from pages import *
order = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "JSON OUTPUT", "CLIENTS",
         "EXAMPLES", "EXIT STATUS", "SEE ALSO"]
only = {"JSON OUTPUT": "generate", "CLIENTS": "serve"}
for verb in verbs:
    p = pages["qwick-" + verb]
    titles = [t for t in order if only.get(t, verb) == verb]
    assert p.titles == titles, (p.name, p.titles)
    assert p.text.split("\n")[1].split()[1] == p.name.upper(), p.name
    assert p.sections["NAME"].startswith(p.name + " - "), p.name
    if verb != "generate":
        assert p.sections["SYNOPSIS"].startswith("qwick " + verb), p.name
for p in pages.values():
    for name in re.findall(r"\b(qwick[a-z-]*)\(1\)", p.text):
        assert name in pages and name != p.name, (p.name, name)
PY
}

@test "a page has each option of its verb, and no other" {
    python_pages <<'PY'
from pages import *
used = set()
for verb in verbs:
    p = pages["qwick-" + verb]
    have = help_options(verb)
    told = {}  # name: (letter, value or None, paragraph)
    for other, names in p.elsewhere.items():
        for name, letter in names.items():
            assert name in pages[other].options, (p.name, other, name)
            assert name not in told, (p.name, name)
            told[name] = (letter, *pages[other].options[name][1:])
            used.add((other, name))
    for name, option in p.options.items():
        assert name not in told, (p.name, name)
        told[name] = option
    assert set(told) == set(have), (p.name, set(told) ^ set(have))
    for name, (letter, value, text) in told.items():
        h_letter, h_value, entry = have[name]
        assert letter == h_letter, (p.name, name, letter, h_letter)
        assert bool(value) == bool(h_value), (p.name, name, value, h_value)
        # the choices, and a default that is one word
        for choices in re.findall(r"[a-z0-9]+(?:\|[a-z0-9]+)+", entry):
            for word in choices.split("|"):
                assert re.search(r"\b%s\b" % word, value + " " + text), (
                    p.name, name, word)
        default = re.search(r"default: ([^ \]]+)\]", entry)
        if default and not default[1].startswith("$"):
            assert re.search(r"[Dd]efault: %s\b" % re.escape(default[1]), text), (
                p.name, name, default[1])
# the overview describes only options of some verb
for name in pages["qwick"].options:
    assert ("qwick", name) in used, name
PY
}

@test "the settings of clients are those that make check-clients tries" {
    python_pages <<'PY'
from pages import *
import json
versions = json.load(open("tests/clients/package.json"))["dependencies"]
packages = {"codex": "@openai/codex", "claude": "@anthropic-ai/claude-code", "opencode": "opencode-ai"}
programs = "".join(open(f).read() for f in sorted(glob.glob("tests/clients/*.mjs")))
parts = re.split(r"^\.SS (.*)\n", pages["qwick-serve"].sections["CLIENTS"], flags=re.M)
tried = [(t.split(), body) for t, body in zip(parts[1::2], parts[2::2])
         if "(untested)" not in t and t != "curl"]
assert len(tried) == 7, tried
for (name, version), body in tried:
    assert versions[packages.get(name, name)] == version, (name, version)
    block = re.search(r"^\.EX\n(.*?)^\.EE", body, re.M | re.S)[1]
    block = re.sub(r"http://[\w.:/]+", "", block)
    for word in re.findall(r"\w{3,}", block):
        assert word in programs or word in ("MODEL", "40960"), (name, word)
PY
}

@test "no page names an option that does not exist" {
    python_pages <<'PY'
from pages import *
known = {name for verb in verbs for name in help_options(verb)}
others = {"sshlogin", "pipe", "unix-socket"}  # options of parallel and curl
for p in pages.values():
    if p.name != "qwick-pull":
        for name in re.findall(r"(?<![\w-])--([a-z][a-z-]*)", p.text):
            assert name in known | others or name == "name", (p.name, name)
PY
}

@test "the messages of the troubleshooting section are in the sources" {
    python_pages <<'PY'
from pages import *
source = "".join(open(f).read() for f in glob.glob("src/**/*.c", recursive=True))
source = re.sub(r'"\s*\n\s*"', "", source)  # strings of several lines
quoted = re.findall(r'"([^"]+)"', pages["qwick"].sections["TROUBLESHOOTING"])
assert len(quoted) > 12, quoted
for message in quoted:
    # numbers, names and what is left out stand for values
    parts = re.split(r"\b(?:NAME|N|M|empty|cut)\b|\.\.\.|: ", message)
    for part in parts:
        assert part.strip() in source, (message, part)
PY
}

@test "the pages are clean" {
    command -v groff >/dev/null || skip "no groff"
    for page in man/*.1; do
        run -0 --separate-stderr groff -man -Tutf8 -ww "$page"
        [ -z "$stderr" ]
        if command -v mandoc >/dev/null; then
            # pages have no date, so that a build does not depend on the day
            run mandoc -Tlint "$page"
            [ -z "$(grep -v 'missing date' <<<"$output")" ]
        fi
    done
}

@test "the overview lists the exit statuses of the header" {
    for n in 0 1 2 3 4 5 6 10; do
        grep -q "^\\\\fB$n\\\\fR\$" man/qwick.1
    done
}

@test "the examples of the pages and of docs/scripting.md run" {
    quick_qwick
    export PATH="$T/bin:$PATH"
    # two layers of the demo model stand for the models that the examples name
    for name in Qwen3-0.6B Qwen3-Embedding-0.6B Qwen3-Reranker-0.6B; do
        hub=$T/hub/models--Qwen--$name
        mkdir -p "$hub/refs" "$hub/snapshots"
        echo 1 >"$hub/refs/main"
        ln -s "$T/small" "$hub/snapshots/1"
    done
    # one to remove
    hub=$T/hub/models--Qwen--Qwen3-4B-GGUF
    mkdir -p "$hub/refs" "$hub/snapshots/1"
    echo 1 >"$hub/refs/main"
    touch "$hub/snapshots/1/Qwen3-4B-Q8_0.gguf"
    export HF_HUB_CACHE=$T/hub question="list files"
    python_pages <<'PY'
from pages import *
import json, shutil
t = os.environ["HOME"]
files = {
    "notes.txt": "Ann wrote this on Monday.\n",
    "manual.txt": "".join("list files of %d\n" % i for i in range(60)),
    "issue.txt": "It crashes.\n",
    "issues.txt": "It crashes.\nCan it print?\n",
    "issues.csv": 'title,n\n"It crashes, always",1\nCan it print?,2\n',
    "app.log": "start\nstop\nqzx!\n",
    "docs.txt": "Ann wrote it.\nTar packs files.\nIt is red.\nBob reads.\n",
    "lines.txt": "list files\nshow disk usage\n",
    "prompts.jsonl": '{"prompt":"list files"}\n{"prompt":"print date"}\n',
    "people.csv": 'id,first name,language\n1,Ann,French\n2,"Bob, jr.",Welsh\n',
    "requests.jsonl": '{"custom_id":"a","method":"POST","url":"/v1/chat/completions",'
        '"body":{"messages":[{"role":"user","content":"list files"}]}}\n',
    "questions.jsonl": '{"prompt":"who?","max_tokens":9}\n{"prompt":"when?","max_tokens":9}\n',
}
blocks = []
for p in pages.values():
    # these need a hub, a terminal, or do not end
    if p.name not in ("qwick-pull", "qwick-chat", "qwick-serve"):
        found = re.findall(r"^\.EX\n(.*?)^\.EE$", p.sections["EXAMPLES"],
                           re.M | re.S)
        assert found, p.name
        blocks += [(p.name, b) for b in found]
guide = [b for lang, b in re.findall(r"^```(\w*)\n(.*?)^```$",
                                     open("docs/scripting.md").read(), re.M | re.S)
         if not lang]
assert len(guide) > 4
blocks += [("scripting.md", b) for b in guide]
done = 0
for n, (name, block) in enumerate(blocks):
    # parallel has a test in batch.bats; Slurm's job runs as its second task here, and
    # whole in check-cluster
    if re.search(r"parallel|sbatch", block):
        continue
    missing = [tool for tool in ("jq", "git")
               if re.search(r"\b%s " % tool, block) and not shutil.which(tool)]
    if missing:
        print("SKIP an example of", name, "- no", missing[0])
        continue
    where = "%s/%d" % (t, n)
    os.mkdir(where)
    for file, text in files.items():
        open(where + "/" + file, "w").write(text)
    if "git" in block:
        subprocess.run("""git init -q && git config user.name a &&
            git config user.email a@b && git add . && git commit -qm a &&
            echo more >>notes.txt""", shell=True, check=True, cwd=where)
    # head may end before the programs before it
    options = ["-e"] if "head" in block else ["-e", "-o", "pipefail"]
    env = {**os.environ, "SLURM_ARRAY_TASK_ID": "2", "SLURM_CPUS_PER_TASK": "1"}
    if "answers.*" in block:
        for shard in "12":
            subprocess.run(["qwick", "batch", "--seed", "1", "--shard", shard + "/8", "-i",
                            "prompts.jsonl", "-o", "answers.%s-of-8.jsonl" % shard],
                           cwd=where, check=True)
    r = subprocess.run(["bash", *options, "-c", block], cwd=where, env=env,
                       stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert r.returncode == 0, (name, block, r.returncode, r.stderr)
    if "answers.*" in block:
        merged = [json.loads(line)["line"] for line in open(where + "/answers.jsonl")]
        assert merged == [1, 2], merged
    if "run_tool" in block:
        chat = json.load(open(where + "/chat.json"))
        assert [m["role"] for m in chat] == ["user", "assistant", "tool"], chat
        assert chat[2]["content"] == "1 notes.txt" and r.stdout, chat
    if "SLURM" in block:
        assert os.path.getsize(where + "/answers.2-of-8.jsonl"), block
    done += 1
assert done > 20, done
PY
}
