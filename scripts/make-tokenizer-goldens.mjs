// Make the goldens of splits (tests/golden/splits):
//
//     node scripts/make-tokenizer-goldens.mjs FOLDER
//
// Writes FOLDER/tokenizer.json, FOLDER/splits.jsonl and FOLDER/ids.jsonl, which the
// README there describes, with the same bytes each time. The reference comes from npm:
// run `npm install @anush008/tokenizers-linux-x64-gnu` where Node.js finds it.
import fs from "fs";
import path from "path";
import {makeTexts, openReference, referenceIds} from "./tokenizer-texts.mjs";

const N_MERGES = 420, N_TEXTS = 150, MOST_PARTS = 7;
const ADDED = ["<|start|>", "<|end|>"];

// The pre-tokenizers, as files of released checkpoints spell them.
const CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const FRONT = "[^\\r\\n\\p{L}\\p{N}]?";
const UPPER = "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]", LOWER = "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]";
const SPACES = "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const SIGNS = "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*";
const GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const DEEPSEEK = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+" +
    "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";

const split = (Regex, behavior = "Isolated", invert = false) =>
    ({type: "Split", pattern: {Regex}, behavior, invert});
const byteLevel = (use_regex) =>
    ({type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex});
const sequence = (...pretokenizers) => ({type: "Sequence", pretokenizers});
const splits = (...list) => sequence(...list, byteLevel(false));
const gpt4o = FRONT + UPPER + "*" + LOWER + "+" + CONTRACTIONS + "?|" + FRONT + UPPER + "+" +
    LOWER + "*" + CONTRACTIONS + "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" + SPACES;

// name; tokenizer.ggml.pre of a GGUF file that means the same, if there is one; what
// tokenizer.json has.
const KINDS = [
    {name: "qwen2", pre: "qwen2", nfc: true, pre_tokenizer:
        splits(split(CONTRACTIONS + "|" + FRONT + "\\p{L}+|\\p{N}" + SIGNS + SPACES))},
    {name: "qwen35", pre: "qwen35", nfc: true, pre_tokenizer:
        splits(split(CONTRACTIONS + "|" + FRONT + "[\\p{L}\\p{M}]+|\\p{N}" +
            "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" + SPACES))},
    {name: "llama3", pre: "llama-bpe", ignore_merges: true, pre_tokenizer:
        splits(split(CONTRACTIONS + "|" + FRONT + "\\p{L}+|\\p{N}{1,3}" + SIGNS + SPACES))},
    {name: "dbrx, removed", pre: "dbrx", pre_tokenizer:
        splits(split(CONTRACTIONS + "|" + FRONT + "\\p{L}+|\\p{N}{1,3}" + SIGNS + SPACES,
            "Removed", true))},
    {name: "gpt-4o", pre: "gpt-4o", pre_tokenizer: splits(split(gpt4o))},
    {name: "gpt-oss", ignore_merges: true, pre_tokenizer: splits(split(gpt4o))},
    {name: "tekken", pre: "tekken", ignore_merges: true, pre_tokenizer:
        splits(split(FRONT + UPPER + "*" + LOWER + "+|" + FRONT + UPPER + "+" + LOWER +
            "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" + SPACES))},
    {name: "deepseek-v3", pre: "deepseek-v3", pre_tokenizer:
        splits(split("\\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK))},
    {name: "smollm, digits", pre: "smollm", pre_tokenizer:
        sequence({type: "Digits", individual_digits: true}, byteLevel(true))},
    {name: "smollm, split", pre: "starcoder", pre_tokenizer:
        splits(split("\\p{N}"), split(GPT2))},
    {name: "gpt-2", pre: "gpt-2", pre_tokenizer: byteLevel(true)},
    {name: "gpt-2, split", pre: "olmo", pre_tokenizer: splits(split(GPT2))},
    {name: "seed-coder", pre: "seed-coder", pre_tokenizer:
        splits(split(CONTRACTIONS + "|" + FRONT + "\\p{L}+|\\p{N}{1}" +
            "| ?[^\\s\\p{L}\\p{N}\r\n]+|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"))},
];

// The characters that stand for bytes: a printable one of Latin-1 for itself, and
// those from U+0100 on for the others.
function alphabet() {
    const chars = [];
    for (let c = 0, next = 0x100; c < 256; c++) {
        const plain = (c > 0x20 && c < 0x7F) || (c > 0xA0 && c !== 0xAD);
        chars.push(String.fromCharCode(plain ? c : next++));
    }
    return chars;
}

// Train merges on texts that are not split, so that merges cross the borders of all
// splits: a wrong border then gives other ids.
function train(chars, texts) {
    const words = texts.map((t) => [...Buffer.from(t)].map((byte) => chars[byte]));
    const vocab = [...chars], merges = [];
    while (merges.length < N_MERGES) {
        const counts = new Map();
        for (const w of words)
            for (let i = 0; i + 1 < w.length; i++) {
                const pair = w[i] + " " + w[i + 1];
                counts.set(pair, (counts.get(pair) ?? 0) + 1);
            }
        let best = null;
        for (const [pair, n] of counts)
            if (best === null || n > counts.get(best) || (n === counts.get(best) && pair < best))
                best = pair;
        const [left, right] = best.split(" ");
        merges.push([left, right]);
        if (!vocab.includes(left + right))
            vocab.push(left + right);
        for (const w of words)
            for (let i = 0; i + 1 < w.length; i++)
                if (w[i] === left && w[i + 1] === right)
                    w.splice(i, 2, left + right);
    }
    return {vocab, merges};
}

const folder = process.argv[2];
if (!folder) {
    console.error("usage: node make-tokenizer-goldens.mjs FOLDER");
    process.exit(2);
}
const {vocab, merges} = train(alphabet(), makeTexts(400, [], 12));
const base = {
    version: "1.0", truncation: null, padding: null,
    added_tokens: ADDED.map((content, i) => ({
        id: vocab.length + i, content, single_word: false, lstrip: false, rstrip: false,
        normalized: false, special: true,
    })),
    normalizer: null, pre_tokenizer: null, post_processor: null,
    decoder: {type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true},
    model: {
        type: "BPE", dropout: null, unk_token: null, continuing_subword_prefix: null,
        end_of_word_suffix: null, fuse_unk: false, byte_fallback: false, ignore_merges: false,
        vocab: Object.fromEntries(vocab.map((token, id) => [token, id])),
        // without some merges, a token is found only with ignore_merges
        merges: merges.filter((_, rank) => rank % 8 !== 5),
    },
};
const texts = makeTexts(N_TEXTS, ADDED, MOST_PARTS);
const rows = texts.map((text) => ({text, ids: []}));
const lines = [];
for (const {name, pre, nfc, ignore_merges, pre_tokenizer} of KINDS) {
    const kind = {
        name, pre: pre ?? null, normalizer: nfc ? {type: "NFC"} : null, pre_tokenizer,
        ignore_merges: ignore_merges ?? false,
    };
    const json = {...base, normalizer: kind.normalizer, pre_tokenizer,
        model: {...base.model, ignore_merges: kind.ignore_merges}};
    const ids = await referenceIds(openReference(JSON.stringify(json)), texts);
    rows.forEach((row, i) => row.ids.push(ids[i]));
    lines.push(kind);
}
const write = (name, list) => fs.writeFileSync(path.join(folder, name),
    list.map((o) => JSON.stringify(o) + "\n").join(""));
write("splits.jsonl", lines);
write("ids.jsonl", rows);
// an object of JavaScript has its keys that are numbers first; the file has tokens by id
const byId = vocab.map((token, id) => `${JSON.stringify(token)}:${id}`).join(",");
const text = JSON.stringify({...base, model: {...base.model, vocab: "VOCAB"}});
fs.writeFileSync(path.join(folder, "tokenizer.json"),
    text.replace('"VOCAB"', () => `{${byId}}`) + "\n");
