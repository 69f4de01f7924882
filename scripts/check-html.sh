#!/usr/bin/env bash
# Open the pages of `bench`, `score` and `embed --html` in headless Chromium: no
# message of the console, the drawn elements are there, and no text leaves its
# chart. Keeps screenshots in both colour schemes in the folder $OUT (default
# build/html). Installs chromium, or prints SKIP.
#   QWICK  the binary (default ./qwick)
set -eu
cd "$(dirname "$0")/.."
QWICK=${QWICK:-./qwick}
OUT=${OUT:-build/html}
fail()
{
    echo "check-html: $*" >&2
    exit 1
}

if ! command -v chromium >/dev/null; then
    scripts/install-deps.sh html || {
        echo "SKIP check-html: chromium cannot be installed"
        exit 0
    }
fi
mkdir -p "$OUT"
profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT

# browse SCHEME ARGS...: Chromium without a window; SCHEME is 0 for dark, 1 for
# light.
browse()
{
    local scheme=$1
    shift
    timeout 120 chromium --headless=new --no-sandbox --disable-gpu \
        --hide-scrollbars --user-data-dir="$profile" --enable-logging=stderr \
        --blink-settings=preferredColorScheme="$scheme" "$@"
}

# check NAME ELEMENTS...: check the page $OUT/NAME.html, whose document must hold
# each of the elements at least the given number of times.
check()
{
    local name=$1 page
    shift
    page=file://$(realpath "$OUT/$name.html")
    browse 1 --dump-dom "$page" >"$OUT/$name.dom" 2>"$OUT/$name.log" ||
        fail "$name: chromium failed, see $OUT/$name.log"
    if grep CONSOLE "$OUT/$name.log"; then
        fail "$name: messages of the console"
    fi
    python3 - "$OUT/$name.dom" "$@" <<'PY' || fail "$name: see above"
import html.parser, math, re, sys

class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.counts, self.svgs, self.bad = {}, [], []

    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        self.counts[tag] = self.counts.get(tag, 0) + 1
        for c in (a.get("class") or "").split():
            self.counts["." + c] = self.counts.get("." + c, 0) + 1
        if tag == "script" or any(k.startswith("on") for k in a):
            self.bad.append(f"<{tag}> runs a script")
        for k in ("src", "href"):
            if a.get(k) and not a[k].startswith("data:"):
                self.bad.append(f"<{tag}> refers to {a[k]}")
        if tag == "path":
            for x in re.findall(r"-?[\d.]+(?:e[-+]?\d+)?|nan|inf", a.get("d", ""), re.I):
                if not math.isfinite(float(x)):
                    self.bad.append("a path is not finite: " + a["d"][:80])

p = Page()
p.feed(open(sys.argv[1], encoding="utf-8").read())
for want in sys.argv[2:]:
    name, _, n = want.partition("=")
    if p.counts.get(name, 0) < int(n):
        p.bad.append(f"{name}: {p.counts.get(name, 0)} elements, expected at least {n}")
print("\n".join(p.bad))
sys.exit(bool(p.bad))
PY
    browse 1 --window-size=1250,"$height" --screenshot="$OUT/$name-light.png" "$page" 2>/dev/null
    browse 0 --window-size=1250,"$height" --screenshot="$OUT/$name-dark.png" "$page" 2>/dev/null
    [ -s "$OUT/$name-light.png" ] && [ -s "$OUT/$name-dark.png" ] ||
        fail "$name: no screenshot"
    cmp -s "$OUT/$name-light.png" "$OUT/$name-dark.png" &&
        fail "$name: the dark scheme looks like the light one"
    echo "ok $name: $OUT/$name-light.png, $OUT/$name-dark.png"
}

QWICK_MODEL='' "$QWICK" --no-config bench --prompt-lens 32,128 --depths 16,256,768 --gen 40 \
    --reps 3 --batches 4 --html "$OUT/bench.html" >/dev/null
height=3300 check bench svg=9 figure=9 title=9 desc=9 .curve=15 .f1=1 .f2=3 .bar=4 table=4

printf '%s\n' 'list all files, sorted by size' '<script>alert("no")</script> & "quotes"' \
    'tar -czf backup.tar.gz /home' 'find . -name "*.c" | xargs wc -l' >"$OUT/text"
QWICK_MODEL='' "$QWICK" --no-config score --perplexity -f "$OUT/text" --html "$OUT/score.html" \
    >/dev/null
height=1900 check score svg=1 figure=1 .text=1 .c5=1 .c0=1 .curve=2 table=3 caption=4

# four heaps of words, and the texts above
awk 'BEGIN { split("list files;show disk usage;git commit -m;find by name", a, ";")
    for (i = 0; i < 200; i++) print a[i % 4 + 1], "x" i }' | cat - "$OUT/text" >"$OUT/lines"
QWICK_MODEL='' "$QWICK" --no-config embed -q --lines -i "$OUT/lines" --html "$OUT/embed.html" >/dev/null
height=1250 check embed svg=1 figure=1 .f0=204 .thin=204 title=206 desc=1 table=1
