#!/usr/bin/env python3
"""Train the demo model, a small Qwen3, and export it as a Hugging Face checkpoint.

Usage: train_demo.py OUT_DIR [--passes N] [--hidden H] [--layers L] …

The training texts come from demo_requests.py. Needs torch with one GPU, transformers and
tokenizers. The result speaks Qwen3's chat format with thinking off: a request in plain English as
the user's turn, one shell command as the assistant's.
"""

import argparse
import math
import random
import time
from collections import namedtuple
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import Qwen3Config, Qwen3ForCausalLM

from demo_requests import (
    is_core,
    lower_first,
    page_dialogues,
    read_pages,
    read_tasks,
    task_dialogue,
)

# Qwen3's split pattern.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PLAIN_ADDED = [
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
]
NO_THINKING = "<think>\n\n</think>\n\n"

MAX_DOCUMENT = 224  # tokens; longer documents are left out
TOKENS_PER_BATCH = 65536
PLAN_SAMPLE = 200000  # documents from which the number of steps is extrapolated
WARMUP_STEPS = 150
USER_WEIGHT = 0.15  # of the loss on the request, beside 1 on the answer

# What is tested for: (cmd, description) of pages, (answer, phrasing) of tasks.
HeldOut = namedtuple("HeldOut", "examples phrasings")

SHOWN_REQUESTS = [
    "extract a tar.gz archive",
    "find all files larger than 100 MB",
    "list all running docker containers",
    "show disk usage of each directory",
    "undo the last git commit",
    "count lines in a file",
    "what is grep?",
    "replace foo with bar in a file",
    "explain: chmod +x script.sh",
    "which process is listening on port 8080",
    "download a file with curl",
    "tldr ssh",
    "how do I kill a process by name?",
]


def all_examples(pages):
    """(cmd, description) of each example of the pages, in order."""
    return [(page["cmd"], description) for page in pages for description, _ in page["examples"]]


def all_phrasings(tasks):
    """(answer, phrasing) of each phrasing of the tasks, in order."""
    return [(task["answer"], phrasing) for task in tasks for phrasing in task["ask"]]


def draw_held_out(pages, tasks):
    """300 examples and a twelfth of the phrasings."""
    examples, phrasings = all_examples(pages), all_phrasings(tasks)
    return HeldOut(
        set(random.Random(1).sample(examples, 300)),
        set(random.Random(2).sample(phrasings, len(phrasings) // 12)),
    )


# ---- tokenizer and documents ----


def chat(user, assistant):
    """The two parts of a document: what is given and what is to be answered."""
    return (
        f"<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n",
        f"{NO_THINKING}{assistant}<|im_end|>\n",
    )


def tokenizer_texts(pages, tasks):
    """The texts that the tokenizer's merges are learnt from."""
    rng = random.Random(0)
    texts = [
        text for page in pages for pair in page_dialogues(rng, page, set()) for text in pair
    ]
    for task in tasks:
        for phrasing in task["ask"]:
            for _ in range(2):
                texts += task_dialogue(rng, task, phrasing)
    return texts


def train_tokenizer(texts, vocab_size):
    """A byte-level BPE tokenizer of the same make as Qwen3's."""
    tokenizer = Tokenizer(models.BPE())
    byte_level = {"add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(**byte_level),
    ])
    tokenizer.decoder = decoders.ByteLevel(**byte_level)
    tokenizer.post_processor = processors.ByteLevel(**byte_level)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(SPECIAL) - len(PLAIN_ADDED),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in SPECIAL]
    )
    tokenizer.add_tokens(
        [AddedToken(text, special=False, normalized=False) for text in PLAIN_ADDED]
    )
    return tokenizer


def draw_documents(pages, tasks, held_out, passes):
    """Shuffled documents of all passes; pages of other than core commands in every third."""
    rng, documents = random.Random(2), []
    for n in range(passes):
        for page in pages:
            if is_core(page) or n % 3 == 0:
                documents += [
                    chat(*pair) for pair in page_dialogues(rng, page, held_out.examples)
                ]
        for task in tasks:
            for phrasing in task["ask"]:
                if (task["answer"], phrasing) not in held_out.phrasings:
                    documents.append(chat(*task_dialogue(rng, task, phrasing)))
    rng.shuffle(documents)
    return documents


def encode_documents(tokenizer, documents):
    """(ids, how many of them are given) of each document that is not too long."""
    given = [e.ids for e in tokenizer.encode_batch_fast([d[0] for d in documents])]
    reply = [e.ids for e in tokenizer.encode_batch_fast([d[1] for d in documents])]
    return [(g + r, len(g)) for g, r in zip(given, reply) if len(g) + len(r) <= MAX_DOCUMENT]


# ---- training ----


def group_documents(encoded, rng):
    """Groups of documents of like length with their padded length, in random order.

    Shuffles encoded in place.
    """
    groups, group, longest = [], [], 0
    rng.shuffle(encoded)
    for start in range(0, len(encoded), 40000):
        for document in sorted(encoded[start : start + 40000], key=lambda d: len(d[0])):
            length = -(-len(document[0]) // 16) * 16
            if group and max(longest, length) * (len(group) + 1) > TOKENS_PER_BATCH:
                groups.append((group, longest))
                group, longest = [], 0
            group.append(document)
            longest = max(longest, length)
    groups.append((group, longest))
    rng.shuffle(groups)
    return groups


def make_batch(group, longest):
    """(ids, loss weights) of a group, each [documents, longest]; padding has weight 0."""
    ids = torch.zeros(len(group), longest, dtype=torch.long)
    weight = torch.zeros(len(group), longest)
    for row, (document, n_given) in enumerate(group):
        ids[row, : len(document)] = torch.tensor(document)
        weight[row, 1:n_given] = USER_WEIGHT
        weight[row, n_given : len(document)] = 1.0
    return ids, weight


def estimate_steps(encoded):
    """The number of steps in one epoch, from a sample; leaves encoded as it is."""
    sample = list(encoded[:PLAN_SAMPLE])
    groups = group_documents(sample, random.Random(0))
    return len(groups) * len(encoded) / min(len(encoded), PLAN_SAMPLE)


def weighted_loss(model, ids, weight):
    """Cross-entropy of each next token, averaged by weight."""
    logits = model(input_ids=ids, use_cache=False).logits
    loss = F.cross_entropy(
        logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten(), reduction="none"
    )
    weight = weight[:, 1:].flatten()
    return (loss * weight).sum() / weight.sum()


def make_model(args, stop, pad):
    """A model with random weights on the GPU."""
    config = Qwen3Config(
        vocab_size=args.vocab,
        hidden_size=args.hidden,
        intermediate_size=3 * args.hidden,
        num_hidden_layers=args.layers,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=64,
        max_position_embeddings=2048,
        rope_theta=10000.0,
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
        bos_token_id=pad,
        eos_token_id=stop,
        pad_token_id=pad,
    )
    return Qwen3ForCausalLM(config).cuda()


def make_optimizer(model, rate):
    """AdamW with weight decay on matrices only."""
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    return torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}],
        lr=rate,
        betas=(0.9, 0.95),
        fused=True,
    )


def rate_at(step, progress, peak):
    """Linear warm-up, then a cosine down to a fiftieth of the peak."""
    cosine = 0.5 * (1 + math.cos(math.pi * progress))
    return peak * min(1, (step + 1) / WARMUP_STEPS) * (0.02 + 0.98 * cosine)


def train(model, encoded, peak_rate, budget_s):
    """One epoch, or as much of it as the budget of seconds allows."""
    optimizer = make_optimizer(model, peak_rate)
    planned = estimate_steps(encoded)
    began = time.time()
    for step, group in enumerate(group_documents(encoded, random.Random(3))):
        ids, weight = make_batch(*group)
        progress = max(step / planned, (time.time() - began) / budget_s)
        if progress >= 1:
            break
        for parameters in optimizer.param_groups:
            parameters["lr"] = rate_at(step, progress, peak_rate)
        ids, weight = ids.cuda(non_blocking=True), weight.cuda(non_blocking=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = weighted_loss(model, ids, weight)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 200 == 0:
            seconds = time.time() - began
            print(f"step {step}/{planned:.0f} loss {loss.item():.3f} {seconds:.0f}s", flush=True)


def export(model, out, stop, pad):
    """Save in bfloat16; return the saved model in float32 for measuring.

    It is loaded anew because the conversion has rounded its RoPE tables.
    """
    model.generation_config.eos_token_id = [stop, pad]
    model.generation_config.do_sample = False
    model.to(torch.bfloat16).save_pretrained(out)
    return Qwen3ForCausalLM.from_pretrained(out, dtype=torch.float32).cuda().eval()


# ---- measuring ----


class Measure:
    """Greedy answers of a model, counted against what is wanted."""

    def __init__(self, model, tokenizer, stop):
        self.model, self.tokenizer, self.stop = model, tokenizer, stop

    @torch.no_grad()
    def answer(self, request):
        """The greedy answer to one request."""
        prompt = chat(request, "")[0] + NO_THINKING
        ids = torch.tensor([self.tokenizer.encode(prompt).ids], device="cuda")
        got = self.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=80,
            do_sample=False,
            eos_token_id=self.stop,
            pad_token_id=self.stop,
        )
        return self.tokenizer.decode(got[0, ids.shape[1] :].tolist())

    def report(self, name, pairs, n_shown=0):
        """Print how many (request, wanted) pairs are answered, and the first n_shown."""
        answers = [self.answer(request) for request, _ in pairs]
        exact = sum(got.strip() == wanted for got, (_, wanted) in zip(answers, pairs))
        program = sum(
            got.strip().split(" ")[:1] == wanted.split(" ")[:1]
            for got, (_, wanted) in zip(answers, pairs)
        )
        n = len(pairs)
        print(f"{name}: exact {exact}/{n}, right program {program}/{n}", flush=True)
        for (request, wanted), got in list(zip(pairs, answers))[:n_shown]:
            print(f"   Q {request} | want {wanted} | got {got}")


def measure_tasks(measure, tasks, held_out, rng):
    """Requests in held-out and in trained phrasings."""
    by_answer = {}
    for task in tasks:
        by_answer.setdefault(task["answer"], task)

    def draw_pairs(phrasings):
        drawn = rng.sample(sorted(phrasings), 300)
        return [task_dialogue(rng, by_answer[answer], phrasing) for answer, phrasing in drawn]

    trained = set(all_phrasings(tasks)) - held_out.phrasings
    measure.report("tasks, held-out phrasings", draw_pairs(held_out.phrasings), n_shown=12)
    measure.report("tasks, trained phrasings", draw_pairs(trained))


def measure_pages(measure, pages, held_out, rng):
    """"how do I DESCRIPTION with TOOL?" for held-out and for trained examples."""
    core = {page["cmd"] for page in pages if is_core(page)}
    lines = {
        (page["cmd"], description): line
        for page in pages
        for description, line in page["examples"]
    }
    trained = [key for key in all_examples(pages) if key not in held_out.examples]
    for name, keys in (
        ("tldr held-out", sorted(held_out.examples)[:200]),
        ("tldr trained", rng.sample(trained, 200)),
        ("tldr trained, core", rng.sample([key for key in trained if key[0] in core], 200)),
    ):
        pairs = [
            (f"how do I {lower_first(description)} with {cmd}?", lines[cmd, description])
            for cmd, description in keys
        ]
        measure.report(name, pairs)


# ---- main ----


def parse_args():
    parser = argparse.ArgumentParser(description="Train the demo model.")
    parser.add_argument("out", help="directory of the checkpoint")
    parser.add_argument("--passes", type=int, default=170, help="over the texts")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--vocab", type=int, default=6144)
    parser.add_argument("--lr", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--budget-s", type=float, default=380, help="seconds of training")
    return parser.parse_args()


def main():
    args = parse_args()
    torch.manual_seed(7)
    torch.set_float32_matmul_precision("high")
    began, out = time.time(), Path(args.out)
    out.mkdir(parents=True, exist_ok=True)

    pages, tasks = read_pages(), read_tasks()
    held_out = draw_held_out(pages, tasks)
    print(f"{len(pages)} pages, {len(all_examples(pages))} examples, "
          f"{len(held_out.examples)} held out")
    print(f"{len(tasks)} tasks, {len(all_phrasings(tasks))} phrasings, "
          f"{len(held_out.phrasings)} held out")

    tokenizer = train_tokenizer(tokenizer_texts(pages, tasks), args.vocab)
    tokenizer.save(str(out / "tokenizer.json"))
    stop, pad = tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")
    print(f"tokenizer {tokenizer.get_vocab_size()} {time.time() - began:.0f}s", flush=True)

    encoded = encode_documents(tokenizer, draw_documents(pages, tasks, held_out, args.passes))
    n_tokens = sum(len(ids) for ids, _ in encoded)
    print(f"{len(encoded)} documents, {n_tokens / 1e6:.0f}M tokens "
          f"{time.time() - began:.0f}s", flush=True)

    model = make_model(args, stop, pad)
    n_parameters = sum(p.numel() for p in model.parameters())
    print(f"{n_parameters / 1e6:.1f}M parameters", flush=True)
    train(model, encoded, args.lr, args.budget_s)
    measure = Measure(export(model, out, stop, pad), tokenizer, stop)

    rng = random.Random(5)
    measure_tasks(measure, tasks, held_out, rng)
    measure_pages(measure, pages, held_out, rng)
    for request in SHOWN_REQUESTS:
        print(f"Q {request}\nA {measure.answer(request)}", flush=True)
    print(f"total {time.time() - began:.0f}s")


if __name__ == "__main__":
    main()
