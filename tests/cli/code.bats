#!/usr/bin/env bats
# -x: only the first fenced code block of an answer.
load helpers

setup() {
    common_setup
    F='```'
}

# A constraint makes the demo model say anything.
says() {
    local text=$1
    shift
    run --separate-stderr q --think off "$@" --regex "$(as_regex "$text")" "list files"
}

@test "the first code block is printed, and nothing else" {
    says "Use:

${F}sh
ls -la
cd ..
$F
or
$F
pwd
$F
" -x
    [ "$status" -eq 0 ]
    [ "$output" = $'ls -la\ncd ..' ]
    [ -z "$stderr" ]
    says "1. so
   ~~~
   ls
     -l
   ~~~" -x
    [ "$status" -eq 0 ]
    [ "$output" = $'ls\n  -l' ]
}

@test "without a complete block: nothing on stdout, exit status 6" {
    says "use ${F}ls$F" -x
    [ "$status" -eq 6 ]
    [ -z "$output" ]
    [ "$stderr" = "qwick: the answer has no code block" ]
    says "$F
$F
" -x
    [ "$status" -eq 6 ]
    [ "$stderr" = "qwick: the code block of the answer is empty" ]
    says "$F
ls -l -a -h --color=auto
$F
" -x -n 8
    [ "$status" -eq 6 ]
    [ -z "$output" ]
    [[ $stderr == "qwick: the answer is cut inside its code block: -n 8 is reached" ]]
    run -6 --separate-stderr q -x -n 1 "list files"
    [ -z "$output" ]
    [ "$stderr" = "qwick: the answer has no code block: -n 1 is reached" ]
}

@test "the text of --prefill can open the block" {
    local text
    text=$(q --prefill "${F}sh
" "list files")
    [ -n "$text" ]
    # the model ends its answer, which ends the block
    run -0 --separate-stderr q -x --prefill "${F}sh
" "list files"
    [ "$output" = "$text" ]
    [ -z "$stderr" ]
    run -0 q -x --prefill "${F}sh
cd" "list files"
    [ "${output:0:2}" = cd ]
    run -6 --separate-stderr q -x -n 1 --prefill "${F}sh
" "list files"
    [ -z "$output" ]
    # a stop string ends it as well
    run -0 q -x --stop '*' --prefill "${F}sh
" "list files"
    [ "$output" = "${text%%\**}" ]
    # a prompt that fails prints nothing
    run -4 --separate-stderr q -x -c 18 --prefill "${F}sh
cd" "list files and directories"
    [ -z "$output" ]
    fails 2 "--prefill: has a whole code block" -x --prefill "$F
ls
$F
" "list files"
}

# The first token is random; some seed draws a newline, which ends the fence.
@test "the answer ends with its block" {
    local prefill="$F
ls
$F" found=
    for seed in 19 83 $(seq 400); do
        opts=(--exact --ignore-eos --temp 4 --seed "$seed" --prefill "$prefill")
        text=$(q -q --json -n 1 "${opts[@]}" "list files" | jget 'o["text"][:1] == "\n"')
        if [ "$text" = True ]; then found=1; break; fi
    done
    [ "$found" ]
    run -0 --separate-stderr timeout 20 "$QWICK" --no-stdin -x "${opts[@]}" \
        "list files"
    [ "$output" = ls ]
    [ -z "$stderr" ]
    # the session has the whole answer
    run -0 q -q -x -n 20 --save-session "$T/s" "${opts[@]}" "list files"
    [ "$output" = ls ]
    run -0 q -q -n 20 --save-session "$T/whole" "${opts[@]}" "list files"
    cmp "$T/s" "$T/whole"
}

@test "objects have the block beside the text" {
    local text="a
$F
ls
$F
b"
    says "$text" -x --json
    [ "$status" -eq 0 ]
    [ "$(jget 'o["code"] == "ls\n" and o["text"][-1] == "b"' <<<"$output")" = True ]
    says "$text" --json
    [ "$(jget '"code" in o' <<<"$output")" = False ]
    says "$text" -x --jsonl
    [ "$status" -eq 0 ]
    printf '%s\n' "$output" | jlines 'o[-1]["code"] == "ls\n" and
        "".join(x["text"] for x in o[:-1]) == o[-1]["text"]'
    says "none" -x --json
    [ "$status" -eq 6 ]
    [ "$(jget 'o["code"]' <<<"$output")" = None ]
}

@test "a batch gives the block of each answer" {
    cat >"$T/in" <<'END'
{"prompt":"x","choices":["a\n```\nls\n```\nb"]}
{"prompt":"x","choices":["none"]}
{"prompt":"x","choices":["```\nls"]}
{"prompt":"x","choices":["```\nls -l -a -h"],"max_tokens":5}
{"prompt":"x","choices":["```\n```"]}
END
    run -1 --separate-stderr q batch --think off -x -i "$T/in" -o "$T/out"
    [[ $stderr == *"3 answers have no complete code block, or fall short"* ]]
    jlines '[x["code"] for x in o] == ["ls\n", None, "ls", None, ""] and
        [x.get("incomplete") for x in o] == [None, True, None, True, True] and
        o[0]["text"][-1] == "b"' <"$T/out"
    # the same command finds nothing to do; without -x the answers differ
    cp "$T/out" "$T/old"
    run -1 --separate-stderr q batch --think off -x -i "$T/in" -o "$T/out"
    [[ $stderr == *"3 answers of earlier runs have no complete code block"* ]]
    cmp "$T/out" "$T/old"
    run -2 q batch --think off -i "$T/in" -o "$T/out"
}

@test "options that print other text are refused" {
    fails 2 "--show-thinking: has no effect with --extract" -x \
        --show-thinking "list files"
}
