#!/usr/bin/env bats
# Option syntax, ranges, contradictions.
load helpers

@test "forms: --a=b, --a b, -ab, -a b, bundles, --" {
    want=$(q -n 2 "list files")
    [ "$(q --max-tokens=2 "list files")" = "$want" ]
    [ "$(q --max-tokens 2 "list files")" = "$want" ]
    [ "$(q -n2 "list files")" = "$want" ]
    [ "$(q "list files" -n 2)" = "$want" ]
    [ "$(q -qn2 "list files")" = "$want" ]
    [ "$(q -n 9 -n 2 -- "list files")" = "$want" ]
    run -0 q -n 1 -p tokenize
    run -0 q -n 1 -- tokenize
    run -0 q -n 1 -- --help
    run -0 q -n 1 -p --help
}

@test "unknown options, and options without their value" {
    fails 2 "--frobnicate: unknown option" --frobnicate hi
    fails 2 "did you mean --temp" --tmp 1 hi
    fails 2 "-Z: unknown option" -Z hi
    fails 2 "-1: unknown option" -1
    fails 2 "--json: takes no value" --json=1 hi
    for o in -m -p -f -s -n -t -c --temp --top-k --stop --think --kv --isa \
        --prompt-ids --think-file --seed --overflow --system-file; do
        fails 2 "$o: needs a value" hi $o
    done
    for o in --model --file --think-file --system-file --chat-json --stop \
        --profile-timing; do
        fails 2 "$o: the value is empty" $o= hi
    done
    for v in tokenize detokenize count render embed rerank logits score choose \
        inspect models pull bench; do
        fails 2 "see qwick $v --help" $v --frobnicate
    done
    fails 2 "--threads: unknown option" tokenize --threads 2 hi
}

# bad OPTION VALUE...: check that each is refused and that the message names
# the option.
bad() {
    local o=$1 v
    shift
    for v in "$@"; do
        fails 2 "$o: " "$o" "$v" hi
        fails 2 "$o: " "$o=$v" hi
    done
}

@test "the message about a number that is too large names the largest" {
    fails 2 "expected an integer, 1..2147483647 " -n 2147483648 hi
    fails 2 "0..9223372036854775807 " --seed 9223372036854775808 hi
}

@test "numbers out of range or malformed" {
    local no=("" 1x nan inf " 1" "1 " 0x1 1,5 -- +-1 .)
    bad --max-tokens 0 -1 1e30 1e3 1.5 2147483648 9223372036854775808 "${no[@]}"
    bad --ctx 0 -1 1e30 2147483648 9223372036854775808 "${no[@]}"
    bad --threads 0 -1 1e30 1000000 2147483648 9223372036854775808 "${no[@]}"
    bad --prefill-chunk 0 -1 1e30 2147483648 9223372036854775808 "${no[@]}"
    bad --top-k -1 1e30 2147483648 9223372036854775808 "${no[@]}"
    bad --logprobs 0 -1 1e30 2147483648 9223372036854775808 "${no[@]}"
    bad --loop-guard 1 2 -1 1e30 2147483648 9223372036854775808 "${no[@]}"
    bad --seed -1 1e30 9223372036854775808 18446744073709551616 "${no[@]}"
    bad --temp -1 1e30 1e400 2147483648 9223372036854775808 "${no[@]}"
    bad --top-p -1 1.1 1e30 2147483648 9223372036854775808 "${no[@]}"
    bad --min-p -1 1.1 1e30 2147483648 9223372036854775808 "${no[@]}"
    bad --repeat-penalty 0 -1 1e30 2147483648 9223372036854775808 "${no[@]}"
    bad --presence-penalty -3 1e30 2147483648 9223372036854775808 "${no[@]}"
    bad --frequency-penalty -3 1e30 2147483648 9223372036854775808 "${no[@]}"
}

@test "numbers out of range in the other verbs" {
    for v in 0 -1 1e30 nan "" 2147483648 9223372036854775808 1x; do
        fails 2 "--top: " logits --top "$v" hi
        fails 2 "--reps: " bench --reps "$v"
        fails 2 "--gen: " bench --gen "$v"
        fails 2 "--prompt-lens: " bench --prompt-lens "$v"
        fails 2 "--prompt-lens: " bench --prompt-lens "5,$v"
        fails 2 "--depths: " bench --depths "$v"
        fails 2 "-t: " bench -t "1,$v"
        [ "$v" = 0 ] || fails 2 "--warmup: " bench --warmup "$v"
    done
    for v in 0 -1 1e30 nan "" 2147483648 9223372036854775808 1x; do
        fails 2 "--dim: " embed --dim "$v" hi
        fails 2 "--max-batch: " embed --max-batch "$v" hi
        fails 2 "--top: " rerank -q x --top "$v" hi
        fails 2 "--max-batch: " rerank --max-batch "$v" -q x hi
    done
    for v in -1 1.1 1e30 nan "" 1x; do
        fails 2 "--threshold: " rerank --threshold "$v" -q x hi
    done
    fails 2 "--format: " embed --format csv hi
    fails 2 "--json: unknown option" embed --json hi
    fails 2 "--depths: " bench --depths "1,"
    for v in 1 0 -1 1e30 nan "" 2147483648 1x; do
        fails 2 "--window: " score --window "$v"
        [ "$v" = 1 ] || fails 2 "--stride: " score --stride "$v"
    done
    for v in -0.1 1.1 1e30 nan "" 1x; do
        fails 2 "--threshold: " choose --yes --threshold "$v" hi
    done
}

@test "values that are not among the choices" {
    for v in "" maybe ON on\|off; do
        bad --think "$v"
        bad --kv "$v"
        fails 2 "isa: \"$v\": is none of ref, " --isa "$v" hi
        bad --overflow "$v"
        bad --color "$v"
    done
    fails 2 "--kv q8: --exact needs f32" --exact --kv q8 hi
    fails 2 "--kv q4: --exact needs f32" --exact --kv q4 hi
    fails 2 "q4 is too coarse for the attention of gemma4" \
        -m "$MODELS/../families/gemma4-kv" --kv q4 --prompt-ids 1
}

@test "--think is taken anywhere: scripts give it to any model" {
    for think in off auto; do
        for mode in "--raw hi" "--prompt-ids 1"; do
            run -0 --separate-stderr q -q -n 1 --think $think $mode
            run -0 --separate-stderr q -n 1 --greedy --ignore-eos --think $think $mode
            [ -z "$stderr" ]
        done
    done
    run -0 --separate-stderr q -n 1 --ignore-eos --raw --think on hi
    [ "$stderr" = "qwick: warning: --think: has no effect with --raw" ]
    run -0 --separate-stderr q -n 1 --ignore-eos --prompt-ids 1 --think on
    [ "$stderr" = "qwick: warning: --think: has no effect with --prompt-ids" ]
    run -0 --separate-stderr q -n 1 --think on hi
    [[ $stderr != *"no effect"* ]]
    # a template without thinking
    echo "{{ messages[0].content }}" >"$T/t"
    run -0 --separate-stderr q -n 1 --ignore-eos --chat-template "$T/t" --think on hi
    [ "$stderr" = "qwick: warning: --think: has no effect with a template without thinking" ]
    echo '{"prompt":"hi"}' >"$T/r"
    run -0 --separate-stderr q batch -n 1 --ignore-eos --chat-template "$T/t" --think on -i "$T/r"
    [[ $stderr == *"--think: has no effect with a template without thinking"* ]]
    run -0 --separate-stderr q -n 1 --ignore-eos --chat-template "$T/t" --think off hi
    [ -z "$stderr" ]
    # one that always thinks
    echo "{{ messages[0].content }}<think>" >"$T/t"
    run -0 --separate-stderr q -n 2 --ignore-eos --chat-template "$T/t" --think on hi
    [[ $stderr != *"no effect"* ]]
}

@test "options without effect, and conflicting options" {
    fails 2 "--system: has no effect with --raw" --raw -s x hi
    fails 2 "--system-file: has no effect with --raw" --raw --system-file x hi
    fails 2 "--prefill: has no effect with --raw" --raw --prefill x hi
    fails 2 "--show-thinking: has no effect" --raw --show-thinking hi
    fails 2 "--think-file: has no effect" --raw --think-file x hi
    fails 2 "--allow-special: has no effect" --raw --allow-special hi
    fails 2 "--chat-json: has no effect" --raw --chat-json x
    fails 2 "--system: has no effect with --prompt-ids" --prompt-ids 1 -s x
    fails 2 "--prompt-ids: cannot be combined with --chat-json" \
        --prompt-ids 1 --chat-json x
    fails 2 "--system: has no effect with --chat-json" --chat-json x -s y
    fails 2 "--system: cannot be combined" -s x --system-file y hi
    fails 2 "--kv f16" --exact --kv f16 hi
    fails 2 "--json: cannot be combined" --json --jsonl hi
    fails 2 "--json: cannot be combined" tokenize --json --jsonl hi
    fails 2 "--show-thinking: has no effect" --json --show-thinking hi
    fails 2 "--show-thinking: has no effect" --jsonl --show-thinking hi
    fails 2 "--logprobs: has no effect" --logprobs 2 hi
    fails 2 "--temp: cannot be combined with --greedy" --greedy --temp 1 hi
    fails 2 "--top-k: has no effect with --greedy" --greedy --top-k 5 hi
    fails 2 "--top-p: has no effect with --temp 0" --temp 0 --top-p 0.5 hi
    fails 2 "--min-p: has no effect with --greedy" --greedy --min-p 0.5 hi
    fails 2 "--md: cannot be combined" bench --md --json
    fails 2 "--prompt-ids: cannot be combined" logits --prompt-ids 1 --chat
    fails 2 "--prompt-ids: cannot be combined" logits --prompt-ids 1 hi
    fails 2 "--top: has no effect" logits -o "$T/x" --top 3 hi
    fails 2 "--json: has no effect" logits -o "$T/x" --json hi
    fails 2 "has no effect with --jsonl" tokenize --jsonl hi
    fails 2 "--file: cannot be combined" tokenize -f x hi
    fails 2 "--given: cannot be combined" score --given a --given-file b
    fails 2 "--by: has no effect with --perplexity" score --perplexity --by word
    fails 2 "--chat: needs --given" score --chat
    fails 2 "asked for more than once" score -f - -f -
    fails 2 "asked for more than once" score --given-file - -f -
    fails 2 "no answers" choose hi
    fails 2 "--answer: give two or more answers" choose -a a hi
    fails 2 "--answer: cannot be combined with --yes" choose --yes -a a hi
    fails 2 "-a: the value is empty" choose -a a -a "" hi
    fails 2 "--in-order: has no effect with --yes" choose --yes --in-order hi
    fails 2 '"hi": has no effect with records; --prompt-template' choose --yes --jsonl hi
    fails 2 "--csv: has no effect without" choose --yes --csv hi
    fails 2 "--with-input: has no effect with --csv" choose --yes --lines --csv --with-input
    fails 2 "--with-input: has no effect with --input-format jsonl" choose --yes --with-input \
        --input-format jsonl
    fails 2 "--in-order: has no effect with --lines" choose --yes --lines --in-order
    fails 2 "--in-order: has no effect with --input-format" choose --yes --input-format csv --in-order
    fails 2 "--json: cannot be combined with --lines" choose --yes --lines --json
    fails 2 "--jsonl: cannot be combined with --input-format" choose --yes --jsonl --input-format csv
    fails 2 "--system: has no effect with --raw" choose --yes --raw -s x hi
    fails 2 "unexpected" inspect models/demo
    fails 2 "unexpected" bench models/demo
    fails 2 "one chat only" render a b
    run -0 q --exact --kv f32 -n 1 hi
    run -0 q --greedy --temp 0 --seed 1 -n 1 hi
    run -0 q --greedy --repeat-penalty 1.2 -n 1 hi
}

@test "numbers mean the same in every locale" {
    locales="C POSIX C.utf8"
    for l in $(locale -a 2>/dev/null | grep -E '^(tr_TR|de_DE)' || true); do
        locales="$locales $l"
    done
    want=$(q --temp 1.5 --seed 4 -n 8 --json "list files" | jget 'o["tokens"]')
    for l in $locales; do
        [ "$(LC_ALL=$l q --temp 1.5 --seed 4 -n 8 --json "list files" |
            jget 'o["tokens"]')" = "$want" ]
    done
    [ "$(env -i "$QWICK" --temp 1.5 --seed 4 -n 8 --json "list files" </dev/null |
        jget 'o["tokens"]')" = "$want" ]
}

@test "works without HOME, and in a removed or read-only directory" {
    run -0 env -i "$QWICK" -n 1 hi </dev/null
    mkdir "$T/gone"
    run -0 bash -c "cd '$T/gone' && rmdir '$T/gone' && '$QWICK' -n 1 hi </dev/null"
    run -0 bash -c "cd /proc && '$QWICK' -n 1 hi </dev/null"
}
