#!/usr/bin/env bats
# Constraints: what comes out with exit status 0 matches, everything else is 6.
load helpers

setup() {
    common_setup
}

# matches RE SEEDS ARGS…: run generate with each seed at temperature 2. Each
# answer matches the Python expression RE or exits 6; most do the former.
matches() {
    local re=$1 n=$2 good=0
    shift 2
    for seed in $(seq "$n"); do
        run --separate-stderr q --think off --temp 2 --seed "$seed" \
            --no-newline "$@" "list files"
        if [ "$status" -eq 6 ]; then continue; fi
        [ "$status" -eq 0 ] || { echo "status $status: $stderr"; return 1; }
        printf '%s' "$output" | RE=$re python3 -c 'import os, re, sys
text = sys.stdin.buffer.read().decode()
assert re.fullmatch(os.environ["RE"], text, re.S), text' || return 1
        good=$((good + 1))
    done
    [ "$good" -gt $((n * 8 / 10)) ]
}

@test "answers match the regular expression" {
    matches '[a-z]{3,8} -\d+( \| [a-z ]{2,20})?' 20 \
        --regex '^[a-z]{3,8} -\d+( \| [a-z ]{2,20})?$'
    matches '("[^"\\]{0,10}", ){2}é\w?' 20 --regex '("[^"\\]{0,10}", ){2}é\w?'
    matches '.{0,40}' 20 --regex '(.|\n){0,40}'
}

@test "answers are one of the choices" {
    matches 'yes|yes, please|no' 10 --choices 'yes,yes\, please,no'
    run -0 q --choices 'ls -la' "list files"
    [ "$output" = "ls -la" ]
}

@test "an empty text may match" {
    run -0 --separate-stderr q --think off --regex 'x{0}' "list files"
    [ -z "$output$stderr" ]
}

@test "a cut answer exits 6" {
    run -6 --separate-stderr q --think off --regex '[ab]{50,}' -n 5 "list files"
    [[ $stderr == "qwick: the answer is cut: -n 5 is reached" ]]
    [[ $output =~ ^[ab]+$ ]]
    run -6 --separate-stderr q --think off --regex '(ab){50,}' --loop-guard 9 x
    [[ $stderr == *"repeat themselves" ]]
    run -6 --separate-stderr q --think off --regex '[ab]{200}' -c 30 x
    [[ $stderr == *"context of 30 tokens is full" ]]
    run -6 --separate-stderr q --json --think off --regex '[ab]{50,}' -n 5 x
    [ "$(jget 'o["finish_reason"]' <<<"$output")" = length ]
}

# The demo model opens an empty think block unless it is told not to.
@test "thinking comes before the constrained text" {
    run -0 q --json --regex '[ab]{3}' "list files"
    jget 'o["text"]' <<<"$output" | grep -qx '[ab]\{3\}'
    [ "$(q tokenize '<think>')" = "$(jget 'o["tokens"][0]' <<<"$output")" ]
    # newlines of the text are kept, although those after thinking are not
    run -0 q --json --regex '\n\n[ab]{3}' "list files"
    jget 'repr(o["text"])' <<<"$output" | grep -qx "'.n.n[ab]\{3\}'"
    # thinking that does not end
    run -6 --separate-stderr q --regex '[ab]{3}' -n 1 "list files"
}

@test "raw prompts and prefilled answers are constrained at once" {
    run -0 q --raw --regex '[ab]{3}' "list"
    [[ $output =~ ^[ab]{3}$ ]]
    run -0 q --prefill 'ls' --regex ' -[alh]+' "list files"
    [[ $output =~ ^\ -[alh]+$ ]]
}

@test "bad constraints are usage errors with a position" {
    fails 2 '--regex: character 2: the group has no ")"' --regex 'a(b' x
    fails 2 '--regex: character 4: back references' --regex '(a)\1' x
    fails 2 'lookahead is not supported' --regex 'a(?=b)' x
    fails 2 '--regex: is too large' --regex '(([a-z]{1000}){1000}){1000}' x
    fails 2 '--choices: text 2 is empty' --choices 'a,,b' x
    fails 2 'cannot be combined with --choices' --choices a --regex b x
    fails 2 'cannot be combined with --stop' --choices a --stop b x
    fails 2 'cannot be combined with --ignore-eos' --regex a --ignore-eos x
}

@test "answers follow the grammar of a file" {
    cat >"$T/g" <<'END'
# nested lists of short words
root ::= "[" ( item ("," item)* )? "]"
item ::= [a-z]{1,4} | root
END
    good=0
    for seed in $(seq 12); do
        run --separate-stderr q --think off --temp 2 --seed "$seed" -n 80 \
            --grammar "$T/g" "list files"
        [ "$status" -eq 0 ] || [ "$status" -eq 6 ]
        [ "$status" -eq 0 ] || continue
        good=$((good + 1))
        printf '%s' "$output" | python3 -c 'import re, sys
text = sys.stdin.read()
while text != "[]":
    new = re.sub(r"\[([a-z]{1,4}|\[\])(,([a-z]{1,4}|\[\]))*\]", "[]", text)
    assert new != text, text
    text = new'
    done
    [ "$good" -ge 3 ]
    printf 'root ::= "a"\nroot ::= "b"\n' >"$T/g"
    fails 2 "$T/g: line 2: rule \"root\" is defined twice" --grammar "$T/g" x
    printf 'root ::= root "a" | "b"\n' >"$T/g"
    fails 2 "$T/g: rule \"root\" begins with itself" --grammar "$T/g" x
    fails 1 "$T/none: " --grammar "$T/none" x
    fails 2 "needs a file" --grammar - x
}
