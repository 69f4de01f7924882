#!/usr/bin/env bats
# --help, --version, and the man page against the option tables.
load helpers

setup() {
    common_setup
    VERBS="generate batch tokenize detokenize count render embed rerank logits
        score choose inspect bench quantize cache help version"
}

@test "--help and -h: stdout, exit 0, no model needed" {
    run -0 --separate-stderr env QWICK_MODEL=/nonexistent "$QWICK" --help
    [ -z "$stderr" ]
    [[ $output == "usage: qwick"* ]]
    main=$output
    [ "$(q -h)" = "$main" ]
    [ "$(q generate --help)" = "$main" ]
    [ "$(q run --help)" = "$main" ]
    [ "$(q -m /nonexistent --help)" = "$main" ]
    for v in $VERBS; do
        run -0 --separate-stderr q $v --help
        [ -z "$stderr" ]
        [[ $output == "usage: qwick"* ]]
        [[ $main == *"  $v "* ]]
    done
}

@test "--version" {
    [ "$(q --version)" = "qwick 0.1.0" ]
    [ "$(q -V)" = "qwick 0.1.0" ]
    [ "$(q tokenize --version)" = "qwick 0.1.0" ]
}

@test "help has no line over 80 columns" {
    for v in $VERBS; do
        q $v --help | awk 'length > 80 { print; bad = 1 } END { exit bad }'
    done
}

@test "the man page has each option of each verb, and no other" {
    python3 - "$QWICK" <<'PY'
import re, subprocess, sys
man = open("man/qwick.1").read().replace("\\-", "-")
sections = {}
for part in re.split(r"^\.SH ", man, flags=re.M)[1:]:
    title, body = part.split("\n", 1)
    sections[title.strip()] = body

def options(text):
    """(letter or "", long name) of each tagged paragraph."""
    found = set()
    for tag in re.findall(r"^\.TP\n(.*)", text, flags=re.M):
        tag = re.sub(r"\\f.|[\",]", " ", tag)
        long = re.search(r"--([a-z][a-z-]*)", tag)
        if long:
            short = re.search(r"(?:^|\s)-([a-zA-Z])\s", tag)
            found.add((short.group(1) if short else "", long.group(1)))
    return found

shared = options(sections["OPTIONS OF ALL VERBS"])
engine = options(sections["OPTIONS OF VERBS THAT RUN THE MODEL"])
tok = options(sections["OPTIONS OF TOKENIZE, COUNT AND DETOKENIZE"])
own = {v: options(sections["OPTIONS OF " + v.upper()])
       for v in ("generate", "batch", "render", "embed", "rerank", "logits",
                 "score", "choose", "inspect", "bench", "quantize", "cache")}
drop = lambda s, *names: {o for o in s if o[1] not in names}
only = lambda s, *names: {o for o in s if o[1] in names}
not_batch = ("session", "save-session", "prompt", "chat-json", "prefill",
             "prompt-ids", "no-stdin", "overflow", "show-thinking",
             "think-file", "json", "jsonl", "profile-timing", "profile-file", "repeat",
             "no-newline", "color", "lookup")
want = {
    "cache": own["cache"],
    "generate": engine | own["generate"],
    "batch": engine | own["batch"] | drop(own["generate"], *not_batch),
    "logits": engine | own["logits"],
    "score": engine | own["score"],
    "choose": engine | own["choose"] | only(
        own["generate"], "prompt", "file", "file-names", "system",
        "system-file", "raw",
        "chat-json", "prefill", "prompt-ids", "allow-special", "no-stdin",
        "overflow"),
    "inspect": drop(engine, "prefill-chunk", "preload", "ctx") | own["inspect"],
    "bench": drop(engine, "ctx") | own["bench"],
    "tokenize": drop(tok, "skip-special"),
    "count": drop(tok, "skip-special"),
    "detokenize": drop(tok, "no-special"),
    "render": own["render"],
    "embed": engine | own["embed"],
    "rerank": engine | own["rerank"],
    "quantize": own["quantize"],
    "help": set(),
    "version": set(),
}
for verb, opts in want.items():
    text = subprocess.run([sys.argv[1], verb, "--help"], capture_output=True,
                          text=True, check=True).stdout
    have = {(m[0] or "", m[1]) for m in
            re.findall(r"^  (?:-(.), |    )--([a-z][a-z-]*)", text, flags=re.M)}
    opts = opts | shared
    if verb in ("cache", "help", "version"):  # no model
        opts.remove(("m", "model"))
    if verb == "rerank":  # -q is the query
        opts = opts - {("q", "quiet")} | {("", "quiet")}
    assert have == opts, (verb, have ^ opts)
    # numbers that help gives as defaults are in the man page as well
    for name, default in re.findall(
            r"--([a-z-]+)[^[]*\[[^]]*default: (\d+)\]", text):
        assert re.search(r"Default: " + default, man), (verb, name, default)
    assert re.search(r"^\.B " + verb + "$", sections["DESCRIPTION"], re.M), verb
PY
}

@test "the man page is clean" {
    command -v groff >/dev/null || skip "no groff"
    run -0 --separate-stderr groff -man -Tutf8 -ww man/qwick.1
    [ -z "$stderr" ]
}

@test "the man page lists the exit statuses that the header has" {
    for n in 0 1 2 3 4 5 6 10; do
        grep -q "^\.B $n\$" man/qwick.1
    done
}
