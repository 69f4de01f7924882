#!/usr/bin/env python3
"""Make a small Gemma 3 checkpoint with random weights: gemma.py DIR [closed].

It is laid out as the released ones that have a vision model: the text model's
fields in text_config, prefixed names, tensors that text does not need, more rows
than tokens. The tokenizer is the golden one. With `closed`, each way to split a token
into two is a merge, as in the tokenizers that transformers converts from
SentencePiece. The chat template is ours."""

import json
import random
import shutil
import struct
import sys

TOKENIZER = "tests/golden/gemma-tokenizer/"
D, FF, LAYERS, HEADS, KV_HEADS, HEAD_DIM, ROWS = 64, 128, 7, 4, 2, 32, 3520

TEMPLATE = """{{ bos_token }}{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}
{{ m.content | trim }}<end_of_turn>
{% endfor %}{% if add_generation_prompt %}<start_of_turn>model
{% endif %}"""

rng = random.Random(17)


def words(sigma):
    """bf16 words of random values."""
    return [struct.unpack("<I", struct.pack("<f", rng.gauss(0, sigma)))[0] >> 16
            for _ in range(4096)]


# embeddings are small, so that an answer does not repeat its last token
EMBEDDING, OTHER = words(0.01), words(0.2)


def weights(name, n):
    return struct.pack("<%dH" % n, *rng.choices(EMBEDDING if "embed" in name else OTHER, k=n))


def tensors():
    yield "model.embed_tokens.weight", [ROWS, D]
    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    for i in range(LAYERS):
        p = "model.layers.%d." % i
        for name in "input", "post_attention", "pre_feedforward", "post_feedforward":
            yield p + name + "_layernorm.weight", [D]
        for name, rows, cols in (("q", q, D), ("k", kv, D), ("v", kv, D), ("o", D, q)):
            yield p + "self_attn.%s_proj.weight" % name, [rows, cols]
        yield p + "self_attn.q_norm.weight", [HEAD_DIM]
        yield p + "self_attn.k_norm.weight", [HEAD_DIM]
        for name, rows, cols in (("gate", FF, D), ("up", FF, D), ("down", D, FF)):
            yield p + "mlp.%s_proj.weight" % name, [rows, cols]
    yield "model.norm.weight", [D]


def close_merges(path):
    tok = json.load(open(path))
    vocab, merges = tok["model"]["vocab"], []
    for m in tok["model"]["merges"]:
        piece = "".join(m) if isinstance(m, list) else m.replace(" ", "", 1)
        merges += [[piece[:i], piece[i:]] for i in range(1, len(piece))
                   if piece[:i] in vocab and piece[i:] in vocab]
    tok["model"]["merges"] = merges
    json.dump(tok, open(path, "w"))


def main(out, closed=None):
    head, data = {}, b""
    shapes = [("language_model." + name, shape) for name, shape in tensors()]
    shapes.append(("multi_modal_projector.mm_input_projection_weight", [8, D]))
    shapes.append(("vision_tower.vision_model.post_layernorm.weight", [8]))
    for name, shape in shapes:
        part = weights(name, shape[0] * (shape[1] if len(shape) > 1 else 1))
        head[name] = {"dtype": "BF16", "shape": shape,
                      "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(head).encode()
    with open(out + "/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
    json.dump({
        "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
        "bos_token_id": 2, "eos_token_id": 1, "torch_dtype": "bfloat16",
        "vision_config": {"model_type": "siglip_vision_model"},
        "text_config": {
            "model_type": "gemma3_text", "hidden_size": D, "intermediate_size": FF,
            "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "vocab_size": ROWS,
            "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "sliding_window": 16,
            "query_pre_attn_scalar": HEAD_DIM,
            "layer_types": ["full_attention" if i % 6 == 5 else "sliding_attention"
                            for i in range(LAYERS)],
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}},
        open(out + "/config.json", "w"))
    json.dump({"do_sample": False, "eos_token_id": [1, 12]},
              open(out + "/generation_config.json", "w"))
    for name in "tokenizer.json", "tokenizer_config.json":
        shutil.copy(TOKENIZER + name, out)
    with open(out + "/chat_template.jinja", "w") as f:
        f.write(TEMPLATE)
    if closed:
        close_merges(out + "/tokenizer.json")


main(*sys.argv[1:])
