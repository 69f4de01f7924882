#!/usr/bin/env python3
"""Make and change GGUF files for tests.

  gguf.py convert DIR OUT      a Qwen3 or Gemma 3 checkpoint of floats, tokenizer
                               included
  gguf.py edit IN OUT CODE     run Python on kv ({key: [type, value]}) and
                               tensors ([[name, dims, type, bytes]])
  gguf.py serve                the same for each IN, OUT and CODE from standard
                               input, all ended by NUL; prints a line when done
"""

import gc
import json
import struct
import sys
import traceback

U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?",
           10: "Q", 11: "q", 12: "d"}
# elements and bytes of a block
BLOCKS = {0: (1, 4), 1: (1, 2), 30: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22),
          7: (32, 24), 8: (32, 34), 20: (32, 18), 10: (256, 84), 11: (256, 110),
          12: (256, 144), 13: (256, 176), 14: (256, 210), 23: (256, 136), 39: (32, 17),
          40: (64, 36), 18: (256, 98), 21: (256, 110), 16: (256, 66), 17: (256, 74),
          22: (256, 82), 19: (256, 50), 29: (256, 56), 34: (256, 54), 35: (256, 66)}


class Reader:
    def __init__(self, b):
        self.b, self.at = b, 0

    def take(self, fmt):
        v = struct.unpack_from("<" + fmt, self.b, self.at)
        self.at += struct.calcsize("<" + fmt)
        return v if len(v) > 1 else v[0]

    def string(self):
        n = self.take("Q")
        self.at += n
        return self.b[self.at - n:self.at]

    def value(self, t):
        if t == STRING:
            return self.string()
        if t == ARRAY:
            of, n = self.take("IQ")
            return of, [self.value(of) for _ in range(n)]
        return self.take(SCALARS[t])


def read(path):
    r = Reader(open(path, "rb").read())
    r.at = 8
    n_tensors, n_keys = r.take("QQ")
    kv, tensors = {}, []
    for _ in range(n_keys):
        key = r.string().decode()
        t = r.take("I")
        kv[key] = [t, r.value(t)]
    for _ in range(n_tensors):
        name = r.string().decode()
        dims = [r.take("Q") for _ in range(r.take("I"))]
        tensors.append([name, dims, *r.take("IQ")])
    begin = (r.at + 31) // 32 * 32
    for t in tensors:
        block, size = BLOCKS[t[2]]
        n = size
        for d in t[1]:
            n *= d
        t[3] = r.b[begin + t[3]:begin + t[3] + n // block]
    return kv, tensors


def string(s):
    s = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(s)) + s


def value(t, v):
    if t == STRING:
        return string(v)
    if t == ARRAY:
        return struct.pack("<IQ", v[0], len(v[1])) + b"".join(value(v[0], x) for x in v[1])
    return struct.pack("<" + SCALARS[t], v)


def pad(b):
    return b + bytes(-len(b) % 32)


def pack(kv, tensors):
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(kv))
    for key, (t, v) in kv.items():
        out += string(key) + struct.pack("<I", t) + value(t, v)
    at = 0
    for name, dims, t, data in tensors:
        out += string(name) + struct.pack("<I", len(dims))
        out += struct.pack("<%dQ" % len(dims), *dims) + struct.pack("<IQ", t, at)
        at += len(pad(data))
    return b"".join([pad(out), *(pad(t[3]) for t in tensors)])


def write(path, kv, tensors):
    with open(path, "wb") as f:
        f.write(pack(kv, tensors))


NAMES = [("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"),
         ("lm_head", "output"), ("model.layers", "blk"),
         ("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm"),
         ("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"),
         ("self_attn.v_proj", "attn_v"), ("self_attn.o_proj", "attn_output"),
         ("self_attn.q_norm", "attn_q_norm"), ("self_attn.k_norm", "attn_k_norm"),
         ("mlp.gate_proj", "ffn_gate"), ("mlp.up_proj", "ffn_up"),
         ("mlp.down_proj", "ffn_down")]
GEMMA_NAMES = [("language_model.model.", "model."),
               ("post_attention_layernorm", "post_attention_norm"),
               ("pre_feedforward_layernorm", "ffn_norm"),
               ("post_feedforward_layernorm", "post_ffw_norm")]
TYPES = {"F32": 0, "F16": 1, "BF16": 30}


def bpe(tok, kv, tokens, kinds):
    """Byte-level BPE: merges."""
    merges = [m if isinstance(m, str) else " ".join(m) for m in tok["model"]["merges"]]
    kv["tokenizer.ggml.model"] = [STRING, "gpt2"]
    kv["tokenizer.ggml.pre"] = [STRING, "qwen2"]
    kv["tokenizer.ggml.merges"] = [ARRAY, (STRING, merges)]


def pieces(tok, kv, tokens, kinds):
    """SentencePiece: scores, from the ranks of merges, and tokens of bytes."""
    rank = {}
    for i, m in enumerate(tok["model"]["merges"]):
        rank.setdefault(m.replace(" ", "", 1) if isinstance(m, str) else "".join(m), i)
    for i, t in enumerate(tokens):
        if kinds[i] == 1 and len(t) == 6 and t[:3] == "<0x":
            kinds[i] = 6
    kv["tokenizer.ggml.model"] = [STRING, "llama"]
    kv["tokenizer.ggml.scores"] = [ARRAY, (F32, [-float(rank.get(t, 10**9)) for t in tokens])]
    kv["tokenizer.ggml.add_space_prefix"] = [BOOL, False]


def bf16_plus_1(data):
    """Norms of Gemma: 1 + w as F32."""
    words = struct.unpack("<%dH" % (len(data) // 2), data)
    values = [struct.unpack("<f", struct.pack("<I", w << 16))[0] + 1 for w in words]
    return struct.pack("<%df" % len(values), *values)


def convert(folder, out):
    config = json.load(open(folder + "/config.json"))
    tok = json.load(open(folder + "/tokenizer.json"))
    settings = json.load(open(folder + "/tokenizer_config.json"))
    template = settings.get("chat_template") or open(folder + "/chat_template.jinja").read()
    raw = open(folder + "/model.safetensors", "rb").read()
    n = struct.unpack_from("<Q", raw)[0]
    head, data = json.loads(raw[8:8 + n]), raw[8 + n:]
    gemma = config["model_type"].startswith("gemma3")
    config.update(config.get("text_config", {}))

    a = "gemma3." if gemma else "qwen3."
    tokens = ["[PAD%d]" % i for i in range(config["vocab_size"])]
    kinds = [5] * len(tokens)
    for text, i in tok["model"]["vocab"].items():
        tokens[i], kinds[i] = text, 1
    for t in tok["added_tokens"]:
        tokens[t["id"]], kinds[t["id"]] = t["content"], 3 if t["special"] else 4
    ropes = config["rope_parameters"]
    kv = {
        "general.architecture": [STRING, a[:-1]],
        a + "block_count": [U32, config["num_hidden_layers"]],
        a + "context_length": [U32, config["max_position_embeddings"]],
        a + "embedding_length": [U32, config["hidden_size"]],
        a + "feed_forward_length": [U32, config["intermediate_size"]],
        a + "attention.head_count": [U32, config["num_attention_heads"]],
        a + "attention.head_count_kv": [U32, config["num_key_value_heads"]],
        a + "attention.key_length": [U32, config["head_dim"]],
        a + "attention.value_length": [U32, config["head_dim"]],
        a + "attention.layer_norm_rms_epsilon": [F32, config["rms_norm_eps"]],
        a + "rope.freq_base": [F32, ropes.get("full_attention", ropes)["rope_theta"]],
        "tokenizer.ggml.tokens": [ARRAY, (STRING, tokens)],
        "tokenizer.ggml.token_type": [ARRAY, (I32, kinds)],
        "tokenizer.ggml.eos_token_id": [U32, config["eos_token_id"]],
        "tokenizer.ggml.bos_token_id": [U32, config["bos_token_id"]],
        "tokenizer.ggml.add_bos_token": [BOOL, settings.get("add_bos_token", False)],
        "tokenizer.chat_template": [STRING, template],
    }
    (pieces if gemma else bpe)(tok, kv, tokens, kinds)
    if gemma:
        kv[a + "attention.sliding_window"] = [U32, config["sliding_window"]]
    tensors = []
    for name, t in head.items():
        if name == "__metadata__" or name.startswith(("vision_tower", "multi_modal")):
            continue
        for old, new in (GEMMA_NAMES if gemma else []) + NAMES:
            name = name.replace(old, new)
        part = data[t["data_offsets"][0]:t["data_offsets"][1]]
        if gemma and len(t["shape"]) == 1:
            t["dtype"], part = "F32", bf16_plus_1(part)
        tensors.append([name, t["shape"][::-1], TYPES[t["dtype"]], part])
    write(out, kv, tensors)


def edit(path, out, code):
    kv, tensors = read(path)
    exec(code, {"kv": kv, "tensors": tensors})
    write(out, kv, tensors)


def serve():
    gc.disable()  # files are lists of thousands of strings, and no cycles
    words, rest = [], b""
    while more := sys.stdin.buffer.raw.read(65536):
        *done, rest = (rest + more).split(b"\0")
        words += done
        while len(words) >= 3:
            try:
                edit(*(w.decode() for w in words[:3]))
                print("done", flush=True)
            except Exception:
                traceback.print_exc()
                print("failed", flush=True)
            del words[:3]


if __name__ == "__main__":
    {"convert": convert, "edit": edit, "serve": serve}[sys.argv[1]](*sys.argv[2:])
