#!/usr/bin/env python3
"""Write tests/golden/families: make_family_goldens.py OUT_DIR [NAME...]

A case is a small random checkpoint of a family, in BF16 as transformers saves it, with
transformers' logits in float32. NAME/ has config.json, released.json (the same as released
checkpoints spell it), model.safetensors and expected.safetensors: input_ids, the logits of the
last positions, greedy. NAME-mlx4/ holds the weights in MLX's layout with 4 bits and the logits of
the dequantized weights, NAME-fp8/ weights in FP8, if the case says so. Text encoders are those of
family_encoders.py. With LLAMA_CPP=DIR, the sources of llama.cpp, its
converter writes NAME.gguf, without a vocabulary. Needs torch and transformers 5."""

import copy
import json
import os
import shutil
import subprocess
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/cli"))
import family_encoders  # noqa: E402
import mlx_layout  # noqa: E402

ROWS, ROWS_MLX, GREEDY = 16, 8, 16
# What each configuration has unless a case says otherwise: the cases of the first kind have 64
# channels, those of the second 32.
COMMON = {"vocab_size": 320, "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "bos_token_id": 0,
          "eos_token_id": 1, "pad_token_id": 0, "tie_word_embeddings": False, "num_attention_heads": 4,
          "num_key_value_heads": 2}
WIDE = COMMON | {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3}
SLIM = COMMON | {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
TIED = {"tie_word_embeddings": True}
MOE = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40}
LINEAR = {"linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
          "rope_parameters": {"rope_type": "default", "rope_theta": 10000000.0, "partial_rotary_factor": 0.25}}


def longrope(n, short, long, original=64, **more):
    """Factors that grow by `short` and by `long`."""
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": original,
            "short_factor": [round(1 + short * i, 2) for i in range(n)],
            "long_factor": [round(1 + long * i, 2) for i in range(n)]}
    return {"rope_parameters": rope | more, "original_max_position_embeddings": original} | more


def llama3(original, theta=500000.0):
    return {"rope_parameters": {"rope_type": "llama3", "rope_theta": theta, "factor": 8.0,
                                "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                "original_max_position_embeddings": original}}


def ministral(original):
    return {"rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
        "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
        "original_max_position_embeddings": original}}


def mrope(sections, theta=1000000.0, **more):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta, "mrope_section": sections} | more}


CONV = {"layer_types": ["conv", "conv", "full_attention", "conv", "full_attention"], "conv_L_cache": 3,
        "norm_eps": 1e-5}
GEMMA4 = {"bos_token_id": 2, "tie_word_embeddings": True, "final_logit_softcapping": 30.0, "global_head_dim": 32,
          "head_dim": 16, "sliding_window": 12, "vocab_size_per_layer_input": 320, "attention_k_eq_v": True,
          "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0, "enable_moe_block": False,
          "use_double_wide_mlp": False}
GEMMA4_WRAP = ("gemma4", "Gemma4ForConditionalGeneration", "model.language_model.")
GPT_OSS = {"sliding_window": 12, "attention_bias": True, "num_hidden_layers": 4, "rope_parameters": {
    "rope_type": "yarn", "rope_theta": 150000.0, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
    "original_max_position_embeddings": 64}}


def layers(pattern):
    """Layer types by letters: s has a window, f has none."""
    return {"num_hidden_layers": len(pattern),
            "layer_types": [{"s": "sliding_attention", "f": "full_attention"}[c] for c in pattern]}


# name: (class without Config, configuration, seed, options). Options: T tokens of input; plus: norms
# are zero-centred; wrap: the model type, architecture and prefix of the wrapped text model; head: the
# class is a model without head, which gets a random one, or the embedding; gguf: the converter keeps all
# of the checkpoint; mlx: bits and group; fp8: the form of FP8.
CASES = {
    # Cases with the geometry that all families have in common.
    "qwen2": ("Qwen2", WIDE, 41000, {}),
    "llama3": ("Llama", WIDE | llama3(64), 41202, {"T": 150}),
    "llama-bias": ("Llama", WIDE | {"attention_bias": True, "mlp_bias": True}, 41303, {}),
    "mistral": ("Mistral", WIDE | {"head_dim": 32, "sliding_window": 16}, 41404, {"T": 60}),
    "ministral3": ("Ministral3", WIDE | {"head_dim": 32} | ministral(32), 41505, {"T": 100}),
    "granite": ("Granite", WIDE | {"embedding_multiplier": 6.0, "attention_multiplier": 0.1,
                                   "residual_multiplier": 0.3, "logits_scaling": 4.0}, 41808, {}),
    "olmo2": ("Olmo2", WIDE, 41909, {}),
    "olmo3": ("Olmo3", WIDE | {"num_hidden_layers": 5, "sliding_window": 12}, 42010, {"T": 50}),
    "phi3": ("Phi3", WIDE | longrope(8, 0.05, 0.5), 42111, {"T": 40}),
    "phi4mini": ("Phi3", WIDE | TIED | longrope(6, 0.05, 0.3, partial_rotary_factor=0.75), 42212, {"T": 40}),
    "glm4": ("Glm4", WIDE | {"head_dim": 16, "attention_bias": True}, 42313, {}),
    "qwen3vl": ("Qwen3VLText", WIDE | {"head_dim": 32}, 43323, {
        "wrap": ("qwen3_vl", "Qwen3VLForConditionalGeneration", "model.language_model."), "head": "random"}),
    "gemma2": ("Gemma2", WIDE | TIED | layers("sfsf") | {
        "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 12, "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 8.0}, 42414, {"T": 40, "plus": True, "gguf": True}),
    "gemma4-dense": ("Gemma4Text", WIDE | GEMMA4 | layers("ssfssf") | {"num_global_key_value_heads": 1}, 42515, {"T": 50}),
    "gemma4-e2b": ("Gemma4Text", WIDE | GEMMA4 | layers("ssfssfsf") | {
        "num_key_value_heads": 1, "attention_k_eq_v": False, "hidden_size_per_layer_input": 16, "num_kv_shared_layers": 4,
        "use_double_wide_mlp": True}, 42616, {"T": 50, "wrap": GEMMA4_WRAP, "gguf": True}),
    "gemma4-moe": ("Gemma4Text", WIDE | GEMMA4 | layers("sssf") | {
        "num_global_key_value_heads": 1, "enable_moe_block": True, "num_experts": 6, "top_k_experts": 2,
        "moe_intermediate_size": 40}, 42720, {"T": 50}),
    "gpt-oss": ("GptOss", WIDE | GPT_OSS | {"intermediate_size": 64, "head_dim": 16, "num_local_experts": 6,
                                            "num_experts_per_tok": 2}, 42818, {"T": 80}),
    # Other geometries, in all containers.
    "qwen2-tied": ("Qwen2", SLIM | TIED | {"num_key_value_heads": 1}, 1, {"gguf": True, "mlx": (4, 32)}),
    "qwen2-window": ("Qwen2", SLIM | {"num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 12,
                                      "max_window_layers": 1}, 2, {"T": 40}),
    "qwen2moe-top3": ("Qwen2Moe", SLIM | MOE | {
        "num_experts": 5, "num_experts_per_tok": 3, "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 64}, 3, {"gguf": True, "mlx": (4, 32)}),
    "qwen2moe-step": ("Qwen2Moe", SLIM | MOE | {
        "num_hidden_layers": 5, "decoder_sparse_step": 2, "mlp_only_layers": [3], "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32, "norm_topk_prob": False}, 4, {}),
    "qwen2vl": ("Qwen2VLText", SLIM | mrope([2, 1, 1]), 5, {
        "wrap": ("qwen2_vl", "Qwen2VLForConditionalGeneration", "model."), "head": "random",
        "gguf": True, "mlx": (4, 32)}),
    "qwen25vl": ("Qwen2_5_VLText", SLIM | TIED | mrope([1, 2, 1]), 6, {
        "wrap": ("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", "model."), "head": "tied",
        "gguf": True, "mlx": (4, 32)}),
    "qwen3vl-tied": ("Qwen3VLText", SLIM | TIED | {"head_dim": 24} | mrope([4, 4, 4], 5e6, mrope_interleaved=True), 7, {
        "wrap": ("qwen3_vl", "Qwen3VLForConditionalGeneration", "model.language_model."), "head": "tied",
        "gguf": True, "mlx": (4, 32)}),
    "qwen3vlmoe": ("Qwen3VLMoeText", SLIM | MOE | {"hidden_size": 64, "head_dim": 16, "num_experts": 4,
                                                   "moe_intermediate_size": 32}
                   | mrope([4, 2, 2], 5e6, mrope_interleaved=True), 8, {
        "wrap": ("qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration", "model.language_model."), "head": "random",
        "gguf": True, "mlx": (4, 32)}),
    "qwen3next-odd": ("Qwen3Next", SLIM | MOE | LINEAR | {
        "hidden_size": 64, "layer_types": ["linear_attention", "full_attention"], "head_dim": 32,
        "linear_num_key_heads": 2, "linear_num_value_heads": 6, "num_experts": 4, "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32}, 9, {"plus": True, "T": 20, "gguf": True, "mlx": (4, 32)}),
    "llama3-tied": ("Llama", SLIM | TIED | {"head_dim": 24} | llama3(64, 10000.0), 10, {
        "T": 90, "gguf": True, "mlx": (4, 32)}),
    "llama-biases": ("Llama", SLIM | {"num_key_value_heads": 4, "attention_bias": True, "mlp_bias": True}, 11, {
        "gguf": True, "mlx": (4, 32)}),
    "mistral-nemo": ("Mistral", SLIM | {"head_dim": 24, "sliding_window": None}, 12, {
        "gguf": True, "mlx": (4, 32)}),
    "mistral3": ("Ministral3", SLIM | TIED | {"head_dim": 16} | ministral(16), 13, {
        "T": 70, "wrap": ("mistral3", "Mistral3ForConditionalGeneration", "language_model.model."),
        "gguf": True, "mlx": (4, 32)}),
    "mixtral-top3": ("Mixtral", SLIM | {"num_local_experts": 5, "num_experts_per_tok": 3, "sliding_window": None,
                                        "intermediate_size": 32}, 14, {"gguf": True, "mlx": (4, 32)}),
    "smollm3-own": ("SmolLM3", SLIM | {"hidden_size": 64, "num_hidden_layers": 4, "no_rope_layers": [1, 0, 0, 1]}, 15, {}),
    "smollm3-tied": ("SmolLM3", SLIM | TIED | {"num_hidden_layers": 4}, 16, {"gguf": True, "mlx": (4, 32)}),
    "granite-bias": ("Granite", SLIM | {
        "attention_bias": True, "embedding_multiplier": 12.0, "attention_multiplier": 0.5,
        "residual_multiplier": 0.22, "logits_scaling": 8.0}, 17, {"gguf": True, "mlx": (4, 32)}),
    "olmo2-one": ("Olmo2", SLIM | {"num_key_value_heads": 1}, 18, {"gguf": True, "mlx": (4, 32)}),
    "olmo3-yarn": ("Olmo3", SLIM | {
        "num_hidden_layers": 4, "sliding_window": 12, "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0},
            "full_attention": {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 8.0, "beta_fast": 32.0,
                               "beta_slow": 1.0, "attention_factor": 1.2079441541679836,
                               "original_max_position_embeddings": 32}}}, 19, {
        "T": 90, "gguf": True, "mlx": (4, 32)}),
    "phi3-long": ("Phi3", SLIM | {"num_key_value_heads": 4} | longrope(4, 0.05, 1.5), 20, {
        "T": 80, "gguf": True}),
    "phi3-crossing": ("Phi3", SLIM | longrope(4, 0.05, 1.5), 21, {"T": 56, "gguf": True}),
    "phi3-window": ("Phi3", SLIM | {"sliding_window": 12}, 22, {"T": 40, "gguf": True}),
    "phi4mini-long": ("Phi3", SLIM | TIED | {"hidden_size": 64} | longrope(6, 0.05, 1.1, partial_rotary_factor=0.75),
                      23, {"T": 80, "gguf": True, "mlx": (4, 32)}),
    "glm4-wide": ("Glm4", SLIM | {"head_dim": 24, "attention_bias": True}, 24, {"gguf": True, "mlx": (4, 32)}),
    "seed-oss": ("SeedOss", SLIM | {"head_dim": 24}, 25, {"gguf": True, "mlx": (4, 32)}),
    "seed-oss-bias": ("SeedOss", SLIM | {"head_dim": 8, "attention_out_bias": True, "mlp_bias": True}, 26, {}),
    "ernie4_5": ("Ernie4_5", SLIM | TIED | {"head_dim": 24}, 27, {"gguf": True, "mlx": (4, 32)}),
    "ernie4_5-bias": ("Ernie4_5", SLIM | {"head_dim": 8, "use_bias": True}, 28, {}),
    "exaone4": ("Exaone4", SLIM | {"num_hidden_layers": 4, "sliding_window": 12} | llama3(32, 10000.0), 29, {
        "T": 50, "gguf": True, "mlx": (4, 32)}),
    "gemma1": ("Gemma", SLIM | TIED | {"head_dim": 24, "num_key_value_heads": 1, "hidden_act": "gelu_pytorch_tanh"}, 31, {
        "plus": True, "gguf": True, "mlx": (4, 32)}),
    "gemma2-scalar": ("Gemma2", SLIM | TIED | layers("sfs") | {
        "head_dim": 24, "query_pre_attn_scalar": 8, "sliding_window": 12, "attn_logit_softcapping": 3.0,
        "final_logit_softcapping": None}, 32, {"T": 40, "plus": True}),
    "gemma2-one": ("Gemma2", SLIM | TIED | layers("sfs") | {
        "head_dim": 16, "query_pre_attn_scalar": 16, "num_key_value_heads": 1, "sliding_window": 10,
        "attn_logit_softcapping": 4.0, "final_logit_softcapping": 6.0}, 33, {
        "T": 40, "plus": True, "gguf": True, "mlx": (4, 32)}),
    "gemma4-kv": ("Gemma4Text", SLIM | GEMMA4 | layers("ssfsf") | {
        "num_key_value_heads": 4, "num_global_key_value_heads": 1, "global_head_dim": 24,
        "final_logit_softcapping": 5.0}, 34, {"T": 50, "wrap": GEMMA4_WRAP, "gguf": True, "mlx": (4, 32)}),
    "gemma4-e4b": ("Gemma4Text", SLIM | GEMMA4 | layers("ssfssfsf") | {
        "attention_k_eq_v": False, "hidden_size_per_layer_input": 32, "num_kv_shared_layers": 3}, 35, {
        "T": 40, "wrap": GEMMA4_WRAP, "gguf": True, "mlx": (4, 32)}),
    "gemma4-top3": ("Gemma4Text", SLIM | GEMMA4 | layers("ssf") | {
        "hidden_size": 64, "num_global_key_value_heads": 1, "enable_moe_block": True, "num_experts": 5,
        "top_k_experts": 3, "moe_intermediate_size": 32}, 36, {
        "T": 40, "wrap": GEMMA4_WRAP, "gguf": True, "mlx": (4, 32)}),
    "gpt-oss-top3": ("GptOss", SLIM | GPT_OSS | {
        "hidden_size": 64, "intermediate_size": 32, "head_dim": 16, "num_key_value_heads": 1, "num_local_experts": 5, "num_experts_per_tok": 3}, 37, {
        "T": 80, "gguf": True, "mlx": (4, 32)}),
    "qwen3-fp8-tensor": ("Qwen3", SLIM | {"head_dim": 16}, 38, {"fp8": "tensor"}),
    "qwen3-fp8-row": ("Qwen3", SLIM | TIED | {"head_dim": 24}, 46, {"fp8": "row"}),
    "qwen3-fp8-block": ("Qwen3", SLIM | {"hidden_size": 160, "intermediate_size": 288, "head_dim": 48}, 40, {"fp8": "block"}),
    "qwen3moe-fp8": ("Qwen3Moe", SLIM | MOE | {
        "hidden_size": 160, "head_dim": 40, "num_experts": 4, "moe_intermediate_size": 96, "norm_topk_prob": True}, 45, {
        "fp8": "block"}),
    "mistral3-fp8": ("Ministral3", SLIM | TIED | {"head_dim": 16} | ministral(16), 42, {
        "T": 50, "wrap": ("mistral3", "Mistral3ForConditionalGeneration", "language_model.model."), "fp8": "released"}),
    "lfm2": ("Lfm2", WIDE | TIED | CONV | {"num_hidden_layers": 5, "block_auto_adjust_ff_dim": False}, 43021, {}),
    "lfm2-long": ("Lfm2", SLIM | TIED | CONV | {
        "num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "conv"], "conv_L_cache": 4,
        "intermediate_size": 100, "block_multiple_of": 32}, 47, {"T": 150, "gguf": True, "mlx": (4, 32)}),
    "lfm2moe": ("Lfm2Moe", WIDE | TIED | CONV | MOE | {"num_hidden_layers": 5, "num_dense_layers": 2}, 43122, {}),
    "lfm2moe-top3": ("Lfm2Moe", SLIM | TIED | CONV | {
        "num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "full_attention"], "num_dense_layers": 1,
        "num_experts": 5, "num_experts_per_tok": 3, "moe_intermediate_size": 32, "rms_norm_eps": 1e-5}, 48, {
        "T": 100, "gguf": True, "mlx": (4, 32)}),
    "lfm2moe-scaled": ("Lfm2Moe", SLIM | CONV | {
        "num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"], "num_dense_layers": 1,
        "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": False,
        "routed_scaling_factor": 1.5, "use_expert_bias": False}, 49, {}),
    "exaone4-full": ("Exaone4", SLIM | TIED | {"sliding_window": None, "layer_types": ["full_attention"] * 2}, 30, {
        "gguf": True}),
}


# ---- weights and inputs --------------------------------------------------------------------


@torch.no_grad()
def fill(model, plus):
    """Random weights that keep the size of what passes through the layers, rounded to BF16."""
    for name, p in list(model.named_parameters()) + [(n, b) for n, b in model.named_buffers() if "bias" in n or "layer_scalar" in n]:
        last = name.rsplit(".", 1)[-1]
        if "A_log" in name:
            p.uniform_(-2.5, 1.5)
        elif "dt_bias" in name:
            p.normal_(0, 1)
        elif "conv" in name and p.dim() == 3:
            p.normal_(0, 0.5)
        elif "layer_scalar" in name:
            p.uniform_(0.7, 1.1)
        elif "sinks" in name:
            p.normal_(0, 1)
        elif last.endswith("bias"):
            p.normal_(0, 0.2)
        elif name.endswith(("gate_up_proj", "experts.down_proj")):
            p.normal_(0, 1.2 / 64 ** 0.5)
        elif p.dim() > 1:
            p.normal_(0, (0.5 if "embed" in name else 1.2) / p.shape[-1] ** 0.5)
        else:
            p.copy_((0 if plus and "linear_attn.norm" not in name else 1) + 0.2 * torch.randn_like(p))
        p.copy_(p.to(torch.bfloat16).float())


class Runner:
    """A model with its head, and the margins by which its routers choose experts."""

    def __init__(self, model, head, top):
        self.model, self.head, self.top, self.margins = model, head, top, []
        for m in model.modules():
            if type(m).__name__.endswith("Router"):
                m.register_forward_hook(self.keep_margin)
        self.routed = any(type(m).__name__.endswith("Router") for m in model.modules())

    def keep_margin(self, module, inputs, output):
        best = output[0].float().sort(-1, descending=True).values
        self.margins.append(best[:, self.top - 1] - best[:, self.top])

    @torch.no_grad()
    def logits(self, ids):
        """[batch, T, vocabulary]."""
        self.margins = []
        out = self.model(input_ids=ids, use_cache=False)
        return (out.last_hidden_state @ self.head.T if self.head is not None else out.logits).float()

    def draw_ids(self, n, vocab_size, seed):
        """Token ids. Errors of rounding must not change the choice of experts, so with routers each
        token is the one of 64 whose choices are the clearest."""
        g = torch.Generator().manual_seed(seed)
        if not self.routed:
            return torch.randint(5, vocab_size, (1, n), generator=g)
        ids = torch.zeros((1, 0), dtype=torch.int64)
        for t in range(n):
            tries = torch.cat([ids.expand(64, -1), torch.randint(5, vocab_size, (64, 1), generator=g)], 1)
            self.logits(tries)
            clear = torch.stack([m.view(64, t + 1)[:, -1] for m in self.margins]).min(0).values
            ids = tries[clear.argmax()][None]
        return ids

    def continuation(self, ids):
        """The greedy continuation, and by how much the first token exceeds the second at least."""
        greedy, margin = [], float("inf")
        for _ in range(GREEDY):
            top = self.logits(ids)[0, -1].topk(2)
            greedy.append(top.indices[0].item())
            margin = min(margin, (top.values[0] - top.values[1]).item())
            ids = torch.cat([ids, torch.tensor([greedy[-1:]])], 1)
        return greedy, margin

    def expected(self, n, vocab_size, seed, n_rows):
        """n token ids whose continuation has no stop id, since GGUF files without a vocabulary do
        not name it, and the results."""
        greedy = [COMMON["eos_token_id"]]
        while COMMON["eos_token_id"] in greedy:
            ids = self.draw_ids(n, vocab_size, seed)
            greedy, margin = self.continuation(ids)
            seed += 1000
        logits = self.logits(ids)[0]
        routing = min((m.min().item() for m in self.margins), default=float("inf"))
        print(f"    std {logits.std():.3g}, margin of tokens {margin:.3g}, of experts {routing:.3g}, greedy {greedy[:5]}")
        assert torch.isfinite(logits).all()
        return {"input_ids": ids[0], "logits": logits[-n_rows:].contiguous(), "greedy": torch.tensor(greedy)}


# ---- configurations ------------------------------------------------------------------------


def released_rope(c):
    """Move rope_parameters to where they were before transformers 5."""
    kind, p = c["model_type"].removesuffix("_text"), dict(c.pop("rope_parameters"))
    if kind == "gemma4":  # was released with transformers 5
        c["rope_parameters"] = p
        return
    if kind == "ministral3":  # likewise
        c["rope_parameters"] = p | {"type": p["rope_type"]}
        return
    p = dict(p.get("full_attention", p))
    c["rope_theta"] = p.pop("rope_theta")
    rotated = p.pop("partial_rotary_factor", 1.0)
    if rotated != 1.0:
        c["partial_rotary_factor"] = rotated
    if kind in ("qwen2_vl", "qwen2_5_vl"):
        c["rope_scaling"] = {"type": "mrope", "mrope_section": p["mrope_section"]}
    elif p["rope_type"] == "longrope":
        c["rope_scaling"] = {"type": "longrope", "short_factor": p["short_factor"], "long_factor": p["long_factor"]}
    elif p["rope_type"] == "default" and len(p) == 1 and kind != "seed_oss":
        c["rope_scaling"] = None
    else:
        c["rope_scaling"] = p


def released_layers(c):
    """Say by the older fields which layers have windows, rotations and experts."""
    kind, n = c["model_type"].removesuffix("_text"), c["num_hidden_layers"]
    if kind == "gpt_oss":
        c |= {"experts_per_token": c["num_experts_per_tok"], "swiglu_limit": 7.0,
              "initial_context_length": c["rope_scaling"]["original_max_position_embeddings"]}
    if kind in ("gemma4", "gpt_oss"):  # were released with layer_types
        return
    types = c.pop("layer_types", None)
    if kind.startswith("qwen2") and not c.get("use_sliding_window"):
        c |= {"use_sliding_window": False, "sliding_window": 8, "max_window_layers": n}
    if kind == "qwen3_next":
        c["full_attention_interval"] = types.index("full_attention") + 1
    if kind == "exaone4":
        c["sliding_window_pattern"] = "LLLG" if "sliding_attention" in types else None
    if kind == "smollm3" and c["no_rope_layers"] == [int((i + 1) % 4 != 0) for i in range(n)]:
        del c["no_rope_layers"]
    if kind.startswith("lfm2"):
        c["tie_embedding"] = c.pop("tie_word_embeddings")
    if kind == "lfm2":
        c |= {"full_attn_idxs": [i for i, t in enumerate(types) if t == "full_attention"],
              "block_ff_dim": c.pop("intermediate_size"), "block_dim": c["hidden_size"], "conv_dim": c["hidden_size"]}
    if kind == "lfm2_moe":
        c["layer_types"] = types
    if kind == "qwen3_vl_moe":
        c |= {"num_experts": c.pop("num_local_experts"), "norm_topk_prob": True}
    if not c.get("mlp_only_layers"):
        c.pop("mlp_only_layers", None)


def released(config):
    """config.json as checkpoints have it that were released before transformers 5."""
    c = dict(config.get("text_config", config))
    own = c.pop("per_layer_config", None)
    if own:  # of Gemma 4, whose released fields say it by kinds of layers
        kinds = {c["layer_types"][int(i)]: v for i, v in own.items()}["full_attention"]
        c |= {{"head_dim": "global_head_dim", "num_key_value_heads": "num_global_key_value_heads"}[k]: v
              for k, v in kinds.items()}
    released_rope(c)
    released_layers(c)
    if c.get("head_dim") == c["hidden_size"] // c["num_attention_heads"] and c["model_type"] not in (
            "seed_oss", "ernie4_5", "glm4", "gemma", "gemma2", "gemma4_text", "gpt_oss", "qwen3", "qwen3_moe"):
        del c["head_dim"]
    c["torch_dtype"] = c.pop("dtype", "bfloat16")
    c["transformers_version"] = "4.51.0"
    if "text_config" not in config:
        return c
    outer = {k: v for k, v in config.items() if k != "text_config"}
    if config["model_type"] in ("qwen2_vl", "qwen2_5_vl"):
        return c | outer
    return outer | {"text_config": c | {"tie_word_embeddings": config["tie_word_embeddings"]}}


def wrap(path, model, model_type, arch, prefix, head, tied):
    """Make a text model the part of a model with vision that it is in released checkpoints. Returns the
    new config.json."""
    old = load_file(path / "model.safetensors")
    new = {prefix + k.removeprefix("model."): v for k, v in old.items() if k != "lm_head.weight"}
    top = prefix.removesuffix("model.") if prefix.startswith("language_model") else ""
    if not tied:
        new[top + "lm_head.weight"] = old["lm_head.weight"] if head is None else head.to(torch.bfloat16)
    for k, p in model.named_parameters():  # released checkpoints have the experts of Qwen3-VL by columns
        k = prefix + k.removeprefix("model.")
        if model_type == "qwen3_vl_moe" and ".experts." in k and torch.equal(new[k].float(), p):
            new[k] = new[k].transpose(1, 2).contiguous()
    vision = {"model.": "visual.", "language_model.model.": "vision_tower."}.get(prefix, "model.visual.")
    new[vision + "blocks.0.norm1.weight"] = torch.ones(8, dtype=torch.bfloat16)
    save_file(new, path / "model.safetensors", metadata={"format": "pt"})
    text = json.loads((path / "config.json").read_text())
    text.pop("architectures")
    text.pop("tie_word_embeddings", None)
    return {"architectures": [arch], "model_type": model_type, "image_token_id": 300, "text_config": text,
            "vision_config": {"model_type": model_type, "depth": 1}, "tie_word_embeddings": tied}


# ---- MLX -----------------------------------------------------------------------------------


def quantize(w, bits, group):
    """Affine quantization of rows in groups: packed words, scales, biases, and the weights that these
    stand for."""
    g = w.float().unflatten(-1, (-1, group))
    low, high = g.amin(-1, keepdim=True), g.amax(-1, keepdim=True)
    scale = ((high - low) / (2 ** bits - 1)).clamp_min(1e-7).to(torch.bfloat16).float()
    bias = low.to(torch.bfloat16).float()
    q = ((g - bias) / scale).round().clamp(0, 2 ** bits - 1)
    words = q.to(torch.int64).flatten(-2).unflatten(-1, (-1, 32 // bits))
    packed = (words << torch.arange(0, 32, bits)).sum(-1).to(torch.int32).view(torch.uint32)
    return {"weight": packed, "scales": scale.squeeze(-1).to(torch.bfloat16),
            "biases": bias.squeeze(-1).to(torch.bfloat16)}, (q * scale + bias).flatten(-2)


def mlx_bits(name, model_type, bits, group):
    """(bits, group) of a matrix: mlx-lm gives some routers 8 bits in groups of 64."""
    module = name.removesuffix(".weight")
    routers = {"qwen3_next": ("mlp.gate", "shared_expert_gate"), "qwen3_vl_moe": ("mlp.gate",),
               "gemma4": ("router.proj",), "gpt_oss": ("mlp.router",)}
    return (8, 64) if module.endswith(routers.get(model_type, ("\0",))) else (bits, group)


def is_zero_centred(name, w, plus):
    return plus and w.dim() == 1 and name.endswith("norm.weight") and "linear_attn.norm" not in name


def is_convolution(name):
    return "conv1d" in name or name.endswith("conv.conv.weight")


def with_exact_sum(w):
    """Norms whose sum with 1 is a number in BF16, as it is in files to which mlx-lm adds it."""
    return (w.float() + 1).to(torch.bfloat16).float() - 1


def write_mlx(path, config, plus, bits, group):
    out = Path(str(path) + f"-mlx{bits}")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    (out / "config.json").write_text(json.dumps(config))
    shutil.copy(path / "model.safetensors", out)
    mlx_layout.main(str(out), str(out))
    q, tensors = {"group_size": group, "bits": bits, "mode": "affine"}, {}
    for name, w in load_file(out / "model.safetensors").items():
        if is_zero_centred(name, w, plus) and config["model_type"] not in mlx_layout.ZERO_CENTRED:
            w = with_exact_sum(w).to(torch.bfloat16)
        if not name.endswith(".weight") or w.dim() < 2 or is_convolution(name):
            tensors[name] = w
            continue
        module, kind = name.removesuffix(".weight"), mlx_bits(name, config["model_type"], bits, group)
        if kind != (bits, group):
            q[module] = {"group_size": kind[1], "bits": kind[0]}
        tensors |= {f"{module}.{k}": v.contiguous() for k, v in quantize(w, *kind)[0].items()}
    save_file(tensors, out / "model.safetensors", metadata={"format": "mlx"})
    (out / "config.json").write_text(json.dumps(config | {"quantization": q, "quantization_config": q}, indent=2))
    return out


@torch.no_grad()
def round_as_mlx(runner, model_type, plus, bits, group):
    """Give the model and its head the weights that MLX's file stands for."""
    for name, p in runner.model.named_parameters():
        if is_zero_centred(name, p, plus):
            p.copy_(with_exact_sum(p))
        elif "experts" in name and model_type == "gpt_oss":  # by columns
            if not name.endswith("bias"):
                p.copy_(quantize(p.transpose(1, 2).contiguous(), bits, group)[1].transpose(1, 2))
        elif p.dim() > 1 and not is_convolution(name):
            p.copy_(quantize(p, *mlx_bits(name, model_type, bits, group))[1])
    if runner.head is not None and runner.head is not runner.model.get_input_embeddings().weight:
        runner.head = quantize(runner.head, bits, group)[1]


# ---- FP8 -----------------------------------------------------------------------------------


FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "modules_to_not_convert": ["lm_head"]}
COMPRESSED = {"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
              "quantization_status": "compressed"}
FP8_CONFIG = {"block": FP8 | {"weight_block_size": [128, 128]},
              "released": FP8 | {"weight_block_size": None, "activation_scheme": "static"}} | {
    kind: COMPRESSED | {"config_groups": {"group_0": {"targets": ["Linear"], "input_activations": None, "weights": {
        "num_bits": 8, "type": "float", "symmetric": True, "strategy": strategy, "dynamic": False}}}}
    for kind, strategy in (("row", "channel"), ("tensor", "tensor"))}


def to_fp8(w, form):
    """The tensors of a module in a form of FP8, and the weights that these stand for."""
    rows, cols = w.shape
    high, wide = {"row": (1, cols), "block": (128, 128)}.get(form, (rows, cols))
    scale = torch.stack([torch.stack([b.abs().max() for b in r.split(wide, 1)]) for r in w.split(high)]) / 448
    scale = scale.to(torch.float32 if form == "block" else torch.bfloat16).float()
    full = scale.repeat_interleave(high, 0)[:rows].repeat_interleave(wide, 1)[:, :cols]
    q = (w / full).clamp(-448, 448).to(torch.float8_e4m3fn)
    name = "weight_scale_inv" if form in ("block", "released") else "weight_scale"
    kept = scale if form == "block" else scale.to(torch.bfloat16)
    out = {"weight": q, name: kept if form in ("block", "row") else kept.reshape([1] if form == "tensor" else [])}
    if form == "released":
        out["activation_scale"] = torch.tensor(0.5, dtype=torch.bfloat16)
    return out, q.float() * full


@torch.no_grad()
def write_fp8(path, model, config, form):
    """Write the checkpoint's projections in FP8, and give the model the same weights."""
    out = Path(str(path) + "-fp8") if "fp8" not in path.name else path
    tensors, kept = load_file(path / "model.safetensors"), {}
    for name, w in list(tensors.items()):
        if w.dim() == 2 and ".layers." in name and not name.endswith(("mlp.gate.weight", "embed_tokens.weight")):
            parts, kept[name] = to_fp8(tensors.pop(name).float(), form)
            tensors |= {f"{name.removesuffix('.weight')}.{k}": v.contiguous() for k, v in parts.items()}
    params = dict(model.named_parameters())
    for name, w in kept.items():
        inner = name.removeprefix("language_model.").removeprefix("model.")
        at = "model." * (name.startswith("model.") or "model." + inner in params) + inner
        if at in params:
            params[at].copy_(w)
            continue
        parts = at.split(".experts.")  # transformers keeps all experts in one parameter
        expert, role, _ = parts[1].split(".")
        p = params[parts[0] + (".experts.down_proj" if role == "down_proj" else ".experts.gate_up_proj")][int(expert)]
        half = p.shape[0] // 2
        (p if role == "down_proj" else p[:half] if role == "gate_proj" else p[half:]).copy_(w)
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    config["quantization_config"] = FP8_CONFIG[form]
    (out / "config.json").write_text(json.dumps(config, indent=2))


# ---- cases ---------------------------------------------------------------------------------


def check_released(kind, config, old):
    """Print the fields that transformers reads otherwise from the older spelling."""
    fields = ("rope_parameters", "layer_types", "no_rope_layers", "head_dim", "mlp_only_layers", "tie_word_embeddings")
    try:
        got, want = (getattr(transformers, kind + "Config")(**{
            k: copy.deepcopy(v) for k, v in c.items() if k not in ("architectures", "model_type", "vision_config", "image_token_id")
        }).to_dict() for c in (old.get("text_config", old), config.get("text_config", config)))
    except Exception as e:  # transformers 5.17 does not read "LLLG"
        print(f"    released.json: {type(e).__name__}: {e}")
        return
    for f in fields:
        if got.get(f) != want.get(f):
            print(f"    released.json: {f} is {got.get(f)}, not {want.get(f)}")


def open_model(kind, kw, opt):
    """The model of a case with random weights, and its head unless it has one."""
    kw = {k: v for k, v in kw.items() if "head" not in opt or k != "tie_word_embeddings"}
    config = getattr(transformers, kind + "Config")(**copy.deepcopy(kw))
    config._attn_implementation = "eager"
    cls = kind.removesuffix("Text") + "ForCausalLM" if kind.startswith("Gemma4") else (
        kind + ("Model" if "head" in opt else "ForCausalLM"))
    model = getattr(transformers, cls)(config).float().eval()
    fill(model, opt.get("plus"))
    if opt.get("head") == "tied":
        return model, model.get_input_embeddings().weight
    n = kw["hidden_size"]
    if opt.get("head") == "random":
        return model, (torch.randn(kw["vocab_size"], n) * 1.2 / n ** 0.5).to(torch.bfloat16).float()
    return model, None


@torch.no_grad()
def make(out, name):
    kind, kw, seed, opt = CASES[name]
    path = out / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    torch.manual_seed(seed)
    model, head = open_model(kind, kw, opt)
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(path)
    (path / "generation_config.json").unlink(missing_ok=True)
    print(name)
    runner = Runner(model, head, kw.get("num_experts_per_tok", kw.get("top_k_experts", 0)))
    size = opt.get("T", 24), kw["vocab_size"]
    config = json.loads((path / "config.json").read_text())
    if "wrap" in opt:
        config = wrap(path, model, *opt["wrap"], head, kw["tie_word_embeddings"])
        (path / "config.json").write_text(json.dumps(config, indent=2))
    if "fp8" in opt:
        write_fp8(path, model, config, opt["fp8"])
    save_file(runner.expected(*size, seed + 1, ROWS), path / "expected.safetensors")
    old = released(config)
    check_released(kind, config, old)
    (path / "released.json").write_text(json.dumps(old, indent=2))
    if "mlx" in opt:
        to = write_mlx(path, old, opt.get("plus"), *opt["mlx"])
        round_as_mlx(runner, config["model_type"], opt.get("plus"), *opt["mlx"])
        save_file(runner.expected(*size, seed + 2, ROWS_MLX), to / "expected.safetensors")


CONVERT = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + '/gguf-py']
import convert_hf_to_gguf as c
def fail(*a, **k): raise ValueError('config.json is read as it is')
if sys.argv[4] != 'encoder':
    c.AutoConfig = type('AutoConfig', (), {'from_pretrained': staticmethod(fail)})
def none(self, *a, **k):
    self.gguf_writer.add_tokenizer_model('none')
    self.gguf_writer.add_vocab_size(self.hparams.get('vocab_size', 320))
for k in list(vars(c).values()):
    if isinstance(k, type) and issubclass(k, c.TextModel) and 'set_vocab' in vars(k):
        k.set_vocab = none
sys.argv = ['x', sys.argv[2], '--outfile', sys.argv[3], '--outtype', 'bf16', *sys.argv[5:]]
c.main()
"""


def convert(path):
    """Let llama.cpp's converter write path.gguf. Its config.json has fields of both spellings, since the
    converter takes some from each."""
    source = Path(str(path) + ".source")
    shutil.copytree(path, source, dirs_exist_ok=True)
    conf = json.loads((path / "config.json").read_text())
    encoder = path.name in family_encoders.CASES
    both = text = conf if encoder else {**released(conf), **conf}
    if "text_config" in conf:
        old = both if conf["model_type"].startswith("qwen2") else released(conf)["text_config"]
        text = both["text_config"] = {**old, **conf["text_config"]}
        text.pop("text_config", None)
    rope = text.get("rope_parameters", {})
    rope = rope.get("full_attention", rope)
    if "original_max_position_embeddings" in rope:
        text["original_max_position_embeddings"] = rope["original_max_position_embeddings"]
    (source / "config.json").write_text(json.dumps(both))
    (source / "tokenizer.json").write_text(json.dumps({
        "model": {"vocab": {str(i): i for i in range(text["vocab_size"])}}, "added_tokens": []}))
    kind = ["encoder" if encoder else "text"]
    kind += ["--sentence-transformers-dense-modules"] if (path / "2_Dense").exists() else []
    r = subprocess.run([sys.executable, "-c", CONVERT, os.environ["LLAMA_CPP"], str(source), str(path) + ".gguf", *kind],
                       capture_output=True, text=True, check=False)
    shutil.rmtree(source)
    failed = "" if r.returncode == 0 else "FAILED " + " | ".join(r.stderr.strip().splitlines()[-4:])
    return f"{path.name}.gguf {failed or 'written'}"


def main(out, *names):
    out, todo = Path(out), names or [*CASES, *family_encoders.CASES]
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(8)
    for name in todo:
        try:
            if name in family_encoders.CASES:
                family_encoders.make(out, name, fill)
            else:
                make(out, name)
        except Exception:  # report it, and go on with the next case
            print(f"{name} FAILED")
            traceback.print_exc(limit=-3, file=sys.stdout)
    if "LLAMA_CPP" in os.environ:
        with ThreadPoolExecutor(8) as pool:
            for line in pool.map(convert, [out / n for n in todo if (CASES | family_encoders.CASES)[n][3].get("gguf")]):
                print(line)


if __name__ == "__main__":
    main(*sys.argv[1:])
