#!/usr/bin/env bats
# embed --index and similar: what is kept, skipped and replaced, what a killed run
# leaves, and searches.
load helpers

setup() {
    common_setup
    small_demo "$T/embedder"
    echo '{}' >"$T/embedder/modules.json"
    export QWICK_MODEL=$T/embedder
    printf 'list files\nshow disk usage\nremove a directory\nfind text\n' \
        >"$T/notes"
}

# index ARGS…: embed into the index $T/d, and print what it says.
index() {
    "$QWICK" embed --exact --index "$T/d" "$@" 2>&1
}

# similar ARGS…: search in it.
similar() {
    "$QWICK" similar --exact "$T/d" "$@" </dev/null
}

# neighbours ARGS…: the same without --exact, which --id does not take.
neighbours() {
    "$QWICK" similar "$T/d" "$@" </dev/null
}

# Print the rows of the index that are not dead: id and text, with | for newlines.
rows() {
    python3 - "$T/d" <<'PY'
import json, struct, sys
d = sys.argv[1]
read = lambda name: open(d + "/" + name, "rb").read()
m = json.loads(read("index.json"))
n = m["rows"]
ends = struct.unpack("<%dQ" % (2 * n), read("offsets.u64")[:16 * n])
dead = set(struct.unpack("<%dQ" % m["dead"], read("dead.u64")[:8 * m["dead"]]))
assert len(read("vectors." + m["type"])) >= n * m["dim"] * (4 if m["type"] == "f32" else 2)
ids, texts = read("ids.txt"), read("texts.txt")
at = [0, 0]
for i in range(n):
    end = ends[2 * i], ends[2 * i + 1]
    if i not in dead:
        print(ids[at[0]:end[0]].decode(), texts[at[1]:end[1]].decode().replace("\n", "|"), sep="\t")
    at = end
assert at == [m["id_bytes"], m["text_bytes"]] or at == (m["id_bytes"], m["text_bytes"])
PY
}

@test "texts are kept with ids, stdout stays empty" {
    run -0 --separate-stderr "$QWICK" embed --lines -i "$T/notes" --index "$T/d"
    [ -z "$output" ]
    equal "$stderr" "qwick: note: $T/d: 4 texts added, 0 replaced, 0 were there; now 4"
    equal "$(rows)" "$(awk -v f="$T/notes" '{ print f ":" NR "\t" $0 }' "$T/notes")"
    # -q is silent
    equal "$(q embed -q --index "$T/d" "one more" 2>&1; echo "$?")" 0
    # each kind of input has its ids
    printf '{"id":"a b","text":"x"}\n{"id":7,"text":"y"}\n{"text":"z"}\n' |
        index -q --jsonl
    index -q -f "$T/notes"
    index -q <"$T/notes"
    index -q --lines <"$T/notes"
    index -q two words
    equal "$(rows | cut -f 1 | sed "s|$T/||" | tr '\n' ' ')" \
        "notes:1 notes:2 notes:3 notes:4 one more a b 7 notes stdin 1 2 3 4 two words "
}

@test "the same text is skipped, another one replaces it" {
    index -q --lines -i "$T/notes"
    before=$(similar --json "disk")
    equal "$(index --lines -i "$T/notes")" \
        "qwick: note: $T/d: 0 texts added, 0 replaced, 4 were there; now 4"
    equal "$(similar --json "disk")" "$before"
    sed -i '2s/.*/show free memory/' "$T/notes"
    echo "print the date" >>"$T/notes"
    equal "$(index --lines -i "$T/notes")" \
        "qwick: note: $T/d: 1 texts added, 1 replaced, 3 were there; now 5"
    similar --top 99 --json x >"$T/out"
    jlines 'len(o) == 5 and not any(r["text"] == "show disk usage" for r in o)' \
        <"$T/out"
    # the index is that of one run, but for the order of its rows
    rm -r "$T/d"
    index -q --lines -i "$T/notes"
    equal "$(similar --top 99 x | sort)" \
        "$(jq_free_table <"$T/out" | sort)"
    # twice in one run
    printf '{"id":"a","text":"x"}\n{"id":"a","text":"y"}\n{"id":"a","text":"y"}\n' \
        >"$T/twice"
    equal "$(index --jsonl -i "$T/twice")" \
        "qwick: note: $T/d: 1 texts added, 1 replaced, 1 were there; now 6"
    equal "$(rows | tail -n 1)" $'a\ty'
}

# The table of JSON results.
jq_free_table() {
    python3 -c 'import json, sys
for line in sys.stdin:
    r = json.loads(line)
    print("%.6f" % r["score"], r["id"], r["text"], sep="\t")'
}

@test "results are those of the vectors" {
    index -q --lines -i "$T/notes"
    { "$QWICK" embed --exact --lines -i "$T/notes"
        q embed --exact "disk full"; } >"$T/vectors"
    similar --json "disk full" >"$T/out"
    cat "$T/vectors" "$T/out" | jlines \
        '(lambda v, r, dot: len(r) == 4 and
          [x["rank"] for x in r] == [1, 2, 3, 4] and
          all(x["query"] == 1 and list(x) == ["query", "rank", "score", "id", "text"]
              for x in r) and
          [x["score"] for x in r] == sorted((x["score"] for x in r), reverse=True) and
          all(abs(x["score"] - dot(v[int(x["id"][-1]) - 1], v[4])) < 1e-6 for x in r))(
         [x["embedding"] for x in o[:5]], o[5:],
         lambda a, b: sum(x * y for x, y in zip(a, b)))'
    equal "$(similar "disk full")" "$(jq_free_table <"$T/out")"
    equal "$(similar "disk full" --top 2)" "$(similar "disk full" | head -n 2)"
    equal "$(similar "disk full" --ids-only)" "$(similar "disk full" | cut -f 2)"
    third=$(sed -n 3p "$T/out" | jget 'o["score"]')
    equal "$(similar "disk full" --min-score "$third")" \
        "$(similar "disk full" | head -n 3)"
    [ -z "$(similar "disk full" --min-score 1.5)" ]
    equal "$(similar -t 1 "disk full")" "$(similar -t 2 "disk full")"
    # f16 has the same order and nearly the same scores
    "$QWICK" embed -q --exact --lines -i "$T/notes" --index "$T/half" --index-type f16
    [ "$(stat -c %s "$T/half/vectors.f16")" -eq $((4 * 256 * 2)) ]
    "$QWICK" similar --exact "$T/half" --json "disk full" </dev/null |
        cat "$T/out" - | jlines '[r["id"] for r in o[:4]] == [r["id"] for r in o[4:]] and
            all(abs(a["score"] - b["score"]) < 1e-3 for a, b in zip(o[:4], o[4:]))'
    # without --index-type, the type is that of the index
    run -0 q embed -q --exact --index "$T/half" more
}

@test "several queries share a search, and name themselves" {
    index -q --lines -i "$T/notes"
    for one in disk directory; do similar "$one"; done >"$T/each"
    equal "$(similar disk directory | cut -f 2-)" "$(cat "$T/each")"
    equal "$(similar disk directory | cut -f 1 | uniq -c | tr -s ' \n' ' ')" " 4 1 4 2 "
    printf 'disk\ndirectory\n' | "$QWICK" similar --exact "$T/d" --lines |
        cut -f 2- | diff - "$T/each"
    printf '{"id":"q1","text":"disk"}\n{"id":2,"text":"directory"}\nbad\n' >"$T/in"
    run -1 --separate-stderr "$QWICK" similar --exact "$T/d" -i "$T/in" --top 2
    [ -z "$stderr" ]
    echo "$output" | jlines 'len(o) == 5 and
        [r.get("query_id") for r in o] == ["q1", "q1", 2, 2, None] and
        [r["query"] for r in o] == [1, 1, 2, 2, 3] and "line 3" in o[4]["error"]'
    run -1 --separate-stderr bash -c "printf 'disk\n\n' | '$QWICK' similar '$T/d' --lines --top 1"
    [ "${#lines[@]}" -eq 1 ]
    [[ $stderr == *"line 2: "*"no tokens"* ]]
    # a query from a file, and from standard input
    echo disk >"$T/disk"
    equal "$(similar -f "$T/disk")" "$(similar disk)"
    equal "$("$QWICK" similar --exact "$T/d" <"$T/disk")" "$(similar disk)"
    # --instruct, and that of a record
    printf '{"text":"disk","instruct":"find"}\n' >"$T/in"
    equal "$(similar -i "$T/in")" "$(similar --json --instruct find disk)"
    [ "$(similar disk)" != "$(similar --instruct find disk)" ]
}

@test "--id finds neighbours without a model" {
    index -q --lines -i "$T/notes"
    want=$(similar --top 4 "show disk usage" | tail -n 3)
    rm -r "$T/embedder"
    equal "$(neighbours --top 3 --id "$T/notes:2" | cut -f 2-)" "$(cut -f 2- <<<"$want")"
    neighbours --id "$T/notes:2" --json | jlines 'len(o) == 3'
    fails 1 'has no text with the id "other"' similar "$T/d" --id other
    fails 2 '"text": --id names the query already' similar "$T/d" --id a text
    fails 2 "--instruct: has no effect with --id" similar "$T/d" --id a --instruct b
    fails 3 "$T/d: its model: $T/embedder: no such directory" similar "$T/d" x
}

@test "another model, prompt, dimension, length or type is refused" {
    index -q --lines -i "$T/notes"
    before=$(cat "$T/d/index.json")
    small_demo "$T/other"
    python3 - "$T/other" <<'PY'
import json, sys
p = sys.argv[1] + "/config.json"
c = json.load(open(p))
c["rms_norm_eps"] *= 2
json.dump(c, open(p, "w"))
PY
    own=$(jget 'o["model_hash"]' <"$T/d/index.json")
    fails 2 "of another model: its hash is $own, that of the model " \
        similar "$T/d" -m "$T/other" x
    fails 2 "of another model: its hash is $own, that of the model " \
        embed -m "$T/other" --index "$T/d" x
    fails 2 'dim: is 256 in the index, 5 here' embed --index "$T/d" --dim 5 x
    fails 2 'normalized: is true in the index, false here' \
        embed --index "$T/d" --no-normalize x
    fails 2 'prompt: is "" in the index, "Instruct: t\x0aQuery:" here' \
        embed --index "$T/d" --instruct t x
    fails 2 'type: is f32 in the index, f16 here' \
        embed --index "$T/d" --index-type f16 x
    equal "$(cat "$T/d/index.json")" "$before"
    # a copy elsewhere is the same model; a setting does not count
    cp -r "$T/embedder" "$T/copy"
    equal "$(similar -m "$T/copy" disk)" "$(similar disk)"
    equal "$(QWICK_MODEL=$T/other similar disk)" "$(similar disk)"
    # the hash is checked without -m, too
    rm -r "$T/embedder"
    cp -r "$T/other" "$T/embedder"
    fails 2 "of another model" similar "$T/d" x
}

@test "documents get their prompt, queries the prompt query" {
    echo '{"prompts":{"query":"find: ","document":"text: ","other":"o: "},
        "default_prompt_name":"document"}' \
        >"$T/embedder/config_sentence_transformers.json"
    index -q --lines -i "$T/notes"
    [ "$(jget 'o["prompt"]' <"$T/d/index.json")" = "text: " ]
    fails 2 'prompt: is "text: " in the index, "o: " here' \
        embed --index "$T/d" --prompt-name other x
    run -1 index -q --jsonl -i <(echo '{"prompt_ids":[1]}')
    [[ $output == *"line 1: prompt_ids: an index needs the text" ]]
    # a text is not like itself: it has another prompt as a query
    equal "$(similar "list files")" "$(similar --prompt-name query "list files")"
    [ "$(similar "list files")" != "$(similar --prompt-name other "list files")" ]
    equal "$(similar --prompt-name document "list files" | head -n 1)" \
        "1.000000	$T/notes:1	list files"
    fails 2 "cannot be combined" similar "$T/d" --prompt-name query --instruct a b
    fails 2 'prompt name: "none": the model' similar "$T/d" --prompt-name none b
}

@test "queries that are cut, and models for other things, give warnings" {
    echo '{"max_seq_length":5}' >"$T/embedder/sentence_bert_config.json"
    index -q --lines -i "$T/notes"
    run -0 --separate-stderr similar --top 1 "a b c d e f g h"
    equal "$stderr" "qwick: warning: queries that were cut to the model's max_seq_length: 1 (-v names them)"
    run -0 --separate-stderr similar --top 1 -v "a b c d e f g h" x
    [[ $stderr == *"argument 1: the last "*" tokens are dropped"* ]]
    run -0 --separate-stderr similar --top 1 --truncate "a b c d e f g h"
    [ -z "$stderr" ]
    # the limit is part of the model: vectors of longer texts depend on it
    echo '{"max_seq_length":6}' >"$T/embedder/sentence_bert_config.json"
    fails 2 "of another model" similar "$T/d" x
    echo '{"max_seq_length":5,"do_lower_case":true}' >"$T/embedder/sentence_bert_config.json"
    fails 2 "of another model" embed --index "$T/d" x
    rm -r "$T/d"
    small_demo "$T/plain"
    index -q -m "$T/plain" --lines -i "$T/notes"
    run -0 --separate-stderr similar --top 1 list
    [[ $stderr == "qwick: warning: $T/plain: does not look like an embedding model"* ]]
    run -0 --separate-stderr neighbours --top 1 --id "$T/notes:1"
    [ -z "$stderr" ]
}

@test "options that do not fit are refused" {
    index -q --lines -i "$T/notes"
    for o in "--output x" "--format tsv" "--html x" --redo; do
        # shellcheck disable=SC2086
        fails 2 "cannot be combined" embed --index "$T/d" $o a
    done
    fails 2 "--index-type: has no effect without --index" embed --index-type f16 a
    fails 2 "no index" similar
    fails 2 "no input" similar "$T/d"
    fails 2 "cannot be combined" similar "$T/d" --ids-only --json a
    fails 1 "is not an index: it has no index.json" similar "$T" a
    fails 1 "is not an index" similar "$T/none" a
    fails 2 "is not empty: it has" embed --index "$T" a
    fails 1 "cannot create the directory" embed --index "$T/none/d" a
    fails 2 "is a file" similar "$T/d" "$T/notes"
    # a bad line is a message, and the others are kept
    printf '{"id":1,"text":"a"}\nbad\n{"id":2,"text":"b","instruct":"c"}\n{"id":3,"text":"d"}\n' \
        >"$T/in"
    run -1 index --jsonl -i "$T/in"
    [[ ${lines[0]} == *"line 2: "* && ${lines[1]} == *"line 3: instruct: "* ]]
    [[ ${lines[2]} == *"2 texts added"* ]]
}

@test "text with any bytes is one line of a table, and whole in JSON" {
    printf '{"id":"a\\tb","text":"x\\ty\\nz\\\\ \\u0001"}\n' | index -q --jsonl
    equal "$(similar x | cut -f 2-)" 'a\tb'$'\t''x\ty\nz\\ \x01'
    equal "$(similar --json x | jget '[o["id"], o["text"]]')" \
        "['a\\tb', 'x\\ty\\nz\\\\ \\x01']"
    # a terminal gets no more than a line
    printf '{"id":"long","text":"%0500d"}\n' 1 | index -q --jsonl
    run -0 env COLUMNS=40 script -qec "stty cols 40; '$QWICK' similar '$T/d' -q long" /dev/null
    for line in "${lines[@]}"; do [ "${#line}" -le 41 ]; done
}

@test "an interrupted run goes on" {
    seq 300000 >"$T/lines"
    "$QWICK" embed -q --lines -i "$T/lines" --index "$T/d" &
    pid=$!
    for _ in $(seq 200); do
        [ "$(jget 'o["rows"]' 2>/dev/null <"$T/d/index.json")" -gt 0 ] 2>/dev/null && break
        sleep 0.1
    done
    status=0
    kill -TERM $pid
    wait $pid || status=$?
    [ "$status" -eq 143 ]
    n=$(jget 'o["rows"]' <"$T/d/index.json")
    [ "$n" -gt 0 ]
    head -n $((n + 10)) "$T/lines" >"$T/some"
    mv "$T/some" "$T/lines"
    run -0 "$QWICK" embed --lines -i "$T/lines" --index "$T/d"
    [[ $output == *"10 texts added, 0 replaced, $n were there; now $((n + 10))" ]]
}

@test "one writer at a time, readers need no lock" {
    index -q first
    mkfifo "$T/pipe"
    "$QWICK" embed -q --exact --lines -i "$T/pipe" --index "$T/d" &
    pid=$!
    exec 7>"$T/pipe"
    echo second >&7
    # before it waits for more, it commits
    for _ in $(seq 200); do
        [ "$(similar --ids-only --top 9 x | wc -l)" -eq 2 ] && break
        sleep 0.1
    done
    equal "$(similar --ids-only --top 9 x | sort | tr '\n' ' ')" "$T/pipe:1 first "
    fails 1 "$T/d: another process is writing this index" embed --index "$T/d" x
    exec 7>&-
    wait $pid
    index -q third
}

@test "killed at each write, sync, rename or cut, the index is as before or complete" {
    [ "${SAN:-}" != 1 ] || skip "SAN=1 allows no fault injection"
    build_injector
    index -q --lines -i "$T/notes"
    cp -r "$T/d" "$T/base"
    before=$(rows)
    sed -i '1s/.*/changed/' "$T/notes"
    echo new >>"$T/notes"
    index -q --lines -i "$T/notes"
    after=$(rows)
    [ "$before" != "$after" ]
    kinds=0
    for fault in "write kill" "write torn" "sync kill" "rename kill" "space kill" \
        "open kill" "write ENOSPC" "write half" "sync EIO" "rename EIO"; do
        # shellcheck disable=SC2086
        run python3 - "$QWICK" "$T" $fault <<'PY'
import os, shutil, subprocess, sys
qwick, t, call, how = sys.argv[1:]
def run(**fault):
    shutil.rmtree(t + "/d", ignore_errors=True)
    shutil.copytree(t + "/base", t + "/d")
    env = dict(os.environ, LD_PRELOAD=os.environ["INJECT"], FAULT_CALL=call,
               FAULT_HOW=how, **fault)
    return subprocess.run([qwick, "embed", "-q", "--exact", "--no-sandbox", "--lines",
                           "-i", t + "/notes", "--index", t + "/d"], env=env,
                          stdin=subprocess.DEVNULL, capture_output=True).returncode
assert run(FAULT_COUNT=t + "/count") == 0
n = int(dict(l.split() for l in open(t + "/count"))[call])
# the last ones are those of the commit
for at in range(max(1, n - 7), n + 1):
    print(at, "of", n, "status", run(FAULT_AT=str(at)))
    os.rename(t + "/d", "%s/d%d" % (t, at))
PY
        echo "$fault: $output"
        [ "$status" -eq 0 ]
        for d in "$T"/d[0-9]*; do
            rm -rf "$T/d"
            mv "$d" "$T/d"
            now=$(rows)
            [ "$now" = "$before" ] || [ "$now" = "$after" ] ||
                { echo "$fault, $d: $now"; return 1; }
            run -0 neighbours --id "$T/notes:3"
            # the next run completes it
            run -0 index -q --lines -i "$T/notes"
            equal "$(rows)" "$after"
            [ -z "$(ls "$T/d" | grep tmp)" ]
        done
        kinds=$((kinds + 1))
    done
    [ "$kinds" -eq 10 ]
}

@test "a damaged index is one line and status 1" {
    index -q --lines -i "$T/notes"
    cp -r "$T/d" "$T/base"
    for f in vectors.f32 offsets.u64 ids.txt texts.txt index.json; do
        truncate -s -2 "$T/d/$f"
        fails 1 "$T/d/" similar "$T/d" x
        fails 1 "$T/d/" embed --index "$T/d" x
        rm "$T/d/$f"
        [ $f = index.json ] || fails 1 "$T/d/$f: " similar "$T/d" x
        rm -r "$T/d"
        cp -r "$T/base" "$T/d"
    done
    printf '\377\377\377\377' | dd of="$T/d/vectors.f32" conv=notrunc status=none
    fails 1 "vectors.f32: row 0: its product with a query is not finite" similar "$T/d" x
}

@test "out of memory: embed --index and similar" {
    [ "${SAN:-}" != 1 ] || skip "SAN=1 allows no fault injection"
    build_injector
    index -q --lines -i "$T/notes"
    run -0 python3 tests/cli/fault_sweep.py "$INJECT" "$T/sweep" 17 68 \
        "$QWICK" similar --json "$T/d" -q "list files"
    run -0 python3 tests/cli/fault_sweep.py "$INJECT" "$T/sweep" 5 20 \
        "$QWICK" similar --json "$T/d" -q --id "$T/notes:1"
}
