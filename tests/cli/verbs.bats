#!/usr/bin/env bats
# Finding the verb, and the meaning of arguments.
load helpers

setup() {
    common_setup
}

@test "options may stand before the verb" {
    want=$(q tokenize --json "list files")
    [ "$(q --json tokenize "list files")" = "$want" ]
    [ "$(q -m models/demo tokenize --json "list files")" = "$want" ]
    [ "$(q -qm models/demo --json tokenize "list files")" = "$want" ]
    [ "$(q --model=models/demo --json tokenize "list files")" = "$want" ]
    [ "$(q -v --json -m models/demo tokenize "list files" 2>"$T/err")" = "$want" ]
    equal "$(q -h tokenize)" "$(q tokenize --help)"
    # a value that is a verb's name is a value
    fails 2 "--stop: unknown option of count" --stop inspect count "list files"
    fails 2 "-n: unknown option" -n 3 count "list files"
    # after -- or -p, it is a prompt
    equal "$(q -n 9 -- inspect)" "$(q -n 9 -p inspect)"
    run -0 --separate-stderr q --json -n 2 -p inspect
    [ "$(printf '%s' "$output" | jget 'o["finish_reason"]')" = length ]
}

@test "-q means quiet before rerank and the query after it" {
    want=$(q rerank -q "list" "ls -l")
    [ "$(q -q rerank --query "list" "ls -l")" = "$want" ]
    [ "$(q rerank --query "list" --quiet "ls -l")" = "$want" ]
    fails 2 "query" -q rerank "ls -l"
}

@test "every option has one letter and one arity in all verbs" {
    python3 - "$QWICK" <<'PY'
import re, subprocess, sys
seen = {}
verbs = re.findall(r"^  ([a-z]+) +", subprocess.run(
    [sys.argv[1], "help"], capture_output=True, text=True,
    check=True).stdout.split("Verbs\n")[1].split("Each has")[0], re.M)
assert len(verbs) >= 17, verbs
for verb in verbs:
    text = subprocess.run([sys.argv[1], verb, "--help"], capture_output=True,
                          text=True, check=True).stdout
    for letter, name, value in re.findall(
            r"^  (?:-(.), |    )--([a-z-]+)(\[=\S+\]| \S+)?", text, re.M):
        kind = "place" if value.startswith("[") else "value" if value else "flag"
        if (verb, name) == ("rerank", "quiet"):
            letter = "q"  # before the verb
        seen.setdefault(name, {}).setdefault((letter, kind), []).append(verb)
bad = {n: k for n, k in seen.items() if len(k) > 1}
assert not bad, bad
PY
}

@test "help and version are verbs" {
    equal "$(q help)" "$(q --help)"
    for v in batch chat rerank generate help version; do
        equal "$(q help $v)" "$(q $v --help)"
    done
    equal "$(q help run)" "$(q --help)"
    equal "$(q version)" "$(q --version)"
    fails 2 "\"tokenise\": no such verb, did you mean tokenize?" help tokenise
    fails 2 "no such verb" help frobnicate
    fails 2 "one verb only" help batch embed
    fails 2 "takes no arguments" version x
}

@test "a word that is nearly a verb is answered, with a note" {
    for w in tokenise tokenze ebmed bench2 rernk; do
        run -0 --separate-stderr q -n 9 "$w"
        [[ $stderr == "qwick: note: took '$w' as the prompt; the verb is '"* ]]
        [ "${#stderr_lines[@]}" -eq 1 ]
        run -0 --separate-stderr q -q -n 9 "$w"
        [ -z "$stderr" ]
    done
    run -0 --separate-stderr q -n 9 "tokens"
    [ -z "$stderr" ]
    # with more words it cannot be a prompt
    fails 2 "\"tokenise\": no such verb, did you mean tokenize?" tokenise hi
    fails 2 "is not a verb, did you mean inspect?" inspct --tensors
}

@test "hints for misspelt options and for options of other programs" {
    fails 2 "did you mean --temp?" --temperature 1 hi
    fails 2 "did you mean --max-tokens?" --max-new-tokens 1 hi
    fails 2 "did you mean --max-tokens?" --max_new_tokens=1 hi
    fails 2 "did you mean --system?" --system-prompt x hi
    fails 2 "did you mean --ctx?" --ctx-size 10 hi
    fails 2 "did you mean --max-tokens?" --max 1 hi
    fails 2 "--tensors: unknown option of generate; inspect has it" --tensors hi
    fails 2 "--ctx-size: unknown option (see" tokenize --ctx-size 1 hi
}

@test "sizes: fractions and units" {
    for s in 1 4096 1K 1.5G 1GB 1GiB 0.5t 512MiB 2g; do
        run -0 q cache gc --dir "$T/none" --size $s
    done
    for s in "" -1 1.5 K 1.5X 1GBB 1e3 .G 1..5G 9999999T " 1G" "1 G" nan; do
        fails 2 "--size: " cache gc --dir "$T/none" --size "$s"
    done
}

@test "an argument is text; a file goes with -f" {
    printf 'list files' >"$T/a"
    fails 2 "is a file, arguments are text; use -f $T/a" score "$T/a"
    fails 2 "is a file, arguments are text; use -f $T/a" score --jsonl "$T/a"
    fails 2 "is a file, arguments are text; use -f $T/a" render "$T/a"
    equal "$(q score "list files")" "$(q score -f "$T/a")"
    fails 2 "one text only" score a b
    fails 2 "--file: cannot be combined with a text" score -f "$T/a" text
    c='[{"role":"user","content":"hi"}]'
    printf '%s' "$c" >"$T/c"
    equal "$(q render "$c")" "$(q render -f "$T/c")"
    fails 2 "one chat only" render -f "$T/c" -f "$T/c"
    fails 2 "--file: cannot be combined with a chat" render -f "$T/c" "$c"
    fails 2 "is not a chat in JSON; -f reads a file" render "$T/none"
    fails 2 "has no effect with --jsonl" render --jsonl "$c"
}

@test "flags with a file: the word after them is an argument" {
    run -0 --separate-stderr q --profile-timing "$T/p.json"
    [[ ${stderr_lines[0]} == *"is taken as an argument, not as the file of --profile-timing; for that use --profile-file $T/p.json" ]]
    [ ! -e "$T/p.json" ]
    run -0 --separate-stderr q --profile-timing "list files"
    [[ $stderr != *"taken as"* ]]
    q --profile-file "$T/p.json" "list files" >"$T/out"
    equal "$(cat "$T/out")" "$(q "list files")"
    jget 'o["timing"]["summary"]["p95_ms"]' <"$T/p.json"
    q --profile-timing --profile-file "$T/q.json" "list files"
    q --profile-timing="$T/r.json" "list files"
    [ -s "$T/q.json" ]
    [ -s "$T/r.json" ]
    fails 2 "--profile-file: --profile-timing names a file as well" \
        --profile-timing="$T/a" --profile-file "$T/b" hi
    long=$(printf 'list files %.0s' {1..100})
    q --cache-dir "$T/c1" -n 9 "$long"
    q --prefix-cache --cache-dir "$T/c2" -n 9 "$long"
    q --prefix-cache="$T/c3" -n 9 "$long"
    for d in c1 c2 c3; do
        [[ $(q cache ls --dir "$T/$d") != *"0 bytes in 0"* ]]
    done
    fails 2 "--cache-dir: --prefix-cache names a directory as well" \
        --prefix-cache="$T/a" --cache-dir "$T/b" hi
    fails 2 "--prefix-cache-size: has no effect" --prefix-cache-size 1G hi
    run -0 --separate-stderr q --prefix-cache "$T/c4" -n 9
    [[ $stderr == *"for that use --cache-dir $T/c4" ]]
}

@test "--file-names: the names of files above their texts" {
    printf 'one\n' >"$T/a"
    printf 'two\n' >"$T/b"
    : >"$T/empty"
    want=$(printf '%s:\none\n\nstdin:\ntwo\n\nask' "$T/a")
    [ "$("$QWICK" --raw --json -n 1 -f "$T/a" -f - -f "$T/empty" --file-names ask \
        <"$T/b" 2>"$T/err" | jget 'o["usage"]["prompt_tokens"]')" = \
        "$(printf '%s' "$want" | "$QWICK" count)" ]
    for v in "" "choose -a x -a y" batch; do
        fails 2 "--file-names: has no effect without -f" $v --file-names
    done
}

@test "--repeat: the answer once, medians of the runs" {
    run -0 --separate-stderr q --profile-timing --repeat 3 "list files"
    [ "$output" = ls ]
    [[ $stderr == "runs "*"3, medians"* ]]
    q --json --profile-timing --repeat 3 --temp 1 "list files" >"$T/json"
    jget '[0][o["timing"]["summary"]["runs"] != 3 or
        o["timing"]["summary"]["prefill_ms"] <= 0]' <"$T/json"
    q --json --profile-timing "list files" |
        jget '[0]["runs" in o["timing"]["summary"]]'
    fails 2 "--repeat: has no effect without --profile-timing" --repeat 2 hi
    fails 2 "--repeat: cannot be combined with --save-session" \
        --profile-timing --repeat 2 --save-session "$T/s" hi
}
