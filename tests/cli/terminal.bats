#!/usr/bin/env bats
# Output that people see at a terminal and that scripts do not get.
load helpers

setup() {
    common_setup
    command -v script >/dev/null || skip "no script(1)"
    export TERM=xterm
}

# tty COMMAND: print the stdout and stderr that the terminal gets, without the
# carriage returns that it adds.
tty() {
    script -qec "$1" /dev/null </dev/null | tr -d '\r'
}

@test "control characters of a text are shown on a terminal, and kept in a pipe" {
    # ESC, BEL, DEL, the C1 control NEL, a byte that is not UTF-8, tab, newline
    ids=$(printf 'a\033[31m\007\177\302\205\377\tb\n' | "$QWICK" tokenize)
    "$QWICK" detokenize $ids </dev/null |
        cmp - <(printf 'a\033[31m\007\177\302\205\377\tb\n')
    [ "$(tty "$QWICK detokenize $ids")" = 'a\x1b[31m\x07\x7f\xc2\x85\xff'$'\tb' ]
    # the text of ids ends with a newline here, and stays exact in a pipe
    for ids in "1 2" $(q tokenize $'a\n' | tr ' ' ,) 6137; do
        tty "$QWICK detokenize $ids" >"$T/tty"
        # shellcheck disable=SC2086
        q detokenize $ids >"$T/pipe"
        cmp "$T/tty" <(printf '%s\n' "$(<"$T/pipe")")
    done
    [ "$(q detokenize 1 | wc -c)" -eq 1 ]
    tty "$QWICK detokenize --skip-special 6137" >"$T/tty"
    [ ! -s "$T/tty" ]
    # an answer of a model that draws such characters
    printf 'print \033[31m' >"$T/p"
    out=$(tty "$QWICK -m models/demo --no-stdin --raw --temp 100 --seed 3 -n 300 \
        --ignore-eos -f $T/p")
    [[ $out != *$'\033'* && $out != *$'\177'* && -n $out ]]
    # names of models and files
    mkdir "$T/m"$'\033[31m'
    cp models/demo/* "$T/m"$'\033[31m'
    out=$(cd "$T" && tty "$QWICK inspect -m m$'\\033[31m'")
    [[ $out == *'m\x1b[31m'* && $out != *$'\033'* ]]
}

@test "controls of the direction of text: in names all, in texts all but marks" {
    M=$PWD/models/demo
    marks=$'\xd8\x9c\xe2\x80\x8e\xe2\x80\x8f' rest=$'\xe2\x80\xaa\xe2\x80\xab\xe2\x80\xac\xe2\x80\xad\xe2\x80\xae\xe2\x81\xa6\xe2\x81\xa7\xe2\x81\xa8\xe2\x81\xa9'
    shown='\xe2\x80\xaa\xe2\x80\xab\xe2\x80\xac\xe2\x80\xad\xe2\x80\xae'
    shown+='\xe2\x81\xa6\xe2\x81\xa7\xe2\x81\xa8\xe2\x81\xa9'
    other=$'\xe2\x80\xaf\xe2\x81\xa5\xe2\x81\xaa\xe2\x80\x8d'
    # texts
    ids=$(printf %s "$marks$rest$other" | "$QWICK" tokenize)
    equal "$("$QWICK" detokenize $ids </dev/null)" "$marks$rest$other"
    equal "$(tty "$QWICK detokenize $ids")" "$marks$shown$other"
    # a coloured text
    printf %s "a$rest" >"$T/text"
    out=$(tty "$QWICK score -m models/demo --heat -f $T/text")
    [[ $out == *'\x81\xa9'* && $out != *$'\xe2\x81\xa9'* && $out != *$'\xe2\x80\xae'* ]]
    # names: lists, tables, messages
    name="m${marks}${rest}9"
    ! grep -q "[$marks$rest]" <<<"$shown"
    mkdir -p "$T/d/$name"
    cp models/demo/* "$T/d/$name"
    cp "$T/text" "$T/d/$name.txt"
    cp "$T/text" "$T/d/b.txt"
    marked='m\xd8\x9c\xe2\x80\x8e\xe2\x80\x8f'$shown
    cd "$T/d"
    for c in "inspect -m ./m*9" "models" "--show-config -m ./m*9" "inspect -m ./m*9.txt" \
        "rerank -m $M --query x -f ./m*9.txt -f b.txt" \
        "score -m $M --by line -f ./m*9.txt -f b.txt" \
        "score -m $M --heat -f ./m*9.txt -f b.txt"; do
        out=$(QWICK_MODEL_PATH=$PWD tty "$QWICK $c || true")
        echo "$c: ${out::300}"
        [[ $out == *"$marked"* ]]
        [ -z "$(grep "[$marks$rest]" <<<"$out")" ]
    done
    run -2 "$QWICK" pull "$name"
    [[ $output == *"$marked"* && $output != *$'\xe2\x80\xae'* ]]
    # what shells complete leaves such names out
    run -0 --separate-stderr env QWICK_MODEL_PATH="$PWD" "$QWICK" models --names
    [[ $output != *m* && $stderr == *"1 models are left out"* ]]
    # files and pipes get the bytes
    QWICK_MODEL_PATH=$PWD q models | grep -qF "$name"
}

@test "thinking on a terminal: dim, its control characters shown" {
    # ends inside an open think block
    THINK=6136,885,198,492,865,6137,198,6136,570,334,1120,198,6142,492
    out=$(tty "$QWICK -q -m models/demo --no-stdin --prompt-ids $THINK -n 9")
    [ -z "$out" ]
    out=$(tty "$QWICK -m models/demo --no-stdin --prompt-ids $THINK -n 1000 \
        --temp 100 --seed 1 --ignore-eos")
    [[ $out == *$'\033[2m'* ]]
    # the only escape sequences begin and end the dim text
    rest=${out//$'\033[2m'/}
    rest=${rest//$'\033[0m'/}
    rest=${rest//[$'\t\n']/}
    # about ten of 1000 random tokens are control characters
    [ "$(LC_ALL=C tr -d '\001-\037\177' <<<"$rest")" = "$rest" ]
    [[ $rest == *'\x'* ]]
}

@test "notes: the demo model; a warning: a file's name as text" {
    export COLUMNS=200 # no message ends its line between words
    demo="qwick: note: this is the built-in demo model, which only knows shell commands; -m MODEL takes another one"
    [ "$(tty "$QWICK --no-stdin 'list files'")" = "$demo"$'\nls' ]
    [ "$(tty "$QWICK -q --no-stdin 'list files'")" = ls ]
    [ "$(tty "$QWICK -m models/demo --no-stdin 'list files'")" = ls ]
    [ "$(tty "$QWICK choose -a ls -a pwd --no-stdin 'list files' | wc -l")" = \
        "$demo"$'\n2' ]
    cd "$T"
    printf 'list files' >notes
    out=$(tty "$QWICK -q --no-stdin notes")
    [[ $out != *"has this name"* ]]
    for v in "" "choose -a ls -a pwd" logits; do
        out=$(tty "$QWICK $v notes")
        [[ $out == *'qwick: warning: "notes" is taken as text, but a file has this name; -f notes reads it'* ]] ||
            { echo "$v: $out"; false; }
    done
    # scripts get the warning, but not the note
    run -0 --separate-stderr q notes
    [[ $stderr == 'qwick: warning: "notes" is '* && ${#stderr_lines[@]} -eq 1 ]]
}

@test "a standard input that stays silent: a note after two seconds" {
    note="qwick: note: waiting for standard input; --no-stdin does without it"
    fast_clock
    local wait=${FAST_CLOCK:+0.5} qwick="LD_PRELOAD=$FAST_CLOCK $QWICK -m $PWD/models/demo"
    out=$(tty "{ sleep ${wait:-3}; echo; } | $qwick 'list files'")
    [ "$out" = "$note"$'\nls' ]
    out=$(tty "sleep ${wait:-3} | $qwick 'list files'")
    [ "$out" = "$note"$'\n'"qwick: warning: standard input: is an empty pipe; --no-stdin leaves it out"$'\nls' ]
    out=$(tty "echo | $QWICK -m $PWD/models/demo 'list files'")
    [ "$out" = ls ]
}

@test "inspect: sizes for people, raw in JSON" {
    run -0 q inspect
    [[ $output == *"weight bytes       18885120 (18.9 MB)"* ]]
    [[ $output == *"kv context bytes   16777216 (16.8 MB)"* ]]
    [[ $output == *"n params           9442560 (9.44 M)"* ]]
    [[ $output == *"   1 x BF16    3.15 MB  [6144, 256]      \"model.embed_tokens.weight\""* ]]
    q inspect --json | jget '[0][(o["weight_bytes"], o["kv_context_bytes"],
        o["tensor_kinds"][0]["bytes"]) != (18885120, 16777216, 3145728)]'
}

@test "--save-session: a file that cannot be written is refused before the work" {
    fails 1 "$T/none/s: --save-session cannot write to $T/none: No such file" \
        --save-session "$T/none/s" hi
    fails 1 "is not a regular file" --save-session "$T" hi
    q -n 9 --save-session "$T/s" hi
    (cd "$T" && "$QWICK" -n 9 --save-session s2 hi </dev/null)
    [ -s "$T/s" ]
    [ -s "$T/s2" ]
    [ "$(id -u)" -ne 0 ] || skip "root writes anywhere"
    mkdir -m 500 "$T/ro"
    fails 1 "Permission denied" --save-session "$T/ro/s" hi
}

@test "logits: a table with a heading" {
    run -0 tty "'$QWICK' logits --isa ref --top 3 'tar x'"
    [ "${#lines[@]}" -eq 4 ]
    [ "${lines[0]}" = "      id        logit      logprob      prob  text" ]
    [ "${lines[1]}" = '     833    15.554014    -0.923012  39.7320%  "tar"' ]
}

@test "on a terminal, notes and warnings end lines between words" {
    cat >"$T/wrap.py" <<'PY'
import os
from on_pty import Pty
for columns in (30, 60):
    p = Pty([os.environ["QWICK"], "embed", "list files"], columns=columns)
    p.end()
    text = p.all.decode().replace("\r\n", "\n")
    warning = text[text.index("qwick: warning"):text.index("doubtful") + 8]
    lines = warning.split("\n")
    assert len(lines) > 1 and all(len(x) <= columns for x in lines), lines
    words = warning.split()
    assert " ".join(words) == ("qwick: warning: qwick-demo: does not look like an "
                               "embedding model, the vectors are doubtful"), words
    # no line ends before a word that has a place in it
    for a, b in zip(lines, lines[1:]):
        assert len(a) + 1 + len(b.split(" ")[0]) > columns, lines
PY
    QWICK=$QWICK PYTHONPATH=tests/cli python3 "$T/wrap.py"
    # a file gets each message as one line
    run -0 --separate-stderr "$QWICK" embed "list files"
    # shellcheck disable=SC2154 # run sets it
    equal "$(printf '%s\n' "$stderr" | grep -c .)" 1
}
