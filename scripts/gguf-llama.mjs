// Compare GGUF files that `qwick quantize --format gguf` wrote with llama.cpp:
//
//     node scripts/gguf-llama.mjs MODEL FILE.gguf [TEXTS.jsonl]
//
// MODEL is the checkpoint of the file, or the file itself. llama.cpp must load the
// file. Its logits after 60 tokens, less their mean, must be those of
// `qwick logits --exact` within 2%: llama.cpp rounds activations to the type of the
// weights, so this needs a file of type F16; other types print their distance only.
// Of a mixture, the distance is larger where two experts have almost equal scores.
// TEXTS.jsonl has lines {"text"}; the tokens must be equal, except of texts that are
// not in NFC, which llama.cpp does not normalise. $QWICK is the binary, ./qwick if
// unset. llama.cpp comes from npm: run `npm install node-llama-cpp` where Node.js
// finds it. `make check` does not run this.
import {execFileSync} from "child_process";
import fs from "fs";
import {createRequire} from "module";
import {pathToFileURL} from "url";

const BOUND = 0.02;
const [model, file, texts] = process.argv.slice(2);
if (!file) {
    console.error("usage: node gguf-llama.mjs MODEL FILE.gguf [TEXTS.jsonl]");
    process.exit(2);
}
// the package is looked up from the current directory
const resolve = createRequire(process.cwd() + "/").resolve;
const {getLlama, LlamaLogLevel} = await import(pathToFileURL(resolve("node-llama-cpp")));

function qwick(...args) {
    const out = execFileSync(process.env.QWICK ?? "./qwick", args,
        {encoding: "utf8", maxBuffer: 1 << 28, stdio: ["ignore", "pipe", "inherit"]});
    return out.trim().split("\n").map((line) => JSON.parse(line));
}

// The distance of the log probabilities of two models, as a share of their size.
function distance(want, got) {
    const ids = [...got.keys()].filter((id) => got.get(id) > 0 && want.has(id));
    const a = ids.map((id) => want.get(id)), b = ids.map((id) => Math.log(got.get(id)));
    const mean = (v) => v.reduce((s, x) => s + x, 0) / v.length;
    const ma = mean(a), mb = mean(b);
    let d = 0, size = 0;
    for (let i = 0; i < a.length; i++) {
        d += (a[i] - ma - b[i] + mb) ** 2;
        size += (a[i] - ma) ** 2;
    }
    return [Math.sqrt(d / size), ids.length];
}

async function logits(llama) {
    const ids = Array.from({length: 60}, (_, i) => 5 + i * 7 % 290);
    const context = await llama.createContext({contextSize: 256, flashAttention: false});
    const input = ids.map((id, i) => i + 1 < ids.length ? id :
        [id, {generateNext: {probabilities: true, options: {temperature: 0}}}]);
    const result = await context.getSequence().controlledEvaluate(input);
    const [o] = qwick("logits", "-m", model, "--exact", "--json", "--top", "1000000",
        "--prompt-ids", ids.join(","));
    const want = new Map(o.positions[0].top.map((t) => [t.id, t.logit]));
    const [d, n] = distance(want, result[ids.length - 1].next.probabilities);
    console.log(`logits: distance ${d.toExponential(1)} over ${n} tokens`);
    const [info] = qwick("inspect", "-m", file, "--json");
    return info.weights_dtype !== "F16" || d <= BOUND;
}

function tokens(llama) {
    const all = fs.readFileSync(texts, "utf8").trim().split("\n").map((l) => JSON.parse(l).text);
    const want = qwick("tokenize", "-m", model, "--jsonl", "-i", texts);
    const bad = all.filter((text, i) => text.normalize("NFC") === text &&
        JSON.stringify(Array.from(llama.tokenize(text, true))) !== JSON.stringify(want[i].ids));
    bad.forEach((text) => console.log(`tokens differ: ${JSON.stringify(text)}`));
    console.log(`tokens: ${all.length} texts, ${bad.length} differ`);
    return bad.length === 0;
}

const llama = await (await getLlama({gpu: false, build: "never", logLevel: LlamaLogLevel.error}))
    .loadModel({modelPath: file});
let good = await logits(llama);
if (texts)
    good = tokens(llama) && good;
process.exit(good ? 0 : 1);
