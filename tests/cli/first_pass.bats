# The first pass of a model whose weights are not in memory, and the times of
# the start.

load helpers

setup() {
    common_setup
    # a file system with a disk behind it: temporary files may be in memory
    D=$(mktemp -d "$PWD/build/first_pass.XXXXXX")
}

teardown() {
    rm -rf "$D"
}

# Drop a file from memory; false if that has no effect here.
drop() {
    sync "$1"
    dd of=/dev/null count=0 iflag=nocache if="$1" 2>/dev/null
    [ "$(fincore -n -o PAGES "$1")" -eq 0 ]
}

# The demo model with a large tensor that no pass uses: opening the model then leaves
# most of the file unread.
padded() {
    cp models/demo/*.json "$D"
    python3 - models/demo/model.safetensors "$D/model.safetensors" <<'PY'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
n, = struct.unpack("<Q", data[:8])
header = json.loads(data[8:8 + n])
end, pad = len(data) - 8 - n, 100 << 20
header["pad"] = {"dtype": "U8", "shape": [pad], "data_offsets": [end, end + pad]}
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open(sys.argv[2], "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + data[8 + n:])
    f.truncate(8 + len(text) + end + pad)
PY
    cat "$D/model.safetensors" >/dev/null
}

ask() {
    hurried "$QWICK" -m "$D" --json --profile-timing -n 16 --ignore-eos "$@" \
        "show the date" 2>"$T/err"
}

@test "weights on the disk are read before the first pass, with the same answer" {
    padded
    ask >"$T/warm"
    [ "$(jget 'o["timing"]["summary"]["first_read_ms"]' <"$T/warm")" = 0 ]
    drop "$D/model.safetensors" || skip "this file system keeps dropped files"
    ask >"$T/cold"
    [ "$(jget 'o["timing"]["summary"]["first_read_ms"] > 0' <"$T/cold")" = True ]
    [ "$(jget 'o["text"]' <"$T/cold")" = "$(jget 'o["text"]' <"$T/warm")" ]
    # preload reads it, too
    drop "$D/model.safetensors"
    ask --preload >"$T/preload"
    [ "$(jget 'o["timing"]["summary"]["first_read_ms"] > 0' <"$T/preload")" = True ]
    [ "$(jget 'o["text"]' <"$T/preload")" = "$(jget 'o["text"]' <"$T/warm")" ]
}

@test "the parts of loading are no longer than the whole" {
    hurried "$QWICK" -q --json --profile-timing -n 2 hi >"$T/o"
    [ "$(jget '0 < o["timing"]["summary"]["load_tokenizer_ms"] and
        0 < o["timing"]["summary"]["load_weights_ms"] and
        o["timing"]["summary"]["load_tokenizer_ms"] +
        o["timing"]["summary"]["load_weights_ms"] <= o["timing"]["load_ms"] + 0.002' <"$T/o")" = True ]
}
