"""Faults of LoRA adapters: each case is an intact checkpoint with an adapter that has
one thing changed."""

import json

import checkpoints
import faults
from checkpoints import ROOT, raw_json, safetensors

FOLDER = ROOT + "/tests/golden/lora/qv-rs/"
CONFIG = "adapter/adapter_config.json"
PEFT, MLX = "adapter/adapter_model.safetensors", "adapter/adapters.safetensors"
GGUF = "adapter.gguf"


class Adapted(checkpoints.Base):
    """A checkpoint beside the files of an adapter. path: what --lora takes."""

    def __init__(self, kind, path, files):
        super().__init__(kind, FOLDER + "base")
        self.adapter = path
        self.files.update(files)


def peft():
    return Adapted("peft", "adapter", {
        CONFIG: checkpoints.load(FOLDER + CONFIG), PEFT: checkpoints.load(FOLDER + PEFT)})


def transposed(data, rows, columns, size=2):
    cells = [data[i:i + size] for i in range(0, len(data), size)]
    return b"".join(cells[r * columns + c] for c in range(columns) for r in range(rows))


def mlx():
    """The tensors of PEFT's adapter as mlx-lm stores them."""
    tensors, data = checkpoints.read_safetensors(checkpoints.load(FOLDER + PEFT))
    header, parts, at, rank = {}, [], 0, 0
    for name, t in tensors.items():
        if name == "__metadata__":
            continue
        begin, end = t["data_offsets"]
        rows, columns = t["shape"]
        name = name.removeprefix("base_model.model.")
        name = name.replace(".lora_A.weight", ".lora_a").replace(".lora_B.weight", ".lora_b")
        rank = rows if name.endswith("a") else columns
        parts.append(transposed(data[begin:end], rows, columns, (end - begin) // (rows * columns)))
        header[name] = {"dtype": t["dtype"], "shape": [columns, rows],
                        "data_offsets": [at, at + end - begin]}
        at += end - begin
    config = {"fine_tune_type": "lora", "num_layers": 3,
              "lora_parameters": {"rank": rank, "scale": 2.5, "dropout": 0.0}}
    return Adapted("mlx", "adapter", {CONFIG: json.dumps(config).encode(),
                                      MLX: safetensors(header, b"".join(parts))()})


def gguf():
    return Adapted("adapter gguf", GGUF, {GGUF: checkpoints.load(FOLDER + GGUF)})


# ---- adapter_config.json

NUMBERS = ('"x"', "1.5", "1e400", "true", "[]", "{}")
TRUE = ("true", "1", '"x"', '["x"]')

# (field, values that are refused, values that change nothing)
PEFT_FIELDS = (
    ("peft_type", ("null", "7", '"IA3"', '"lora"'), ()),
    ("r", NUMBERS + ("null", "0", "-4", "3", "8"), ("4.0",)),
    ("lora_alpha", ('"x"', "1e400", "true", "[]", "null", "1e300"), ()),
    ("bias", ('"all"', '"lora_only"', "true", "7"), ("null",)),
    ("use_rslora", ("1", '"true"', "[]"), ()),
    ("target_modules", ('["q_proj", "x_proj"]', "[7]", '["roj"]'), ('"all-linear"', "null")),
    ("rank_pattern", ("[7]", '{"q_proj": 8}', '{"q_proj": "x"}', '{".*": 4}', '{"^q": 4}'),
     ("{}", "null", '{"q_proj": 4}')),
    ("alpha_pattern", ("[7]", '{"q_proj": "x"}', '{"(q|v)_proj": 8}', '{"q_proj": 1e300}'),
     ("{}", "null")),
    ("init_lora_weights", ('"pissa"', '"pissa_niter_4"', '"olora"', '"loftq"', '"corda"'),
     ("true", '"gaussian"', "null")),
    ("use_dora", TRUE, ("false", "null")),
    ("fan_in_fan_out", TRUE, ("false", "null")),
    ("lora_bias", TRUE, ("false",)),
    ("modules_to_save", TRUE, ("[]", "null")),
    ("trainable_token_indices", ("[1]", '{"embed_tokens": [1]}'), ("[]", "null")),
    ("target_parameters", ('["x"]',), ("[]",)),
    ("lora_dropout", (), ("0.5",)),
    ("base_model_name_or_path", (), ("null", '"x"')),
)
MLX_FIELDS = (
    ("fine_tune_type", ('"dora"', '"full"', "7"), ("null", '"lora"')),
    ("lora_parameters", ("null", "[]", "7", "{}", '{"rank": 4}', '{"scale": 2.5}',
                         '{"rank": 8, "scale": 2.5}', '{"rank": -4, "scale": 2.5}',
                         '{"rank": 4, "scale": "x"}', '{"rank": 4, "scale": 1e300}',
                         '{"rank": 4, "scale": 2.5, "alpha": 16}',
                         '{"rank": 4, "scale": 2.5, "alpha": "x"}'),
     ('{"rank": 4, "scale": 2.5}', '{"rank": 4, "scale": 2.5, "alpha": 4}')),
)


def config_cases(base, fields, weights):
    config = json.loads(base.files[CONFIG])
    for key, bad, good in fields:
        for want, values in (("refuse", bad), ("run", good)):
            for raw in values:
                text = raw_json({**config, key: "@1"}, {"@1": raw})
                yield faults.Case("%s %s" % (key, raw), base, {CONFIG: text}, want, (CONFIG, weights))


# ---- tensors


def tensor_cases(base, weights):
    """A half, a module or a shape that does not fit, and values that are no numbers."""
    raw = base.files[weights]
    tensors, data = checkpoints.read_safetensors(raw)
    key = next(k for k in tensors if "lora_" in k)
    t = tensors[key]

    def case(what, new, want="refuse", payload=data):
        return faults.Case("%s: %s" % (weights, what), base, {weights: safetensors(new, payload)}, want)

    def renamed(what, new):
        return case(what, {new if k == key else k: v for k, v in tensors.items()})

    half = key[key.index("lora_"):]
    yield case("a half is missing", {k: v for k, v in tensors.items() if k != key})
    yield case("no tensors", {})
    yield renamed("another module", key.replace("q_proj", "x_proj"))
    yield renamed("a layer too many", key.replace("layers.0", "layers.9"))
    yield renamed("no half", key.replace("lora_", "x_"))
    yield renamed("an embedding", key.replace(".lora_", ".lora_embedding_"))
    yield renamed("DoRA", key.replace(half, "lora_magnitude_vector"))
    yield renamed("no module", half)
    yield renamed("a long name", "x" * 5000 + key)
    rows, columns = t["shape"]
    for shape in ([columns, rows], [rows // 2, 2 * columns], [2 * rows, columns // 2],
                  [rows * columns], [1, rows, columns], [rows, columns, 1]):
        yield case("shape %s" % shape, {**tensors, key: {**t, "shape": shape}})
    begin, end = t["data_offsets"]
    for what, bits in faults.NOT_FINITE[t["dtype"]].items():
        bad = faults.spliced(data, begin, bits * ((end - begin) // len(bits)))
        yield case("%s everywhere" % what, tensors, "spoilt", bad)


def folder_cases(base, weights):
    yield faults.Case("no files", base, {CONFIG: None, weights: None}, "refuse", ("adapter",))
    yield faults.Case("adapter_model.bin", base,
                      {weights: None, "adapter/adapter_model.bin": b"x"}, "refuse", ("adapter",))
    # Without them, the folder is named.
    for case in faults.file_cases(base, weights, True):
        case.at += ("adapter",)
        yield case
    yield from faults.file_cases(base, CONFIG, True)


# ---- GGUF


def gguf_cases(base):
    raw = base.files[GGUF]
    kv, parts = checkpoints.gguf.read(FOLDER + GGUF)

    def case(what, new, want="refuse"):
        return faults.Case(what, base, {GGUF: new}, want)

    def packed(what, keys=None, tensors=None, want="refuse"):
        return case(what, faults.gguf_bytes(keys or kv, parts if tensors is None else tensors), want)

    yield from faults.file_cases(base, GGUF, True)
    for i in (0, 4, 24, 100, len(raw) // 2, len(raw) - 33):
        yield case("cut to %d bytes" % i, raw[:i])
    for key, text in (("general.type", b"model"), ("adapter.type", b"ia3"),
                      ("general.architecture", b"llama")):
        yield packed("%s missing" % key, {k: v for k, v in kv.items() if k != key})
        yield packed("%s %r" % (key, text), {**kv, key: [8, text]})
        yield packed("%s a number" % key, {**kv, key: [4, 1]})
        yield packed("%s empty" % key, {**kv, key: [8, b""]})
    for value in (float("nan"), float("inf"), 1e30):
        yield packed("alpha %g" % value, {**kv, "adapter.lora.alpha": [6, value]})
    yield packed("alpha a string", {**kv, "adapter.lora.alpha": [8, b"8"]})
    yield packed("alpha missing", {k: v for k, v in kv.items() if k != "adapter.lora.alpha"},
                 want="any")
    name, dims, kind, data = parts[0]
    rest = parts[1:]
    yield packed("a half is missing", tensors=rest)
    yield packed("no tensors", tensors=[])
    for what, new in (
        ("another weight", [name.replace("attn_q", "attn_x"), dims, kind, data]),
        ("a layer too many", [name.replace("blk.0", "blk.9"), dims, kind, data]),
        ("no half", [name.replace(".lora_a", ""), dims, kind, data]),
        ("turned", [name, dims[::-1], kind, data]),
        ("a dimension more", [name, dims + [2], kind, data * 2]),
        ("one dimension", [name, [dims[0] * dims[1]], kind, data]),
        ("rank 0", [name, [dims[0], 0], kind, b""]),
        ("Q8_0", [name, dims, 8, b"\0" * (dims[0] // 32 * 34 * dims[1])]),
        ("type 999", [name, dims, 999, data]),
    ):
        yield packed(what, tensors=[new] + rest)


# ---- all


def part_cases():
    for base, fields, weights in ((peft(), PEFT_FIELDS, PEFT), (mlx(), MLX_FIELDS, MLX)):
        yield "adapter", config_cases(base, fields, weights)
        yield "adapter", faults.json_cases(base, CONFIG)
        yield "adapter", tensor_cases(base, weights)
        yield "adapter", folder_cases(base, weights)
        yield "adapter", faults.container_cases(base, weights)
        yield "adapter", faults.entry_cases(base, weights, "lora_", "refuse")
    yield "adapter", gguf_cases(gguf())
