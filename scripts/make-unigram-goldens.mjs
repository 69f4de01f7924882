// Make the goldens of Unigram (tests/golden/unigram):
//
//     node scripts/make-unigram-goldens.mjs
//
// Writes the files that the README there describes. spm_train comes from Debian's
// package sentencepiece, and the reference from npm, see tokenizer-texts.mjs.
import {execFileSync} from "child_process";
import fs from "fs";
import os from "os";
import path from "path";
import {makeTexts, openReference, referenceIds} from "./tokenizer-texts.mjs";

const folder = "tests/golden/unigram/";
const temporary = fs.mkdtempSync(path.join(os.tmpdir(), "unigram-"));
const at = (name) => path.join(temporary, name);

// ---- the charsmap: some of NFKC, blanks, and characters that vanish ----

const rules = new Map();
const add = (from, to = from.normalize("NFKC")) => {
    if (from !== to)
        rules.set(from, to);
};
const range = (first, last, f) => {
    for (let c = first; c <= last; c++)
        f(String.fromCodePoint(c));
};
range(0xA0, 0xFF, (c) => add(c));
range(0xFB00, 0xFB06, (c) => add(c));
range(0xFF01, 0xFF9F, (c) => add(c));
range(0x2160, 0x2183, (c) => add(c));
range(0x2460, 0x247F, (c) => add(c));
range(0x1D400, 0x1D44F, (c) => add(c));
range(0x2000, 0x200F, (c) => add(c, " "));
range(0x01, 0x08, (c) => add(c, ""));
range(0x0E, 0x1F, (c) => add(c, ""));
for (const c of ["\t", "\n", "\f", "\r", "\u0085", "\u2028", "\u2581", "\u3000", "\uFEFF"])
    add(c, " ");
for (const mark of ["\u0300", "\u0301", "\u0302", "\u0308", "\u030A", "\u3099"])
    for (const base of ["aeiouAEIOUyc", "かきくけこハヒフヘホ"].join(""))
        add(base + mark);
add("\u1112\u1161", "하");
add("\u1112\u1161\u11AB", "한");
add("\uFF76\uFF9E");
const hex = (s) => [...s].map((c) => c.codePointAt(0).toString(16)).join(" ");
fs.writeFileSync(at("rules"), [...rules].map(([a, b]) => `${hex(a)}\t${hex(b)}\n`).join(""));

// ---- the pieces ----

const english = fs.readFileSync("tests/golden/gemma-tokenizer/visible.jsonl", "utf8")
    .split("\n").filter(Boolean).map((line) => JSON.parse(line).text);
const corpus = [...english, ...makeTexts(3000, [], 8)].map((s) => s.replace(/[\0\r\n]/g, " "));
fs.writeFileSync(at("corpus"), corpus.join("\n"));
execFileSync("spm_train", [
    `--input=${at("corpus")}`, `--model_prefix=${at("m")}`, "--vocab_size=900",
    `--normalization_rule_tsv=${at("rules")}`, "--character_coverage=0.98", "--num_threads=1",
    "--bos_id=0", "--pad_id=1", "--eos_id=2", "--unk_id=3", "--minloglevel=2",
]);

// The fields of a message of Protocol Buffers.
function fields(bytes) {
    const all = {};
    let i = 0;
    const varint = () => {
        let v = 0, shift = 1;
        for (;; shift *= 128) {
            const b = bytes[i++];
            v += (b & 127) * shift;
            if (b < 128)
                return v;
        }
    };
    while (i < bytes.length) {
        const key = varint(), n = key & 7;
        let value;
        if (n === 0) {
            value = varint();
        } else {
            const length = n === 2 ? varint() : n === 5 ? 4 : 8;
            value = bytes.subarray(i, i + length);
            i += length;
        }
        (all[key >> 3] ??= []).push(value);
    }
    return all;
}

const model = fields(fs.readFileSync(at("m.model")));
const vocab = model[1].map(fields).map((p) => [p[1][0].toString(), p[2]?.[0].readFloatLE() ?? 0]);
const charsmap = fields(model[3][0])[2][0].toString("base64");
fs.rmSync(temporary, {recursive: true});

// ---- tokenizer.json, as that of bge-m3 ----

const BLANK = "\u2581";
const special = (content, id, lstrip = false) =>
    ({id, content, single_word: false, lstrip, rstrip: false, normalized: false, special: true});
const piece = (name) => ({SpecialToken: {id: name, type_id: 0}});
const text = (id) => ({Sequence: {id, type_id: 0}});
const metaspace = {type: "Metaspace", replacement: BLANK, prepend_scheme: "always", split: true};
const precompiled = {type: "Precompiled", precompiled_charsmap: charsmap};
const squeeze = (content) => ({type: "Replace", pattern: {Regex: " {2,}"}, content});
const sequence = (...normalizers) => ({type: "Sequence", normalizers});
const mask = vocab.length;
const file = {
    version: "1.0", truncation: null, padding: null,
    added_tokens: [...["<s>", "<pad>", "</s>", "<unk>"].map((s, i) => special(s, i)),
        special("<mask>", mask, true)],
    normalizer: sequence(precompiled, squeeze(" ")),
    pre_tokenizer: metaspace,
    post_processor: {
        type: "TemplateProcessing",
        single: [piece("<s>"), text("A"), piece("</s>")],
        pair: [piece("<s>"), text("A"), piece("</s>"), piece("</s>"), text("B"), piece("</s>")],
        special_tokens: {
            "<s>": {id: "<s>", ids: [0], tokens: ["<s>"]},
            "</s>": {id: "</s>", ids: [2], tokens: ["</s>"]},
        },
    },
    decoder: metaspace,
    model: {type: "Unigram", unk_id: 3, vocab: [...vocab, ["<mask>", 0]], byte_fallback: false},
};
const written = JSON.stringify(file);
fs.writeFileSync(folder + "tokenizer.json", written + "\n");

// ---- variants: texts of the file and what replaces them ----

// What differs between two texts, of which the first is in the file, with enough around
// it to find it.
function difference(from, to) {
    let a = 0, z = 0;
    while (a < Math.min(from.length, to.length) && from[a] === to[a])
        a++;
    while (z < Math.min(from.length, to.length) - a && from.at(-1 - z) === to.at(-1 - z))
        z++;
    const cut = (s) => s.slice(a, s.length - z);
    while (written.split(cut(from)).length !== 2)
        [a, z] = [Math.max(a - 1, 0), Math.max(z - 1, 0)];
    return [cut(from), cut(to)];
}

const part = (name, to) => difference(`"${name}":${JSON.stringify(file[name])}`,
    `"${name}":${JSON.stringify(to)}`);
const token = (name, change) => {
    const was = file.added_tokens.find(({content}) => content === name);
    return difference(JSON.stringify(was), JSON.stringify({...was, ...change}));
};
const bytes = Array.from({length: 256}, (_, c) =>
    [`<0x${c.toString(16).toUpperCase().padStart(2, "0")}>`, -20]);
const variants = {
    "bge-m3": [],
    "xlm-roberta": [part("normalizer", precompiled), part("pre_tokenizer", {
        type: "Sequence", pretokenizers: [{type: "WhitespaceSplit"},
            {type: "Metaspace", replacement: BLANK, add_prefix_space: true}]}),
    [`"type":"Unigram",`, ""]],
    "strip right": [part("normalizer", sequence(precompiled,
        {type: "Strip", strip_left: false, strip_right: true}, squeeze(BLANK)))],
    "strip": [part("normalizer", sequence({type: "Strip", strip_left: true, strip_right: true},
        precompiled, squeeze(" ")))],
    "nmt, nfkc": [part("normalizer", sequence({type: "Nmt"}, {type: "NFKC"}, squeeze(" ")))],
    "none": [part("normalizer", null), part("decoder", {...metaspace, split: false})],
    "first": [part("pre_tokenizer", {...metaspace, prepend_scheme: "first"})],
    "never": [part("pre_tokenizer", {...metaspace, prepend_scheme: "never"}),
        part("decoder", {...metaspace, prepend_scheme: "never"})],
    "first, by white space": [part("pre_tokenizer", {
        type: "Sequence", pretokenizers: [{type: "WhitespaceSplit"},
            {...metaspace, prepend_scheme: "first"}]})],
    "whole": [part("pre_tokenizer", {...metaspace, split: false})],
    "normalized": [token("<mask>", {normalized: true}),
        token("<pad>", {normalized: true, special: false})],
    "bytes": [[`["<mask>",0]],"byte_fallback":false`,
        JSON.stringify([["<mask>", 0], ...bytes]).slice(1) + `,"byte_fallback":true`],
    part("decoder", {type: "Sequence", decoders: [{type: "ByteFallback"}, metaspace]})],
};
const list = Object.entries(variants).map(([name, replace]) => ({name, replace}));
fs.writeFileSync(folder + "variants.json",
    "[\n" + list.map((v) => JSON.stringify(v)).join(",\n") + "\n]\n");

// ---- ids ----

const added = file.added_tokens.map(({content}) => content);
const texts = [
    "", " ", "  ", "the", " the", "  the ", "the  command\n\nshows", "\tthe\r\n", "a<mask>b", "a <mask> b",
    "a \u3000<mask>\n b", "<mask>", "<s>the</s>", "the <pad> command", "\uFF1Cmask\uFF1E \uFF1Cpad\uFF1E",
    "\u2581", "\u2581the \u2581\u2581a", "e\u0301 \uFF25\u0301 \uFF25\u0301\u0301", "\uFB01ne \u2460\u2461 \u2167",
    "\u1112\u1161\u11AB \uD55C \u1112\u1161", "\u304B\u3099 \uFF76\uFF9E \uFF76", "\u0001\u0002a\u0007b",
    "👩‍👩‍👧‍👦 🇩🇪❤️ #️⃣", "\uFF34\uFF48\uFF45\u3000\uFF11\uFF12", "\u4E00\u4E01 \u{20000}", "\uE000\uE001a\uE002",
    "\u0600a\u06DDb", "a\u200Db\u200B c", "\u00A0\u00A0the\u00A0", "\uFDFA", "\r\n", "a\u0301\u0302\u0303\u0304",
];
const lines = [];
for (const {name, replace} of list) {
    let changed = written;
    for (const [from, to] of replace) {
        if (!changed.includes(from))
            throw new Error(name + ": no " + from);
        changed = changed.replace(from, () => to);
    }
    const tokenizer = openReference(changed);
    // special tokens that only the normal form has: the reference finds them as pieces
    const own = texts.filter((text) => name === "normalized" || !text.includes("\uFF1C"));
    const all = name === "bge-m3" ? [...own, ...makeTexts(300, added, 7)] : own;
    const ids = await referenceIds(tokenizer, all);
    for (const [i, text] of all.entries())
        lines.push({variant: name, text, ids: ids[i], decoded: await tokenizer.decode(ids[i], false)});
}
fs.writeFileSync(folder + "ids.jsonl", lines.map((l) => JSON.stringify(l) + "\n").join(""));
