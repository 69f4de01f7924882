#!/usr/bin/env python3
"""Make a home directory with a model of each kind in each store, from the small
checkpoints of this repository.

Usage: model_cache.py HOME     (from the repository's root)
"""

import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys

HOME = sys.argv[1]
HUB = HOME + "/.cache/huggingface/hub"
GOLDEN = "tests/golden/models/"
GGUF = "tests/golden/gguf/"
HASH = "0123456789abcdef0123456789abcdef01234567"


def put(path, data=b""):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())


def small_tokenizer():
    """The demo model's, without merges: bytes only."""
    t = json.load(open("models/demo/tokenizer.json"))
    model = t["model"]
    model["vocab"] = {k: i for k, i in model["vocab"].items() if i < 256}
    model["merges"] = []
    return json.dumps({**t, "added_tokens": []})


def copy(source, folder, tokenizer=True):
    """A checkpoint as plain files, without the golden's results."""
    os.makedirs(folder)
    for name in os.listdir(source):
        if not name.startswith("expected"):
            shutil.copyfile(source + "/" + name, folder + "/" + name)
    if tokenizer and not os.path.exists(folder + "/tokenizer.json"):
        put(folder + "/tokenizer.json", small_tokenizer())


def snapshot(repo, revision="main", commit=HASH):
    """The snapshot's directory of a repository in the hub's cache."""
    root = "%s/models--%s" % (HUB, repo.replace("/", "--"))
    put("%s/refs/%s" % (root, revision), commit)
    return "%s/snapshots/%s" % (root, commit)


def hub(repo, source, tokenizer=True):
    """A repository as the hub's tools leave it: links to blobs."""
    folder = snapshot(repo)
    copy(source, folder, tokenizer)
    blobs = folder + "/../../blobs"
    os.makedirs(blobs)
    for i, name in enumerate(sorted(os.listdir(folder))):
        os.rename(folder + "/" + name, "%s/%d" % (blobs, i))
        os.symlink("../../blobs/%d" % i, folder + "/" + name)
    return folder


def config(folder, **changes):
    path = folder + "/config.json"
    c = json.load(open(path)) if os.path.exists(path) else {}
    c.update(changes)
    if os.path.islink(path):
        os.remove(path)
    put(path, json.dumps(c))


def foreign(repo, method, **more):
    """A quantized checkpoint of another system; nobody reads its weights."""
    folder = hub(repo, GOLDEN + "tied-bf16")
    config(folder, quantization_config={"quant_method": method, **more})


def ollama(name, data):
    digest = hashlib.sha256(data).hexdigest()
    root = HOME + "/.ollama/models"
    put(root + "/blobs/sha256-" + digest, data)
    put(root + "/manifests/registry.ollama.ai/library/" + name, json.dumps({
        "schemaVersion": 2, "layers": [
            {"mediaType": "application/vnd.ollama.image.model",
             "digest": "sha256:" + digest, "size": len(data)}]}))


def big():
    """Qwen3-30B-A3B's exact shapes: all header, and a hole for the weights."""
    d, ff, heads, kv, hd, layers, experts, vocab = 2048, 768, 32, 4, 128, 48, 128, 151936
    shapes = {"model.embed_tokens.weight": [vocab, d], "lm_head.weight": [vocab, d],
              "model.norm.weight": [d]}
    for i in range(layers):
        p = "model.layers.%d." % i
        a = p + "self_attn."
        shapes.update({
            p + "input_layernorm.weight": [d], p + "post_attention_layernorm.weight": [d],
            a + "q_proj.weight": [heads * hd, d], a + "k_proj.weight": [kv * hd, d],
            a + "v_proj.weight": [kv * hd, d], a + "o_proj.weight": [d, heads * hd],
            a + "q_norm.weight": [hd], a + "k_norm.weight": [hd],
            p + "mlp.gate.weight": [experts, d]})
        for e in range(experts):
            m = "%smlp.experts.%d." % (p, e)
            shapes.update({m + "gate_proj.weight": [ff, d], m + "up_proj.weight": [ff, d],
                           m + "down_proj.weight": [d, ff]})
    header, at = {}, 0
    for name, shape in shapes.items():
        n = 2
        for x in shape:
            n *= x
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + n]}
        at += n
    folder = snapshot("Qwen/Qwen3-30B-A3B")
    text = json.dumps(header).encode()
    put(folder + "/model.safetensors", struct.pack("<Q", len(text)) + text)
    os.truncate(folder + "/model.safetensors", 8 + len(text) + at)
    shutil.copyfile("models/demo/tokenizer.json", folder + "/tokenizer.json")
    config(folder, model_type="qwen3_moe", hidden_size=d, intermediate_size=6144,
           num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv,
           head_dim=hd, vocab_size=vocab, max_position_embeddings=40960,
           rms_norm_eps=1e-6, rope_theta=1e6, tie_word_embeddings=False,
           num_experts=experts, num_experts_per_tok=8, moe_intermediate_size=ff,
           norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
           hidden_act="silu", attention_bias=False)


def main():
    # ---- what runs
    hub("org/Demo", "models/demo")
    hub("org/Moe", GOLDEN + "moe")
    hub("org/Gemma", GOLDEN + "gemma3-tied")
    hub("mlx-community/Tiny-4bit", GOLDEN + "mlx4")
    hub("org/Qwen3.5-MoE", GOLDEN + "qwen35-moe")
    hub("org/Qwen3.5-VL", GOLDEN + "qwen35-wrapped-untied")
    hub("org/Sharded", GOLDEN + "sharded-bf16")
    repo = snapshot("org/Tiny-GGUF")
    for kind in "Q4_K_S", "Q8_0":
        put("%s/tiny-dense-%s.gguf" % (repo, kind),
            open("%stiny-dense-%s.gguf" % (GGUF, kind), "rb").read())
    put(repo + "/config.json", "{}")
    put(repo + "/mmproj-F16.gguf", b"GGUF")
    dense = open(GGUF + "tiny-dense-Q6_K.gguf", "rb").read()
    ollama("tiny/6k", dense)
    put(HOME + "/.lmstudio/models/org/Moe-GGUF/tiny-moe-Q8_0.gguf",
        open(GGUF + "tiny-moe-Q8_0.gguf", "rb").read())
    put(HOME + "/.cache/llama.cpp/org_tiny-Q5_K_S.gguf",
        open(GGUF + "tiny-dense-Q5_K_S.gguf", "rb").read())
    put(HOME + "/.cache/llama.cpp/gemma3-tied.gguf",
        open(GGUF + "gemma3-tied.gguf", "rb").read())
    copy(GOLDEN + "f32", HOME + "/.cache/modelscope/hub/models/org/Tiny___F32")
    copy(GOLDEN + "f16", HOME + "/my/tiny-f16")
    big()
    # ---- what this build does not run
    foreign("Qwen/Qwen3-8B-FP8", "fbgemm_fp8")
    foreign("Qwen/Qwen3-8B-GPTQ-Int4", "gptq_v2", bits=4)
    foreign("Qwen/Qwen3-8B-AWQ", "marlin", bits=4)
    foreign("org/Some-HQQ", "hqq")
    foreign("unsloth/Qwen3-8B-bnb-4bit", "bitsandbytes", load_in_4bit=True)
    foreign("org/Qwen3-8B-4bit-exl2", "exl2", bits=4.0)
    foreign("org/Qwen3-8B-other", "novel")
    config(hub("mlx-community/Tiny-mxfp6", GOLDEN + "mlx4"),
           quantization={"bits": 4, "group_size": 32, "mode": "mxfp6"},
           quantization_config=None)
    config(snapshot("state/Mamba"), model_type="mamba2")
    torch = snapshot("org/Torch")
    config(torch, **json.load(open("models/demo/config.json")))
    put(torch + "/pytorch_model.bin", b"PK")
    edit = ["python3", "tests/cli/gguf.py", "edit"]
    for name, code in (
            ("cohere", 'kv["general.architecture"][1] = "cohere2"'),
            ("words", 'kv["tokenizer.ggml.model"][1] = "rwkv"')):
        subprocess.run([*edit, GGUF + "tiny-dense-Q8_0.gguf",
                        "%s/my/%s.gguf" % (HOME, name), code], check=True)
    # a tensor's type
    data = bytearray(dense)
    name = b"blk.0.ffn_up.weight"
    at = data.index(name) + len(name) + 4 + 16
    data[at:at + 4] = struct.pack("<I", 41)
    put(HOME + "/my/q1_0.gguf", bytes(data))
    # ---- what is not whole
    part = hub("org/Partial", "models/demo")
    os.remove(os.path.realpath(part + "/model.safetensors"))
    put(part + "/../../blobs/7.incomplete", b"x")
    put(HUB + "/models--org--Begun/blobs/1.incomplete", b"x")
    put(HUB + "/models--org--Begun/refs/main", HASH)
    shards = hub("org/Hole", GOLDEN + "sharded-bf16")
    os.remove(sorted(shards + "/" + n for n in os.listdir(shards)
                     if n.endswith(".safetensors"))[0])
    hub("org/Untokenized", GOLDEN + "tied-bf16", tokenizer=False)
    cut = hub("org/Cut", "models/demo")
    os.truncate(os.path.realpath(cut + "/model.safetensors"), 100000)
    put(HOME + "/my/half.gguf", dense[:len(dense) // 2])
    put(HOME + "/my/later-00002-of-00003.gguf", dense)
    put(HOME + "/.cache/llama.cpp/org_tiny-Q2_K.gguf.downloadInProgress", b"GGUF")
    ollama("gone/1b", b"gone")
    os.remove(HOME + "/.ollama/models/blobs/sha256-" + hashlib.sha256(b"gone").hexdigest())
    # ---- what is hostile
    put(HOME + "/my/empty.gguf")
    put(HOME + "/my/noise.gguf", bytes(range(256)) * 40)
    put(HOME + "/my/evil\n\x1b[31mname.gguf", b"GGUF" + b"\xff" * 64)
    put(HOME + "/my/deep/config.json", "[" * 100000)
    os.mkfifo(HOME + "/my/pipe.gguf")
    os.makedirs(HOME + "/my/fifo")
    os.mkfifo(HOME + "/my/fifo/config.json")
    os.symlink("/dev/zero", HOME + "/my/zero.gguf")
    os.symlink("self.gguf", HOME + "/my/self.gguf")
    os.symlink("..", HOME + "/my/loop")
    os.symlink("tiny-f16", HOME + "/my/again")
    os.makedirs(HOME + "/my/directory.gguf")
    put(HUB + "/datasets--org--data/refs/main", HASH)
    put(HUB + "/version.txt", "1")


main()
