"""The faults: each case is an intact checkpoint with one thing changed, and what
qwick must do with it."""

import copy
import json
import os
import struct

import adapters
import checkpoints
from checkpoints import GGUF_KINDS, GOLDEN, INDEX, KINDS, ROOT, WEIGHTS, Base, Special
from checkpoints import raw_json, safetensors

CONFIG, TOKENIZER, SETTINGS = "config.json", "tokenizer.json", "tokenizer_config.json"
GENERATION, JINJA = "generation_config.json", "chat_template.jinja"
MODEL = "model.gguf"

# By token ids, which needs no tokenizer; and from text, through the template.
IDS = ("--prompt-ids", "5,9,2")
TEXT = ("hello, world",)

NOBODY = 65534


class Case:
    """One checkpoint. files: what differs from the base's files. want: what must
    happen (broken.py). at: the files that a refusal may name."""

    def __init__(self, name, base, files, want="any", at=None, command=IDS, locked=False):
        self.name, self.base, self.files = name, base, files
        self.want, self.command, self.locked = want, command, locked
        self.at = at or tuple(f for f in files) or (CONFIG,)
        self.area = ""
        self.user = NOBODY if locked and os.getuid() == 0 else None

    def full_name(self):
        return "%s: %s: %s" % (self.area, self.base.kind, self.name)

    def arguments(self, folder):
        model = folder + "/" + MODEL if self.base.kind in GGUF_KINDS else folder
        return ("generate", "-m", model, "-t", "1", "-n", "3", "--ignore-eos", "--greedy",
                "-q", "--json", "--logprobs", "2", "--seed", "1", *self.command,
                *(("--lora", folder + "/" + self.base.adapter) if self.base.adapter else ()))


def huge(n):
    """Values that are n in 32 or 64 bits."""
    return (str(2**32 + n), str(2**64 + n), "9" * 400) if isinstance(n, int) else ()


# Values that are wrong wherever a file holds a count.
WRONG = ('"x"', "-1", "0", "1.5", "1e400", "true", "null", "[]", "{}")


# ---- any file of JSON


@checkpoints.lazy
def more(text, *pieces):
    """The object with one more member, whose value is pieces, each so many times."""
    return text[:-1] + b',"@x":' + b"".join(piece * n for piece, n in pieces) + b"}"


@checkpoints.lazy
def many_keys(text):
    return text[:-1] + b"".join(b',"@%d":%d' % (i, i) for i in range(100000)) + b"}"


def odd_json(text):
    """Texts that are no JSON, by name, and texts that are, though odd."""
    text = text.strip()
    bad = {
        "empty": b"",
        "blank": b" \n",
        "cut": text[:-1],
        "cut in half": text[:len(text) // 2],
        "a second value": text + b"{}",
        "text behind": text + b"x",
        "NUL behind": text + b"\0",
        "UTF-16": text.decode().encode("utf-16"),
        "comment": b"/* c */" + text,
        "line comment": b"// c\n" + text,
        "single quotes": text.replace(b'"', b"'"),
        "trailing comma": text.rstrip()[:-1] + b",}",
        "leading zero": text.rstrip()[:-1] + b',"@x":01}',
        "bare word": text.rstrip()[:-1] + b',"@x":nul}',
        "bad escape": text.rstrip()[:-1] + rb',"@x":"\q"}',
        "control byte": text.rstrip()[:-1] + b',"@x":"\x01"}',
        "invalid UTF-8": text.rstrip()[:-1] + b',"@x":"\xff\xfe"}',
        "surrogate in UTF-8": text.rstrip()[:-1] + b',"@x":"\xed\xa0\x80"}',
        "deep lists": more(text, (b"[", 100000), (b"]", 100000)),
        "deep objects": more(text, (b'{"a":', 100000), (b"1", 1), (b"}", 100000)),
        "a list": b"[" + text + b"]",
        "a string": json.dumps(text.decode()).encode(),
        "a number": b"7",
        "null": b"null",
    }
    good = {
        "white space": b" \t\r\n" + text + b" \t\r\n",
        "an unknown key": text.rstrip()[:-1] + b',"@x":[1,{"a":"\\u00e9\\n"}]}',
    }
    either = {
        "BOM": b"\xef\xbb\xbf" + text,
        # as Python writes them: models.bats has fields that must not have them
        "NaN": text.rstrip()[:-1] + b',"@x":NaN}',
        "Infinity": text.rstrip()[:-1] + b',"@x":-Infinity}',
        "lone surrogate": text.rstrip()[:-1] + b',"@x":"\\ud800"}',
        "NUL in a string": text.rstrip()[:-1] + b',"@x":"\\u0000"}',
        "100000 keys": many_keys(text),
        "a string of 8 MB": more(text, (b'"', 1), (b"a", 8 << 20), (b'"', 1)),
        "an integer of 1 MB": more(text, (b"1", 1 << 20)),
    }
    return bad, good, either


def json_cases(base, name, **more):
    bad, good, either = odd_json(base.files[name])
    for group, want in ((bad, "refuse"), (good, "run"), (either, "any")):
        for what, text in group.items():
            yield Case("%s: %s" % (name, what), base, {name: text}, want, **more)


# ---- what is in the place of a file


def file_cases(base, name, needed, **more):
    """A file that is none. needed: without it the checkpoint is broken."""
    data = base.files[name]
    folder, own = name[:name.rfind("/") + 1], name[name.rfind("/") + 1:]
    lost = "refuse" if needed else "any"
    for what, special, want in (
        ("a pipe", Special("fifo"), "refuse"),
        ("a socket", Special("socket"), "refuse"),
        ("a directory", Special("directory"), "refuse"),
        ("/dev/zero", Special("link", "/dev/zero"), "refuse"),
        ("/dev/null", Special("link", "/dev/null"), "refuse"),
        ("a terminal", Special("link", "/dev/tty"), "refuse"),
        ("a link to itself", Special("link", own), "refuse"),
        ("a link to nothing", Special("link", "nothing"), lost),
        ("sparse", Special("sparse", data[:100], 8 << 40), "refuse"),
        ("missing", None, lost),
        ("Git LFS", b"version https://git-lfs.github.com/spec/v1\noid sha256:"
                    + b"0" * 64 + b"\nsize 1234\n", "refuse"),
    ):
        yield Case("%s: %s" % (name, what), base, {name: special}, want, **more)
    yield Case("%s: a link to a link" % name, base,
               {name: Special("link", "blob"), folder + "blob": Special("link", "blob2"),
                folder + "blob2": data}, "run", **more)
    yield Case("%s: locked" % name, base, {name: Special("locked", data)}, "refuse",
               locked=True, **more)


# ---- safetensors


def container_cases(base, name=WEIGHTS):
    raw = base.files[name]
    n = struct.unpack_from("<Q", raw)[0]
    header, data = raw[8:8 + n], raw[8 + n:]
    size = len(raw)

    def case(what, new, want="refuse"):
        return Case("%s: %s" % (name, what), base, {name: new}, want)

    for i in (0, 1, 7, 8, 9, 8 + n // 2, 8 + n - 1, 8 + n, size // 2, size - 1000, size - 1):
        yield case("cut to %d bytes" % i, raw[:i])
    for more in (b"\0", b"\0" * 4096, raw):
        yield case("%d bytes more" % len(more), raw + more)
    for length in (0, 1, n - 1, n + 1, n - 8, n + 8, size, size - 8, size - 7, size + 1,
                   100000001, 2**31, 2**32 + n, 2**63, 2**63 + n, 2**64 - 8, 2**64 - 1):
        yield case("length of header %d" % length, struct.pack("<Q", length) + raw[8:])
    yield case("length of header, other byte order", struct.pack(">Q", n) + raw[8:])
    bad, good, either = odd_json(header.rstrip())
    for group, want in ((bad, "refuse"), (either, "refuse")):
        for what, text in group.items():
            # an unknown key is a tensor there, which these are not
            yield case("header: " + what, safetensors(text, data, False), want)
    yield case("header: blanks behind", safetensors(header + b" " * 4096, data), "run")
    yield case("header: blanks before", safetensors(b" " * 8 + header, data), "any")
    tensors = json.loads(header)
    yield case("header: other order",
               safetensors(dict(reversed(tensors.items())), data), "run")
    yield case("header: no metadata",
               safetensors({k: v for k, v in tensors.items() if k != "__metadata__"}, data), "run")
    for pad in range(1, 4):
        text = header.rstrip() + b" " * (-len(header.rstrip()) % 8 + pad)
        yield case("header: %d bytes unaligned" % pad, safetensors(text, data, False), "run")
    for what, value, want in (
        ("a string", "x", "any"), ("a list", [1], "any"), ("a number", {"format": 1}, "any"),
        ("deep", {"a": {"b": "c"}}, "any"), ("strings", {"a": "b", "": ""}, "run"),
    ):
        yield case("metadata: " + what, safetensors({**tensors, "__metadata__": value}, data), want)


@checkpoints.lazy
def many_tensors(tensors, last):
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [last, last]}
    return {**tensors, **{"other%d" % i: empty for i in range(50000)}}


def tensor_of(tensors, part):
    return next(k for k in tensors if part in k)


def entry_cases(base, name=WEIGHTS, part="k_proj", more="run"):
    """Faults in the entry of one tensor. more: what happens if there is another one."""
    tensors, data = base.tensors(name)
    key = tensor_of(tensors, part)
    t = tensors[key]
    begin, end = t["data_offsets"]
    rows, columns = t["shape"][0], t["shape"][-1]

    def case(what, entry, want="refuse", holes=None, drop=()):
        entry = {k: v for k, v in {**t, **entry}.items() if k not in drop}
        text = raw_json({**tensors, key: entry}, holes or {})
        return Case("%s: %s: %s" % (name, key, what), base,
                    {name: safetensors(text, data)}, want)

    for field in ("dtype", "shape", "data_offsets"):
        yield case("no " + field, {}, drop=(field,))
        for raw in ("null", "7", '"x"', "{}", "[[]]", "true", "[null]", '["1"]'):
            yield case("%s %s" % (field, raw), {field: "@1"}, holes={"@1": raw})
    yield case("another field", {"strides": [1, 2]}, "any")
    for dtype in ("F64", "I8", "I16", "I32", "I64", "U16", "BOOL", "F8_E4M3", "F8_E5M2",
                  "F4", "C64", "bf16", "BF16 ", "", "BF16\0", "F" * 100000):
        if dtype != t["dtype"]:
            yield case("dtype %.20r" % dtype, {"dtype": dtype})
    for shape in ([], [rows], [columns], [rows, columns, 2], [1, rows, columns],
                  [rows + 1, columns], [rows - 1, columns], [columns + 1, rows],
                  [0, columns], [rows, 0], [2**32, 2**32], [2**63, 2],
                  [1] * 5000 + [rows, columns]):
        if shape != t["shape"]:
            yield case("shape %.40s" % shape, {"shape": shape})
    for raw in ("-%d" % rows, "%d.5" % rows, *huge(rows), "1e400", '"%d"' % rows):
        yield case("rows %.24s" % raw, {"shape": ["@1", *t["shape"][1:]]}, holes={"@1": raw})
    for what, offsets in (
        ("swapped", [end, begin]), ("empty", [begin, begin]), ("one short", [begin, end - 1]),
        ("one long", [begin, end + 1]), ("moved by one", [begin + 1, end + 1]),
        ("an overlap", [begin - 2, end - 2]), ("moved by two", [begin + 2, end + 2]),
        ("behind the end", [len(data), len(data) + end - begin]),
        ("across the end", [len(data) - 2, len(data) + end - begin - 2]),
        ("three", [begin, end, end]), ("one", [begin]), ("none", []), ("negative", [-2, end]),
    ):
        yield case("offsets: " + what, {"data_offsets": offsets})
    for raw in ("%d.5" % end, *huge(end), "1e400"):
        yield case("end %.24s" % raw, {"data_offsets": [begin, "@1"]}, holes={"@1": raw})

    def names(what, text, want="refuse"):
        return Case("%s: %s: %s" % (name, key, what), base,
                    {name: safetensors(text, data)}, want)

    whole, entry = json.dumps(tensors), json.dumps(t)
    yield names("twice", whole[:-1] + ", %s: %s}" % (json.dumps(key), entry))
    yield names("twice, escaped", whole[:-1] + ', "\\u%04x%s": %s}' % (ord(key[0]), key[1:], entry))
    yield names("escaped", whole.replace(json.dumps(key), '"\\u%04x%s"' % (ord(key[0]), key[1:])),
                "run")
    for what, other in (("missing", "x." + key), ("name cut", key[:-1]), ("upper case", key.upper()),
                        ("NUL behind", key + "\0"), ("NUL inside", key[:5] + "\0" + key[5:]),
                        ("empty name", ""), ("blank behind", key + " ")):
        yield names(what, json.dumps({other if k == key else k: v for k, v in tensors.items()}))
    last = max(v["data_offsets"][1] for k, v in tensors.items() if k != "__metadata__")
    extra = {"dtype": "F32", "shape": [4], "data_offsets": [last, last + 16]}
    yield Case("%s: one tensor more" % name, base,
               {name: safetensors({**tensors, "other": extra}, data + b"\0" * 16)}, more)
    extra = {"dtype": "F32", "shape": [0], "data_offsets": [last, last]}
    yield Case("%s: an empty tensor more" % name, base,
               {name: safetensors({**tensors, "other": extra}, data)}, "any")
    yield Case("%s: a hole" % name, base,
               {name: safetensors({**tensors, "other": {"dtype": "F32", "shape": [4],
                "data_offsets": [last + 4, last + 20]}}, data + b"\0" * 20)}, "refuse")
    yield Case("%s: 50000 empty tensors" % name, base,
               {name: safetensors(many_tensors(tensors, last), data)}, "any")


# ---- weights that are no numbers

NOT_FINITE = {"BF16": {"NaN": b"\xc0\x7f", "Inf": b"\x80\x7f", "-Inf": b"\x80\xff"},
              "F16": {"NaN": b"\0\x7e", "Inf": b"\0\x7c", "-Inf": b"\0\xfc"},
              "F32": {"NaN": b"\0\0\xc0\x7f", "Inf": b"\0\0\x80\x7f", "-Inf": b"\0\0\x80\xff"}}


@checkpoints.lazy
def spliced(data, at, bits):
    return data[:at] + bits + data[at + len(bits):]


def weight_cases(base, name=WEIGHTS):
    """One weight, or all of a tensor, NaN or infinite. A whole norm of these leaves
    no logit finite."""
    tensors, data = base.tensors(name)
    for key, t in tensors.items():
        if key == "__metadata__" or t["dtype"] not in NOT_FINITE:
            continue
        begin, end = t["data_offsets"]
        layer = key.split("layers.")[-1].split(".")[0]
        if "layers." in key and layer not in ("0", "3"):
            continue
        for what, bits in NOT_FINITE[t["dtype"]].items():
            def put(at, n, bits=bits):
                return {name: safetensors(tensors, spliced(data, at, bits * n))}

            all_of_it = (end - begin) // len(bits)
            sure = what == "NaN" and key in ("model.norm.weight", "language_model.model.norm.weight",
                                             "model.language_model.norm.weight")
            # one number for the whole matrix is read when the model is opened
            whole = key.endswith((".weight_global_scale", ".weight_scale_2"))
            want = "refuse" if whole else "not finite" if sure else "spoilt"
            yield Case("%s: %s of %d" % (key, what, all_of_it), base, put(begin, all_of_it), want)
            yield Case("%s: one %s" % (key, what), base, put((begin + end) // 2 // 4 * 4, 1),
                       "refuse" if whole else "spoilt")


# ---- shards and their index


def shard_cases(base):
    index = json.loads(base.files[INDEX])
    weight_map = index["weight_map"]
    shards = sorted(set(weight_map.values()))
    first, second = shards[:2]
    key = next(k for k, v in weight_map.items() if v == second)

    def case(what, new, want="refuse", files=None, at=None):
        return Case(what, base, {INDEX: json.dumps(new).encode(), **(files or {})}, want,
                    at or (INDEX, *shards, *(files or {})))

    def mapped(what, value, want="refuse", files=None):
        return case("%s: %s" % (INDEX, what), {**index, "weight_map": {**weight_map, key: value}},
                    want, files)

    yield from json_cases(base, INDEX)
    yield from file_cases(base, INDEX, False)
    for shard in shards:
        yield from file_cases(base, shard, True)
    yield from container_cases(base, second)
    yield from entry_cases(base, second, key.split(".")[-2])
    for what, value in (
        ("an absolute path", "/etc/passwd"), ("a path above", "../" + second),
        ("a path in a folder", "sub/" + second), ("a path back", "sub/../" + second),
        ("a folder", "sub"), ("a dot", "."), ("two dots", ".."), ("no name", ""),
        ("a NUL", second + "\0"), ("a long name", "x" * 5000), ("a new line", "a\nb"),
        ("an absent shard", "model-00009-of-00003.safetensors"), ("another shard", first),
        ("a number", 7), ("null", None), ("a list", [second]), ("an object", {}),
        ("itself", INDEX), (CONFIG, CONFIG),
    ):
        yield mapped(what, value, files={"sub/" + second: base.files[second]})
    for what, value in (("null", None), ("a list", [1]), ("a string", "x"), ("empty", {}),
                        ("a number", 7)):
        yield case("%s: weight_map %s" % (INDEX, what), {**index, "weight_map": value})
    yield case("%s: no weight_map" % INDEX, {"metadata": {}})
    yield case("%s: a tensor that no shard has" % INDEX,
               {**index, "weight_map": {**weight_map, "other": second}}, "any")
    yield case("%s: an entry is missing" % INDEX,
               {**index, "weight_map": {k: v for k, v in weight_map.items() if k != key}}, "any")
    yield case("%s: no metadata" % INDEX, {"weight_map": weight_map}, "run")
    yield case("%s: another total_size" % INDEX,
               {**index, "metadata": {"total_size": 1}}, "any")
    text = base.files[INDEX].replace(b'"weight_map"', b'"weight_map": {}, "weight_map"', 1)
    yield Case("%s: weight_map twice" % INDEX, base, {INDEX: text}, "any")
    text = json.dumps(index).replace(json.dumps(key), '%s: "%s", %s' % (
        json.dumps(key), first, json.dumps(key)), 1)
    yield Case("%s: a tensor twice, other shards" % INDEX, base, {INDEX: text.encode()}, "refuse",
               (INDEX, *shards))
    swap = {first: base.files[second], second: base.files[first]}
    yield Case("shards swapped", base, swap, "refuse", (INDEX, *shards))
    yield Case("a shard twice", base, {second: base.files[first]}, "refuse", (INDEX, *shards))
    # one tensor more in each of many shards
    many, files = dict(weight_map), {}
    for i in range(1500):
        name = "extra-%05d.safetensors" % i
        many["extra%d" % i] = name
        files[name] = safetensors({"extra%d" % i: {"dtype": "F32", "shape": [1],
                                                   "data_offsets": [0, 4]}}, b"\0" * 4)
    yield case("1500 shards", {**index, "weight_map": many}, "run", files)


# ---- config.json

# Counts without which no weight has a shape.
COUNTS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
          "vocab_size", "intermediate_size", "head_dim", "moe_intermediate_size",
          "num_local_experts", "num_experts", "num_experts_per_tok", "linear_num_key_heads",
          "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
          "linear_conv_kernel_dim", "max_position_embeddings")
# Not read in a mixture of experts that has no dense layers.
UNREAD = {kind: ("intermediate_size",) for kind in ("moe", "qwen35moe", "fp8")}


def config_cases(base):
    config = base.config

    def case(what, key, value, want, holes=None):
        at = (CONFIG,) if holes else (CONFIG, WEIGHTS, *base.files)
        return Case("%s: %s" % (key, what), base,
                    {CONFIG: raw_json({**config, key: value}, holes or {})}, want, at)

    for key, value in config.items():
        needed = key in COUNTS and key not in UNREAD.get(base.kind, ())
        for raw in WRONG + huge(value):
            must = needed and raw not in ("null",)
            yield case("%.24s" % raw, key, "@1", "refuse" if must else "any", {"@1": raw})
        yield Case("%s: missing" % key, base,
                   {CONFIG: json.dumps({k: v for k, v in config.items() if k != key}).encode()},
                   "any", (CONFIG, *base.files))
        if needed:
            free = key in ("max_position_embeddings", "num_experts_per_tok")
            yield case("one more", key, value + 1, "any" if free else "refuse")
            yield Case("%s: twice" % key, base,
                       {CONFIG: raw_json({**config, "@k": value + 1}, {"@k": json.dumps(key)})},
                       "refuse")
        if isinstance(value, dict):
            for inner, v in value.items():
                for raw in WRONG + huge(v):
                    yield case("%s: %.24s" % (inner, raw), key, {**value, inner: "@1"}, "any",
                               {"@1": raw})
    for key, value in (
        ("model_type", "qwen9"), ("model_type", "llama"), ("model_type", ""),
        ("hidden_act", "relu"), ("rms_norm_eps", 1e300), ("vocab_size", 2**31 - 1),
        ("hidden_size", 2**30), ("num_hidden_layers", 10**6), ("num_attention_heads", 3),
        ("num_key_value_heads", 3), ("head_dim", 15), ("head_dim", 2),
        ("layer_types", ["full_attention"]), ("layer_types", ["other"] * config["num_hidden_layers"]),
        ("rope_parameters", {"rope_theta": 1e6, "rope_type": "other"}),
        ("rope_parameters", {"rope_theta": -1.0, "rope_type": "default"}),
        ("quantization_config", {"quant_method": "other"}),
        ("quantization_config", {"bits": 3, "group_size": 64}),
        ("quantization_config", {"bits": 4, "group_size": 63}),
        ("quantization_config", {"bits": 4, "group_size": 0}),
    ):
        # a checkpoint whose weights are not quantized may say so all the same
        unused = value == {"bits": 3, "group_size": 64}
        act = key == "hidden_act" and base.kind in ("gemma", "gemma4")  # another key there
        quantized = key == "quantization_config" and base.kind.startswith("mlx")
        # all tensors of a Llama are in a dense Qwen3, and in no other of these
        llama = value == "llama" and config["model_type"] == "qwen3"
        yield case("%.40s" % json.dumps(value), key, value,
                   "any" if act or quantized or unused or llama else "refuse")
    for value in ([-1], [1, -1], 10**6, [2**31], "1", [1.5], [[1]], {"a": 1}):
        yield case(json.dumps(value), "eos_token_id", value, "any")


# ---- quantized weights of other tools

# What config.json may say against the tensors: paths to a value, and values.
GROUP = ("quantization_config", "config_groups", "group_0", "weights")
AGAINST = {
    "w4a16": ((GROUP + ("num_bits",), 8), (GROUP + ("num_bits",), 3), (GROUP + ("strategy",), "tensor"),
              (GROUP + ("strategy",), "group"), (GROUP + ("symmetric",), True),
              (GROUP + ("actorder",), "group"), (GROUP + ("type",), "float"),
              (("quantization_config", "format"), "int-quantized"),
              (("quantization_config", "format"), "marlin-24")),
    "awq": ((("quantization_config", "bits"), 8), (("quantization_config", "group_size"), 32),
            (("quantization_config", "group_size"), -1), (("quantization_config", "version"), "gemv"),
            (("quantization_config", "quant_method"), "gptq")),
    "gptq": ((("quantization_config", "bits"), 8), (("quantization_config", "bits"), 3),
             (("quantization_config", "group_size"), 128),
             (("quantization_config", "checkpoint_format"), "marlin"),
             (("quantization_config", "dynamic"), {"+:.*": {"bits": 8}}),
             (("quantization_config", "quant_method"), "awq")),
    "w8a8": ((GROUP + ("num_bits",), 4), (GROUP + ("symmetric",), False),
             (("quantization_config", "format"), "nvfp4-pack-quantized")),
    "nvfp4": ((GROUP + ("group_size",), 32), (GROUP + ("num_bits",), 8),
              (("quantization_config", "format"), "pack-quantized")),
    "modelopt": ((("quantization_config", "quant_algo"), "W4A8_AWQ"),),
    "mxfp8": ((("quantization", "mode"), "nvfp4"), (("quantization", "bits"), 4),
              (("quantization", "group_size"), 64), (("quantization", "mode"), "mxfp9")),
}
IGNORED = ("model.layers.0.self_attn.k_proj", "re:.*k_proj", r"re:model\.layers\.\d+\.self_attn\.(k|v)_proj$",
           "re:.*[.](q|k)_proj")
# The model does not need them.
OPTIONAL = (".weight_shape", ".input_scale")


def form_cases(base):
    """A tensor of a quantized matrix, or what config.json says about it."""
    tensors, data = base.tensors()
    module = "model.layers.0.self_attn.k_proj."
    other = {"I32": "F32", "F32": "I32", "U8": "I8", "I8": "U8", "U32": "I32", "BF16": "I16",
             "F8_E4M3": "U8", "I64": "F64", "F16": "I16"}
    for key, t in tensors.items():
        if not key.startswith(module):
            continue
        begin, end = t["data_offsets"]
        free = key.endswith(OPTIONAL)

        def case(what, change, want="refuse", key=key):
            new = {k: v for k, v in tensors.items() if k != key}
            begin, end = tensors[key]["data_offsets"]
            if change:
                new[key] = {**tensors[key], **change}
                begin = new[key]["data_offsets"][1]
            if begin < end:  # a file has no holes
                new["spare"] = {"dtype": "U8", "shape": [end - begin], "data_offsets": [begin, end]}
            return Case("%s: %s" % (key, what), base, {WEIGHTS: safetensors(new, data)}, want,
                        (WEIGHTS, CONFIG))

        middle = base.kind == "gptq" and key.endswith(".qzeros")  # symmetric weights need none
        optional = "any" if free or middle else "refuse"
        yield case("missing", None, optional)
        yield case("other type", {"dtype": other[t["dtype"]]},
                   "any" if key.endswith(".input_scale") else "refuse")
        if len(t["shape"]) == 2:
            rows, cols = t["shape"]
            half = begin + (end - begin) // 2
            yield case("half the rows", {"shape": [rows // 2, cols], "data_offsets": [begin, half]})
            yield case("one dimension", {"shape": [rows * cols]})
            yield case("no columns", {"shape": [rows, 0], "data_offsets": [begin, begin]})
            if cols > 1:
                yield case("half the columns",
                           {"shape": [rows, cols // 2], "data_offsets": [begin, half]})
        if key.endswith((".weight_shape", "_global_scale", "_scale_2")):
            yield Case("%s: zeros" % key, base,
                       {WEIGHTS: safetensors(tensors, spliced(data, begin, b"\0" * (end - begin)))},
                       "refuse")
    for extra in (".weight_g_idx", ".weight_zero_point"):
        new = {**tensors, module[:-1] + extra: {"dtype": "I32", "shape": [1, 1], "data_offsets": [0, 4]}}
        first = min(t["data_offsets"][0] for k, t in tensors.items() if k != "__metadata__")
        shifted = {k: v if k == "__metadata__" or k == module[:-1] + extra else
                   {**v, "data_offsets": [x + 4 - first for x in v["data_offsets"]]}
                   for k, v in new.items()}
        used = base.kind == "w8a8" or (base.kind == "w4a16" and extra == ".weight_g_idx")
        if module[:-1] + extra not in tensors:
            yield Case("%s%s: one more" % (module[:-1], extra), base,
                       {WEIGHTS: safetensors(shifted, b"\0" * 4 + data)}, "refuse" if used else "any")
    for path, value in AGAINST[base.kind]:
        config = copy.deepcopy(base.config)
        at = config
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value
        yield Case("%s %s" % (".".join(path), value), base, {CONFIG: json.dumps(config).encode()},
                   "refuse", (CONFIG, WEIGHTS))
    for pattern in IGNORED:
        config = copy.deepcopy(base.config)
        if base.kind != "mxfp8" and "ignore" in config.get("quantization_config", {}):
            config["quantization_config"]["ignore"].append(pattern)
            yield Case("ignore %s" % pattern, base, {CONFIG: json.dumps(config).encode()}, "refuse",
                       (CONFIG, WEIGHTS))


# ---- tokenizer.json and what else speaks of text


def tokenizer_cases(base):
    tokenizer = base.tokenizer
    model = tokenizer["model"]
    vocab, merges = model["vocab"], model["merges"]

    def case(what, change, want="refuse", holes=None):
        t = copy.deepcopy(tokenizer)
        t = change(t) or t
        return Case("%s: %s" % (TOKENIZER, what), base, {TOKENIZER: raw_json(t, holes or {})}, want,
                    command=TEXT)

    def setter(*path, value):
        def change(t):
            for key in path[:-1]:
                t = t[key]
            t[path[-1]] = value
        return change

    for key in tokenizer:
        for raw in WRONG:
            yield case("%s %s" % (key, raw), setter(key, value="@1"), "any", {"@1": raw})
    for key in model:
        for raw in WRONG:
            yield case("model.%s %s" % (key, raw), setter("model", key, value="@1"), "any", {"@1": raw})
    for what, key in (("vocab", "vocab"), ("merges", "merges"), ("type", "type")):
        yield case("no model.%s" % what, lambda t, key=key: t["model"].pop(key) and None, "any")
    word = next(k for k, i in vocab.items() if i == 300)
    for raw in ("-1", "300.5", '"300"', "null", "true", "[]", "299", "316", "2147483648",
                "1000000000", *huge(300), "1e400"):
        yield case("id %.24s" % raw, setter("model", "vocab", word, value="@1"), "refuse", {"@1": raw})
    yield case("a token twice", setter("model", "vocab", "@k", value=400), "refuse",
               {"@k": json.dumps(word)})
    yield case("a byte is missing", lambda t: t["model"]["vocab"].pop("!") and None, "any")
    for what, merge in (("unknown part", "zq zq"), ("one part", "th"), ("three parts", "t h e"),
                        ("empty", ""), ("a number", 7), ("null", None), ("a list of one", ["t"]),
                        ("a list of three", ["t", "h", "e"]), ("numbers", [1, 2]),
                        ("unknown result", "x \u0120"), ("blanks", "  "), ("an object", {"t": "h"})):
        yield case("merge: " + what,
                   lambda t, merge=merge: t["model"]["merges"].insert(3, merge))
    yield case("merge twice", lambda t: t["model"]["merges"].append(merges[0]), "any")
    yield case("merges as lists", setter("model", "merges", value=[m.split(" ") for m in merges]), "run")
    added = tokenizer["added_tokens"][0]
    for key in added:
        for raw in WRONG:
            yield case("added %s %s" % (key, raw), setter("added_tokens", 0, key, value="@1"), "any",
                       {"@1": raw})
        yield case("added without " + key,
                   lambda t, key=key: t["added_tokens"][0].pop(key, None) and None, "any")
    for what, token in (("id of a word", {**added, "id": 5, "content": "<other>"}),
                        ("id of another", {**added, "content": "<other>"}),
                        ("content of another", {**added, "id": 318}),
                        ("empty", {**added, "id": 318, "content": ""}),
                        ("far id", {**added, "id": 2**31 - 1, "content": "<far>"}),
                        ("NUL", {**added, "id": 318, "content": "\0"})):
        yield case("added: " + what, lambda t, token=token: t["added_tokens"].append(token), "any")
    for key in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        for value in ({"type": "Other"}, {"type": 7}, {"type": None}, {"typ": "ByteLevel"}):
            yield case("%s %s" % (key, json.dumps(value)), setter(key, value=value))
        deep = {"type": "Sequence"}
        lists = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers",
                 "post_processor": "processors", "decoder": "decoders"}
        for value in (None, [], [None], 7, {}):
            yield case("%s: a sequence of %s" % (key, json.dumps(value)),
                       setter(key, value={**deep, lists[key]: value}), "any")
    for pattern in ("", "(", "[", "a{99999999}", "(?<=a)", "(a*)*b", "x" * 100000, 7, None):
        yield case("pattern %.20r" % pattern,
                   setter("pre_tokenizer", "pretokenizers", 0, "pattern", value={"Regex": pattern}))
    for kind in ("WordPiece", "Unigram", "WordLevel", "bpe"):
        yield case("model %s" % kind, setter("model", "type", value=kind))
    yield from json_cases(base, TOKENIZER, command=TEXT)
    yield from file_cases(base, TOKENIZER, True, command=TEXT)


HOSTILE = {
    "unclosed block": "{% for m in messages %}x",
    "unclosed value": "{{ messages",
    "unclosed comment": "{# x",
    "no such filter": "{{ 1 | nothing }}",
    "no such function": "{{ nothing() }}",
    "no such test": "{{ 1 is nothing }}",
    "no such tag": "{% nothing %}",
    "an exception": "{{ raise_exception('no') }}",
    "a recursive macro": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "a wide range": "{% for i in range(2000000000) %}{% for j in range(2000000000) %}x"
                    "{% endfor %}{% endfor %}",
    "a loop that does nothing": "{% for i in range(1000000) %}{% for j in range(1000000) %}"
                                "{% endfor %}{% endfor %}",
    "a large text": "{{ 'x' * 2000000000 }}",
    "a text that doubles": "{% set ns = namespace(s='x') %}{% for i in range(100) %}"
                           "{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
    "deep brackets": "{{ " + "(" * 100000 + "1" + ")" * 100000 + " }}",
    "deep lists": "{{ " + "[" * 100000 + "]" * 100000 + " }}",
    "deep blocks": "{% if true %}" * 100000 + "{% endif %}" * 100000,
    "deep not": "{{ " + "not " * 100000 + "1 }}",
    "a division by zero": "{{ 1 // 0 }}",
    "a power": "{{ 10 ** 1000000 }}",
    "python": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "an include": "{% include '/etc/passwd' %}",
    "an import": "{% import 'os' as os %}{{ os.system('id') }}",
}


def text_cases(base):
    intact = json.loads(base.files[SETTINGS])
    for what, template in HOSTILE.items():
        yield Case("%s: %s" % (JINJA, what), base, {JINJA: template.encode()}, "template",
                   command=TEXT)
        yield Case("chat_template: %s" % what, base,
                   {SETTINGS: json.dumps({**intact, "chat_template": template}).encode()},
                   "template", command=TEXT)
    for what, data in (("empty", b""), ("a NUL", b"a\0b"), ("invalid UTF-8", b"a\xff\xfeb"),
                       ("16 MB", b"x" * (16 << 20)), ("17 MB", b"x" * (17 << 20))):
        yield Case("%s: %s" % (JINJA, what), base, {JINJA: data}, "any", command=TEXT)
    with_jinja = Base(base.kind)
    with_jinja.kind = base.kind + "+jinja"
    with_jinja.files[JINJA] = checkpoints.TEMPLATE.encode()
    yield from file_cases(with_jinja, JINJA, False, command=TEXT)
    for raw in WRONG + ('[{"name":"default"}]', '[{"template":"x"}]', '[{"name":1,"template":2}]',
                        '[{"name":"other","template":"x"}]'):
        yield Case("chat_template %s" % raw, base,
                   {SETTINGS: raw_json({**intact, "chat_template": "@1"}, {"@1": raw})}, "any",
                   command=TEXT)
    for key in ("eos_token", "bos_token", "tokenizer_class", "add_bos_token",
                "added_tokens_decoder", "model_max_length"):
        for raw in WRONG:
            yield Case("%s %s %s" % (SETTINGS, key, raw), base,
                       {SETTINGS: raw_json({**intact, key: "@1"}, {"@1": raw})}, "any", command=TEXT)
    yield from json_cases(base, SETTINGS, command=TEXT)
    yield from file_cases(base, SETTINGS, False, command=TEXT)


def generation_cases(base):
    intact = json.loads(base.files[GENERATION])
    for key in (*intact, "min_p", "repetition_penalty", "presence_penalty", "pad_token_id",
                "max_new_tokens", "transformers_version"):
        for raw in WRONG + ("-0.5", "1e300", "[1, -1]", "[320]", "1000000", *huge(1)):
            yield Case("%s %.24s" % (key, raw), base,
                       {GENERATION: raw_json({**intact, key: "@1"}, {"@1": raw})}, "any")
    yield from json_cases(base, GENERATION)
    yield from file_cases(base, GENERATION, False)


# ---- GGUF


class GgufBase:
    adapter = None

    def __init__(self, kind):
        self.kind = kind
        self.files = {MODEL: checkpoints.load(
            "%s/tests/golden/gguf/%s.gguf" % (ROOT, GGUF_KINDS[kind]))}
        self.path = "%s/tests/golden/gguf/%s.gguf" % (ROOT, GGUF_KINDS[kind])


@checkpoints.lazy
def gguf_bytes(kv, tensors):
    return checkpoints.gguf.pack(kv, tensors)


def gguf_cases(base):
    raw = base.files[MODEL]
    size = len(raw)

    def case(what, new, want="refuse"):
        return Case(what, base, {MODEL: new}, want, (MODEL,))

    def put(what, at, fmt, value, want="refuse"):
        new = raw[:at] + struct.pack(fmt, value) + raw[at + struct.calcsize(fmt):]
        return case("%s %d" % (what, value), new, want)

    yield from file_cases(base, MODEL, True)
    for i in (0, 3, 4, 8, 16, 23, 24, 100, size // 4, size // 2, size - 33):
        yield case("cut to %d bytes" % i, raw[:i])
    yield case("bytes more", raw + b"\0" * 4096, "any")
    for value in (0, 1, 4, 2**24 * 3, 2**32 - 1):
        yield put("version", 4, "<I", value, "any" if value == 1 else "refuse")
    tensors, keys = struct.unpack_from("<QQ", raw, 8)
    for n, at, what in ((tensors, 8, "tensors"), (keys, 16, "keys")):
        for value in (0, n - 1, n + 1, 2**31, 2**32 + n, 2**63 + n, 2**64 - 1, 2**60):
            yield put(what, at, "<Q", value)
    for value in (0, 2**31, 2**63, 2**64 - 1, size):
        yield put("length of first key", 24, "<Q", value)
    kv, parts = checkpoints.gguf.read(base.path)
    for key in kv:
        if key.startswith("general.") and key != "general.architecture":
            continue
        left = {k: v for k, v in kv.items() if k != key}
        yield case("%s missing" % key, gguf_bytes(left, parts), "any")
        for t, v in ((4, 0), (5, -1), (6, float("nan")), (8, "x"), (8, ""), (7, True), (10, 2**63),
                     (12, 1e300), (9, (4, [])), (9, (8, ["x"])), (9, (5, [-1, 2**31 - 1]))):
            yield case("%s: type %d: %.20s" % (key, t, v), gguf_bytes({**kv, key: [t, v]}, parts), "any")
        if kv[key][0] == 9:
            of, values = kv[key][1]
            for what, new in (("cut", values[:-1]), ("longer", values + values[:1]),
                              ("one twice", values[:3] + values[2:3] + values[4:])):
                yield case("%s: %s" % (key, what), gguf_bytes({**kv, key: [9, (of, new)]}, parts), "any")
    for i, (name, dims, kind, data) in enumerate(parts):
        if "blk." in name and not name.startswith(("blk.0.", "blk.3.")):
            continue

        def changed(what, new, want="refuse"):
            return case("%s: %s" % (name, what), gguf_bytes(kv, parts[:i] + [new] + parts[i + 1:]), want)

        # a tied head; values from keys
        free = name == "output.weight" or (base.kind == "ggufgemma4" and "attn_v" in name)
        yield changed("missing", ["other", dims, kind, data], "any" if free else "refuse")
        yield changed("a dimension more", [name, dims + [2], kind, data * 2])
        yield changed("rows", [name, dims[:-1] + [dims[-1] * 2], kind, data * 2],
                      "any" if name == "token_embd.weight" else "refuse")  # unused ids
        yield changed("dimension 0", [name, [0] + dims[1:], kind, b""])
        yield changed("dimension 2^63", [name, [2**63] + dims[1:], kind, data])
        yield changed("type 4", [name, dims, 4, data])
        yield changed("type 999", [name, dims, 999, data])
    for name in {"token_embd.weight", "output_norm.weight"} & {p[0] for p in parts}:
        i = next(i for i, p in enumerate(parts) if p[0] == name)
        _, dims, kind, data = parts[i]
        if kind == 0:
            bad = [name, dims, kind, NOT_FINITE["F32"]["NaN"] * (len(data) // 4)]
            yield case("%s: NaN" % name, gguf_bytes(kv, parts[:i] + [bad] + parts[i + 1:]), "not finite")


# ---- all


def part_cases():
    """(area, cases) for each area."""
    bases = {kind: Base(kind) for kind in KINDS}
    dense, sharded = bases["dense"], bases["sharded"]
    yield "container", container_cases(dense)
    yield "container", container_cases(bases["mlx4"])
    for kind, part in (("dense", "k_proj"), ("dense", "input_layernorm"), ("dense", "embed_tokens"),
                       ("moe", "gate.weight"), ("moe", "experts"), ("qwen35", "conv1d"),
                       ("qwen35", "A_log"), ("mlx4", "k_proj.scales"), ("mlx4", "k_proj.weight"),
                       ("mlx8", "embed_tokens.weight"), ("gemma", "q_norm"),
                       ("awq", "k_proj.qweight"), ("awq", "k_proj.qzeros"),
                       ("gptq", "k_proj.g_idx"), ("gptq", "k_proj.scales")):
        yield "tensor", entry_cases(bases[kind], part=part)
    yield "shard", shard_cases(sharded)
    for base in bases.values():
        if WEIGHTS in base.files:
            yield "weight", weight_cases(base)
        yield "config", config_cases(base)
    for kind in AGAINST:
        yield "form", form_cases(bases[kind])
    yield "config", json_cases(dense, CONFIG)
    yield "file", file_cases(dense, CONFIG, True)
    yield "file", file_cases(dense, WEIGHTS, True)
    yield "tokenizer", tokenizer_cases(dense)
    yield "text", text_cases(dense)
    yield "generation", generation_cases(dense)
    for kind in GGUF_KINDS:
        yield "gguf", gguf_cases(GgufBase(kind))
    yield from adapters.part_cases()


def all_cases():
    """The cases, one after the other: each holds its files."""
    names = set()
    for area, group in part_cases():
        for case in group:
            case.area = area
            if case.full_name() not in names:  # another rule may have the same value
                names.add(case.full_name())
                yield case
