// Speed of llama.cpp from npm, for bench/peers.sh: tokens a second as JSON.
//
//     node peer_node.mjs FILE.gguf THREADS TOKENS
//
// Prefill of 512 tokens, then decode of TOKENS after 16; the best of three each.
// node-llama-cpp is looked up from the current directory.
import {createRequire} from "module";
import {pathToFileURL} from "url";

const [file, threads, tokens] = process.argv.slice(2);
const resolve = createRequire(process.cwd() + "/").resolve;
const {getLlama, LlamaLogLevel} =
    await import(pathToFileURL(resolve("node-llama-cpp")));
const llama = await getLlama({gpu: false, build: "never", maxThreads: +threads,
    logLevel: LlamaLogLevel.error});
const model = await llama.loadModel({modelPath: file});
const context = await model.createContext({contextSize: 1024, batchSize: 512,
    threads: {ideal: +threads, min: +threads}});
const sequence = context.getSequence();
const ids = (n) => Array.from({length: n}, (_, i) => 5 + i * 7 % 290);

async function seconds(work) {
    let best = Infinity;
    for (let i = 0; i < 3; i++) {
        await sequence.clearHistory();
        best = Math.min(best, await work());
    }
    return best;
}

async function timed(work) {
    const start = performance.now();
    await work();
    return (performance.now() - start) / 1000;
}

const prefill = await seconds(() => timed(() =>
    sequence.evaluateWithoutGeneratingNewTokens(ids(512))));
const decode = await seconds(async () => {
    await sequence.evaluateWithoutGeneratingNewTokens(ids(16));
    let left = +tokens;
    return timed(async () => {
        for await (const token of sequence.evaluate([5], {temperature: 0}))
            if (token === undefined || --left === 0)
                break;
    });
});
console.log(JSON.stringify({prefill: 512 / prefill, decode: +tokens / decode}));
process.exit(0);
