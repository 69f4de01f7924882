"""ple_table.py SOURCE TARGET ROWS: copy a checkpoint of Gemma 4 and make the table of its
per-layer embeddings ROWS long, more than the vocabulary. The new rows are a hole in the
file, so that a table of gigabytes takes no space."""
import json
import os
import struct
import sys

source, target, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.makedirs(target)
config = json.load(open(source + "/config.json"))
config.get("text_config", config)["vocab_size_per_layer_input"] = rows
json.dump(config, open(target + "/config.json", "w"))
data = open(source + "/model.safetensors", "rb").read()
n = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8 : 8 + n])
name = next(k for k in header if k.endswith("embed_tokens_per_layer.weight"))
order = sorted((k for k in header if k not in (name, "__metadata__")), key=lambda k: header[k]["data_offsets"])
new, blobs, at = {}, [], 0
for k in order + [name]:
    a, b = header[k]["data_offsets"]
    blobs.append(data[8 + n + a : 8 + n + b])
    shape = header[k]["shape"] if k != name else [rows, header[k]["shape"][1]]
    size = b - a if k != name else rows * shape[1] * 2
    new[k] = {"dtype": header[k]["dtype"], "shape": shape, "data_offsets": [at, at + size]}
    at += size
text = json.dumps(new).encode()
text += b" " * (-len(text) % 8)
with open(target + "/model.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))
    f.truncate(8 + len(text) + at)
