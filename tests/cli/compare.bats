#!/usr/bin/env bats
# bench/compare.sh: two binaries, row by row. Speeds are never judged here,
# except those that stubs make up.
load helpers

setup() {
    common_setup
    mkdir -p "$T/models/m"
    echo '{}' >"$T/models/m/config.json"
}

# stub NAME TOK_S: a binary that claims this speed for everything.
stub() {
    cat >"$T/$1" <<EOF
#!/bin/sh
rows() {
    for r in '"prefill","tokens":512,"batch":1' '"decode","depth":16,"batch":1' \\
        '"decode","depth":1024,"batch":1' '"batch","depth":16,"batch":8' \\
        '"batch","depth":16,"batch":16'; do
        echo "\$sep{\"test\":\$r,\"tok_s\":$2}"
        sep=,
    done
}
echo "\$*" >>"$T/calls"
[ "\$1" = bench ] || exit 0
echo "{\"results\":["; rows; echo "]}"
EOF
    chmod +x "$T/$1"
}

compare() {
    bench/compare.sh --models "$T/models" --rows "prefill|decode|batch" "$@"
}

@test "a small model, the same binary twice" {
    ln -s "$PWD/models/demo" "$T/models/demo"
    run -0 hurried bench/compare.sh "$QWICK" "$QWICK" --models "$T/models" --bound 0 \
        --rows "demo (decode 16|embed)" --rounds 1 --reps 1 --gen 2 --texts 4
    [[ $output == *"| demo | decode 16 | "* ]]
    [[ $output == *"| demo | embed 4 | "*" texts/s | "* ]]
    [ "${lines[-1]}" = "All 2 rows reach 0." ]
    [ "${#lines[@]}" -eq 5 ]
}

@test "below the bound: exit 1, the row is named and measured again" {
    stub old 100
    stub slow 97
    stub near 99
    run -0 compare "$T/old" "$T/near"
    [[ $output == *"| m | decode 1024 | 100 | 99 | 0.990 | 0.990, 0.990 | 3 |"* ]]
    [[ $output == *"All 5 rows reach 0.98."* ]]
    run -1 compare "$T/old" "$T/slow"
    [[ $output == *"measured again: m prefill 512, "* ]]
    [[ $output == *"| m | batch 8 | 100 | 97 | 0.970 | 0.970, 0.970 | 6 | below 0.98 |"* ]]
    [[ $output == *"FAIL: 5 of 5 rows below 0.98."* ]]
    run -0 compare "$T/old" "$T/slow" --bound 0.96
    run -1 compare "$T/slow" "$T/old" --bound 1.2
    run -1 compare "$T/old" "$T/slow" --rows "batch 8" --rounds 2 \
        --json "$T/j"
    [[ $output == *"FAIL: 1 of 1 rows below 0.98."* ]]
    jget '[o[0]["row"], len(o[0]["old"]), o[0]["new"][0]] == ["batch 8", 4, 97]' \
        <"$T/j" | grep -qx True
}

@test "rounds alternate the order; options reach bench" {
    stub old 100
    stub new 100
    for s in old new; do
        sed -i "2i echo $s >>$T/order" "$T/$s"
    done
    run -0 compare "$T/old" "$T/new" --rows "decode 16" -t 2 --isa avx2 \
        --reps 7 --gen 9
    [ "$(tr '\n' ' ' <"$T/order")" = "old new new old old new " ]
    [ "$(sort -u "$T/calls")" = "bench -m $T/models/m --json --reps 7 --gen 9 --prompt-lens 512 --depths 16 --batches 8,16 -t 2 --isa avx2" ]
}

@test "wrong usage and failing binaries: one line" {
    stub old 100
    printf '#!/bin/sh\necho "it broke" >&2\nexit 3\n' >"$T/bad"
    printf '#!/bin/sh\necho "{}"\n' >"$T/odd"
    stub zero 0
    chmod +x "$T/bad" "$T/odd"
    one() {
        run -"$1" bench/compare.sh --models "$T/models" "${@:3}"
        [[ ${lines[-1]} == "compare.sh: "*"$2"* ]] || { echo "$output"; return 1; }
    }
    one 2 "/nope: not an executable program" "$T/old" /nope
    one 2 "required: OLD, NEW"
    one 2 "--rounds: 0 is less than 1" "$T/old" "$T/old" --rounds 0
    one 2 "--bound: nan" "$T/old" "$T/old" --bound nan
    one 2 "--rows: " "$T/old" "$T/old" --rows "("
    one 2 "no row matches 'tea'" "$T/old" "$T/old" --rows tea
    one 2 "no GGUF file, and no folder with a config.json" "$T/old" "$T/old" --models src
    one 2 "No such file" "$T/old" "$T/old" --models "$T/none"
    one 3 "exit status 3: it broke" "$T/old" "$T/bad" --rows decode
    one 3 "its JSON cannot be read" "$T/old" "$T/odd" --rows decode
    one 3 "reports no speed of m decode 16" "$T/old" "$T/zero" --rows decode
}

@test "--json has each finished round when a later one fails" {
    stub old 100
    stub new 100
    sed -i "2i echo >>$T/n; [ \$(wc -l <$T/n) -lt 3 ] || exit 3" "$T/new"
    run -3 compare "$T/old" "$T/new" --rows "decode 16" --json "$T/j"
    jget 'len(o[0]["new"])' <"$T/j" | grep -qx 2
}

@test "GGUF files are models" {
    stub old 100
    : >"$T/models/n.gguf"
    run -0 bench/compare.sh --models "$T/models" --rounds 1 --rows "decode 16" \
        "$T/old" "$T/old"
    [[ $output == *"| n.gguf | decode 16 |"* ]]
    [[ $output == *"All 2 rows reach 0.98."* ]]
}
