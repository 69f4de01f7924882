"""The text encoders of make_family_goldens.py: their cases, and how each is made.

A case has `hidden`, the states after the last norm, and `pooled`, the sentence's vector after pooling,
Dense modules and normalisation; a cross-encoder has `score`, its logit. With types, `n_type0` tokens are
of the first type, the others of the second. NAME/ also has the files of sentence-transformers."""

import copy
import json
import shutil

import torch
import transformers
from safetensors.torch import save_file

COMMON = {"vocab_size": 320, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
BERT = COMMON | {"intermediate_size": 128, "max_position_embeddings": 128, "type_vocab_size": 2, "pad_token_id": 0}
ROBERTA = COMMON | {"intermediate_size": 128, "max_position_embeddings": 130, "type_vocab_size": 1, "pad_token_id": 1,
                    "bos_token_id": 0, "eos_token_id": 2, "layer_norm_eps": 1e-5}
MODERN = COMMON | {"intermediate_size": 96, "num_hidden_layers": 4, "max_position_embeddings": 256,
                   "global_attn_every_n_layers": 3, "local_attention": 16, "pad_token_id": 0, "cls_token_id": 2,
                   "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}
GEMMA = COMMON | {"intermediate_size": 96, "num_hidden_layers": 7, "num_key_value_heads": 1, "head_dim": 16,
                  "query_pre_attn_scalar": 16, "sliding_window": 16, "max_position_embeddings": 256,
                  "rms_norm_eps": 1e-6, "use_bidirectional_attention": True, "pad_token_id": 0, "eos_token_id": 1,
                  "bos_token_id": 2}
ONE = {"num_labels": 1}
DENSE = [(160, 64), (64, 160)]

# name: (class without Config, configuration, seed, options). Options: pool, cls or mean; score: a
# cross-encoder; T tokens of input; types: so many are of the first type; plus: norms are zero-centred;
# dense: rows and columns of Dense modules; old: released.json is written, for this version of
# transformers; gguf: the converter keeps all of the checkpoint.
CASES = {
    "bert-cls": ("Bert", BERT, 43525, {"pool": "cls", "old": "4.22.0", "gguf": True}),
    "bert-long": ("Bert", BERT | {
        "hidden_size": 96, "num_attention_heads": 3, "intermediate_size": 200, "max_position_embeddings": 512,
        "layer_norm_eps": 1e-12}, 46505, {"pool": "mean", "T": 400}),
    "bert-pair": ("Bert", BERT, 46000, {"pool": "cls", "types": 10}),
    # its GGUF file has no pooler, and must be refused
    "bert-rerank": ("Bert", BERT | ONE, 46101, {"score": True, "types": 9, "old": "4.22.0", "gguf": True}),
    "embeddinggemma": ("Gemma3Text", GEMMA, 43424, {
        "pool": "mean", "T": 40, "plus": True, "dense": DENSE, "old": "4.57.0", "gguf": True}),
    "embeddinggemma-long": ("Gemma3Text", GEMMA | {"sliding_window": 24, "max_position_embeddings": 512}, 46707, {
        "pool": "mean", "T": 300, "plus": True, "dense": DENSE}),
    "modernbert": ("ModernBert", MODERN, 43929, {"pool": "mean", "T": 40, "old": "4.48.0", "gguf": True}),
    "modernbert-long": ("ModernBert", MODERN | {"max_position_embeddings": 512, "local_attention": 32}, 46606, {
        "pool": "cls", "T": 300, "gguf": True}),
    # GGUF files do not say classifier_pooling, and their readers take the mean
    "modernbert-rerank": ("ModernBert", MODERN | ONE, 46202, {"score": True, "T": 40}),
    "modernbert-rerank-mean": ("ModernBert", MODERN | ONE | {
        "num_hidden_layers": 3, "classifier_pooling": "mean", "norm_bias": True, "attention_bias": True,
        "mlp_bias": True, "classifier_bias": True}, 46303, {"score": True, "T": 40, "gguf": True}),
    "roberta-rerank": ("Roberta", ROBERTA | ONE | {"num_hidden_layers": 2}, 46404, {"score": True, "gguf": True}),
    "xlmr": ("XLMRoberta", ROBERTA, 43727, {"pool": "cls", "old": "4.22.0", "gguf": True}),
    "xlmr-rerank": ("XLMRoberta", ROBERTA | ONE, 43828, {"score": True, "gguf": True}),
}


def released(c, version):
    """config.json as it was before transformers 5."""
    rope = c.get("rope_parameters", {})
    new = {"add_cross_attention", "dtype", "is_decoder", "layer_types", "rope_parameters", "tie_word_embeddings"}
    old = {k: v for k, v in c.items() if k not in new and (v is not None or not k.endswith("os_token_id"))}
    old |= {"transformers_version": version, "torch_dtype": "bfloat16"}
    if c["model_type"] == "gemma3_text":
        return old | {"layer_types": c["layer_types"], "rope_theta": rope["full_attention"]["rope_theta"],
                      "rope_scaling": None, "rope_local_base_freq": rope["sliding_attention"]["rope_theta"]}
    if c["model_type"] == "modernbert":
        old |= {"global_rope_theta": rope["full_attention"]["rope_theta"], "layer_norm_eps": 1e-5,
                "local_rope_theta": rope["sliding_attention"]["rope_theta"]}
    return old | {"position_embedding_type": "absolute", "gradient_checkpointing": False}


def write_modules(path, width, pool, dense):
    """The files of sentence-transformers. Returns the weights of the Dense modules."""
    names = [("", "Transformer"), ("1_Pooling", "Pooling")]
    names += [(f"{i}_Dense", "Dense") for i in range(2, 2 + len(dense))]
    names += [(f"{len(names)}_Normalize", "Normalize")]
    (path / "modules.json").write_text(json.dumps([
        {"idx": i, "name": str(i), "path": p, "type": "sentence_transformers.models." + t}
        for i, (p, t) in enumerate(names)]))
    modes = {f"pooling_mode_{m}": m.startswith(pool)
             for m in ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "lasttoken")}
    modes["pooling_mode_mean_sqrt_len_tokens"] = False
    (path / "1_Pooling").mkdir()
    (path / "1_Pooling" / "config.json").write_text(json.dumps(
        {"word_embedding_dimension": width} | modes | {"include_prompt": True}))
    weights = []
    for i, (rows, cols) in enumerate(dense, 2):
        w = (torch.randn(rows, cols) * 1.2 / cols ** 0.5).to(torch.bfloat16)
        (path / f"{i}_Dense").mkdir()
        save_file({"linear.weight": w}, path / f"{i}_Dense" / "model.safetensors", metadata={"format": "pt"})
        (path / f"{i}_Dense" / "config.json").write_text(json.dumps(
            {"in_features": cols, "out_features": rows, "bias": False,
             "activation_function": "torch.nn.modules.linear.Identity"}))
        weights.append(w.float())
    return weights


@torch.no_grad()
def make(out, name, fill):
    kind, kw, seed, opt = CASES[name]
    path = out / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    torch.manual_seed(seed)
    config = getattr(transformers, kind + "Config")(**kw)
    config._attn_implementation = "eager"
    cls = kind + ("ForSequenceClassification" if "score" in opt else "Model")
    model = getattr(transformers, cls)(config).float().eval()
    fill(model, opt.get("plus"))
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(path)
    conf = json.loads((path / "config.json").read_text())
    if "sliding_window" in kw:  # transformers halves the window each time that it reads a config
        conf["sliding_window"] = kw["sliding_window"]
        (path / "config.json").write_text(json.dumps(conf, indent=2))
    n = opt.get("T", 24)
    ids = torch.randint(5, kw["vocab_size"], (1, n), generator=torch.Generator().manual_seed(seed + 1))
    got, types = {"input_ids": ids[0]}, {}
    if "types" in opt:
        types["token_type_ids"] = (torch.arange(n) >= opt["types"]).long()[None]
        got["n_type0"] = torch.tensor([opt["types"]])
    result = model(input_ids=ids, **types)
    if "score" in opt:
        got["score"] = result.logits[0].float()
    else:
        hidden = got["hidden"] = result.last_hidden_state[0].float().contiguous()
        v = hidden.mean(0) if opt["pool"] == "mean" else hidden[0]
        for w in write_modules(path, kw["hidden_size"], opt["pool"], opt.get("dense", [])):
            v = w @ v
        got["pooled"] = v / v.norm()
    assert all(torch.isfinite(v).all() for v in got.values())
    save_file(got, path / "expected.safetensors")
    if "old" in opt:
        (path / "released.json").write_text(json.dumps(
            released(conf, opt["old"]) | {k: v for k, v in kw.items() if k == "num_labels"}, indent=2))
    print(name)
