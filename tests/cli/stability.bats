#!/usr/bin/env bats
# What docs/stability.md promises. tests/data/stable has the interface and the files of
# an earlier version. Only a new major version may change them:
#   python3 tests/cli/stable_interface.py ./qwick >tests/data/stable/interface.txt
# adds what is new at a release. Its other files are the results of
#   qwick --kv q4 --isa ref -t 1 -n 12 --save-session session "list files"
#   qwick batch --exact --seed 1 -n 12 -i prompts.jsonl -o answers.jsonl
#   qwick embed -q --exact --isa ref --index index "list files" pwd
#   qwick --conversation talk "list files"; qwick --log "list files"
load helpers

setup() {
    config_setup
    export XDG_STATE_HOME=$T/state
    STABLE=$PWD/tests/data/stable
}

@test "no option, member of JSON, function, struct or number of an earlier version is lost" {
    run python3 tests/cli/stable_interface.py "$QWICK" --check "$STABLE/interface.txt"
    [ "$status" -eq 0 ] || {
        echo "docs/stability.md promises these, which are gone or changed:"
        echo "$output"
        return 1
    }
}

@test "stable_interface.py finds what is lost" {
    cat >"$T/promised" <<'TEXT'
option generate --max-tokens -n value
option generate --max-tokens -m value
json generate .text text
json generate .text number
json generate .thinking text
enum qwick_kv QWICK_KV_F16 2
TEXT
    run -1 python3 tests/cli/stable_interface.py "$QWICK" --check "$T/promised"
    [ "$output" = "option generate --max-tokens -m value
json generate .text number
enum qwick_kv QWICK_KV_F16 2" ]
}

@test "a saved session of an earlier version goes on" {
    (umask 077 && xz -dc "$STABLE/session.xz" >"$T/session")
    run -0 --separate-stderr q --kv q4 --session "$T/session" --json "with details"
    [ -z "$stderr" ]
    [ "$(jget 'o["usage"]["cached_tokens"] > 10' <<<"$output")" = True ]
}

@test "a conversation and a log of an earlier version go on" {
    (
        umask 077
        mkdir -p "$T/state/qwick/conversations" "$T/state/qwick/log"
        cp "$STABLE/conversation.json" "$T/state/qwick/conversations/talk.json"
        xz -dc "$STABLE/log.db.xz" >"$T/state/qwick/log/log.db"
    )
    run -0 --separate-stderr q --conversation talk "with details"
    [ -n "$output" ] && [ -z "$stderr" ]
    [ "$(jget 'len(o["messages"])' <"$T/state/qwick/conversations/talk.json")" = 4 ]
    run -0 --separate-stderr q --log "list files"
    [[ $stderr != *"the log needs"* ]] || skip "no libsqlite3"
    [ -z "$stderr" ]
    [ "$(q log --last 0 --json | wc -l)" = 2 ]
    q log show 1 | grep -q "list files"
}

@test "a batch and an index of an earlier version are continued" {
    cp "$STABLE/answers.jsonl" "$T/answers.jsonl"
    run -0 --separate-stderr q batch --exact --seed 1 -n 12 -i "$STABLE/prompts.jsonl" \
        -o "$T/answers.jsonl"
    [ -z "$stderr" ]
    cmp "$STABLE/answers.jsonl" "$T/answers.jsonl"
    cp -r "$STABLE/index" "$T/index"
    run -0 --separate-stderr q similar -q "$T/index" "list files"
    [[ ${lines[0]} == *"list files"*"list files" ]]
    q embed -q --exact --isa ref --index "$T/index" "list files" "disk space"
    [ "$(jget 'o["rows"]' <"$T/index/index.json")" = 3 ]
}

@test "a config file of an earlier version is taken" {
    cp "$STABLE/config" "$CONFIG"
    run -0 --separate-stderr q "list files"
    [ "$output" = ls ] && [ -z "$stderr" ]
    q --show-config serve | grep -qE '^listen +"?127\.0\.0\.1:8080'
}

@test "the tests that docs/stability.md names exist" {
    local file n=0
    while read -r file; do
        [ -e "tests/$file" ] || { echo "$file"; return 1; }
        n=$((n + 1))
    done < <(grep -oE '`(cli|unit|data)/[a-z0-9_/.]+`' docs/stability.md | tr -d '`')
    [ "$n" -ge 20 ]
}
