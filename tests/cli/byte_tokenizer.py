#!/usr/bin/env python3
"""Write a tokenizer of Qwen's kind, its chat template and the stop ids:
byte_tokenizer.py DIR [SPLIT].

The vocabulary of tokenizer.json has all bytes, some merges, and from id 300 on the
tokens of chats. So it fits the golden checkpoints, which have no tokenizer. SPLIT,
qwen2 (default) or qwen35, is the pattern that splits texts."""

import json
import sys

KEEP = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
ADDED = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
MERGES = [["l", "i"], ["s", "t"], ["li", "st"], ["t", "h"], ["th", "e"]]
TEMPLATE = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}{% endif %}
"""


def spellings():
    """The character that stands for each byte."""
    shown, extra = {}, 256
    for b in range(256):
        shown[b] = chr(b) if b in KEEP else chr(extra)
        extra += b not in KEEP
    return shown


def main(out, split="qwen2"):
    vocab = {c: b for b, c in spellings().items()}
    vocab.update({"".join(m): 256 + i for i, m in enumerate(MERGES)})
    letters, others = {"qwen2": (r"\p{L}+", r"\p{L}"),
                       "qwen35": (r"[\p{L}\p{M}]+", r"\p{L}\p{M}")}[split]
    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?" + letters + r"|\p{N}"
               r"| ?[^\s" + others + r"\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    with open(out + "/tokenizer.json", "w") as f:
        json.dump({
            "added_tokens": [
                {"id": 300 + i, "content": t, "special": i < 3, "lstrip": False,
                 "rstrip": False, "normalized": False, "single_word": False}
                for i, t in enumerate(ADDED)],
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
                 "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
                 "use_regex": False}]},
            "post_processor": None,
            "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": vocab, "merges": MERGES}}, f)
    with open(out + "/chat_template.jinja", "w") as f:
        f.write(TEMPLATE)
    with open(out + "/generation_config.json", "w") as f:
        json.dump({"do_sample": False, "eos_token_id": [302, 300]}, f)


main(*sys.argv[1:])
