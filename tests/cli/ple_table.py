"""ple_table.py SOURCE TARGET ROWS [VOCAB]: copy a checkpoint of Gemma 4 with a table of
per-layer embeddings of ROWS rows, and with a vocabulary of VOCAB. New rows are holes in
the file, so that a table of gigabytes takes no space."""
import json
import os
import struct
import sys

source, target, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
config = json.load(open(source + "/config.json"))
fields = config.get("text_config", config)
vocab = int(sys.argv[4]) if len(sys.argv) > 4 else fields["vocab_size"]
fields.update(vocab_size=vocab, vocab_size_per_layer_input=rows)
os.makedirs(target)
json.dump(config, open(target + "/config.json", "w"))
data = open(source + "/model.safetensors", "rb").read()
n = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8 : 8 + n])
header.pop("__metadata__", None)
parts, at = [], 0
for name, t in header.items():
    a, b = t["data_offsets"]
    parts.append((at, data[8 + n + a : 8 + n + b]))
    new = rows if name.endswith("embed_tokens_per_layer.weight") else vocab
    if ".embed_tokens" in name:
        b = a + new * (b - a) // t["shape"][0]
        t["shape"][0] = new
    t["data_offsets"] = [at, at + b - a]
    at += b - a
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open(target + "/model.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text)
    for offset, blob in parts:
        f.seek(8 + len(text) + offset)
        f.write(blob)
    f.truncate(8 + len(text) + at)
