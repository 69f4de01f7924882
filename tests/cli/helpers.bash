# Shared by the bats files. They run from the repository's root, offline, on the
# built-in model and on tests/golden/models.
bats_require_minimum_version 1.5.0

# A file that has a setup() of its own calls common_setup there.
setup() {
    common_setup
}

# A pipe fails when any of its commands fails.
common_setup() {
    set -o pipefail
    local -
    set +T # as in run
    common_setup_untraced
}

common_setup_untraced() {
    cd "$BATS_TEST_DIRNAME/../.." || return 1
    QWICK=${QWICK:-./qwick}
    [[ $QWICK == /* ]] || QWICK=$(realpath "$QWICK")
    T=$BATS_TEST_TMPDIR
    # options of the user's environment; the tests have variables of their own
    local name
    for name in "${!QWICK_@}"; do
        [[ $name == @(QWICK_FAULTS|QWICK_TEST_*) ]] || unset "$name"
    done
    unset NO_COLOR HF_HUB_CACHE HF_HOME XDG_CACHE_HOME XDG_CONFIG_HOME
    unset OLLAMA_MODELS LLAMA_CACHE MODELSCOPE_CACHE
    export HOME=$T # where no config file is
    # script(1) runs its command with $SHELL; neither that nor the locale may
    # depend on the user
    export SHELL=$BASH LC_ALL=C.UTF-8
    MODELS=tests/golden/models
}

# common_setup of files that test what the user's folder of qwick holds. Sets
# XDG_CONFIG_HOME, CONFIG and PROMPTS, and makes the folder.
config_setup() {
    common_setup
    export XDG_CONFIG_HOME=$T/config
    CONFIG=$XDG_CONFIG_HOME/qwick/config
    PROMPTS=$XDG_CONFIG_HOME/qwick/prompts
    mkdir -p "$XDG_CONFIG_HOME/qwick"
}

# Without the packages of the site, which no test needs, Python starts in half
# the time.
python3() {
    command python3 -S "$@"
}

# run [-N | !] [--separate-stderr] COMMAND…: bats' own, in a fifth of its time. bats
# traces each command of a test and of functions that it calls (set -T), and its run
# consists of dozens of them.
run() {
    local -
    set +T
    run_untraced "$@"
}

run_untraced() {
    local want='' separate=''
    while :; do
        case $1 in
        -[0-9]*) want=${1#-} ;;
        '!') want='!' ;;
        --separate-stderr) separate=$BATS_TEST_TMPDIR/.stderr.$((++runs)) ;;
        -*) echo "run: $1: unknown flag"; return 1 ;;
        *) break ;;
        esac
        shift
    done
    set +eE
    if [ -n "$separate" ]; then
        output=$("$@" 2>"$separate") && status=0 || status=$?
        read -d '' -r stderr <"$separate"
        IFS=$'\n' read -d '' -r -a stderr_lines <<<"$stderr"
    else
        output=$("$@" 2>&1) && status=0 || status=$?
    fi
    IFS=$'\n' read -d '' -r -a lines <<<"$output"
    case $want in
    '' | "$status") return 0 ;;
    '!') [ "$status" -eq 0 ] || return 0 ;;
    esac
    echo "status $status in place of $want: $*"
    echo "$output${separate:+$'\n'$stderr}"
    return 1
}

# Print the names of all verbs, in the order of the table.
all_verbs() {
    q help verbs | sed -n 's/^  \([a-z]*\)  .*/\1/p'
}

# Print the long options of a verb, sorted: those of its page, and the shared ones
# that it has.
verb_options() {
    { q "$1" --help | grep -oP '^  (-., |    )\K--[a-z-]+'
        shared_options "$1"; } | sort -u
}

# Print the shared options that a verb has, by the verbs which "qwick help options"
# lists for each.
shared_options() {
    q help options | python3 -c '
import re, sys
for entry in re.split(r"\n(?=  (?:-., |    )--)|\n\n", sys.stdin.read()):
    name = re.match(r"  (?:-., |    )(--[a-z-]+)", entry)
    verbs = re.search(r" Verbs: (.*)", " ".join(entry.split()))
    if name and (not verbs or sys.argv[1] in verbs[1].split()):
        print(name[1])' "$1"
}

# Run qwick with an empty standard input.
q() {
    "$QWICK" "$@" </dev/null
}

# hurried COMMAND…: with a clock that runs 20 times as fast, so that measurements end
# soon. For tests of what is done with figures, whatever they are.
hurried() {
    fast_clock
    LD_PRELOAD=$FAST_CLOCK "$@"
}

# Set FAST_CLOCK to the library of that clock; to nothing under sanitizers, whose own
# must be the first.
fast_clock() {
    FAST_CLOCK=
    [ "${SAN:-}" != 1 ] || return 0
    FAST_CLOCK=$BATS_FILE_TMPDIR/fast_clock.so
    [ -e "$FAST_CLOCK" ] || "${CC:-cc}" -Wall -Wextra -Werror -shared -fPIC \
        -o "$FAST_CLOCK" "$BATS_TEST_DIRNAME/../faults/fast_clock.c"
}

# equal A B: two outputs are equal. A command that fails often prints nothing, so
# empty ones are not equal.
equal() {
    [ -n "$1" ] || { echo "empty, not '$2'"; return 1; }
    [ "$1" = "$2" ] || { echo "'$1' is not '$2'"; return 1; }
}

# Run qwick with closed standard input. (`run … <&-` does not work: bash then
# opens a pipe as descriptor 0.)
closed() {
    bash -c 'exec timeout 5 "$0" "$@" <&-' "$QWICK" "$@" </dev/null
}

# parse(TEXT) in Python, for the next two: the parser of json without the rest of it,
# whose import takes as long as the start of Python.
JSON_PARSER='import sys
class how:
    strict, object_hook, object_pairs_hook = True, None, None
    parse_float, parse_int, parse_constant = float, int, float
def parse(text):
    try:
        from _json import make_scanner
        text = text.strip(" \t\r\n")
        o, end = make_scanner(how)(text, 0)
        assert end == len(text)
        return o
    except Exception:
        import json # for its messages
        return json.loads(text)
if "json." in sys.argv[1]:
    import json
'

# Print the value of a Python expression over the JSON object o on standard
# input.
jget() {
    python3 -S -E -c "$JSON_PARSER"'o = parse(sys.stdin.read())
print(eval("(" + sys.argv[1] + ")"))' "$1"
}

# Assert that a Python expression over the lines (list of objects) on standard
# input is true.
jlines() {
    python3 -S -E -c "$JSON_PARSER"'o = [parse(l) for l in sys.stdin.buffer.read().decode().split("\n")[:-1]]
assert eval("(" + sys.argv[1] + ")"), o' "$1"
}

# Lines of JSON without what says where the model is and how long it took.
bare() {
    python3 -c 'import json, sys
for line in sys.stdin:
    o = json.loads(line)
    for k in "model", "timing", "key", "seed":
        o.pop(k, None)
    print(json.dumps(o))'
}

# Check that stderr is one line that begins with "qwick: " and has no control
# bytes.
one_error_line() {
    [ "${#stderr_lines[@]}" -eq 1 ] && [[ ${stderr_lines[0]} == "qwick: "* ]]
}

# fails STATUS PATTERN ARGS…: check the exit status, empty stdout, and one line
# on stderr that matches the pattern. It sets status, stderr and stderr_lines, as
# `run --separate-stderr` does.
fails() {
    local -
    set +T # bats traces each command of a test, and here that takes longer than qwick
    fails_untraced "$@"
}

fails_untraced() {
    local want=$1 pattern=$2
    shift 2
    status=0 output=''
    "$QWICK" "$@" </dev/null >"$T/.stdout" 2>"$T/.stderr" || status=$?
    mapfile -t stderr_lines <"$T/.stderr"
    printf -v stderr '%s\n' "${stderr_lines[@]}"
    stderr=${stderr%$'\n'}
    [ "$status" -eq "$want" ] || { echo "status $status: $* $stderr"; return 1; }
    [ ! -s "$T/.stdout" ] || { echo "stdout: $(<"$T/.stdout")"; return 1; }
    one_error_line || { echo "stderr: $stderr"; return 1; }
    [[ $stderr == *"$pattern"* ]] || { echo "no '$pattern' in: $stderr"; return 1; }
}

# as_regex TEXT: a regular expression that matches only the text.
as_regex() {
    printf '%s' "$1" | sed 's/[][\\.^$*+?(){}|]/\\&/g'
}

# copy_of MODEL NAME: a copy of the model as $T/NAME, for the test to change.
copy_of() {
    rm -rf "${T:?}/$2"
    cp -r "$1" "$T/$2"
    chmod -R u+w "$T/$2"
}

# json_edit FILE CODE: Python code changes o, the object in a JSON file, or a new one.
json_edit() {
    python3 - "$@" <<'PY'
import json, os, sys
path, code = sys.argv[1:]
o = json.load(open(path)) if os.path.exists(path) else {}
exec(code)
json.dump(o, open(path, "w"))
PY
}

# weights_edit FILE CODE: Python code changes a safetensors file: h is the header,
# data the bytes after it, at(NAME) the offset of a tensor in data.
weights_edit() {
    python3 - "$@" <<'PY'
import json, struct, sys
path, code = sys.argv[1:]
raw = open(path, "rb").read()
n = 8 + struct.unpack_from("<Q", raw)[0]
h, data = json.loads(raw[8:n]), bytearray(raw[n:])
def at(name):
    return h[name]["data_offsets"][0]
exec(code)
head = raw[8:n]
if h != json.loads(head):
    head = json.dumps(h).encode()
open(path, "wb").write(struct.pack("<Q", len(head)) + head + data)
PY
}

# demo_as NAME [FILE]: make the demo model $T/NAME, with an empty object as
# FILE.
demo_as() {
    mkdir "$T/$1"
    ln -s "$PWD"/models/demo/*.json "$PWD"/models/demo/model.safetensors "$T/$1/"
    if [ -n "${2:-}" ]; then echo '{}' >"$T/$1/$2"; fi
}

# small_demo DIR: make the demo model with two of its eight layers there. It takes a
# third of the time, for tests that need other numbers or longer answers, but not the
# demo model's texts.
small_demo() {
    mkdir "$1"
    ln -s "$PWD"/models/demo/*.json "$PWD"/models/demo/model.safetensors "$1/"
    rm "$1/config.json"
    sed -e 's/"num_hidden_layers": 8/"num_hidden_layers": 2/' \
        -e '/"layer_types": \[/,/\]/d' models/demo/config.json >"$1/config.json"
    grep -q '"num_hidden_layers": 2' "$1/config.json"
}

# gguf_edit IN OUT CODE: as gguf.py edit, by one process for all edits of a test, which
# ends with it.
gguf_edit() {
    local answer
    [ -n "${EDITOR_PID:-}" ] || coproc EDITOR { exec python3 -S tests/cli/gguf.py serve 3>&-; }
    printf '%s\0' "$@" >&"${EDITOR[1]}"
    read -r answer <&"${EDITOR[0]}"
    [ "$answer" = done ]
}

# Print a template that shows calls in the manner of Qwen3-Coder's.
coder_template() {
    cat <<'END'
{%- for t in tools or [] %}{{ 'tool ' + t.function.name + '\n' }}{% endfor %}
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\n' + m.content }}
{%- for c in m.tool_calls or [] %}
{{- ('\n' if m.content or not loop.first else '') +
    '<tool_call>\n<function=' + c.function.name + '>\n' }}
{%- for k, v in c.function.arguments|items %}
{{- '<parameter=' + k + '>\n' }}
{{- v|tojson if v is mapping or v is sequence and v is not string else v|string }}
{{- '\n</parameter>\n' }}
{%- endfor %}
{{- '</function>\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
END
}

# quick_qwick: make $T/bin/qwick for examples. It runs bench with short measurements,
# selftest on a model of a few hundred KB, and the other verbs unchanged, all with
# hurried's clock.
quick_qwick() {
    local tiny=$T/tiny/models--Qwen--Qwen3-0.6B
    mkdir -p "$T/bin" "$tiny/refs" "$tiny/snapshots"
    small_demo "$T/small"
    fast_clock
    # for selftest, whatever model an example names
    echo 1 >"$tiny/refs/main"
    ln -s "$PWD/$MODELS/tied-bf16" "$tiny/snapshots/1"
    cat >"$T/bin/qwick" <<SH
#!/bin/sh
case "\$1" in
bench) set -- "\$@" --reps 1 --warmup 0 --gen 1 --prompt-lens 16 ;;
selftest) export QWICK_MODEL="$tiny/snapshots/1" HF_HUB_CACHE="$T/tiny" ;;
esac
export LD_PRELOAD="$FAST_CLOCK"
exec "$QWICK" "\$@"
SH
    chmod +x "$T/bin/qwick"
}

# For setup_file: compile the library that makes calls fail, as $INJECT.
build_injector() {
    [ "${SAN:-}" != 1 ] || return 0
    export INJECT=$BATS_FILE_TMPDIR/inject.so
    "${CC:-cc}" -O2 -Wall -Wextra -Werror -shared -fPIC -o "$INJECT" \
        "$BATS_TEST_DIRNAME/../faults/inject.c"
}

# common_setup of files that inject faults.
injection_setup() {
    common_setup
    [ "${SAN:-}" != 1 ] || skip "fault injection is not run under sanitizers"
    command -v python3 >/dev/null || skip "no python3"
}

# For setup_file: the demo model as a larger one that answers the same ($SLOW), and a
# copy with 4 bits ($FEW). With the demo model itself, guesses would cost as much as
# they save.
draft_models() {
    unset QWICK_MODEL
    cd "$BATS_TEST_DIRNAME/../.." || return 1
    export SLOW="$BATS_FILE_TMPDIR/slow" FEW="$BATS_FILE_TMPDIR/few"
    python3 tests/cli/slow_model.py models/demo "$SLOW" 8
    "${QWICK:-./qwick}" quantize -q -m models/demo --bits 4 -o "$FEW"
}
