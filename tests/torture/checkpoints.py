"""Small checkpoints to break: where they are, what is in them, how they are written
with one thing changed."""

import functools
import json
import os
import socket
import struct
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, ROOT + "/tests/cli")
import gguf  # noqa: E402

GOLDEN = ROOT + "/tests/golden/models/"
WEIGHTS = "model.safetensors"
INDEX = WEIGHTS + ".index.json"

# What a kind of checkpoint is made from.
KINDS = {
    "dense": "tied-bf16",
    "f32": "f32",
    "sharded": "sharded-bf16",
    "moe": "moe",
    "qwen35": "qwen35-tied",
    "qwen35moe": "qwen35-moe",
    "mlx4": "mlx4",
    "mlx8": "mlx8",
    "gemma": "gemma3-tied",
    "gemma4": "../families/gemma4-moe",
    "gptoss": "../families/gpt-oss-mxfp4",
    "fp8": "../families/qwen3moe-fp8",
    "awq": "../families/qwen3-awq",
    "gptq": "../families/qwen3-gptq-act",
    "w4a16": "../families/qwen3-w4a16-asym-channel",
    "w8a8": "../families/qwen3-w8a8",
    "nvfp4": "../families/qwen3-nvfp4",
    "modelopt": "../families/qwen3-nvfp4-modelopt",
    "mxfp8": "../families/qwen3-mxfp8",
}
GGUF_KINDS = {
    "gguf": "tiny-dense-Q4_0",
    "ggufk": "tiny-dense-Q4_K_S",
    "ggufmoe": "tiny-moe-Q8_0",
    "ggufqwen35": "qwen35-tied",
    "ggufgemma": "gemma3-tied",
    "ggufgemma4": "../families/gemma4-e4b",
    "ggufgptoss": "../families/gpt-oss-top3",
}


def lazy(function):
    """What the function returns is computed when a case is written: most files are
    large, and a sample needs few of them."""
    return functools.wraps(function)(
        lambda *args, **more: functools.partial(function, *args, **more))


def load(path):
    with open(path, "rb") as file:
        return file.read()


@functools.cache
def small_tokenizer():
    """The demo model's tokenizer, cut to the ids of the goldens: 256 bytes and
    merges of bytes, then two added tokens."""
    t = json.loads(load(ROOT + "/models/demo/tokenizer.json"))
    vocab = {k: i for k, i in t["model"]["vocab"].items() if i < 316}
    merges = [m if isinstance(m, str) else " ".join(m) for m in t["model"]["merges"]]
    t["model"]["vocab"] = vocab
    t["model"]["merges"] = [
        m for m in merges if m.replace(" ", "", 1) in vocab and set(m.split(" ")) <= set(vocab)
    ]
    t["added_tokens"] = [
        dict(id=316 + i, content=text, single_word=False, lstrip=False, rstrip=False,
             normalized=False, special=True)
        for i, text in enumerate(("<|im_start|>", "<|im_end|>"))
    ]
    return t


TEMPLATE = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


class Base:
    """The files of an intact checkpoint, by name."""

    adapter = None  # a path for --lora, relative to the checkpoint

    def __init__(self, kind, folder=None):
        folder = folder or GOLDEN + KINDS[kind]
        self.kind = kind
        self.files = {
            name: load(folder + "/" + name)
            for name in sorted(os.listdir(folder))
            if not name.startswith("expected")
        }
        self.config = json.loads(self.files["config.json"])
        self.tokenizer = small_tokenizer()
        self.files["tokenizer.json"] = json.dumps(self.tokenizer).encode()
        self.files["tokenizer_config.json"] = json.dumps(
            {"chat_template": TEMPLATE, "eos_token": "<|im_end|>",
             "tokenizer_class": "Qwen2Tokenizer"}
        ).encode()
        self.files["generation_config.json"] = json.dumps(
            {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.8,
             "eos_token_id": 1}
        ).encode()

    def tensors(self, name=WEIGHTS):
        """Header and data of a file of weights."""
        return read_safetensors(self.files[name])


def read_safetensors(raw):
    n = struct.unpack_from("<Q", raw)[0]
    return json.loads(raw[8:8 + n]), raw[8 + n:]


@lazy
def safetensors(header, data, pad=True):
    """A file with this header, given as text, bytes or an object, and this data, which
    may be lazy."""
    if callable(data):
        data = data()
    if callable(header):
        header = header()
    if not isinstance(header, (bytes, str)):
        header = json.dumps(header)
    if isinstance(header, str):
        header = header.encode("utf-8", "surrogatepass")
    if pad:
        header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + data


def raw_json(value, holes):
    """JSON text of a value in which strings stand for raw text: {"@1": "1e400"}."""
    text = json.dumps(value)
    for name, raw in holes.items():
        text = text.replace(json.dumps(name), raw)
    return text.encode()


class Special:
    """A file that is no plain file, or a plain file with something peculiar."""

    def __init__(self, what, *arguments):
        self.what, self.arguments = what, arguments

    def make(self, path):
        getattr(self, "make_" + self.what)(path, *self.arguments)

    @staticmethod
    def make_fifo(path):
        os.mkfifo(path)

    @staticmethod
    def make_directory(path):
        os.mkdir(path)

    @staticmethod
    def make_link(path, target):
        os.symlink(target, path)

    @staticmethod
    def make_socket(path):
        here = os.getcwd()
        os.chdir(os.path.dirname(path))  # the path of a socket is short
        try:
            with socket.socket(socket.AF_UNIX) as s:
                s.bind(os.path.basename(path))
        finally:
            os.chdir(here)

    @staticmethod
    def make_sparse(path, head, size):
        with open(path, "wb") as file:
            file.write(head)
            file.truncate(size)

    @staticmethod
    def make_locked(path, data):
        with open(path, "wb") as file:
            file.write(data)
        os.chmod(path, 0)


def write(folder, files, shared):
    """Write files, {name: bytes, lazy bytes, Special or None}. Of bytes that are in `shared`,
    {bytes' id: (path, bytes)}, only a link is made."""
    os.makedirs(folder)
    for name, data in files.items():
        path = folder + "/" + name
        if data is None:
            continue
        if callable(data):
            data = data()
        if "/" in name:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        if isinstance(data, Special):
            data.make(path)
        elif id(data) in shared:
            os.symlink(shared[id(data)][0], path)
        else:
            with open(path, "wb") as file:
                file.write(data)
