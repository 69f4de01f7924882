# Shared by the bats files. They run from the repository's root, offline, on the
# built-in model and on tests/golden/models.
bats_require_minimum_version 1.5.0

# Each file calls this from setup(). A pipe fails when any of its commands
# fails.
common_setup() {
    set -o pipefail
    cd "$BATS_TEST_DIRNAME/../.." || return 1
    QWICK=${QWICK:-./qwick}
    QWICK=$(realpath "$QWICK")
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

# Without the packages of the site, which no test needs, Python starts in half
# the time.
python3() {
    command python3 -S "$@"
}

# Run qwick with an empty standard input.
q() {
    "$QWICK" "$@" </dev/null
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

# Print the value of a Python expression over the JSON object o on standard
# input.
jget() {
    python3 -S -E -c 'import json, sys
o = json.load(sys.stdin)
print(eval("(" + sys.argv[1] + ")"))' "$1"
}

# Assert that a Python expression over the lines (list of objects) on standard
# input is true.
jlines() {
    python3 -S -E -c 'import json, sys
o = [json.loads(l) for l in sys.stdin.buffer.read().decode().split("\n")[:-1]]
assert eval("(" + sys.argv[1] + ")"), o' "$1"
}

# Check that stderr is one line that begins with "qwick: " and has no control
# bytes.
one_error_line() {
    [ "${#stderr_lines[@]}" -eq 1 ] && [[ ${stderr_lines[0]} == "qwick: "* ]]
}

# fails STATUS PATTERN ARGS…: check the exit status, empty stdout, and one line
# on stderr that matches the pattern.
fails() {
    local want=$1 pattern=$2
    shift 2
    run --separate-stderr q "$@"
    [ "$status" -eq "$want" ] || { echo "status $status: $* $stderr"; return 1; }
    [ -z "$output" ] || { echo "stdout: $output"; return 1; }
    one_error_line || { echo "stderr: $stderr"; return 1; }
    [[ $stderr == *"$pattern"* ]] || { echo "no '$pattern' in: $stderr"; return 1; }
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

# quick_qwick: make $T/bin/qwick for examples. It runs bench with short measurements,
# selftest on a model of a few hundred KB, and the other verbs unchanged.
quick_qwick() {
    local tiny=$T/tiny/models--Qwen--Qwen3-0.6B
    mkdir -p "$T/bin" "$tiny/refs" "$tiny/snapshots"
    small_demo "$T/small"
    # for selftest, whatever model an example names
    echo 1 >"$tiny/refs/main"
    ln -s "$PWD/$MODELS/tied-bf16" "$tiny/snapshots/1"
    cat >"$T/bin/qwick" <<SH
#!/bin/sh
case "\$1" in
bench) set -- "\$@" --reps 1 --warmup 0 --gen 1 --prompt-lens 16 ;;
selftest) export QWICK_MODEL="$tiny/snapshots/1" HF_HUB_CACHE="$T/tiny" ;;
esac
exec "$QWICK" "\$@"
SH
    chmod +x "$T/bin/qwick"
}

need_model() {
    [ -d "$MODELS/$1" ] || skip "$MODELS/$1 is missing"
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
