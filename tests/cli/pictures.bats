#!/usr/bin/env bats
# Colours, sparklines and pages, and bench's comparison with an earlier run.
load helpers

setup() {
    common_setup
    export QWICK_MODEL=./models/demo TERM=xterm
    unset COLORTERM
    ESC=$'\033'
}

# tty COMMAND: print what a terminal gets, without its carriage returns.
tty() {
    command -v script >/dev/null || skip "no script(1)"
    script -qec "$1" /dev/null </dev/null | tr -d '\r'
}

# plain: the text without escape sequences.
plain() {
    sed "s/$ESC\[[0-9;]*m//g"
}

BENCH=(bench --prompt-lens 8 --depths 4 --gen 4 --reps 1 --warmup 0 -t 1)

@test "--confidence: the answer in colours, the legend on stderr" {
    want=$(q --greedy "list all listening tcp ports with temp")
    out=$(tty "$QWICK --confidence --greedy --no-stdin 'list all listening tcp ports with temp' 2>$T/err")
    equal "$(plain <<<"$out")" "$want"
    [[ $out == *"$ESC[38;5;"*"$ESC[0m"* && $out != *";2;"* ]]
    [ ! -s "$T/err" ] # no terminal
    out=$(COLORTERM=truecolor tty "$QWICK --confidence --greedy --no-stdin 'list all listening tcp ports with temp'")
    [[ $out == *"$ESC[38;2;"* ]]
    [[ $(plain <<<"$out") == "$want"$'\n'"probability of a token:  >=90%"*"<1%"* ]]
    # the classes are those of --logprobs
    q --greedy --jsonl --logprobs 1 "list all listening tcp ports with temp" >"$T/l"
    out=$(tty "$QWICK --confidence --greedy --no-stdin 'list all listening tcp ports with temp' 2>$T/err")
    python3 - "$T/l" "$out" <<'PY'
import json, math, re, sys
index = {229: 1, 221: 2, 209: 3, 168: 4, 54: 5}
want = []
for line in open(sys.argv[1], encoding="utf-8"):
    o = json.loads(line)
    if o["event"] == "token":
        p = math.exp(o["logprob"])
        want += [[p >= x for x in (.9, .5, .2, .05, .01, 0)].index(True)] * len(o["text"])
got, now = [], 0
for seq, c in re.findall(r"\x1b\[([\d;]*)m|(.)", sys.argv[2], re.S):
    if c:
        got.append(now)
    else:
        now = 0 if seq == "0" else index[int(seq.split(";")[-1])]
assert got == want and len(set(got)) > 1, (got, want)
PY
}

@test "characters of several tokens, stop strings and control characters keep their colours" {
    for seed in 1 2 3; do
        args="--temp 100 --seed $seed -n 60 --ignore-eos --raw"
        want=$(tty "$QWICK $args --no-stdin -p x")
        out=$(tty "$QWICK --confidence $args --no-stdin -p x 2>$T/err")
        # text with escapes may be wrapped, so compare the characters
        equal "$(plain <<<"$out")" "$want"
        # a colour never spans a newline
        [ -z "$(grep -v "^\([^$ESC]\|$ESC\[[0-9;]*m[^$ESC]*$ESC\[0m\)*$" <<<"$out")" ]
        iconv -f UTF-8 -t UTF-8 <<<"$out" >/dev/null
    done
    want=$(q --greedy --stop "zz" "list all listening tcp ports with temp")
    out=$(q --greedy --stop "zz" --confidence --color always "list all listening tcp ports with temp")
    equal "$(plain <<<"$out")" "$want"
    want=$(q --temp 1 --seed 5 --samples 3 "list all listening tcp ports with temp")
    out=$(q --temp 1 --seed 5 --samples 3 --confidence --color always "list all listening tcp ports with temp")
    equal "$(plain <<<"$out")" "$want"
}

@test "no escape byte into a pipe: --confidence and --heat are refused there" {
    fails 2 "--confidence: has no effect where stdout is no terminal; add --color always" \
        --confidence hi
    fails 2 "--heat: has no effect where stdout is no terminal" score --heat "ls -l"
    fails 2 "--confidence: has no effect with --color never" --confidence --color never hi
    fails 2 "--confidence: has no effect with --json" --confidence --json hi
    fails 2 "--confidence: has no effect with --extract" --confidence --color always -x hi
    for o in --json --perplexity --jsonl; do
        fails 2 "--heat: has no effect with $o" score --heat --color always $o
    done
    fails 2 "--by: has no effect with --heat" score --heat --color always --by word "ls"
    fails 2 "--html: has no effect with --jsonl" score --html "$T/h" --jsonl
    [[ $(q --confidence --color always hi) == *"$ESC["* ]]
    for set in NO_COLOR=1 TERM=dumb; do
        out=$(tty "env $set $QWICK --confidence --no-stdin hi || echo \$?")
        [[ $out == *"on a terminal without colours"*$'\n2' && $out != *"$ESC"* ]]
    done
    # as a default it yields
    mkdir -p "$T/.config/qwick"
    echo 'confidence = on' >"$T/.config/qwick/config"
    equal "$(q --greedy hi)" "$(q --no-config --greedy hi)"
}

@test "score --heat: the bytes of the text, then the totals" {
    printf 'list files \xff caf\xc3\xa9\033[31m\nls -l' >"$T/t"
    out=$(q score --heat --color always -f "$T/t")
    q score -f "$T/t" | grep '^#' >"$T/totals"
    equal "$(plain <<<"$out")" "list files \xff café\x1b[31m"$'\nls -l\n'"$(cat "$T/totals")"
    [[ $out == *"$ESC[38;5;231;48;5;54m"* ]]
    out=$(tty "$QWICK score --heat -f $T/t")
    [[ $(plain <<<"$out") == *"probability of a token:"* ]]
}

@test "sparkline and histogram: on a terminal only, in ASCII without UTF-8" {
    hurried q --profile-timing "list all listening tcp ports with temp" 2>"$T/err"
    run ! grep -q "times of tokens" "$T/err"
    out=$(hurried tty "$QWICK --profile-timing --no-stdin 'list all listening tcp ports with temp'")
    [[ $out == *"times of tokens: "*" ms"*"█"* ]]
    out=$(LC_ALL=C hurried tty "$QWICK --profile-timing --no-stdin 'list all listening tcp ports with temp'")
    [[ $out == *"times of tokens: "*" ms"*"#"* ]]
    [ "$(LC_ALL=C tr -d '\000-\177' <<<"$out")" = "" ]
    out=$(tty "$QWICK ${BENCH[*]}")
    [[ $out == *"decode at depth 4: 4 times, "*" to "*" ms"* ]]
}

@test "bench: machine, units and models in each format" {
    # the config file may name one model, which -m replaces
    mkdir -p "$T/.config/qwick"
    printf 'model = %s\n' "$PWD/$MODELS/tied-bf16" >"$T/.config/qwick/config"
    unset QWICK_MODEL
    hurried q "${BENCH[@]}" -m models/demo -m "$MODELS/f32" >"$T/text"
    grep -q '^qwick .* bench, 20..-..-..$' "$T/text"
    [ "$(grep -c '^model "' "$T/text")" -eq 2 ]
    grep -q '^decode .* GB/s  ' "$T/text"
    run ! grep -q ' times, \|tied-bf16' "$T/text"
    hurried q "${BENCH[@]}" --md >"$T/text"
    grep -q "^qwick .* bench, " "$T/text"
    grep -q 'tied-bf16' "$T/text"
    hurried q "${BENCH[@]}" -m models/demo -m "$MODELS/tied-bf16" --csv >"$T/csv"
    hurried q "${BENCH[@]}" -m models/demo -m "$MODELS/tied-bf16" --json >"$T/json"
    command python3 - "$T/csv" "$T/json" <<'PY'
import csv, json, sys
rows = list(csv.DictReader(open(sys.argv[1], encoding="utf-8")))
objects = [json.loads(l) for l in open(sys.argv[2], encoding="utf-8")]
assert len(rows) == 4 and len(objects) == 2, rows
assert len({o["identity"] for o in objects}) == 2
flat = [(o, x) for o in objects for x in o["results"]]
for r, (o, x) in zip(rows, flat):
    for k in "version", "date", "system", "cpu_name", "model", "isa", "kv_dtype", "gemm":
        assert r[k] and r[k] == o[k], (k, r, o)
    assert int(r["cpus"]) == o["cpus"] and r["test"] == x["test"]
    assert r["unit"] == x["unit"] and x["unit"] in ("GB/s", "GFLOP/s", "Gop/s")
    assert float(r["limit"]) > 0 and len(x["runs_ms"]) == o["reps"] == 1
    if x["test"] == "decode":
        s = x["step_ms"]
        assert s["least"] <= s["median"] <= s["p95"] <= s["p99"] <= s["most"]
PY
    fails 2 "--md: cannot be combined with --csv" bench --md --csv
}

# edit EXPRESSION: change the report o, and write it to $T/was.
edit() {
    python3 -c 'import json, sys
o = json.load(open(sys.argv[1]))
exec(sys.argv[2])
json.dump(o, open(sys.argv[3], "w"))' "$T/json" "$1" "$T/was"
}

@test "bench --compare: better, worse, refused" {
    hurried q "${BENCH[@]}" --json >"$T/json"
    gate() {
        hurried q "${BENCH[@]}" --compare "$T/was" "$@"
    }
    # speeds vary by far less than a factor of a thousand
    edit 'for x in o["results"]: x["percent_of_limit"] /= 1000'
    run -0 --separate-stderr gate --csv --fail-below 0.98
    [ -z "$stderr" ]
    grep -q '^version,.*,old_tok_s,speed_ratio,share_ratio$' <<<"$output"
    edit 'for x in o["results"]: x["percent_of_limit"] *= 1000'
    run -1 --separate-stderr gate --md --fail-below 0.98
    grep -q '| old tok/s | speed | share |$' <<<"$output"
    [ "${#stderr_lines[@]}" -eq 2 ]
    [[ ${stderr_lines[0]} == "qwick: ./models/demo: prefill of 8, threads 1: "*", below 0.98" ]]
    edit 'o["results"][0]["percent_of_limit"] /= 1e6; o["results"][1]["percent_of_limit"] *= 1e6'
    run -1 --separate-stderr gate --json --fail-below 1
    one_error_line
    [[ $stderr == *"decode at depth 4"* ]]
    jget '[0][any(x["old_tok_s"] <= 0 or x["share_ratio"] <= 0 for x in o["results"])]' <<<"$output"
    # other machines, models, settings and rows
    refused() {
        edit "$1"
        fails 1 "$2" "${BENCH[@]}" --compare "$T/was"
    }
    refused 'o["cpu_name"] = "Z80"' 'cpu_name: is "Z80", but "'
    refused 'o["cpus"] = 999' 'cpus: is "999", but "'
    refused 'o["exact"] = True' 'exact: is "true", but "false"'
    refused 'o["gen"] = 5' 'gen: is "5", but "4"'
    refused 'o["identity"] = "0"' 'identity: is "0", but "'
    refused 'del o["results"][1]' 'has no row decode at depth 4, threads 1'
    # worse, without a gate
    edit 'o["cpu_name"] = "Z80"; o["results"][0]["percent_of_limit"] *= 1000'
    run -0 --separate-stderr gate --compare-any
    [[ $output == *"old tok/s"* ]]
    [[ $stderr == 'qwick: warning: '*'cpu_name: is "Z80"'* ]]
    # broken files
    refused 'del o["identity"]' 'is no report of bench --json'
    refused 'o["results"][1]["tok_s"] = "fast"' 'results[1]: lacks a test'
    refused 'o["results"][0]["percent_of_limit"] = 0' 'results[0]: lacks a test'
    refused 'o = []' 'is no report of bench --json'
    head -c 100 "$T/json" >"$T/was"
    fails 1 "$T/was: " "${BENCH[@]}" --compare "$T/was"
    : >"$T/was"
    fails 1 "$T/was: " "${BENCH[@]}" --compare "$T/was"
    fails 1 "No such file" "${BENCH[@]}" --compare "$T/none"
    fails 2 "--fail-below: has no effect without --compare" bench --fail-below 1
    # two models, in another order
    hurried q "${BENCH[@]}" -m models/demo -m "$MODELS/tied-bf16" --json >"$T/was"
    hurried q "${BENCH[@]}" -m "$MODELS/tied-bf16" -m models/demo --compare "$T/was" >"$T/out"
    fails 1 "has no report of the model" "${BENCH[@]}" -m "$MODELS/yarn" --compare "$T/was"
}

@test "pages: escaped text, finite numbers, written at once" {
    printf '<script>alert(1)</script> & "quoted" \xff\n\033[31m a\0b\tc' >"$T/<b>t"
    (cd "$T" && "$QWICK" score --perplexity --no-config -m "$OLDPWD/models/demo" -f '<b>t' --html s.html </dev/null >out)
    hurried q "${BENCH[@]}" --depths 4,60 --batches 2 --html "$T/b.html" >"$T/out"
    printf '%s\n' a 'b <script>alert(1)</script> & "quoted"' 'c' >"$T/lines"
    (cd "$T" && "$QWICK" embed -q --no-config -m "$OLDPWD/models/demo" -f '<b>t' -f lines --html e.html </dev/null >out)
    python3 - "$T/s.html" "$T/b.html" "$T/e.html" <<'PY'
import html.parser, math, re, sys

class Page(html.parser.HTMLParser):
    void = {"meta", "link", "br"}

    def __init__(self):
        super().__init__()
        self.open, self.text, self.counts, self.spans = [], "", {}, []

    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        self.counts[tag] = self.counts.get(tag, 0) + 1
        if tag not in self.void:
            self.open.append(tag)
        if tag == "span" and "title" in a:
            self.spans.append(a["title"])
        for x in re.findall(r"-?[.\d]+|nan|inf", a.get("d", "")):
            assert math.isfinite(float(x)), a["d"]
        assert not any(k.startswith("on") for k in a)
        for k in ("src", "href"):
            assert a.get(k, "data:").startswith("data:")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        self.text += data

pages = []
for path in sys.argv[1:]:
    source = open(path, encoding="utf-8").read()
    p = Page()
    p.feed(source)
    assert not p.open and "script" not in p.counts, p.open
    assert not re.search(r"\bnan\b|\binf\b", source)
    assert not re.search(r"[\0-\b\v-\x1f\x7f]", source)
    for tag in ("title", "desc"):
        assert p.counts[tag] >= p.counts["svg"] - source.count("aria-hidden") > 0
    pages.append(p)
score, bench, embed = pages
assert '<b>t\n<script>alert(1)</script> & "quoted" \ufffd\n\\x1b[31m a' in embed.text
assert 'lines\na\nb <script>alert(1)</script> & "quoted"\nc' in embed.text
assert '<script>alert(1)</script> & "quoted" \\xff\n\\x1b[31m a\\x00b\tc' in score.text
assert "\u201c\\x00\u201d" in score.text + "".join(score.spans)
assert "<b>t" in score.text
assert any("rank " in s and "probability " in s for s in score.spans)
assert any(len(s.split("\n")) >= 6 for s in score.spans)
for word in "Roofline", "percentile", "tokens in the context", "GB/s", "kernels":
    assert word.lower() in bench.text.lower(), word
PY
    [ -z "$(find "$T" -name '*.tmp.*')" ]
    # a place that cannot be written is refused before the work
    fails 1 "$T/none/p: cannot create: No such file" "${BENCH[@]}" --html "$T/none/p"
    fails 1 "$T: cannot create: Is a directory" score --html "$T" "ls -l"
    # a run that fails keeps the old page
    echo old >"$T/b.html"
    run -3 hurried q "${BENCH[@]}" -m models/demo -m "$T/none" --html "$T/b.html"
    [ "$(cat "$T/b.html")" = old ]
}

@test "embed --html: a map of the texts, equal bytes each time, at most 5000" {
    for i in {1..40}; do echo "list files $i"; echo "git commit <$i>"; done >"$T/in"
    q embed -q --lines -i "$T/in" --html "$T/a.html" --format tsv >"$T/tsv"
    q embed -q --lines -i "$T/in" --html "$T/b.html" -t 1 --format npy -o "$T/npy"
    cmp "$T/a.html" "$T/b.html"
    python3 - "$T/a.html" "$T/tsv" "$T/in" <<'PY'
import html, math, re, sys
page = open(sys.argv[1]).read()
points = re.findall(r'<path class="f0 thin" d="M([\d.]+) ([\d.]+)a[^"]*"><title>(.*?)</title></path>', page, re.S)
lines = open(sys.argv[3]).read().split("\n")[:-1]
assert [html.unescape(p[2]) for p in points] == [
    "%s: line %d\n%s" % (sys.argv[3], i + 1, t) for i, t in enumerate(lines)]
# the places are those of the vectors: their share of the variance is on the page
rows = [[float(x) for x in l.split()] for l in open(sys.argv[2])]
mean = [sum(c) / len(rows) for c in zip(*rows)]
rows = [[x - m for x, m in zip(r, mean)] for r in rows]
total = sum(x * x for r in rows for x in r)
def axis(others):
    v = [1 + k % 7 for k in range(len(mean))]
    for _ in range(200):
        at = [sum(map(float.__mul__, r, v)) for r in rows]
        v = [sum(a * r[k] for a, r in zip(at, rows)) for k in range(len(mean))]
        for o in others:
            d = sum(map(float.__mul__, v, o))
            v = [x - d * y for x, y in zip(v, o)]
        n = math.sqrt(sum(x * x for x in v))
        v = [x / n for x in v]
    return v
u = axis([])
w = axis([u])
for name, v, column in (("first", u, 0), ("second", w, 1)):
    at = [sum(map(float.__mul__, r, v)) for r in rows]
    share = 100 * sum(a * a for a in at) / total
    told = float(re.search(name + r" component, ([\d.]+)% of", page)[1])
    assert abs(told - share) < 0.2, (name, told, share)
    # and a place on the screen is a linear function of the place along the axis
    s = [float(p[column]) for p in points]
    ms = sum(s) / len(s)
    r = sum(a * (x - ms) for a, x in zip(at, s)) / math.sqrt(
        sum(a * a for a in at) * sum((x - ms) ** 2 for x in s))
    assert abs(r) > 0.999, (name, r)
PY
    # names: ids, arguments, long texts; one text, equal texts, bad ones
    printf '%s\n' '{"id":"<x>","text":"a"}' '{"id":7,"text":"a"}' '{"id":8,"text":1}' >"$T/json"
    run -1 q embed -q --jsonl -i "$T/json" --html "$T/a.html"
    grep -qF '&quot;&lt;x&gt;&quot;, ' "$T/a.html"
    [ "$(grep -c '<path class="f0' "$T/a.html")" -eq 2 ]
    ! grep -qiE '\b(nan|inf)\b' "$T/a.html"
    q embed -q "$(printf 'l\303\251st %.0s' {1..100})" --html "$T/a.html" >/dev/null
    python3 -c 'import re, sys
t = re.search("argument 1&#10;(.*)\u2026</title>", open(sys.argv[1]).read())[1]
assert 190 < len(t.encode()) <= 200 and t.startswith("l\u00e9st l\u00e9st"), t' "$T/a.html"
    # too many texts
    seq 5001 >"$T/many"
    fails 2 "--html: more than 5000 texts" embed -q --lines -i "$T/many" --html "$T/c.html"
    run -2 bash -c '"$0" embed -q --lines --html "$1/c.html" --dim 1 >"$1/out" < <(cat "$1/many")' "$QWICK" "$T"
    [[ $output == *"--html: more than 5000 texts"* ]]
    [ ! -e "$T/c.html" ]
    fails 2 "--html: is the file of --output" embed -q a -o "$T/c.html" --html "$T/c.html"
    fails 1 "$T/none/p: cannot create: No such file" embed -q --html "$T/none/p" a
}
