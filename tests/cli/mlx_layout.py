#!/usr/bin/env python3
"""Rewrite checkpoints of floats as mlx-lm's conversion lays them out:
mlx_layout.py DIR OUT [DIR OUT]...

Experts are stacked as switch_mlp, the text model of a wrapped one is below
language_model., a tied head and what is not text are dropped, and for Qwen3-Next and 3.5
norms have their 1. Kernels of convolutions have their channels last. Other names stay."""

import json
import re
import struct
import sys

ZERO_CENTRED = {"qwen3_next", "qwen3_5", "qwen3_5_moe"}
WRAPPED = {"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "mistral3", "gemma3",
           "gemma4"}
OTHER_PARTS = ("visual", "vision_tower", "multi_modal_projector", "mtp.")
EXPERT = re.compile(r"(.*\.)experts\.(\d+)\.(\w+)\.weight")
MIXTRAL = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}


def read(path):
    """{name: [dtype, shape, bytes]} of a safetensors file."""
    raw = open(path, "rb").read()
    at = 8 + struct.unpack_from("<Q", raw)[0]
    head = json.loads(raw[8:at])
    head.pop("__metadata__", None)
    return {k: [t["dtype"], t["shape"], raw[at + t["data_offsets"][0]:at + t["data_offsets"][1]]]
            for k, t in head.items()}


def write(path, tensors):
    head, data = {"__metadata__": {"format": "mlx"}}, b""
    for name, (dtype, shape, part) in sorted(tensors.items()):
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def transposed(t):
    """BF16 [E, a, b] with the last two axes swapped."""
    dtype, (n, a, b), data = t
    words = struct.unpack("<%dH" % (n * a * b), data)
    out = [words[(e * a + i) * b + j] for e in range(n) for j in range(b) for i in range(a)]
    return [dtype, [n, b, a], struct.pack("<%dH" % len(out), *out)]


def halves(t):
    """The two halves of the rows of [E, 2n, m]."""
    dtype, (n, rows, cols), data = t
    part = len(data) // (2 * n)
    return [[dtype, [n, rows // 2, cols], b"".join(data[(2 * e + i) * part:(2 * e + i + 1) * part]
                                                   for e in range(n))] for i in (0, 1)]


def plus_one(t):
    """BF16 values plus 1, rounded to BF16."""
    dtype, shape, data = t
    out = []
    for w in struct.unpack("<%dH" % (len(data) // 2), data):
        v = struct.unpack("<f", struct.pack("<I", w << 16))[0] + 1
        bits = struct.unpack("<I", struct.pack("<f", v))[0]
        out.append((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
    return [dtype, shape, struct.pack("<%dH" % len(out), *out)]


def alternate(t, width):
    """Every second part of `width` bytes, from the first and from the second on."""
    parts = [t[2][i:i + width] for i in range(0, len(t[2]), width)]
    return [[t[0], None, b"".join(parts[i::2])] for i in (0, 1)]


def split_gpt_oss(tensors):
    """Stack the experts of gpt-oss, whose gate_proj and up_proj alternate, as mlx-lm does."""
    for name in [n for n in tensors if ".experts." in n]:
        t = tensors.pop(name)
        at, role = name.split(".experts.")
        kind = ".bias" if role.endswith("_bias") else ".weight"
        t = t if kind == ".bias" else transposed(t)
        n, rows, *cols = t[1]
        parts = {"down_proj": t}
        if role.startswith("gate_up_proj"):
            parts = dict(zip(("gate_proj", "up_proj"), alternate(t, 2 * (cols[0] if cols else 1))))
            for p in parts.values():
                p[1] = [n, rows // 2, *cols]
        for k, p in parts.items():
            tensors[f"{at}.experts.{k}{kind}"] = p


def stack_experts(tensors, by_columns, to="switch_mlp."):
    """Replace tensors of single experts, and fused ones, by stacks."""
    turned = transposed if by_columns else lambda t: t
    groups = {}
    for name in list(tensors):
        m = EXPERT.fullmatch(name)
        if m:
            key = m[1] + "switch_mlp." + MIXTRAL.get(m[3], m[3]) + ".weight"
            groups.setdefault(key, {})[int(m[2])] = tensors.pop(name)
        elif name.endswith("experts.gate_up_proj"):
            at = name.removesuffix("experts.gate_up_proj") + to
            gate, up = halves(turned(tensors.pop(name)))
            tensors |= {at + "gate_proj.weight": gate, at + "up_proj.weight": up}
        elif name.endswith("experts.down_proj"):
            at = name.removesuffix("experts.down_proj") + to
            tensors[at + "down_proj.weight"] = turned(tensors.pop(name))
    for key, parts in groups.items():
        dtype, shape, _ = parts[0]
        tensors[key] = [dtype, [len(parts), *shape],
                        b"".join(parts[e][2] for e in range(len(parts)))]


def fit_zero_centred(tensors):
    for name, t in tensors.items():
        if name.endswith("conv1d.weight"):
            t[1] = [t[1][0], t[1][2], 1]
        elif name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
            tensors[name] = plus_one(t)


def fit_short(tensors):
    """Turn the kernels of short convolutions."""
    for name, t in tensors.items():
        if name.endswith(".conv.conv.weight"):
            t[1] = [t[1][0], t[1][2], 1]


def convert(tensors, config):
    """The tensors of a checkpoint with this config.json as MLX has them."""
    text = config.get("text_config", config)
    tied = config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))
    out = {}
    for name, t in tensors.items():
        name = name.replace("model.language_model.", "model.", 1).removeprefix("language_model.")
        if name.removeprefix("model.").startswith(OTHER_PARTS) or tied and name == "lm_head.weight":
            continue
        out["language_model." * (config["model_type"] in WRAPPED) + name] = list(t)
    if config["model_type"] == "gpt_oss":
        split_gpt_oss(out)
    else:
        stack_experts(out, config["model_type"] == "qwen3_vl_moe",
                      "experts.switch_glu." if config["model_type"].startswith("gemma4") else "switch_mlp.")
    if config["model_type"] in ZERO_CENTRED:
        fit_zero_centred(out)
    fit_short(out)
    return out


def main(source, out):
    config = json.load(open(source + "/config.json"))
    write(out + "/model.safetensors", convert(read(source + "/model.safetensors"), config))
    json.dump(config, open(out + "/config.json", "w"))


if __name__ == "__main__":
    for at in range(1, len(sys.argv), 2):
        main(*sys.argv[at:at + 2])
