#!/usr/bin/env python3
"""make_lora_goldens.py TARGET: write the cases of tests/golden/lora with transformers.

Each has base/ (a tiny Qwen3 in BF16, with expected.safetensors of its own), adapter/ (PEFT's
files) and expected.safetensors: logits in float32 of the base with merged weights,
W + factor * B A. llama.cpp's convert_lora_to_gguf.py makes adapter.gguf:

    convert_lora_to_gguf.py --base CASE/base --outtype f32 --outfile CASE/adapter.gguf CASE/adapter
"""
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import Qwen3Config, Qwen3ForCausalLM

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CASES = [("all", 95001, ALL, 8, 16, False), ("qv-rs", 95002, ["q_proj", "v_proj"], 4, 8, True)]


def expect(model, seed, path):
    g = torch.Generator().manual_seed(seed + 1)
    ids = torch.randint(2, model.config.vocab_size, (1, 24), generator=g)
    logits, now, greedy = model(input_ids=ids).logits[0].float().contiguous(), ids, []
    for _ in range(16):
        greedy.append(model(input_ids=now, use_cache=False).logits[0, -1].argmax().view(1, 1))
        now = torch.cat([now, greedy[-1]], 1)
    save_file({"input_ids": ids[0], "logits": logits, "greedy": torch.cat(greedy).flatten()}, path)


@torch.no_grad()
def write_case(out, name, seed, targets, r, alpha, rs):
    torch.manual_seed(seed)
    config = Qwen3Config(**json.loads((Path(__file__).parent.parent / "tests/golden/lora" / name
                                       / "base/config.json").read_text()))
    model = Qwen3ForCausalLM(config).float().eval()
    for n, p in model.named_parameters():
        if p.dim() > 1:
            p.normal_(0, (0.5 if "embed" in n else 1.2) / p.shape[-1] ** 0.5)
        else:
            p.copy_(1 + 0.2 * torch.randn_like(p))
        p.copy_(p.to(torch.bfloat16).float())
    path = out / name
    (path / "base").mkdir(parents=True)
    (path / "adapter").mkdir()
    save_file({n: p.to(torch.bfloat16).clone() for n, p in model.named_parameters()},
              path / "base/model.safetensors", metadata={"format": "pt"})
    (path / "base/config.json").write_text(config.to_json_string())
    expect(model, seed, path / "base/expected.safetensors")
    tensors, factor = {}, alpha / (r**0.5 if rs else r)
    for n, p in model.named_parameters():
        module = n.removesuffix(".weight")
        if p.dim() != 2 or "layers" not in n or module.rsplit(".", 1)[-1] not in targets:
            continue
        a = (torch.randn(r, p.shape[1]) / p.shape[1] ** 0.5).to(torch.bfloat16)
        b = (torch.randn(p.shape[0], r) * 0.3).to(torch.bfloat16)
        p += factor * (b.float() @ a.float())
        tensors[f"base_model.model.{module}.lora_A.weight"] = a
        tensors[f"base_model.model.{module}.lora_B.weight"] = b
    save_file(tensors, path / "adapter/adapter_model.safetensors", metadata={"format": "pt"})
    (path / "adapter/adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": r, "lora_alpha": alpha,
         "bias": "none", "target_modules": targets, "use_rslora": rs}, indent=2))
    expect(model, seed, path / "expected.safetensors")


for case in CASES:
    write_case(Path(sys.argv[1]), *case)
