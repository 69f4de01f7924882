#!/usr/bin/env bats
# scripts/release-check.sh, with checks that take no time.
load helpers

# A repository of its own, whose checks note in $T/ran that they ran.
setup() {
    common_setup
    command -v git >/dev/null || skip "no git"
    mkdir -p "$T/tree/scripts"
    cp scripts/release-check.sh "$T/tree/scripts"
    cd "$T/tree"
    echo /build/ >.gitignore
    git init -q
    git -c user.name=n -c user.email=e add -A
    commit one
    export CHECKS=$T/checks RAN=$T/ran
    : >"$RAN"
}

commit() {
    git -c user.name=n -c user.email=e commit -q --allow-empty -m "$1"
}

# checks LINE...: a list of checks from lines of "NAME KIND COMMAND".
checks() {
    printf '%s\n' "$@" | sed 's/ /\t/; s/ /\t/' >"$CHECKS"
}

# row NAME: its row of the table on this commit, without the time.
row() {
    sed -n "s/^| $1 | \(.*\) | [0-9:]* | \(.*\) |\$/\1: \2/p" \
        "build/release/$(git rev-parse HEAD)/table.md"
}

@test "a check that passed is not run again on this commit, others are" {
    checks 'good whole echo good >>$RAN; echo 3 passed, 0 failed' \
        'bad whole echo bad >>$RAN; echo "1 | 2"; exit 3' \
        'late whole echo late >>$RAN; echo done'
    run -1 scripts/release-check.sh
    # after a failure the rest is run
    [ "$(tr '\n' ' ' <"$RAN")" = "good bad late " ]
    [ "$(row good)" = "passed: 3 passed, 0 failed" ]
    [ "$(row bad)" = 'FAILED (3): 1 \| 2' ]
    [ "$(row late)" = "passed: done" ]
    [[ $output == *"| check | result | time | last line |"* ]]
    run -1 scripts/release-check.sh
    [ "$(tr '\n' ' ' <"$RAN")" = "good bad late bad " ]
    [[ $output == *"== good: passed before"* ]]
    [ "$(row good)" = "passed: 3 passed, 0 failed" ]
    # another commit begins anew
    commit two
    run -0 scripts/release-check.sh --only late
    [ "$(tail -n 1 "$RAN")" = late ]
    [ "$(row good)" = "not run: " ]
}

@test "what is missing is SKIP with the reason, and is tried again" {
    checks 'all parts echo SKIP: no npm here' \
        'part parts echo "SKIP: no clang"; echo 5 passed' \
        'suite whole echo "SKIP of one test"; echo 5 passed, 0 failed' \
        'broken parts echo SKIP: no npm here; exit 1'
    run -1 scripts/release-check.sh
    [ "$(row all)" = "SKIP: no npm here" ]
    [ "$(row part)" = "SKIP: no clang" ]
    [ "$(row suite)" = "passed: 5 passed, 0 failed" ]
    [ "$(row broken)" = "FAILED (1): SKIP: no npm here" ]
    checks 'all parts echo "there is npm now"'
    run -0 scripts/release-check.sh
    [ "$(row all)" = "passed: there is npm now" ]
}

@test "files that differ from the commit are refused, also if they change meanwhile" {
    checks 'good whole echo good >>$RAN'
    echo >>.gitignore
    run -2 scripts/release-check.sh
    [[ $output == *"files differ from the commit"*".gitignore"* ]]
    git checkout -q .gitignore
    : >new
    run -2 scripts/release-check.sh
    rm new
    [ ! -s "$RAN" ]
    checks 'changes whole echo >>.gitignore'
    run -2 scripts/release-check.sh
    [[ $output == *"its result does not count"* ]]
    git checkout -q .gitignore
    checks 'commits whole git -c user.name=n -c user.email=e commit -q --allow-empty -m x'
    run -2 scripts/release-check.sh
    [ -z "$(ls build/release/*/*.result 2>/dev/null)" ]
}

@test "release-check.sh: its list, and wrong usage" {
    unset CHECKS
    run -0 scripts/release-check.sh --list
    local name
    for name in check check-san torture fuzz check-races analyse check-arm check-deb \
        check-dist check-html check-clients check-cluster check-tokenizers check-schemas \
        check-static check-portable compare; do
        grep -q "^$name  *[^ ]" <<<"$output" || { echo "$name"; return 1; }
    done
    # its commands are targets and scripts that exist
    cd "$BATS_TEST_DIRNAME/../.."
    make -s help >"$T/targets"
    while read -r name command; do
        case $command in
        make*) grep -q "^$(sed 's/.*directory //; s/ .*//' <<<"$command") " "$T/targets" ;;
        scripts/*) [ -x "$command" ] ;;
        *) grep -q "^$command()" scripts/release-check.sh ;;
        esac || { echo "$name: $command"; return 1; }
    done <<<"$output"
    run -2 scripts/release-check.sh --only nothing
    [[ $output == *'"nothing": no such check'* ]]
    run -2 scripts/release-check.sh nothing
}
