#!/usr/bin/env bats
# Choices between kernels: inspect -v, the probe of an unknown core and its file,
# bench --tune. Which variant is the fastest is not tested.

load helpers

setup() {
    common_setup
    export XDG_CACHE_HOME=$T/cache
    DIR=$XDG_CACHE_HOME/qwick
}

# level: the kernels in use.
level() {
    q inspect --json | jget 'o["isa"]'
}

# choices ARGUMENT...: names, values and evidence as inspect shows them.
choices() {
    q inspect --json "$@" >"$T/o"
    jget '[[t["name"], t["value"], t["evidence"]] for t in o["tuning"]]' <"$T/o"
}

@test "inspect -v shows the record of the core" {
    run -0 --separate-stderr q inspect -v
    [[ $output == *"kernels for "*"guess: "* ]]
    echo "$output" | grep -qE '^sweep_ahead  *[0-9]+  (measured|guess|probe) '
    run -0 --separate-stderr q inspect
    [[ $output != *sweep_ahead* ]]
    q inspect --json >"$T/o"
    python3 - "$T/o" <<'PY'
import json, sys
o = json.load(open(sys.argv[1]))
t = {x["name"]: x for x in o["tuning"]}
assert len(t) == len(o["tuning"]) and t["sweep_l2"]["value"] in (0, 1)
assert all(x["evidence"] in ("measured", "guess", "probe") for x in t.values())
assert o["core"] and o["core_evidence"]
if o["isa"] == "ref":
    assert not any(x["used"] for x in t.values())
PY
}

@test "another core's record, and a core without one" {
    [ "$(level)" != ref ] || skip "no kernels to choose from"
    run -0 --separate-stderr q inspect -v --core "Sapphire Rapids"
    [[ $output == *"kernels for Sapphire Rapids, measured: "* ]]
    echo "$output" | grep -qE '^sweep_l2  *1  measured '
    echo "$output" | grep -qE '^bf16_min  *2  guess '
    fails 2 'core: "Zen 9": has no record' inspect --core "Zen 9"
    [ ! -e "$DIR" ] # records are not kept
}

@test "a probe is kept, and measured again if the file is damaged" {
    [ "$(level)" != ref ] || skip "no kernels to choose from"
    first=$(choices --core probe)
    [[ $first == *"'sweep_ahead', "*"'probe'"* ]]
    file=$(echo "$DIR"/tuning-1-*.txt)
    [ "$(stat -c %a "$file" "$DIR")" = "$(printf '600\n700')" ]
    cp -p "$file" "$T/kept"
    touch -d 2001-01-01 "$file"
    [ "$(choices --core probe)" = "$first" ]
    [ "$(stat -c %Y "$file")" = "$(date -d 2001-01-01 +%s)" ] # not written
    echo >>"$file"
    choices --core probe
    grep -q '^sum [0-9a-f]\{16\}$' "$file"
    [ "$(wc -l <"$file")" = "$(wc -l <"$T/kept")" ] # written anew
    [ "$(q cache ls --json | jget '[len(o["entries"]), len(o["probes"])]')" = "[0, 1]" ]
    q cache ls | grep -q "(probe of this CPU's core)"
    q cache gc --size 1
    [ -e "$file" ]
    q cache clear
    [ ! -e "$file" ]
}

@test "a probe without a usable directory" {
    [ "$(level)" != ref ] || skip "no kernels to choose from"
    : >"$T/cache"
    run -0 --separate-stderr q inspect -v --core probe
    echo "$output" | grep -qE '^sweep_ahead  *[0-9]+  probe '
    [[ $stderr != *warning* && $stderr != *cannot* ]]
    rm "$T/cache"
    run -0 --separate-stderr env -u HOME -u XDG_CACHE_HOME "$QWICK" \
        --no-config inspect -v --core probe
    echo "$output" | grep -qE '^sweep_ahead  *[0-9]+  probe '
}

@test "bench --tune: all variants, and a row" {
    hurried q bench --tune --reps 1 >"$T/text"
    grep -q '^Row for src/kernel/\*/k_cores_\*.c:$' "$T/text"
    hurried q bench --tune --reps 1 --json >"$T/o"
    q inspect --json >"$T/i"
    python3 - "$T/o" "$T/i" "$T/text" <<'PY'
import json, sys
o, i = (json.load(open(f)) for f in sys.argv[1:3])
used = {x["name"]: x["value"] for x in i["tuning"] if x["used"]}
names = {x["name"] for x in o["trials"]}
assert names == set(used) == set(o["choices"]), names ^ set(used)
text = open(sys.argv[3]).read()
for n, value in used.items():
    t = [x for x in o["trials"] if x["name"] == n]
    assert len(t) >= 2 and sum(x["best"] for x in t) == 1, t
    assert [x["value"] for x in t if x["in_use"]] == [value], (n, value, t)
    assert o["choices"][n] in [x["value"] for x in t]
    assert all(x["percent_of_limit"] > 0 for x in t)
    best, = (x for x in t if x["best"])
    assert best["percent_of_limit"] == max(x["percent_of_limit"] for x in t)
    assert f".{n} = " in text
assert all(f".{x['name']} = " in text for x in i["tuning"])
PY
    fails 2 "--gen: has no effect with --tune" bench --tune --gen 3
    fails 2 "--model: has no effect with --tune" bench --tune -m x
}
