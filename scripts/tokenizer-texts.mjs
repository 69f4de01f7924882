// Texts for tests of tokenizers, and the reference: the Rust library `tokenizers`,
// as @anush008/tokenizers-linux-x64-gnu packs it for Node.js. The package is looked
// up from the current directory.
import {createRequire} from "module";

const REFERENCE = "@anush008/tokenizers-linux-x64-gnu";

// Open a tokenizer.json, given as text, with the reference.
export function openReference(json) {
    const {Tokenizer} = createRequire(process.cwd() + "/")(REFERENCE);
    return Tokenizer.fromString(json);
}

// The ids of each text; nothing is put before or after it.
export async function referenceIds(tokenizer, texts) {
    const encodings = await tokenizer.encodeBatch(texts, {addSpecialTokens: false});
    return encodings.map((e) => e.getIds());
}

const WORDS = [
    "the", "of", "Hello", "WORLD", "camelCase", "HTTPServer", "iPhone", "XMLHttpRequest",
    "don", "it", "naïve", "Ärger", "STRASSE", "straße", "ﬁn", "ǅungla", "ʰa", "aʰB",
    "Привет", "МИР", "миР", "ΑΒΓ", "αβγ", "Σίσυφος", "שלום", "مرحبا", "हिन्दी", "नमस्ते",
    "ไทย", "ქართული", "ᲥᲐᲠᲗᲣᲚᲘ", "Հայերեն", "한국어", "안녕", "日本語", "テキスト", "ひらがな",
    "中文", "漢字", "龥", "龦", "㐀", "ー", "゠", "ゝ", "〇", "ᚠᚢ", "𝒜𝓑", "𠀀", "aª", "ⅷ",
];
const ENDINGS = [
    "'s", "'S", "'t", "'T", "'re", "'RE", "'Re", "'ve", "'VE", "'m", "'M", "'ll", "'LL", "'lL",
    "'d", "'D", "'ſ", "’s", "'", "''", "'x", "'l", "'r", "'sing", "'1",
];
const NUMBERS = [
    "0", "7", "42", "123", "1234", "12345", "1234567", "3.14", "1,000,000", "0x1F", "1e-9",
    "٣", "٤٥٦٧", "१२३", "²³", "½", "Ⅻ", "ⅳⅴ", "①②③④", "𝟘𝟙", "0７8", "v2", "2nd",
];
const SPACES = [
    " ", "  ", "   ", "        ", "\t", "\t\t", "\n", "\n\n", "\n\n\n", "\r\n", "\r\n\r\n", " \n",
    "\n ", "\n  ", " \n \n ", "  \t ", "\u00A0", "\u00A0 ", "\u3000", "\u2003\u2009", "\u2028",
    "\u0085", "\v", "\f", " \r", "\n\t",
];
const SIGNS = [
    ".", ",", "!", "?", "...", "!!!", ";", ":", "-", "--", "—", "(", ")", "[]", "{}", "/", "//",
    "/\n", "\n/", "./", "\\", "|", "&&", "==", "=>", "+=", "#", "##", "@", "$", "€", "%", "^", "~",
    "`", "```", "\"", "“", "”", "«", "»", "。", "、", "，", "！", "・", "゛", "_", "__", "<", ">", "</",
    "*", "**", "§", "™", "→", "∑", "±", "¿", "·", "🙂", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "❤️", "#️⃣", "\uFFFD",
];
const MARKS = [
    "e\u0301", "\u0301", "\u0301\u0308", "A\u030A", "a\u0323\u0307", "\u20DD", "\u093F", "\u3099",
    "か\u3099", "\u0E31", "\uFE0F", "\u1160", "\u200D", "X\u0302Y", "\u0300A", "\u064B", "Å", "ﬀ", "가",
];
const CONTROLS = [
    "\0", "\u0001", "\u0007", "\b", "\u001B[0m", "\u001F", "\u007F", "\u0080", "\u00AD", "\u200B",
    "\u200B\u200B", "\u200E", "\u2060", "\uFEFF", "\uE000", "\uFFFE", "\u{10FFFF}", "\u061C",
];
const CODE = [
    "for (int i = 0; i < n; i++) {\n\treturn x[i];\n}\n", "def f(x):\n    return x ** 2\n",
    "SELECT * FROM t WHERE a='b';", "https://example.org/a/b?c=d&e=%20f#g", "/usr/bin/env",
    "std::vector<int> v;", "#include <stdio.h>\r\n", "let x = `a${b}c`;", "{\"a\": [1, 2.5, null]}",
    "<div class=\"c\">\n</div>", "a_b-c.d", "C:\\Users\\x", "x=1;y=2", "\\frac{a}{b}", "foo()/\n/bar",
];
const POOLS = [WORDS, WORDS, WORDS, ENDINGS, NUMBERS, SPACES, SPACES, SIGNS, MARKS, CONTROLS, CODE];

// A random number below n, from a state that the caller keeps.
function draw(state, n) {
    state.x = (Math.imul(state.x, 1664525) + 1013904223) >>> 0;
    return Math.floor(state.x / 2 ** 32 * n);
}

// Blocks whose characters are older than the tables of the reference and of qwick.
const BLOCKS = [
    [0xA1, 0x52F], [0x531, 0x58A], [0x5D0, 0x6FF], [0x904, 0xDF4], [0xE01, 0x10FF],
    [0x1100, 0x11FF], [0x1200, 0x17F9], [0x1D00, 0x1DBF], [0x1E00, 0x1FFE], [0x2010, 0x2426],
    [0x2460, 0x2BFF], [0x3001, 0x30FF], [0x4E00, 0x9FA5], [0xA000, 0xA4C6], [0xAC00, 0xD7A3],
    [0xF900, 0xFAD9], [0xFE30, 0xFFDC], [0x10330, 0x1034A], [0x10400, 0x1049D],
    [0x1D400, 0x1D7FF], [0x1F300, 0x1F64F], [0x20000, 0x2A6D6],
];

// A letter, mark, number or sign of any of the blocks.
function anyCharacter(state) {
    for (;;) {
        const [from, to] = BLOCKS[draw(state, BLOCKS.length)];
        const c = String.fromCodePoint(from + draw(state, to + 1 - from));
        if (/[\p{L}\p{M}\p{N}\p{P}\p{S}]/u.test(c))
            return c;
    }
}

// Make n texts, the same each time. added: texts of added tokens, which some texts
// hold. most: parts of the longest text.
export function makeTexts(n, added, most = 24) {
    const state = {x: 12345}, texts = ["", " ", "a", "\n"];
    while (texts.length < n) {
        let text = "";
        const parts = 1 + draw(state, most), pools = 1 + draw(state, POOLS.length);
        const first = draw(state, POOLS.length);
        for (let i = 0; i < parts; i++) {
            const pool = POOLS[(first + draw(state, pools)) % POOLS.length];
            const kind = draw(state, 16);
            if (kind === 0 && added.length)
                text += added[draw(state, added.length)];
            else if (kind === 1)
                text += anyCharacter(state);
            else
                text += (kind < 6 ? " " : "") + pool[draw(state, pool.length)];
        }
        texts.push(text);
    }
    return texts;
}
