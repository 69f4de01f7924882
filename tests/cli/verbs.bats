#!/usr/bin/env bats
# Finding the verb, and the meaning of arguments.
load helpers

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
def page(*args):
    return subprocess.run([sys.argv[1], *args], capture_output=True, text=True,
                          check=True).stdout
seen = {}
verbs = re.findall(r"^  ([a-z]+)  ", page("help", "verbs"), re.M)
assert len(verbs) >= 24, verbs
for verb in verbs + ["options"]:
    for letter, name, value in re.findall(
            r"^  (?:-(.), |    )--([a-z-]+)(\[=\S+\]| \S+)?",
            page("help", verb), re.M):
        kind = "place" if value.startswith("[") else "value" if value else "flag"
        seen.setdefault(name, {}).setdefault((letter, kind), []).append(verb)
bad = {n: k for n, k in seen.items() if len(k) > 1}
assert len(seen) > 100 and not bad, bad
PY
}

@test "help and version are verbs" {
    equal "$(q help)" "$(q --help)"
    for v in $(all_verbs) run; do
        equal "$(q help $v)" "$(q $v --help)"
    done
    equal "$(q help run)" "$(q generate --help)"
    [ "$(q help run)" != "$(q --help)" ]
    equal "$(q version)" "$(q --version)"
    fails 2 "\"tokenise\": no such verb or topic, did you mean tokenize?" help tokenise
    fails 2 "\"tempates\": no such verb or topic, did you mean templates?" help tempates
    fails 2 "\"frobnicate\": no such verb or topic (see qwick help --help)" help frobnicate
    fails 2 "one verb or topic only" help batch embed
    fails 2 "takes no arguments" version x
}

@test "a word that is nearly a verb is answered, with a warning" {
    for w in tokenise tokenze ebmed bench2 rernk; do
        run -0 --separate-stderr q -n 9 "$w"
        [[ $stderr == "qwick: warning: took '$w' as the prompt; the verb is '"* ]]
        [ "${#stderr_lines[@]}" -eq 1 ]
        run -0 --separate-stderr q -q -n 9 "$w"
        [ -z "$stderr" ]
    done
    run -0 --separate-stderr q -n 9 "tokens"
    [ -z "$stderr" ]
    # after -- or -p it is a prompt
    run -0 --separate-stderr q -n 9 -- tokenise
    [ -z "$stderr" ]
    run -0 --separate-stderr q -n 9 -p tokenise
    [ -z "$stderr" ]
    # with more words it cannot be a prompt
    fails 2 "\"tokenise\": no such verb, did you mean tokenize?" tokenise hi
    fails 2 "is not a verb, did you mean inspect?" inspct --tensors
}

@test "verbs of other programs" {
    # --ignore-eos: an empty answer is a warning, too
    while read -r word verb; do
        run -0 --separate-stderr q -n 9 --ignore-eos "$word"
        [ "$stderr" = "qwick: warning: took '$word' as the prompt; $verb" ]
    done <<'END'
list the verb is 'models'
show the verb is 'inspect'
download the verb is 'pull'
create qwick has no such verb
END
    run -0 --separate-stderr bash -c 'echo x | "$0" -n 9 --ignore-eos list' "$QWICK"
    [ "$stderr" = "qwick: warning: took 'list' as the prompt; the verb is 'models'" ]
    for args in "-q list" "-- list" "-p list" "--raw list" "ls"; do
        # shellcheck disable=SC2086
        run -0 --separate-stderr q -n 9 --ignore-eos $args
        [ -z "$stderr" ]
    done
    fails 2 "\"files\": one prompt only, quote it; the verb for 'list' is 'models'" list files
    fails 2 "\"list\" is not a verb, did you mean models?" list --all
    fails 2 "did you mean models?" help list
    run -0 q -n 9 -p log
    run -0 q -n 9 -- log
}

@test "a model or files among the words of a prompt" {
    fails 2 '"hi": one prompt only, quote it; if org/name is a model, use -m org/name' run org/name hi
    fails 2 '"two": one prompt only, quote it (see' "one and" two
    printf 'a\n' >"$T/a.md"
    printf 'b\n' >"$T/b.md"
    for v in "" "choose -a x -a y" logits; do
        for p in "" -p; do
            # shellcheck disable=SC2086
            fails 2 "\"$T/b.md\": is a file; give -f for each file, as in -f $T/b.md" \
                $v -f "$T"/*.md $p "sum it up"
        done
    done
    fails 2 "is a file, arguments are text; use -f $T/b.md" count -f "$T"/*.md
}

@test "a text that begins with - needs --" {
    for text in "-v shows what?" "- a list" "--help me" "-p is print" "--stop the press" \
        $'-\tx' "-vq shows what?"; do
        fails 2 "unknown option; text that begins with - follows --" "$text"
        run -0 --separate-stderr q -n 9 --ignore-eos -- "$text"
        [ -z "$stderr" ]
    done
    fails 2 "-5: unknown option; text that begins with - follows --" -5
    fails 2 "text that begins with - follows --" count "-5 degrees"
    equal "$(q -n9 --ignore-eos -- hi)" "$(q -n 9 --ignore-eos hi)"
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
    # one line names what does the same here
    fails 2 "-hf: unknown option; qwick pull ORG/NAME downloads a model, -m ORG/NAME uses it (see" \
        -hf Qwen/Qwen3-4B-GGUF hi
    fails 2 "-ngl: unknown option; all layers run on the CPU, with -t N threads (see" -ngl 99 hi
    fails 2 "--schema: unknown option, did you mean --json-schema? (see" --schema x hi
    fails 2 "--no-think: unknown option; did you mean --think off? (see" --no-think hi
    fails 2 "--template: unknown option; -T NAME is your prompt template, --chat-template the model's (see" \
        --template x hi
    fails 2 "--image: unknown option; models get text only, with -f FILE (see" --image x.png hi
    fails 2 "--format: unknown option; --json-schema gives the form of an answer (see" \
        --format json hi
    fails 2 "-o: unknown option; > FILE keeps the answer; an option has a name of its own, as --temp 0.2 (see" \
        -o temperature 0.2 hi
    fails 2 "did you mean --think-budget?" --reasoning-budget 0 hi
    fails 2 "did you mean --conversation?" --cid 1 hi
    # a verb that lacks the option gives no such hint
    fails 2 "--no-think: unknown option (see" count --no-think hi
    fails 2 "-ngl: unknown option; text that begins with - follows -- (see" count -ngl 9 hi
    # letters stay letters
    run -0 q -qn1 hi
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
    for v in count tokenize embed "rerank -q x" "embed a" "rerank -q x a"; do
        # shellcheck disable=SC2086
        fails 2 "\"$T/a\": is a file, arguments are text; use -f $T/a" $v "$T/a"
    done
    # only the name of a regular file, and only before --
    (cd "$T" && mkdir d && ln -s a link && mkfifo fifo)
    for name in d fifo none; do
        equal "$(q count "$T/$name")" "$(q count -- "$T/$name")"
    done
    fails 2 "is a file" count "$T/link"
    for v in count tokenize score embed "rerank -q x"; do
        # shellcheck disable=SC2086
        run -0 q $v -- "$T/a"
    done
    equal "$(q count -- "$T/a")" "$(printf %s "$T/a" | "$QWICK" count)"
    cd "$T"
    printf 'x' >72
    [ "$(q detokenize 72)" = "$(q detokenize -- 72)" ] # ids
    for v in "-n 9 --ignore-eos" "choose -a x -a y" logits; do
        # shellcheck disable=SC2086
        run -0 --separate-stderr q $v a
        [ "$stderr" = 'qwick: warning: "a" is taken as text, but a file has this name; -f a reads it' ]
        # shellcheck disable=SC2086
        run -0 --separate-stderr q $v -- a
        [[ $stderr != *"has this name"* ]]
    done
    cd - >/dev/null
    fails 2 '"-": is standard input, and cannot be combined with arguments' embed a -
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

@test "-i reads records, and -f with records is refused" {
    printf '{"text":"list files"}\n{"text":"b"}\n' >"$T/r"
    printf '{"ids":[72,105]}\n' >"$T/ids"
    printf '{"messages":[{"role":"user","content":"hi"}]}\n' >"$T/chat"
    printf '{"prompt":"list files"}\n' >"$T/p"
    while read -r in verb; do
        read -r -a args <<<"$verb"
        want=$("$QWICK" -q "${args[@]}" --jsonl <"$T/$in")
        equal "$(q -q "${args[@]}" --jsonl -i "$T/$in")" "$want"
        equal "$(q -q "${args[@]}" -i "$T/$in")" "$want"
        equal "$("$QWICK" -q "${args[@]}" -i - <"$T/$in")" "$want"
        [ "$(q -q "${args[@]}" -i "$T/$in" -i "$T/$in" | wc -l)" -eq $((2 * $(wc -l <<<"$want"))) ]
        fails 2 "-i FILE names the records of --jsonl" "${args[@]}" --jsonl -f "$T/$in"
        fails 2 "-i FILE names the records of --jsonl" "${args[@]}" -i "$T/$in" -f "$T/$in"
        fails 2 "has no effect with --jsonl" "${args[@]}" -i "$T/$in" -- x
    done <<'END'
r tokenize
r count
ids detokenize
chat render
r score --exact
r embed --exact
r rerank --exact --query list
END
    for v in embed "rerank --query x"; do
        # shellcheck disable=SC2086
        fails 2 "-i FILE names the records of --lines" $v --lines -f "$T/r"
    done
    for v in count render "rerank --query x"; do
        # shellcheck disable=SC2086
        fails 2 "--input: cannot be combined with --json" $v --json -i "$T/r"
    done
    want=$("$QWICK" choose --exact -a ls -a pwd --jsonl <"$T/p")
    equal "$(q choose --exact -a ls -a pwd --jsonl -i "$T/p")" "$want"
    equal "$(q choose --exact -a ls -a pwd -i "$T/p")" "$want"
    fails 2 "standard input has the records" choose -a x -a y --jsonl -i - -f -
    echo x | "$QWICK" choose -a x -a y --jsonl -i "$T/p" -f - | jlines '"answers" in o[0]'
    # in batch and choose, -f is text before each prompt, and no records are an error
    : >"$T/empty"
    for in in /dev/null "$T/empty"; do
        for v in batch "choose -a x -a y --jsonl"; do
            # shellcheck disable=SC2086
            fails 2 "$in: has no records; -i FILE names a file with records" $v -i "$in"
            # shellcheck disable=SC2086
            run -2 --separate-stderr "$QWICK" $v -f "$T/p" <"$in"
            [[ $stderr == "qwick: stdin: has no records; -i FILE names"* ]]
            [ -z "$output" ]
        done
    done
    run -2 --separate-stderr bash -c ': | "$0" batch -f "$1"' "$QWICK" "$T/p"
    [[ $stderr == "qwick: stdin: has no records"* ]]
    printf 'a,prompt\n' >"$T/csv"
    fails 2 "csv: has no records" batch --input-format csv -i "$T/csv"
    fails 2 "--input: one file only" batch -i "$T/p" -i "$T/p"
    # records that belong to another shard are records
    run -0 --separate-stderr q batch --shard 2/2 -i "$T/p"
    [ -z "$output$stderr" ]
    # forms that are not named
    printf 'list files\n' >"$T/lines"
    run -1 --separate-stderr q batch -i "$T/lines"
    [[ ${stderr_lines[0]} == "qwick: warning: $T/lines: the first record is no JSON object; --input-format takes lines, csv and tsv" ]]
    run -1 --separate-stderr q choose -a ls -a pwd -i "$T/lines"
    equal "$stderr" "qwick: warning: $T/lines: the first record is no JSON object; --input-format takes lines, csv and tsv"
    run -1 --separate-stderr q embed -i "$T/lines"
    [[ $stderr == *"qwick: warning: $T/lines: the first record is no JSON object; --lines takes each line as a text"* ]]
    # a byte order mark before the first record
    printf '\357\273\277{"text":"list files"}\n' >"$T/bom"
    equal "$(q count -i "$T/bom")" "$(q count --jsonl -i "$T/r" | head -n 1)"
    printf '\357\273\277list files\n' >"$T/bom"
    equal "$(q embed --exact --lines -i "$T/bom")" "$(q embed --exact "list files")"
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
        fails 2 "--file-names: has no effect without --file" $v --file-names
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

@test "results that are files: - is no name for them" {
    local option
    for option in --think-file --profile-file --save-session; do
        fails 2 "$option -: names a file, not standard output" $option - hi
    done
    fails 2 "--html -: names a file" score --html - hi
    fails 2 "--html -: names a file" bench --html -
    fails 2 "--session -: names a file" chat --session -
}
