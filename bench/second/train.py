#!/usr/bin/env python3
"""Train a model of Qwen3's shape with 22.5 M parameters on the texts of corpus.py.

usage: train.py CORPUS OUT [--seconds S]

Reads CORPUS.train and CORPUS.heldout; writes a checkpoint in BF16, shards of at most
16 MB, to OUT. Needs torch with a GPU, transformers and tokenizers. The model continues
technical prose and has no chat form: a second real model, beside the demo model, to
measure what quantization loses.
"""
import argparse
import json
import math
import random
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import Qwen3Config, Qwen3ForCausalLM

SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
END = "<|endoftext|>"


def read(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def make_tokenizer(texts, size):
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tok.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size - 1, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tok.add_special_tokens([AddedToken(END, special=True, normalized=False)])
    return tok


def stream(tok, texts):
    end, ids = tok.token_to_id(END), []
    for i in range(0, len(texts), 512):
        for e in tok.encode_batch_fast(texts[i:i + 512]):
            ids += e.ids
            ids.append(end)
    return torch.tensor(ids, dtype=torch.int32)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("corpus")
    ap.add_argument("out")
    ap.add_argument("--seconds", type=float, default=360)
    ap.add_argument("--vocab", type=int, default=8192)
    ap.add_argument("--lr", type=float, default=1.5e-3)
    ap.add_argument("--ctx", type=int, default=1024)
    ap.add_argument("--rows", type=int, default=64)
    a = ap.parse_args()
    torch.manual_seed(11)
    torch.set_float32_matmul_precision("high")
    t0, out = time.time(), Path(a.out)
    out.mkdir(parents=True, exist_ok=True)
    texts = read(a.corpus + ".train")
    random.Random(1).shuffle(texts)
    tok = make_tokenizer([t[:20000] for t in texts[:4000]], a.vocab)
    tok.save(str(out / "tokenizer.json"))
    end = tok.token_to_id(END)
    (out / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "Qwen2TokenizerFast", "eos_token": END, "pad_token": END, "model_max_length": 2048}, indent=2) + "\n")
    print(f"tokenizer {tok.get_vocab_size()} {time.time() - t0:.0f}s", flush=True)
    data = stream(tok, texts).cuda()
    held = stream(tok, read(a.corpus + ".heldout")).cuda()
    print(f"{len(data) / 1e6:.1f}M tokens, {len(held) / 1e6:.2f}M held out, {time.time() - t0:.0f}s", flush=True)

    config = Qwen3Config(vocab_size=a.vocab, hidden_size=512, intermediate_size=1280, num_hidden_layers=7, num_attention_heads=8,
                         num_key_value_heads=2, head_dim=64, max_position_embeddings=2048, rope_theta=10000.0, rms_norm_eps=1e-6,
                         tie_word_embeddings=True, bos_token_id=end, eos_token_id=end, pad_token_id=end)
    model = Qwen3ForCausalLM(config).cuda()
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f}M parameters", flush=True)
    opt = torch.optim.AdamW([{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
                             {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0}],
                            lr=a.lr, betas=(0.9, 0.95), fused=True)
    gen = torch.Generator(device="cuda").manual_seed(3)
    span = torch.arange(a.ctx + 1, device="cuda")

    def loss_of(ids):
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())

    @torch.no_grad()
    def held_loss():
        rows = held[: 32 * (a.ctx + 1)].view(32, a.ctx + 1).long()
        with torch.autocast("cuda", torch.bfloat16):
            return loss_of(rows).item()

    step, t1 = 0, time.time()
    while (progress := (time.time() - t1) / a.seconds) < 1:
        rate = a.lr * min(1, (step + 1) / 200) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))
        for g in opt.param_groups:
            g["lr"] = rate
        at = torch.randint(0, len(data) - a.ctx - 1, (a.rows, 1), device="cuda", generator=gen)
        ids = data[at + span].long()
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of(ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        if step % 250 == 0:
            print(f"step {step} loss {loss.item():.3f} held {held_loss():.3f} {time.time() - t1:.0f}s", flush=True)
        step += 1
    print(f"end: step {step}, {step * a.rows * a.ctx / 1e6:.0f}M tokens, held {held_loss():.4f}", flush=True)
    model.generation_config.eos_token_id = end
    model.to(torch.bfloat16).save_pretrained(out, max_shard_size="15MB")


main()
