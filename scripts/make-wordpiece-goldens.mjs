// Make the goldens of WordPiece (tests/golden/wordpiece):
//
//     node scripts/make-wordpiece-goldens.mjs
//
// Writes tokenizer.json and ids.jsonl there; variants.json is written by hand. The README
// there describes them. The reference comes from npm, see tokenizer-texts.mjs.
import fs from "fs";
import {makeTexts, openReference, referenceIds} from "./tokenizer-texts.mjs";

const folder = "tests/golden/wordpiece/";
const special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];

// ---- the vocabulary: frequent beginnings and rests of words ----

const english = fs.readFileSync("tests/golden/gemma-tokenizer/visible.jsonl", "utf8")
    .split("\n").filter(Boolean).map((line) => JSON.parse(line).text);
const counts = new Map();
const count = (token, n = 1) => counts.set(token, (counts.get(token) ?? 0) + n);
const plain = (s) => s.normalize("NFD").replace(/\p{Mn}/gu, "").toLowerCase();
for (const text of [...english, ...makeTexts(2000, [], 8)])
    for (const form of [text, plain(text)])
        for (const word of form.match(/[\p{L}\p{M}\p{N}\p{S}]+|\p{P}/gu) ?? []) {
            const chars = [...word];
            for (let i = 1; i <= Math.min(chars.length, 8); i++)
                count(chars.slice(0, i).join(""), i);
            for (let i = 1; i < Math.min(chars.length, 8); i++)
                count("##" + chars.slice(-i).join(""), i);
            for (const c of chars.slice(1))
                count("##" + c);
        }
const best = [...counts].sort(([a, n], [b, m]) => m - n || (a < b ? -1 : 1)).slice(0, 900);
const tokens = [...special, ...best.map(([token]) => token)];
const added = ["Caf\u00e9", "\u4e2d\u56fd", "<Tag>"];
const token = (content, id, isSpecial) => ({
    id, content, single_word: false, lstrip: content === "<Tag>", rstrip: false,
    normalized: !isSpecial && content !== "<Tag>", special: isSpecial,
});
const place = (name, type_id) => ({SpecialToken: {id: name, type_id}});
const sequence = (id, type_id) => ({Sequence: {id, type_id}});
const file = JSON.stringify({
    version: "1.0", truncation: null, padding: null,
    added_tokens: [
        ...special.map((content, id) => token(content, id, true)),
        ...added.map((content, i) => token(content, tokens.length + i, false)),
    ],
    normalizer: {
        type: "BertNormalizer", clean_text: true, handle_chinese_chars: true,
        strip_accents: null, lowercase: true,
    },
    pre_tokenizer: {type: "BertPreTokenizer"},
    post_processor: {
        type: "TemplateProcessing",
        single: [place("[CLS]", 0), sequence("A", 0), place("[SEP]", 0)],
        pair: [
            place("[CLS]", 0), sequence("A", 0), place("[SEP]", 0), sequence("B", 1),
            place("[SEP]", 1),
        ],
        special_tokens: Object.fromEntries(["[CLS]", "[SEP]"].map((name) =>
            [name, {id: name, ids: [special.indexOf(name)], tokens: [name]}])),
    },
    decoder: {type: "WordPiece", prefix: "##", cleanup: true},
    model: {
        type: "WordPiece", unk_token: "[UNK]", continuing_subword_prefix: "##",
        max_input_chars_per_word: 100,
        vocab: Object.fromEntries(tokens.map((text, id) => [text, id])),
    },
});
fs.writeFileSync(folder + "tokenizer.json", file + "\n");

// ---- the texts ----

const texts = [
    "", " ", "the", "The COMMAND", " the  command\t\n", "don't do not isn't", "a.b,c!?",
    "\u00c9t\u00e9 e\u0301te\u0301 ETE", "Caf\u00e9 CAFE caf\u0065\u0301 cafeteria", "xCaf\u00e9x",
    "\u4e2d\u56fd \u4e2d \u56fd a\u4e2d\u56fdb", "a<Tag>b  <Tag> <tag>", "[MASK] [mask] the[SEP]the",
    "a".repeat(100), "a".repeat(101), "\u00e9".repeat(100), "\u4e2d".repeat(101),
    "the " + "ab".repeat(60) + " the", "\ufffd", "a\ufffdb", "a\u0000b\u0001c\u200bd\u00ade",
    "\u0085a\u000bb\u000cc\u2028d\u00a0e\u3000f", "\ud55c\uad6d\uc5b4", "\u1112\u1161\u11ab",
    "\u0130\u0131\u1e9e\u03a3\u03a3", "a\u302e\ud834\udd65\u0301b", "\ud834\udd65\u302e",
    "\u2019\u201c\u3002\uff0c\u00a7$+<=>^`|~", "\ud83d\ude42\ud83d\udc4d\ud83c\udffd the",
    "\u037e\u0387\u2329", "\uf900\ud87e\udc00", "\u0958\u0f73 \u0e33", "#, ##the ### #the",
    ...makeTexts(60, [...special, ...added], 12),
];

let lines = [];
for (const {name, replace} of JSON.parse(fs.readFileSync(folder + "variants.json"))) {
    let changed = file;
    for (const [from, to] of replace) {
        if (!changed.includes(from))
            throw new Error(name + ": no " + from);
        changed = changed.replace(from, to);
    }
    const tokenizer = openReference(changed), all = await referenceIds(tokenizer, texts);
    for (const [i, text] of texts.entries())
        lines.push({
            variant: name, text, ids: all[i], decoded: await tokenizer.decode(all[i], false),
        });
}
fs.writeFileSync(folder + "ids.jsonl", lines.map((line) => JSON.stringify(line) + "\n").join(""));
