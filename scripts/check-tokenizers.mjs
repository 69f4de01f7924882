// Compare the ids of `qwick tokenize` with those of the Rust library `tokenizers`:
//
//     node scripts/check-tokenizers.mjs FOLDER...
//
// Each FOLDER has a tokenizer.json. Prints a row for each: how many texts there are,
// how many have equal ids, and decode to the same text, and the first difference or
// why qwick refuses the tokenizer. Fails unless all are equal.
// The reference comes from npm; scripts/check-tokenizers.sh installs it. $QWICK is the
// binary, ./qwick if unset.
import {spawnSync} from "child_process";
import fs from "fs";
import path from "path";
import {makeTexts, openReference, referenceIds} from "./tokenizer-texts.mjs";

const N_TEXTS = 2500;
const QWICK = process.env.QWICK ?? "./qwick";

// Run qwick on lines of JSON. Returns its lines, or the message with which it failed.
function qwick(verb, folder, lines) {
    const run = spawnSync(QWICK, ["--no-config", verb, "--jsonl", "-m", folder], {
        input: lines.map((line) => JSON.stringify(line) + "\n").join(""),
        encoding: "utf8", maxBuffer: 1 << 30,
    });
    if (run.status)
        return run.stderr.trim().split("\n")[0] || `exit status ${run.status}`;
    return run.stdout.trim().split("\n").map((line) => JSON.parse(line));
}

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

// The row of one tokenizer. differs: whether it must fail the check.
async function compare(folder) {
    const json = fs.readFileSync(path.join(folder, "tokenizer.json"), "utf8");
    const file = JSON.parse(json);
    const added = (file.added_tokens ?? []).map((t) => t.content);
    // some files cut texts or fill them up, which is not the tokenizer's work
    const plain = JSON.stringify({...file, padding: null, truncation: null});
    const texts = makeTexts(N_TEXTS, added), reference = openReference(plain);
    const want = await referenceIds(reference, texts);
    const got = qwick("tokenize", folder, texts.map((text) => ({text})));
    if (typeof got === "string")
        return {columns: [texts.length, "-", "-", got], differs: true};
    const back = qwick("detokenize", folder, want.map((ids) => ({ids})));
    const decoded = await reference.decodeBatch(want, false);
    const all = [...texts.keys()];
    const bad = all.filter((i) => !same(got[i].ids, want[i]));
    const badText = all.filter((i) => back[i]?.text !== decoded[i]);
    let first = "";
    if (bad.length)
        first = `${JSON.stringify(texts[bad[0]])}: [${got[bad[0]].ids}], must be [${want[bad[0]]}]`;
    else if (badText.length)
        first = `[${want[badText[0]]}]: ${JSON.stringify(back[badText[0]]?.text ?? back)}, must be ` +
            JSON.stringify(decoded[badText[0]]);
    return {
        columns: [texts.length, texts.length - bad.length, texts.length - badText.length, first],
        differs: bad.length + badText.length > 0,
    };
}

const row = (name, columns) =>
    console.log([name.padEnd(24), ...columns.slice(0, 3).map((c) => String(c).padStart(6)),
        " " + columns[3]].join(" ").trimEnd());
let failed = false;
row("tokenizer", ["texts", "equal", "back", "first difference"]);
for (const folder of process.argv.slice(2)) {
    const name = path.basename(folder) === "models" ? path.basename(path.dirname(folder)) :
        path.basename(folder);
    const {columns, differs} = await compare(folder);
    failed ||= differs;
    row(name, columns);
}
process.exit(failed ? 1 : 0);
