// Make goldens of tokenizers with byte_fallback, and of tekken.json, as the Rust
// library `tokenizers` gives them:
//
//     node scripts/make-variant-goldens.mjs
//
// Writes tests/golden/gemma-tokenizer/variants.jsonl and tests/golden/tekken, which the
// READMEs there describe. The reference comes from npm, see tokenizer-texts.mjs.
import fs from "fs";
import {makeTexts, openReference, referenceIds} from "./tokenizer-texts.mjs";

const texts = [
    "", " ", "  ", "the", " the", "  the", "the ", "a b  c   d", "\u2581",
    "\u2581the", "\u2581 the", " \u2581the", "the\u2581command", "\n", "\nthe", "\tthe",
    " \t the", "a\tb\t\tc", "\u00e9", " \u65e5\u672c", "\u{1f600} the", "<bos>", "<bos>the",
    "<bos> the", "the<bos>the", "the <bos> the", "<bos><bos> the", " <bos>the",
    "<start_of_turn>user\nthe command<end_of_turn>\n<start_of_turn>model\n",
    "<start_of_turn> \n\t the", "the \n<end_of_turn>\n\n the",
    "the\u00a0<end_of_turn>\u2003the", "<end_of_turn> <end_of_turn>",
    "a <table> b</table> c", "<table>", " <table> ", "\u2581<table>a",
    "the\u65e5 <table>", "[multimodal]the [multimodal] the",
    "The command shows files.\nIt prints  the current directory.",
];

// ---- variants of a tokenizer.json ----

const folder = "tests/golden/gemma-tokenizer/";
const original = fs.readFileSync(folder + "tokenizer.json", "utf8");
let lines = [];
for (const {name, replace} of JSON.parse(fs.readFileSync(folder + "variants.json"))) {
    let file = original;
    for (const [from, to] of replace) {
        if (!file.includes(from))
            throw new Error(name + ": no " + from);
        file = file.replace(from, to);
    }
    const tokenizer = openReference(file), all = await referenceIds(tokenizer, texts);
    for (const [i, text] of texts.entries())
        lines.push({
            variant: name, text, ids: all[i],
            decoded: await tokenizer.decode(all[i], false),
            without_special: await tokenizer.decode(all[i], true),
        });
}
const put = (path) =>
    fs.writeFileSync(path, lines.map((line) => JSON.stringify(line) + "\n").join(""));
put(folder + "variants.jsonl");

// ---- tekken.json ----

// The tokens of the goldens of splits, and some that no merge makes. The reference gets
// all pairs of tokens that make a token as merges, by rank.
const N_SPECIAL = 24;
const base = JSON.parse(fs.readFileSync("tests/golden/splits/tokenizer.json"));
const {vocab} = base.model, tokens = Object.keys(vocab).sort((a, b) => vocab[a] - vocab[b]);
const bytes = {};
for (let c = 0, next = 0x100; c < 256; c++) {
    const plain = (c > 0x20 && c < 0x7F) || (c > 0xA0 && c !== 0xAD);
    bytes[String.fromCharCode(plain ? c : next++)] = c;
}
tokens.push("zqzqz", "\u00e4\u00b8\u0143\u00e7");
const ranks = new Map(tokens.map((token, rank) => [token, rank]));
const special = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"];
for (let i = special.length; i < N_SPECIAL; i++)
    special.push(`<SPECIAL_${i}>`);

const merges = tokens.flatMap((token) => {
    const pairs = [];
    for (let i = 1; i < token.length; i++)
        if (ranks.has(token.slice(0, i)) && ranks.has(token.slice(i)))
            pairs.push([token.slice(0, i), token.slice(i)]);
    return pairs;
});
const kind = fs.readFileSync("tests/golden/splits/splits.jsonl", "utf8").split("\n")
    .filter(Boolean).map((line) => JSON.parse(line)).find(({name}) => name === "tekken");
base.pre_tokenizer = kind.pre_tokenizer;
base.added_tokens = special.map((content, id) => ({...base.added_tokens[0], id, content}));
base.model = {
    ...base.model, ignore_merges: true, merges,
    vocab: Object.fromEntries([...special, ...tokens].map((token, id) => [token, id])),
};
const tekken = {
    config: {
        pattern: kind.pre_tokenizer.pretokenizers[0].pattern.Regex,
        num_vocab_tokens: tokens.length + 1, default_vocab_size: N_SPECIAL + tokens.length,
        default_num_special_tokens: N_SPECIAL, version: "v7",
    },
    vocab: [...tokens, "never"].map((token, rank) => ({
        rank, token_bytes: Buffer.from([...token].map((c) => bytes[c])).toString("base64"),
        token_str: null,
    })),
    special_tokens: special.slice(0, 5).map((token_str, rank) =>
        ({rank, token_str, is_control: true})),
};
fs.mkdirSync("tests/golden/tekken", {recursive: true});
fs.writeFileSync("tests/golden/tekken/tekken.json", JSON.stringify(tekken) + "\n");
const samples = [
    ...makeTexts(100, special.slice(0, 6), 7), "zqzqz", "zqzqzq zqzqz", "\u4e2d\u7684",
];
const ids = await referenceIds(openReference(JSON.stringify(base)), samples);
lines = samples.map((text, i) => ({text, ids: ids[i]}));
put("tests/golden/tekken/ids.jsonl");
