#!/usr/bin/env bats
# --help and --version.
load helpers

setup() {
    common_setup
    VERBS="generate batch tokenize detokenize count render embed rerank logits
        score choose inspect bench quantize cache help version"
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
