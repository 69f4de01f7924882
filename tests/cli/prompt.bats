#!/usr/bin/env bats
# The sources of the prompt.
load helpers

setup() {
    common_setup
    printf 'one\n' >"$T/a"
    printf 'two\n\n' >"$T/b"
    : >"$T/empty"
}

# Print the text that the given sources become, with "|" at its end. (logits
# composes it like generate.)
composed() {
    "$QWICK" logits --json --top 1 "$@" | jget '" ".join(map(str, o["input_ids"]))' |
        "$QWICK" detokenize
    printf '|'
}

# same A... -- B...: check that both command lines give the same answer and
# prompt length.
answer_of() {
    "$QWICK" --json -n 6 --ignore-eos "$@" |
        jget '[o["text"], o["tokens"], o["usage"]["prompt_tokens"]]'
}

@test "argument, -p, stdin and -f give the same prompt" {
    printf 'list files\n' >"$T/p"
    want=$(answer_of "list files" </dev/null)
    [ -n "$want" ]
    [ "$(answer_of -p "list files" </dev/null)" = "$want" ]
    [ "$(answer_of <"$T/p")" = "$want" ]
    [ "$(cat "$T/p" | answer_of)" = "$want" ]
    [ "$(answer_of -f "$T/p" </dev/null)" = "$want" ]
    [ "$(answer_of -f - <"$T/p")" = "$want" ]
    [ "$(answer_of - <"$T/p")" = "$want" ]
    [ "$(answer_of -- "list files" </dev/null)" = "$want" ]
    [ "$("$QWICK" run --json -n 6 --ignore-eos "list files" </dev/null |
        jget 'o["tokens"]')" = "$("$QWICK" generate --json -n 6 --ignore-eos \
        "list files" </dev/null | jget 'o["tokens"]')" ]
}

@test "parts are joined by a blank line, one final newline is dropped" {
    [ "$(composed arg </dev/null)" = "arg|" ]
    [ "$(composed arg <"$T/a")" = $'one\n\narg|' ]
    [ "$(composed arg <"$T/b")" = $'two\n\n\narg|' ]
    [ "$(composed -f "$T/a" </dev/null)" = "one|" ]
    [ "$(composed -f "$T/b" </dev/null)" = $'two\n|' ]
    [ "$(composed -f "$T/a" -f "$T/b" arg </dev/null)" = $'one\n\ntwo\n\n\narg|' ]
    [ "$(printf 'in\n' | composed -f "$T/a" arg)" = $'one\n\nin\n\narg|' ]
    [ "$(printf 'in\n' | composed -f - -f "$T/a" arg)" = $'in\n\none\n\narg|' ]
    [ "$(printf 'in\n' | composed --no-stdin arg)" = "arg|" ]
    [ "$(printf 'in' | composed -p arg)" = $'in\n\narg|' ]
    for p in "" -p; do
        # shellcheck disable=SC2086 # none or one word
        [ "$(composed -f "$T/a" $p $'arg\n' </dev/null)" = $'one\n\narg|' ]
        # shellcheck disable=SC2086
        [ "$(composed $p $'arg\n\n' </dev/null)" = $'arg\n|' ]
        # shellcheck disable=SC2086
        equal "$(answer_of $p $'list files\n' </dev/null)" "$(answer_of "list files" </dev/null)"
    done
    yes=(choose --exact --json -a ls -a pwd)
    equal "$(q "${yes[@]}" $'list files\n')" "$(q "${yes[@]}" "list files")"
    equal "$(q logits --chat $'list files\n')" "$(q logits --chat "list files")"
    equal "$(q embed --exact $'list files\n')" "$(q embed --exact "list files")"
    equal "$(q rerank --exact -q x $'list files\n')" "$(q rerank --exact -q x "list files")"
    # verbs that keep the bytes
    printf 'list files\n' >"$T/p"
    for v in tokenize count score; do
        equal "$(q $v $'list files\n')" "$(q $v -f "$T/p")"
        equal "$("$QWICK" $v <"$T/p")" "$(q $v -f "$T/p")"
        [ "$(q $v $'list files\n')" != "$(q $v "list files")" ]
    done
}

@test "generate composes as logits does" {
    [ "$(printf 'in\n' | answer_of --raw -f "$T/a" arg)" = \
        "$(answer_of --raw -p $'one\n\nin\n\narg' </dev/null)" ]
    [ "$(printf 'in\n' | answer_of -f "$T/a" arg)" = \
        "$(answer_of -p $'one\n\nin\n\narg' </dev/null)" ]
}

@test "empty parts are left out" {
    [ "$(composed -f "$T/empty" arg </dev/null)" = "arg|" ]
    [ "$(composed -f "$T/a" -f "$T/empty" arg </dev/null)" = $'one\n\narg|' ]
    [ "$(composed arg <"$T/empty")" = "arg|" ]
    [ "$(printf '\n' | composed arg)" = "arg|" ]
}

@test "no prompt, or only an empty one, is a usage error" {
    fails 2 "no prompt"
    fails 2 "no prompt" ""
    fails 2 "no prompt" -p ""
    fails 2 "no prompt" $'\n'
    fails 2 "no prompt" -f "$T/empty"
    fails 2 "no prompt" --no-stdin
    fails 2 "no prompt" -s "be brief"
    run -2 timeout 5 "$QWICK" <"$T/empty"
    run -2 closed
    run -2 timeout 5 "$QWICK" </
    run -2 "$QWICK" - </dev/null
    run -2 closed -f -
    run -2 timeout 5 "$QWICK" logits </dev/null
    for v in count tokenize detokenize score render embed "rerank -q x"; do
        for how in "</dev/null" "<'$T/empty'" "< <(printf '')" "</" "<&-"; do
            run -2 --separate-stderr bash -c "\"\$0\" $v $how" "$QWICK"
            [ -z "$output" ]
            if [ "$v" = embed ] || [ "$v" = "rerank -q x" ]; then
                [ "${#stderr_lines[@]}" -eq 2 ] # the other one is about the model
                stderr_lines=("${stderr_lines[1]}")
            fi
            one_error_line
            [[ ${stderr_lines[0]} == "qwick: no "@(input|text)"; usage: qwick ${v%% *} "* ]]
        done
    done
    # a text of length 0, as it was asked for
    for v in count tokenize "score --perplexity"; do
        for args in "''" "-f '$T/empty'" "-f -"; do
            run -0 --separate-stderr bash -c "\"\$0\" $v $args </dev/null" "$QWICK"
            [[ ${lines[0]:-} == @(|0|tokens*0) ]]
            [ -z "$stderr" ]
        done
    done
}

@test "a closed stdin, a directory, /dev/null are ignored beside a prompt" {
    want=$(q "list files")
    [ "$(closed "list files")" = "$want" ]
    [ "$(timeout 5 "$QWICK" "list files" </)" = "$want" ]
    [ "$(timeout 5 "$QWICK" "list files" <"$T/empty")" = "$want" ]
    printf 'list files' >"$T/p"
    [ "$(closed -f "$T/p")" = "$want" ]
}

# warns PATTERN ARGS…: run qwick with this standard input: one warning that matches, and
# none with -q.
warns() {
    local pattern=$1
    shift
    cat >"$T/.stdin"
    # shellcheck disable=SC2016 # for the inner shell
    run -0 --separate-stderr bash -c 'cat "$0" | "$@"' "$T/.stdin" "$QWICK" "$@"
    [[ $stderr == "qwick: warning: "$pattern && ${#stderr_lines[@]} -eq 1 ]] ||
        { echo "stderr: $stderr"; return 1; }
    run -0 --separate-stderr bash -c 'cat "$0" | "$@"' "$T/.stdin" "$QWICK" -q "$@"
    [ -z "$stderr" ] || { echo "with -q: $stderr"; return 1; }
}

@test "a byte order mark and CR LF: not where a template is applied" {
    printf '\357\273\277list\r\n\r\nfiles\rx\r\n' >"$T/dos"
    text=$'list\n\nfiles\rx'
    want=$(answer_of "$text" </dev/null)
    equal "$(answer_of -f "$T/dos" </dev/null)" "$want"
    equal "$(answer_of <"$T/dos")" "$want"
    equal "$(answer_of -f - <"$T/dos")" "$want"
    equal "$(answer_of --system-file "$T/dos" hi </dev/null)" \
        "$(answer_of --system "$text" hi </dev/null)"
    yes=(choose --exact --json -a ls -a pwd)
    equal "$(q "${yes[@]}" -f "$T/dos")" "$(q "${yes[@]}" "$text")"
    equal "$(q logits --chat -f "$T/dos")" "$(q logits --chat "$text")"
    equal "$(q rerank --exact -q x -f "$T/dos" | cut -f 1)" \
        "$(q rerank --exact -q x "$text" | cut -f 1)"
    equal "$(q embed --exact -f "$T/dos")" "$(q embed --exact "$text")"
    echo '{"prompt":"x"}' >"$T/in"
    equal "$(q batch -n 3 -f "$T/dos" -i "$T/in" | jget '(o["tokens"], o["usage"])')" \
        "$(q batch -n 3 -f <(printf '%s\n' "$text") -i "$T/in" | jget '(o["tokens"], o["usage"])')"
    # a text that is used as it is
    n=$(q count -f "$T/dos")
    [ "$n" -gt "$(q count "$text")" ]
    [ "$n" -eq "$("$QWICK" tokenize <"$T/dos" | wc -w)" ]
    [ "$(q --raw --json -n 1 -f "$T/dos" | jget 'o["usage"]["prompt_tokens"]')" -eq \
        "$(head -c -1 "$T/dos" | "$QWICK" count)" ]
    q logits --json --top 1 -f "$T/dos" | jget '" ".join(map(str, o["input_ids"]))' |
        "$QWICK" detokenize | cmp - <(head -c -1 "$T/dos")
    # an argument and a JSON string
    [ "$(answer_of $'list\r\n' </dev/null)" != "$(answer_of $'list\n' </dev/null)" ]
    for s in 'list\r\n' 'list\n'; do
        echo '[{"role":"user","content":"'"$s"'"}]' >"$T/chat"
        answer_of --chat-json "$T/chat" </dev/null
    done >"$T/two"
    [ "$(sort -u "$T/two" | wc -l)" -eq 2 ]
}

@test "a prompt of one's own: CR LF is a line end there, too" {
    printf 'a {}\nb\n' >"$T/unix.txt"
    sed 's/$/\r/' "$T/unix.txt" >"$T/dos.txt"
    equal "$(answer_of -T "$T/dos.txt" x </dev/null)" "$(answer_of -T "$T/unix.txt" x </dev/null)"
}

@test "an empty pipe or file beside a prompt is a warning" {
    warns "standard input: is an empty pipe; --no-stdin leaves it out" -n 9 "list files" </dev/null
    warns "standard input: is an empty pipe; --no-stdin leaves it out" logits "list files" </dev/null
    run -0 --separate-stderr "$QWICK" "list files" <"$T/empty"
    [ "$stderr" = "qwick: warning: standard input: is an empty file; --no-stdin leaves it out" ]
    [ "$output" = ls ]
    run -0 --separate-stderr q -f "$T/empty" "list files"
    [ "$stderr" = "qwick: warning: $T/empty: is empty" ]
    [ "$output" = ls ]
    run -0 --separate-stderr q -f - "list files"
    [ "$stderr" = "qwick: warning: standard input: is empty" ]
    echo '{"prompt":"list files"}' >"$T/in"
    run -0 --separate-stderr q batch -n 9 -f "$T/empty" -i "$T/in"
    [ "$stderr" = "qwick: warning: $T/empty: is empty" ]
    for v in count tokenize; do
        run -0 --separate-stderr q $v -f "$T/empty" -f "$T/a"
        [ "$stderr" = "qwick: warning: $T/empty: is empty" ]
        # the last line of count is the total
        equal "$(tail -n 1 <<<"${output%$'\ttotal'}")" "$(q $v -f "$T/a")"
        run -0 --separate-stderr q -q $v -f "$T/empty" -f "$T/a"
        [ -z "$stderr" ]
    done
    run -0 --separate-stderr q count -f "$T/a" -f -
    [ "$stderr" = "qwick: warning: standard input: is empty" ]
    run -0 --separate-stderr q score -f "$T/empty" -f "$T/a"
    [ "$stderr" = "qwick: warning: $T/empty: is empty" ]
    for v in "rerank -q x" embed; do
        # shellcheck disable=SC2086
        run --separate-stderr q $v -f "$T/empty" -f "$T/a"
        [ "${stderr_lines[1]}" = "qwick: warning: $T/empty: is empty" ]
    done
    # what programs without a terminal get is no news
    for how in "</dev/null" "<&-" "</"; do
        run -0 --separate-stderr bash -c "exec \"\$@\" $how" - "$QWICK" "list files"
        [ "$output" = ls ]
        [ -z "$stderr" ]
    done
    run -0 --separate-stderr bash -c 'true | "$0" --no-stdin "list files"' "$QWICK"
    [ -z "$stderr" ]
    # no other source: one error
    run -2 --separate-stderr bash -c 'true | "$0"' "$QWICK"
    one_error_line
}

@test "choose: an empty pipe or file is an error" {
    for in in "" "--jsonl"; do
        run -2 --separate-stderr q choose --yes $in -f "$T/empty" ${in:---no-stdin} ${in:+-q} ok
        one_error_line
    done
    about="so that an answer would be about nothing"
    for make in true "printf '\n'"; do
        run -2 --separate-stderr bash -c "$make | \"\$0\" choose --yes 'is it good?'" "$QWICK"
        [[ $stderr == "qwick: standard input: is an empty pipe, $about; --no-stdin leaves it out" ]]
        [ -z "$output" ]
    done
    run -2 --separate-stderr "$QWICK" choose --yes "is it good?" <"$T/empty"
    [[ $stderr == "qwick: standard input: is an empty file, $about"* ]]
    fails 2 "$T/empty: is empty, $about" choose -a x -a y -f "$T/empty" "which?"
    want=$(q choose --exact -a ls -a pwd "list files")
    equal "$(closed choose --exact -a ls -a pwd "list files")" "$want"
    equal "$(: | "$QWICK" choose --exact --no-stdin -a ls -a pwd "list files")" "$want"
    # "-" is standard input
    equal "$(printf 'list files\n' | "$QWICK" choose --exact -a ls -a pwd -)" "$want"
}

@test "standard input that is the rest of a file: a warning" {
    printf 'list files\nb\nc\n' >"$T/lines"
    n=0
    while read -r line; do
        n=$((n + 1))
        run -0 --separate-stderr "$QWICK" -n 9 "$line"
    done <"$T/lines"
    [ $n -eq 1 ]
    [[ $stderr == "qwick: warning: standard input: took the rest of its file, from byte 11 on; in a loop that reads the file, use --no-stdin" ]]
    n=0
    while read -r line; do
        n=$((n + 1))
        run -0 --separate-stderr "$QWICK" --no-stdin "list files"
        [ -z "$stderr" ]
    done <"$T/lines"
    [ $n -eq 3 ]
    { read -r line && run -0 --separate-stderr "$QWICK" -q -n 9 "$line"; } <"$T/lines"
    [ -z "$stderr" ]
    # each reader of standard input
    printf '1 2\n1 2\n' >"$T/ids"
    printf '%s\n' x '[{"role":"user","content":"hi"}]' >"$T/chat"
    printf '%s\n' x '{"text":"a","prompt":"a","ids":[1]}' >"$T/records"
    rest() { # FILE BYTE ARGS…: run without the first line
        local file=$1 want="standard input: took the rest of its file, from byte $2 on"
        shift 2
        { read -r _ && run -0 --separate-stderr "$QWICK" "$@"; } <"$T/$file"
        [ "$(grep -cxF "qwick: warning: $want" <<<"$stderr")" -eq 1 ] ||
            { echo "$*: $stderr"; return 1; }
        { read -r _ && run -0 --separate-stderr "$QWICK" -q "$@"; } <"$T/$file"
        [ -z "$stderr" ]
        # from its beginning, there is nothing to say
        [[ $file == chat || $file == records ]] && return
        run -0 --separate-stderr "$QWICK" "$@" <"$T/$file"
        [[ $stderr != *"the rest of its file"* ]]
    }
    for v in count "count -" tokenize score "score -f -" embed "embed --lines" \
        "rerank --query x -f -" "rerank --query x --lines" "batch --lines -n 2" "-f - -n 9"; do
        # shellcheck disable=SC2086
        rest lines 11 $v
    done
    rest ids 4 detokenize
    rest chat 2 render
    rest chat 2 --chat-json - -n 9
    for v in "tokenize --jsonl" "detokenize --jsonl" "count --jsonl" "score --jsonl" \
        "embed --jsonl" "rerank --query x --jsonl" "choose -a x -a y --jsonl" "batch -n 2"; do
        # shellcheck disable=SC2086
        rest records 2 $v
    done
}

@test "bytes that are not UTF-8, and NULs: one warning with their number" {
    printf 'a\377b\342\202' >"$T/bad"
    printf 'a\0b\0' >"$T/nul"
    cat "$T/bad" "$T/nul" >"$T/both"
    warns "prompt: 3 bytes are not UTF-8, replaced by U+FFFD; 2 bytes are NUL" -n 9 --ignore-eos <"$T/both"
    warns "prompt: 3 bytes are not UTF-8, replaced by U+FFFD" logits x <"$T/bad"
    warns "prompt: 2 bytes are NUL" choose -a ls -a pwd -f "$T/nul" --no-stdin </dev/null
    warns "prompt: 1 byte is not UTF-8, replaced by U+FFFD" -n 9 --ignore-eos --no-stdin -s $'\377' hi </dev/null
    run -0 --separate-stderr q embed -f "$T/both"
    [[ $stderr == *"warning: texts: 3 bytes are not UTF-8, replaced by U+FFFD; 2 bytes are NUL" ]]
    printf 'a\377\nb\376\n' >"$T/lines"
    warns "stdin: 2 bytes are not UTF-8, replaced by U+FFFD" batch --lines -n 9 --ignore-eos <"$T/lines"
    # verbs that keep the bytes
    for v in tokenize count "score --perplexity"; do
        # shellcheck disable=SC2086
        run -0 --separate-stderr q $v -f "$T/both"
        [ -z "$stderr" ]
    done
}

@test "a standard input that stays open and silent: a warning, and --timeout" {
    silent() { # ARGS…: run with a standard input that stays open for a while
        run --separate-stderr bash -c 'sleep 2 | LD_PRELOAD=$FAST_CLOCK "$@"' - "$QWICK" "$@"
    }
    fast_clock
    export FAST_CLOCK
    [ -n "$FAST_CLOCK" ] || skip "no fast clock under sanitizers"
    silent --prompt-ids 6136,885,198 -n 9
    [[ ${stderr_lines[0]} == "qwick: warning: waiting for standard input; --no-stdin does without it" ]]
    silent -q -n 9 hi
    [ -z "$stderr" ]
    silent count -f -
    [ "$status" -eq 0 ]
    [ "$stderr" = "qwick: warning: waiting for standard input" ]
    silent count
    [ "$status" -eq 2 ]
    [ "${stderr_lines[0]}" = "qwick: warning: waiting for standard input" ]
    silent batch
    [ "${stderr_lines[0]}" = "qwick: warning: waiting for records on standard input; -i FILE reads a file" ]
    # the time counts from the start; 20 seconds are one second of this clock
    silent --timeout 20 "list files"
    [ "$status" -eq 1 ]
    [ "${stderr_lines[1]}" = "qwick: standard input: has not ended in the 20 seconds of --timeout" ]
    [ -z "$output" ]
    run -0 --separate-stderr bash -c '{ sleep 1; echo files; } | LD_PRELOAD=$FAST_CLOCK "$0" \
        --json --ignore-eos --timeout 30 list' "$QWICK"
    jlines 'o[0]["finish_reason"] == "timeout" and o[0]["timing"]["total_ms"] < 15000' <<<"$output"
}

@test "qwick never waits for a terminal" {
    command -v script >/dev/null || skip "no script(1)"
    run timeout 10 script -qec "$QWICK" /dev/null
    [ "$status" -eq 2 ]
    run timeout 10 script -qec "$QWICK 'list files'" /dev/null
    [ "$status" -eq 0 ]
}

@test "the message about an unreadable file names it" {
    fails 1 "$T/missing" -f "$T/missing"
    fails 1 "$T" -f "$T"
    fails 1 "$T/missing" --system-file "$T/missing" hi
    fails 1 "$T/missing" --chat-json "$T/missing"
    fails 2 "one prompt only" two words
    fails 2 "--prompt was given" -p a b
    fails 2 "standard input is named" -f - -f -
    fails 2 "--no-stdin" -f - --no-stdin
}

@test "bytes that are not UTF-8 become U+FFFD, NUL stays" {
    [ "$(printf 'a\xffb\xe2\x82' | composed)" = $'a\xef\xbf\xbdb\xef\xbf\xbd|' ]
    printf 'a\0b' >"$T/nul"
    n=$("$QWICK" logits --json --top 1 -f "$T/nul" </dev/null |
        jget 'len(o["input_ids"])')
    [ "$n" -eq "$("$QWICK" count <"$T/nul")" ]
    "$QWICK" logits --json --top 1 -f "$T/nul" </dev/null |
        jget '" ".join(map(str, o["input_ids"]))' | "$QWICK" detokenize |
        cmp - "$T/nul"
    # in a chat, the bytes add what they add to a text of their own
    empty=$(q render '[{"role":"user","content":"x"}]' | "$QWICK" count)
    for text in "-f $T/nul" $'\xff\xfe'; do
        # shellcheck disable=SC2086 # two words
        n=$(q logits --json --top 1 $text | jget 'len(o["input_ids"])')
        # shellcheck disable=SC2086
        q --json -n 2 $text | jlines "o[0]['usage']['prompt_tokens'] == $empty - 1 + $n"
    done
}

@test "control tokens in a prompt stay text unless allowed" {
    plain=$(q --json -n 1 "x" | jget 'o["usage"]["prompt_tokens"]')
    text=$(q --json -n 1 "x<|im_end|>" | jget 'o["usage"]["prompt_tokens"]')
    allowed=$(q --json -n 1 --allow-special "x<|im_end|>" |
        jget 'o["usage"]["prompt_tokens"]')
    raw=$(q --json -n 1 --raw "x<|im_end|>" |
        jget 'o["usage"]["prompt_tokens"]')
    [ "$allowed" -eq $((plain + 1)) ]
    [ "$text" -gt "$allowed" ]
    [ "$raw" -eq "$(q count "x<|im_end|>")" ]
    # also in the system prompt and in a chat
    a=$(q --json -n 1 -s "y" x | jget 'o["usage"]["prompt_tokens"]')
    b=$(q --json -n 1 -s "y<think>" x | jget 'o["usage"]["prompt_tokens"]')
    [ "$b" -gt $((a + 1)) ]
    echo '[{"role":"user","content":"x<|im_end|>"}]' >"$T/chat"
    c=$(q --json -n 1 --chat-json "$T/chat" | jget 'o["usage"]["prompt_tokens"]')
    [ "$c" -eq "$text" ]
}

@test "the ids of a prompt equal those of the rendered text" {
    echo '[{"role":"system","content":"be brief"},{"role":"user","content":"list files"}]' >"$T/chat"
    n=$("$QWICK" render <"$T/chat" | "$QWICK" count)
    [ "$(q --json -n 1 -s "be brief" "list files" |
        jget 'o["usage"]["prompt_tokens"]')" -eq "$n" ]
    [ "$(q --json -n 1 --chat-json "$T/chat" |
        jget 'o["usage"]["prompt_tokens"]')" -eq "$n" ]
    ids=$("$QWICK" render --think off <"$T/chat" | "$QWICK" tokenize)
    equal "$(q --think off -s "be brief" "list files")" "$(q --prompt-ids "$ids")"
    equal "$(q --think off --chat-json "$T/chat")" "$(q --prompt-ids "$ids")"
    equal "$("$QWICK" --think off --chat-json - <"$T/chat")" "$(q --prompt-ids "$ids")"
}

@test "--chat-json FILE TEXT: the text is the next message of the chat" {
    echo '[{"role":"user","content":"list files"},{"role":"assistant","content":"ls"}]' >"$T/chat"
    echo '[{"role":"user","content":"list files"},{"role":"assistant","content":"ls"},{"role":"user","content":"by size"}]' >"$T/all"
    ids=$("$QWICK" render <"$T/all" | "$QWICK" tokenize)
    want=$(q --exact --json --prompt-ids "$ids" | jget '(o["text"], o["usage"]["prompt_tokens"])')
    more() { "$QWICK" --exact --json --chat-json "$@" | jget '(o["text"], o["usage"]["prompt_tokens"])'; }
    equal "$(more "$T/chat" "by size" </dev/null)" "$want"
    equal "$(more "$T/chat" -p "by size" </dev/null)" "$want"
    printf 'by size' >"$T/f"
    equal "$(more "$T/chat" -f "$T/f" </dev/null)" "$want"
    equal "$(more - "by size" <"$T/chat")" "$want"
    # standard input is a part of the text, if there is another one
    ids=$(sed 's/by size/by name\\n\\nby size/' "$T/all" | "$QWICK" render | "$QWICK" tokenize)
    equal "$(echo "by name" | more "$T/chat" "by size")" \
        "$(q --exact --json --prompt-ids "$ids" | jget '(o["text"], o["usage"]["prompt_tokens"])')"
    run -2 bash -c 'echo "by size" | "$0" --chat-json "$1"' "$QWICK" "$T/chat"
    [[ $output == *"--chat-json: cannot be combined with a prompt on standard input"* ]]
    equal "$(q choose --exact -a ls -a pwd --chat-json "$T/chat" "by size")" \
        "$(q choose --exact -a ls -a pwd --chat-json "$T/all")"
    fails 2 "no prompt" --chat-json "$T/chat" ""
    fails 2 "--prompt-ids: cannot be combined with a prompt" --prompt-ids 1 x
    # such a conversation can be kept
    q --keep --chat-json "$T/chat" "by size" >/dev/null
    run -0 q -C "with details"
}

@test "the golden answers of the built-in model" {
    [ -f tests/golden/demo_visible.jsonl ] || skip "no goldens"
    head -n 5 tests/golden/demo_visible.jsonl >"$T/five"
    python3 - "$QWICK" "$T/five" <<'PY'
import json, subprocess, sys
for line in open(sys.argv[2]):
    g = json.loads(line)
    ids = ",".join(map(str, g["prompt_ids"]))
    for prompt in (["--think", "off", "-p", g["prompt"]], ["--prompt-ids", ids]):
        o = json.loads(subprocess.run(
            [sys.argv[1], "--exact", "--greedy", "-n", "60", "--json"] + prompt,
            stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout)
        assert o["text"] == g["text"] and o["tokens"] == g["ids"], (g, o)
        assert o["usage"]["prompt_tokens"] == len(g["prompt_ids"])
PY
}

@test "--prompt-ids" {
    want=$(q --prompt-ids 6136,885,198 -n 3 --json | jget 'o["tokens"]')
    [ "$(q --prompt-ids "6136 885	198" -n 3 --json | jget 'o["tokens"]')" = "$want" ]
    [ "$(q --prompt-ids "6136, 885 ,198" -n 3 --json | jget 'o["tokens"]')" = "$want" ]
    for bad in "" " " 1,,2 1, ,1 x 1x -1 1.5 2147483648 99999999999999999999 0x10; do
        fails 2 "--prompt-ids" --prompt-ids "$bad"
    done
    fails 2 "6144" --prompt-ids 6144
    fails 2 "6144" logits --prompt-ids 6144
    fails 2 "cannot be combined" --prompt-ids 1 hello
    fails 2 "cannot be combined" --prompt-ids 1 -p hello
    fails 2 "cannot be combined" --prompt-ids 1 -f "$T/a"
    run -2 "$QWICK" --prompt-ids 1 <"$T/a"
    run -0 "$QWICK" --prompt-ids 1 -n 1 --no-stdin <"$T/a"
    run -0 "$QWICK" --prompt-ids 1 -n 1 <"$T/empty"
    run -0 closed --prompt-ids 1 -n 1
}

@test "a prompt that does not fit: both numbers, exit 4" {
    fails 4 "11 tokens" -c 5 hello
    [[ $stderr == *"context of 5"* ]]
    python3 -c 'print("list the files " * 2000)' >"$T/long"
    fails 4 "context of 2048" -f "$T/long"
    # a prompt of 11 tokens fits a context of 11: the drawn token needs no
    # position
    run -0 --separate-stderr q -c 11 --json hello
    [[ $stderr == *"the context of 11 tokens is full" ]]
    [ "$(printf '%s' "$output" | jget 'o["usage"]["completion_tokens"]')" -eq 1 ]
    fails 4 "11 tokens do not fit the context of 10" -c 10 hello
    fails 4 "context of 2048" logits -f "$T/long"
    fails 4 "2048" -c 2049 hello
    run -4 --separate-stderr q -c 5 --json hello
    [ -z "$output" ]
}

@test "a prompt that is far too long is not counted to its end" {
    python3 -c 'import random
letters = bytes(b"etaoinshrdlu"[i % 12] for i in range(256))
print(random.Random(1).randbytes(4000000).translate(letters).decode())' >"$T/word"
    sed 's/...../& /g' "$T/word" >"$T/text"
    for f in word text; do
        for o in "" --raw; do
            # shellcheck disable=SC2086
            fails 4 "more than 1048576 tokens do not fit the context of 2048 (see --overflow)" \
                $o -f "$T/$f"
        done
    done
    python3 -c 'import json, sys
for f in sys.argv[1:]:
    print(json.dumps({"prompt": open(f).read()}))
print("{\"prompt\":\"list files\"}")' "$T/word" "$T/text" >"$T/in"
    run -1 --separate-stderr "$QWICK" batch -n 1 -i "$T/in"
    jlines 'len(o) == 3 and "tokens" in o[2] and all("more than 1048576 "
        "tokens do not fit the context of 2048" in str(r["error"])
        for r in o[:2])' <<<"$output"
    # cutting and counting need all ids
    run -0 q --overflow tail --raw -n 1 --json -q -f "$T/word"
    [ "$(jget 'o["usage"]["dropped_tokens"] > 1500000' <<<"$output")" = True ]
    [ "$(q count -f "$T/word")" -gt 1500000 ]
}

@test "--overflow drops from the text only, and says how much" {
    # two layers: no assertion is about a text. --ignore-eos: an empty answer adds a note
    small_demo "$T/small"
    export QWICK_MODEL=$T/small
    python3 -c 'print("start " + "list the files " * 2000 + "end")' >"$T/long"
    for how in head tail middle; do
        run -0 --separate-stderr q -f "$T/long" --overflow $how -n 5 --ignore-eos --json
        [[ $stderr == *"tokens dropped"* ]]
        one_error_line
        printf '%s\n' "$output" | jget '[0][o["usage"]["prompt_tokens"] +
            o["usage"]["completion_tokens"] > 2048 or
            o["usage"]["prompt_tokens"] < 2000 or
            o["usage"]["dropped_tokens"] < 3000]'
        run -0 q -f "$T/long" --overflow $how -n 5 --raw --json -q
        run -0 q -f "$T/long" --overflow $how -c 300 -n 5 --json -q
        printf '%s\n' "$output" | jget '[0][o["usage"]["prompt_tokens"] > 295]'
    done
    run -0 --separate-stderr q -m models/demo --overflow tail --json hello
    [ "$(printf '%s' "$output" | jget 'o["usage"]["dropped_tokens"]')" -eq 0 ]
    [ -z "$stderr" ]
    # the template by itself does not fit
    fails 4 "context of 6" -c 6 --overflow tail hello
    # characters stay whole
    python3 -c 'print("äöü€😀" * 1500)' >"$T/utf8"
    for how in head tail middle; do
        run -0 q -f "$T/utf8" --overflow $how -n 2 --json -q
    done
    # in a chat, only the last user text is cut
    python3 -c 'import json
print(json.dumps({"messages": [{"role": "system", "content": "s"},
    {"role": "user", "content": "list the files " * 2000}]}))' >"$T/chat"
    run -0 q --chat-json "$T/chat" --overflow tail -n 3 --json -q
    printf '%s\n' "$output" | jget '[0][not o["usage"]["dropped_tokens"] > 3000]'
}

@test "--system-file equals --system" {
    printf 'be brief\n' >"$T/s"
    [ "$(answer_of --system-file "$T/s" hi </dev/null)" = \
        "$(answer_of -s "be brief" hi </dev/null)" ]
}

@test "--prefill begins the answer" {
    whole=$(q --think off "list files" --json | jget 'o["usage"]["prompt_tokens"]')
    with=$(q --think off "list files" --prefill "ls" --json |
        jget 'o["usage"]["prompt_tokens"]')
    [ "$with" -gt "$whole" ]
}

@test "text parts are one text, with newlines between" {
    local parts='[{"type":"text","text":"list"},{"type":"text","text":"files"}]'
    echo '[{"role":"user","content":'"$parts"'}]' >"$T/parts"
    [ "$(answer_of --chat-json "$T/parts" </dev/null)" = \
        "$(answer_of $'list\nfiles' </dev/null)" ]
    printf '%s\n' '{"messages":'"$(cat "$T/parts")"'}' \
        '{"prompt":"list\nfiles"}' >"$T/records"
    "$QWICK" batch -q -n 6 --ignore-eos <"$T/records" | jlines \
        'len(o) == 2 and o[0]["tokens"] == o[1]["tokens"] and
         o[0]["usage"]["prompt_tokens"] == o[1]["usage"]["prompt_tokens"]'
    "$QWICK" choose --jsonl -a ls -a find <"$T/records" | jlines \
        'len(o) == 2 and o[0]["answers"] == o[1]["answers"]'
}

@test "a chat whose messages the template would silently drop is refused" {
    echo '[{"role":"user","content":[{"type":"image_url"}]}]' >"$T/image"
    fails 2 '/image: messages[0].content[0].type: must be "text", is "image_url"' \
        --chat-json "$T/image"
    echo '[{"role":"user","content":7}]' >"$T/number"
    fails 2 "messages[0].content: must be a string, a list of text parts or null" \
        --chat-json "$T/number"
    echo '[{"role":"critic","content":"hi"}]' >"$T/role"
    fails 2 "messages[0].role: must be" --chat-json "$T/role"
}
