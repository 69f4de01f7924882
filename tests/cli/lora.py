"""lora.py CONFIG TARGET [NAME=VALUE ...]: write PEFT's files of a LoRA adapter with random
values for a checkpoint of Llama's or Qwen's shape, whose config.json is CONFIG.

rank, alpha, seed, dtype (BF16 or F32), targets (a list, comma between), size (of B)."""
import json
import os
import random
import struct
import sys

config, target = json.load(open(sys.argv[1])), sys.argv[2]
opt = dict(rank="8", alpha="16", seed="1", dtype="BF16", targets="q_proj,v_proj,down_proj",
           size="0.05")
opt.update(a.split("=", 1) for a in sys.argv[3:])
rank, rng = int(opt["rank"]), random.Random(int(opt["seed"]))
d, ff = config["hidden_size"], config["intermediate_size"]
head = config["head_dim"]
q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
shapes = {"q_proj": (q, d), "k_proj": (kv, d), "v_proj": (kv, d), "o_proj": (d, q),
          "gate_proj": (ff, d), "up_proj": (ff, d), "down_proj": (d, ff)}
header, data, at = {}, [], 0


def put(name, rows, cols, size):
    global at
    values = [rng.uniform(-size, size) for _ in range(rows * cols)]
    raw = struct.pack(f"<{len(values)}f", *values)
    if opt["dtype"] == "BF16":
        raw = b"".join(raw[i + 2 : i + 4] for i in range(0, len(raw), 4))
    header[name] = {"dtype": opt["dtype"], "shape": [rows, cols], "data_offsets": [at, at + len(raw)]}
    data.append(raw)
    at += len(raw)


for layer in range(config["num_hidden_layers"]):
    for name in opt["targets"].split(","):
        rows, cols = shapes[name]
        part = "self_attn" if name[0] in "qkvo" else "mlp"
        module = f"base_model.model.model.layers.{layer}.{part}.{name}"
        put(module + ".lora_A.weight", rank, cols, (3 / cols) ** 0.5)
        put(module + ".lora_B.weight", rows, rank, float(opt["size"]))
os.makedirs(target, exist_ok=True)
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open(target + "/adapter_model.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + b"".join(data))
json.dump({"peft_type": "LORA", "r": rank, "lora_alpha": int(opt["alpha"]), "bias": "none",
           "target_modules": opt["targets"].split(",")},
          open(target + "/adapter_config.json", "w"))
