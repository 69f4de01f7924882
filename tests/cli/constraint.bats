#!/usr/bin/env bats
# Constraints: what comes out with exit status 0 matches, everything else is 6.
load helpers

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
    matches '(?!.*--)[a-z-]{3,9}\b' 20 --regex '(?!.*--)[a-z-]{3,9}\b'
    matches '([^\W\d_]| ){1,12}' 20 --regex '[\p{L} ]{1,12}'
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
    equal "$(q tokenize '<think>')" "$(jget 'o["tokens"][0]' <<<"$output")"
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
    fails 2 'lookbehind is not supported' --regex 'a(?<=b)' x
    fails 2 '--regex: is too large' --regex '(((([ab]c{31}){31}){31}){31}){31}' x
    fails 2 '--choices: text 2 is empty' --choices 'a,,b' x
    fails 2 'cannot be combined with --choices' --choices a --regex b x
    fails 2 'cannot be combined with --ignore-eos' --regex a --ignore-eos x
}

@test "a stop string cuts a constrained text" {
    run -6 --separate-stderr q --think off --regex 'abcd' --stop c x
    [ "$output" = ab ]
    [[ $stderr == *"the answer is cut: a stop string came first"* ]]
    run -6 --separate-stderr q --think off --choices abcd --stop a x
    [ -z "$output" ]
    [[ $stderr == *"the answer is empty: a stop string came first"* ]]
    run -0 --separate-stderr q --think off --choices abcd --stop abcde x
    [ "$output" = abcd ]
    [ -z "$stderr" ]
    # a cut document is not checked against a lenient schema
    run -6 --separate-stderr q --think off --json --schema-lenient --json-schema \
        '{"const": "abcd"}' --stop c x
    jlines 'o[0]["text"] == "\"ab" and o[0]["finish_reason"] == "stop_string"' <<<"$output"
    [[ $stderr == *"the answer is cut: a stop string came first"* ]]
}

@test "long repetitions and many alternatives" {
    run -6 --separate-stderr q --think off -n 3 --regex '(([a-z]{1000}){1000}){1000}' x
    run -6 --separate-stderr q --think off -n 3 --json-schema \
        '{"type": "string", "minLength": 1000000, "maxLength": 4000000000}' x
    python3 - "$T" <<'PY'
import json, sys
words = ["w%dx" % i for i in range(70000)]
open(sys.argv[1] + "/g", "w").write(
    "root ::= " + "|".join('"%s"[01]' % w for w in words))
open(sys.argv[1] + "/s", "w").write(
    json.dumps({"anyOf": [{"const": w} for w in words[:15000]]}))
open(sys.argv[1] + "/in", "w").write(
    json.dumps({"prompt": "x", "choices": words}) + "\n" +
    json.dumps({"prompt": "x", "json_schema": {"enum": words}}) + "\n")
PY
    run -0 q --think off --grammar "$T/g" x
    [[ $output =~ ^w[0-9]+x[01]$ ]]
    run -0 q --think off --json-schema "$T/s" x
    [[ $output =~ ^\"w[0-9]+x\"$ ]]
    run -0 q batch --think off -i "$T/in"
    jlines '[r["text"].strip("\"")[0] for r in o] == ["w", "w"]' <<<"$output"
}

@test "answers follow a grammar in the form of Lark" {
    printf 'start: "<" start* WORD ">"\n%%import common.WORD\n' >"$T/g.lark"
    for seed in 1 2 3; do
        run q --think off --grammar "$T/g.lark" --seed $seed --temp 2 -n 60 x
        [ "$status" -eq 0 ] || [ "$status" -eq 6 ]
        [[ $output =~ ^\<[\<\>a-zA-Z]+ ]]
    done
    printf 'start: "a"\n  | b\n' >"$T/g.lark"
    fails 2 "$T/g.lark: line 2, column 5: \"b\" is not defined" \
        --grammar "$T/g.lark" x
}

@test "a grammar names tokens" {
    tag=$(q tokenize "<tool_call>")
    for form in "<[$tag]>" "<tool_call>"; do
        echo "root ::= \"x\" $form !$form{3} \"y\" !<[1]>?" >"$T/g"
        for seed in 1 2 3; do
            run -0 q --think off --grammar "$T/g" --seed $seed --temp 2 --json x
            [ "$(jget "o['tokens'][1] == $tag"' and
                o["tokens"].count(o["tokens"][1]) == 1 and
                o["text"].startswith("x<tool_call>") and
                6 <= len(o["tokens"]) <= 8' <<<"$output")" = True ]
        done
    done
    echo 'root ::= <no such token>' >"$T/g"
    fails 2 "$T/g: line 1: the model has no token \"<no such token>\"" \
        --grammar "$T/g" x
    end=$(q tokenize "<|im_end|>")
    printf 'root ::= "x" <[%s]>\n' "$end" >"$T/g"
    fails 2 "$T/g: line 1: <[$end]> ends answers, leave it out" \
        --grammar "$T/g" x
    printf 'start: "x" <[%s]>+ /y/\n' "$tag" >"$T/g.lark"
    run -0 q --think off --grammar "$T/g.lark" --seed 1 --temp 2 -n 200 x
    [[ $output =~ ^x(\<tool_call\>)+y$ ]]
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

@test "answers are JSON that the schema admits" {
    local schema='{"type": "object", "properties": {
        "name": {"type": "string", "maxLength": 9}, "n": {"type": "integer",
        "minimum": 1, "maximum": 65535}, "ok": {"type": "boolean"}},
        "required": ["name", "n"], "additionalProperties": false}'
    printf '%s' "$schema" >"$T/s"
    for seed in $(seq 8); do
        run -0 q --think off --temp 2 --seed "$seed" --json-schema "$T/s" x
        [ "$(jget 'set(o) <= {"name", "n", "ok"} and len(o["name"]) < 10 and
            1 <= o["n"] < 65536' <<<"$output")" = True ]
        [ "$(q --think off --temp 2 --seed "$seed" --json-schema "$schema" x)" \
            = "$output" ]
    done
    run -0 q --think off --json-schema '{"const": [1]}' --json-indent 2 x
    [ "$output" = $'[\n  1\n]' ]
    run -0 q --think off --temp 1 --json-schema '{"const": [1, {"a": 2}]}' \
        --json-indent free x
    [ "$(jget 'o == [1, {"a": 2}]' <<<"$output")" = True ]
    fails 2 '--json-schema: #/$ref' --json-schema '{"$ref": "a.json"}' x
    fails 2 "0..16" --json-schema "$T/s" --json-indent 17 x
    fails 2 'neither "free" nor a number' --json-schema "$T/s" --json-indent -1 x
    fails 2 'has no effect without --json-schema' --json-indent 2 x
    fails 2 'has no effect without --json-schema' --json-order any x
    fails 2 "schema|any" --json-schema "$T/s" --json-order all x
    printf '{"type":' >"$T/s"
    fails 2 "$T/s: " --json-schema "$T/s" x
}

@test "keywords without effect warn once, and all problems of a schema are named" {
    local odd='"nullable": true, "id": "a", "x-b": 1, "format": "int32"'
    run -0 --separate-stderr q --think off --json-schema "{\"enum\": [1], $odd}" x
    [ "$output" = 1 ]
    [ "$stderr" = 'qwick: warning: --json-schema: without effect: nullable, id (not in draft 2020-12), format "int32"' ]
    for i in 1 2 3; do
        echo "{\"prompt\":\"x\",\"json_schema\":{\"enum\":[$i],$odd}}"
    done >"$T/in"
    run -0 --separate-stderr q batch --think off -i "$T/in"
    [ "$(grep -c 'without effect: nullable, id' <<<"$stderr")" = 1 ]
    local bad='{"$ref": "a.json", "properties": {"b": {"$ref": "#c", "requird": []}}}'
    run -2 --separate-stderr q --json-schema "$bad" x
    [ "$stderr" = 'qwick: --json-schema: #/$ref: "a.json" is outside of this schema, in which no $id is "a.json"
qwick: --json-schema: #/properties/b/$ref: nothing is at "#c"
qwick: --json-schema: #/properties/b/requird: is no keyword, did you mean required?' ]
    echo "{\"prompt\":\"x\",\"json_schema\":$bad}" >"$T/in"
    run q batch --think off -i "$T/in"
    [[ $output == *'nothing is at \"#c\"; #/properties/b/requird: is no keyword'* ]]
    bad=$(printf '"p%d": {"requird": []},' $(seq 30))
    run -2 --separate-stderr q --json-schema "{\"properties\": {$bad \"a\": {}}}" x
    [ "$(wc -l <<<"$stderr")" = 21 ]
    [ "${stderr##*$'\n'}" = 'qwick: --json-schema: and 10 more' ]
}

@test "with --json-order any, members come in any order" {
    local schema='{"type": "object", "additionalProperties": false,
        "properties": {"a": {"enum": [1]}, "b": {"enum": [2]}, "c": {"enum": [3]}},
        "required": ["a", "b", "c"]}'
    : >"$T/orders"
    for seed in $(seq 12); do
        run -0 q --think off --temp 100 --seed "$seed" --json-schema "$schema" \
            --json-order any x
        [ "$(jget 'o == {"a": 1, "b": 2, "c": 3}' <<<"$output")" = True ]
        printf '%s\n' "$output" >>"$T/orders"
        [ "$(q --think off --temp 100 --seed "$seed" --json-schema "$schema" x)" \
            = '{"a":1,"b":2,"c":3}' ]
    done
    [ "$(sort -u "$T/orders" | wc -l)" -gt 2 ]
    for order in '' ', "json_order": "schema"' ', "json_order": "any"'; do
        for seed in 1 2 3 4 5 6; do
            printf '{"prompt": "x", "temperature": 100, "seed": %d, "think": false,
                "json_schema": %s%s}\n' "$seed" "$schema" "$order" | tr '\n' ' '
            echo
        done
    done >"$T/in"
    run -0 q batch --json-order any -i "$T/in" -o "$T/out"
    [ "$(head -n 6 "$T/out" | grep -c '"text":"{\\"a\\":1,\\"b\\":2')" -lt 6 ]
    [ "$(sed -n 7,12p "$T/out" |
        grep -c '"text":"{\\"a\\":1,\\"b\\":2,\\"c\\":3}"')" = 6 ]
    [ "$(tail -n 6 "$T/out" | grep -c '"text":"{\\"a\\":1,\\"b\\":2')" -lt 6 ]
    printf '{"prompt": "x", "json_order": "any"}\n' >"$T/in"
    run -1 q batch -i "$T/in" -o "$T/out2"
    grep -q 'json_order: has no effect without json_schema' "$T/out2"
}

# A batch has no guesses, and a single run has: forced tokens change nothing.
@test "a batch of mixed constraints equals single runs" {
    cat >"$T/in" <<'END'
{"prompt":"list files","regex":"(abc def ghi ){3}[0-9]{3}"}
{"prompt":"say a, b or c","choices":["a","b, or","c\\"]}
{"prompt":"list files","json_schema":{"type":"array","items":{"type":"integer","maximum":99,"minimum":0},"maxItems":3}}
{"prompt":"list","grammar":"root ::= \"<\" [a-z]{1,5} root? \">\""}
{"prompt":"list files","choices":"x\\,y,z"}
{"prompt":"list files"}
END
    opts=(--exact --temp 2 --think off -n 40)
    run -0 q batch "${opts[@]}" --seed 5 --regex '[ab]{4}' -i "$T/in"
    printf '%s\n' "$output" >"$T/out"
    printf '%s\n' "$output" | jlines 'o[0]["text"][:12] == "abc def ghi " and
        o[1]["text"] in ("a", "b, or", "c\\") and o[4]["text"] in ("x,y", "z")
        and isinstance(json.loads(o[2]["text"]), list) and
        set(o[5]["text"]) <= set("ab") and len(o[5]["text"]) == 4'
    seed() { sed -n "$1p" "$T/out" | jget 'o["seed"]'; }
    text() { sed -n "$1p" "$T/out" | jget 'o["tokens"]'; }
    one() { q "${opts[@]}" --json "$@" | jget 'o["tokens"]'; }
    [ "$(one --seed "$(seed 1)" --regex '(abc def ghi ){3}[0-9]{3}' \
        "list files")" = "$(text 1)" ]
    [ "$(one --seed "$(seed 2)" --choices 'a,b\, or,c\\' "say a, b or c")" = \
        "$(text 2)" ]
    [ "$(one --seed "$(seed 3)" --json-schema '{"type":"array","items":
        {"type":"integer","maximum":99,"minimum":0},"maxItems":3}' \
        "list files")" = "$(text 3)" ]
    printf 'root ::= "<" [a-z]{1,5} root? ">"' >"$T/g"
    equal "$(one --seed "$(seed 4)" --grammar "$T/g" list)" "$(text 4)"
    equal "$(one --seed "$(seed 6)" --regex '[ab]{4}' "list files")" "$(text 6)"
}

@test "a batch reports cut answers and bad constraints" {
    cat >"$T/in" <<'END'
{"prompt":"x","regex":"[ab]{50}"}
{"prompt":"x","regex":"a(b"}
{"prompt":"x","regex":"a","choices":["b"]}
{"prompt":"x","choices":[1]}
{"prompt":"x","regex":"abc","stop":"b"}
{"prompt":"x","regex":"[ab]{3}"}
{"prompt":"x","regex":"y{0}"}
END
    run -1 --separate-stderr q batch --think off -n 10 -i "$T/in" -o "$T/out"
    jlines 'o[0]["incomplete"] and o[0]["finish_reason"] == "length" and
        o[1]["error"] == "record: regex: character 2: the group has no \")\"" and
        "cannot be combined" in o[2]["error"] and
        "item 0 is no string" in o[3]["error"] and
        o[4]["incomplete"] and o[4]["text"] == "a" and
        o[4]["finish_reason"] == "stop_string" and "incomplete" not in o[5] and
        o[6]["text"] == "" and "incomplete" not in o[6]' <"$T/out"
    [[ $stderr == *"2 answers fall short of their constraint"* ]]
    [[ $stderr != *empty* ]]
    # the next run finds them done, and says so again
    sed -i 2,5d "$T/in" "$T/out"
    sed -i 's/"line":6/"line":2/; s/"line":7/"line":3/' "$T/out"
    run -1 --separate-stderr q batch --think off -n 10 -i "$T/in" -o "$T/out"
    [[ $stderr == *"of earlier runs falls short of its constraint"* ]]
    [ "$(wc -l <"$T/out")" -eq 3 ]
    # another constraint is another answer
    sed -i 's/{3}/{4}/' "$T/in"
    run -2 --separate-stderr q batch --think off -n 10 -i "$T/in" -o "$T/out"
    fails 2 "--regex: character 1" batch --regex '*' -i "$T/in"
}

@test "--profile-timing shows the share of the constraint" {
    # the last 40 letters have no alternative: one pass gives several of them
    local tail=abcdefghijklmnopqrstuvwxyzabcdefghijklmn
    hurried q --profile-timing --json --regex "[a-z ]{9}$tail" "list files" >"$T/with"
    hurried q --profile-timing --json -n 12 --ignore-eos "list files" >"$T/without"
    python3 - "$T/with" "$T/without" <<'PY'
import json, sys
t, plain = (json.load(open(f))["timing"]["summary"] for f in sys.argv[1:])
assert 0 < t["constraint_share"] < 1, t
assert t["tokens_per_pass"] > 1, t
assert not {"constraint_share", "tokens_per_pass"} & set(plain), plain
PY
    run -0 --separate-stderr hurried q --profile-timing --regex "[a-z ]{9}$tail" "list files"
    [[ $stderr =~ constraint\ +[0-9.]+\ % ]]
    [[ $stderr =~ forced\ +[0-9.]+\ tokens\ a\ pass,\ [1-9][0-9]*\ forced ]]
}
