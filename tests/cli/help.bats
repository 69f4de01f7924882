#!/usr/bin/env bats
# --help and --version.
load helpers

setup() {
    common_setup
    VERBS="generate chat batch tokenize detokenize count render embed rerank
        logits score choose inspect models pull plan bench selftest quantize cache
        completion help version"
}

@test "--help and -h: stdout, exit 0, no model needed" {
    run -0 --separate-stderr env QWICK_MODEL=/nonexistent "$QWICK" --help
    [ -z "$stderr" ]
    [[ $output == "usage: qwick"* ]]
    main=$output
    [ "$(q -h)" = "$main" ]
    [ "$(q generate --help)" = "$main" ]
    [ "$(q run --help)" = "$main" ]
    [ "$(q -m /nonexistent --help)" = "$main" ]
    for v in $VERBS; do
        run -0 --separate-stderr q $v --help
        [ -z "$stderr" ]
        [[ $output == "usage: qwick"* ]]
        [[ $main == *"  $v "* ]]
    done
}

@test "--version" {
    [ "$(q --version)" = "qwick 0.1.0" ]
    [ "$(q -V)" = "qwick 0.1.0" ]
    [ "$(q tokenize --version)" = "qwick 0.1.0" ]
}

@test "help has no line over 80 columns" {
    for v in $VERBS; do
        q $v --help | awk 'length > 80 { print; bad = 1 } END { exit bad }'
    done
}

@test "the examples of each --help run" {
    mkdir "$T/work"
    quick_qwick
    export PATH="$T/bin:$PATH"
    cd "$T/work"
    printf 'Ann wrote this on Monday.\nIt has two lines.\n' >notes.txt
    printf '{"prompt":"list files"}\n{"prompt":"disk usage"}\n' >prompts.jsonl
    echo '[{"role":"user","content":"list files"}]' >chat.json
    for v in $VERBS; do
        [[ $v != @(pull|chat) ]] || continue # they need a hub, a terminal
        q $v --help | awk '/^Examples$/ { on = 1; next }
            !NF { on = 0 }
            on { print substr($0, 3) }' >examples
        [ -s examples ] || { echo "$v: no examples"; return 1; }
        while IFS= read -r line <&9; do
            [[ $line == *"qwick"* ]]
            run -0 bash -o pipefail -c "$line" </dev/null
        done 9<examples
    done
}
