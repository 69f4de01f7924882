"""Write a copy of a checkpoint that answers the same but takes longer.

usage: slow_model.py FROM TO TIMES

Its MLPs have TIMES as many rows. The further ones are zeros, so they change
nothing, and are evaluated like the others. FROM must hold one file of dense
weights, not quantized.
"""
import json
import os
import shutil
import struct
import sys


def main():
    source, target, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
    os.makedirs(target)
    for name in os.listdir(source):
        if name not in ("config.json", "model.safetensors"):
            shutil.copy(os.path.join(source, name), target)
    with open(os.path.join(source, "config.json")) as f:
        config = json.load(f)
    config["intermediate_size"] *= times
    with open(os.path.join(target, "config.json"), "w") as f:
        json.dump(config, f)
    with open(os.path.join(source, "model.safetensors"), "rb") as f:
        n, = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(n)), f.read()
    header.pop("__metadata__", None)
    parts, at = [], 0
    for name, t in header.items():
        begin, end = t["data_offsets"]
        part, shape = data[begin:end], t["shape"]
        if "gate_proj" in name or "up_proj" in name:
            part += bytes(len(part) * (times - 1))
            shape[0] *= times
        elif "down_proj" in name:
            row = len(part) // shape[0]
            part = b"".join(part[i:i + row] + bytes(row * (times - 1))
                            for i in range(0, len(part), row))
            shape[1] *= times
        t["data_offsets"] = [at, at + len(part)]
        at += len(part)
        parts.append(part)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(target, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.writelines(parts)


main()
