// Make tokenizer.json of BERT from a vocabulary in the spelling of GGUF files, "▁" before
// tokens that begin a word:
//
//     node scripts/make-bert-tokenizer.mjs VOCAB.json FOLDER
//
// VOCAB.json is an array of tokens. Writes FOLDER/NAME/tokenizer.json for the settings that
// models have: uncased, cased, and with accents. scripts/check-tokenizers.sh uses it.
import fs from "fs";

const [from, folder] = process.argv.slice(2);
const special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
const tokens = JSON.parse(fs.readFileSync(from, "utf8")).map((token) =>
    token === "▁" ? "[unused0]" : // bert-tokenizer has it so
        token.startsWith("▁") ? token.slice(1) :
            /^\[.+\]$/.test(token) ? token : "##" + token);
const vocab = Object.fromEntries(tokens.map((token, id) => [token, id]));

for (const [name, settings] of Object.entries({
    "bert-uncased": {strip_accents: null, lowercase: true},
    "bert-cased": {strip_accents: null, lowercase: false},
    "bert-accents": {strip_accents: false, lowercase: true},
})) {
    fs.mkdirSync(`${folder}/${name}`, {recursive: true});
    fs.writeFileSync(`${folder}/${name}/tokenizer.json`, JSON.stringify({
        version: "1.0", truncation: null, padding: null,
        added_tokens: special.map((content) => ({
            id: vocab[content], content, single_word: false, lstrip: false, rstrip: false,
            normalized: false, special: true,
        })),
        normalizer: {
            type: "BertNormalizer", clean_text: true, handle_chinese_chars: true, ...settings,
        },
        pre_tokenizer: {type: "BertPreTokenizer"},
        post_processor: {
            type: "BertProcessing", cls: ["[CLS]", vocab["[CLS]"]],
            sep: ["[SEP]", vocab["[SEP]"]],
        },
        decoder: {type: "WordPiece", prefix: "##", cleanup: true},
        model: {
            type: "WordPiece", unk_token: "[UNK]", continuing_subword_prefix: "##",
            max_input_chars_per_word: 100, vocab,
        },
    }));
}
