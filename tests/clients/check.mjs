// Run real clients against `qwick serve`, and print a table:
//
//     node check.mjs QWICK MODEL FOLDER [NAME...]
//
// MODEL is a checkpoint with a context of 40,960, FOLDER has node_modules and gets the
// logs; names of clients select some. A failed client is exit status 1. Everything that
// a client wants from other machines fails, and counts as a failure.
import {spawn} from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import {setTimeout as sleep} from "node:timers/promises";
import {agents} from "./agents.mjs";
import {ANSWER, startProxy, startSink} from "./proxy.mjs";

const [qwick, model, where, ...names] = process.argv.slice(2);
const folder = path.resolve(where);
const here = import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname);
const KEY = "key-of-the-clients", QUESTION = "What is the weather?";
const TIMEOUT = 600e3;
// Turns of an agent. A request repeats the one before it: this share of a long one must
// come from the cache.
const TURNS = 2, LONG = 4000, CACHED = 0.99;

const libraries = [
    {name: "openai", program: "lib_openai.mjs"},
    {name: "@anthropic-ai/sdk", program: "lib_anthropic.mjs"},
    {name: "@ai-sdk/openai-compatible", program: "lib_ai_sdk.mjs"},
    {name: "@langchain/openai", program: "lib_langchain.mjs"},
].map((l) => ({...l, package: l.name, library: true}));

// Run a program without standard input. Returns its status and its output.
async function run(program, args, options) {
    const child = spawn(program, args, {...options, stdio: ["ignore", "pipe", "pipe"], detached: true});
    let out = "", err = "";
    child.stdout.on("data", (d) => { out += d; });
    child.stderr.on("data", (d) => { err += d; });
    const timer = setTimeout(() => process.kill(-child.pid, "SIGKILL"), TIMEOUT);
    const status = await new Promise((resolve) => {
        child.on("error", (e) => resolve(e.message));
        child.on("close", (code, signal) => resolve(code ?? signal));
    });
    clearTimeout(timer);
    return {status, out, err};
}

// Start the server, which ends with this process. Returns its URL, and its log's lines.
async function startServer() {
    const keys = path.join(folder, "keys");
    fs.writeFileSync(keys, KEY + "\n", {mode: 0o600});
    const log = [];
    const child = spawn(qwick, ["--no-config", "serve", "-m", model, "--listen", "127.0.0.1:0", "-v", "--embeddings",
        "--seed", "1", "--api-key-file", keys], {stdio: ["ignore", "ignore", "pipe"]});
    process.on("exit", () => child.kill());
    const url = await new Promise((resolve, reject) => {
        child.stderr.on("data", (d) => {
            log.push(...String(d).trimEnd().split("\n"));
            const at = log.join("\n").match(/answers at (http:\S+)/);
            if (at)
                resolve(at[1]);
        });
        child.on("close", (code) => reject(new Error(`qwick serve: status ${code}: ${log.join("\n")}`)));
    });
    return {url, log};
}

const count = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;

// Each library cancels at least a stream and a request without one.
const CANCELLED = 2, left = (serverLog) => serverLog.filter((l) => l.includes("the client has left")).length;

// What is wrong with the run of a library, a message each.
function libraryFaults({status, out}, log, serverLog) {
    const faults = out.split("\n").filter((l) => l.startsWith("FAIL")).map((l) => l.slice(5));
    if (status !== 0 && !faults.length)
        faults.push(`status ${status}`);
    if (left(serverLog) < CANCELLED)
        faults.push(`the server notices ${count(left(serverLog), "cancellation")}`);
    return faults;
}

function libraryRow({out}, log) {
    const paths = [...new Set(log.filter((e) => e.method === "POST").map((e) => e.path))];
    return [`${paths.join(", ")}; ${count(log.length, "request")}`, `ok, ${count(out.match(/^ok/gm)?.length ?? 0, "step")}`];
}

// What is wrong with the turns of an agent.
function agentFaults(agent, {status, out}, log, cities) {
    const faults = [], results = log.filter((e) => e.result);
    if (status !== 0)
        faults.push(`status ${status}`);
    if (!out.includes(ANSWER))
        faults.push("it does not print the answer");
    for (const e of log)
        if (e.status !== 200)
            faults.push(`${e.method} ${e.path}: ${e.status} ${e.error ?? ""}`);
    if (!log.some((e) => e.forced && e.path === agent.endpoint))
        faults.push("no request has the tool");
    if (cities.length !== TURNS)
        faults.push(`the tool was called ${count(cities.length, "time")}`);
    if (results.length !== TURNS)
        faults.push(`${count(results.length, "request")} with the result of a call`);
    for (const {usage} of agentRequests(log).slice(1))
        if (usage.prompt >= LONG && usage.cached < CACHED * usage.prompt)
            faults.push(`only ${usage.cached} of ${usage.prompt} tokens were cached`);
    return faults;
}

// The requests of the turns: with the question, with the result.
const agentRequests = (log) => log.filter((e) => (e.forced || e.result) && e.usage);

function agentRow(agent, log, cities) {
    const requests = agentRequests(log), cached = requests.map(({usage: u}) => 100 * u.cached / u.prompt);
    const tokens = requests.map(({usage}, i) => usage.prompt.toLocaleString("en") + (i ? ` (${cached[i].toFixed(2)}%)` : ""));
    return [`${agent.endpoint}; ${count(requests[0]?.n_tools ?? 0, "tool")}; tokens (cached): ${tokens.join(", ")}`,
        `ok, ${cities.map((c) => `weather(${c})`).join(", ")}, and answers`];
}

async function check(client, {server, proxy, sink}) {
    const home = fs.mkdtempSync(path.join(folder, "home-"));
    const work = path.join(home, "work"), weatherLog = path.join(home, "weather.log");
    const c = {url: proxy.url, key: KEY, home, weather: [process.execPath, path.join(here, "weather.mjs")]};
    fs.mkdirSync(work);
    fs.writeFileSync(weatherLog, "");
    const env = {
        PATH: process.env.PATH, HOME: home, LANG: "C.UTF-8", TERM: "dumb", NO_COLOR: "1", BASE: proxy.url, KEY,
        WEATHER_LOG: weatherLog, HTTP_PROXY: sink.url, HTTPS_PROXY: sink.url, http_proxy: sink.url,
        https_proxy: sink.url, NO_PROXY: "127.0.0.1,localhost", no_proxy: "127.0.0.1,localhost",
    };
    Object.assign(env, client.env?.(c));
    for (const [name, text] of Object.entries(client.config?.(c) ?? {})) {
        fs.mkdirSync(path.dirname(path.join(home, name)), {recursive: true});
        fs.writeFileSync(path.join(home, name), text);
    }
    proxy.log.length = server.log.length = sink.log.length = 0;
    proxy.steers = !client.library;
    const program = client.library ? process.execPath : path.join(folder, "node_modules/.bin", client.program);
    let result;
    if (client.library)
        result = await run(program, [path.join(here, client.program)], {cwd: work, env});
    for (let i = 0; i < 100 && client.library && left(server.log) < CANCELLED; i++)
        await sleep(100); // the server may need a moment
    for (let i = 0; i < TURNS && !client.library && !result?.status; i++)
        result = await run(program, client.args(QUESTION, i > 0, c), {cwd: work, env});
    const cities = fs.readFileSync(weatherLog, "utf8").split("\n").slice(0, -1), log = proxy.log;
    const faults = client.library ? libraryFaults(result, log, server.log) : agentFaults(client, result, log, cities);
    if (sink.log.length)
        faults.push(`wants to reach ${[...new Set(sink.log)].join(", ")}`);
    const file = path.join(folder, client.name.replace(/\W+/g, "-") + ".log");
    fs.writeFileSync(file, JSON.stringify({...result, faults, requests: log, server: server.log}, null, 1));
    if (!faults.length)
        fs.rmSync(home, {recursive: true});
    const [request, ok] = client.library ? libraryRow(result, log) : agentRow(client, log, cities);
    return {request, result: faults.length ? `FAIL: ${faults.join("; ").replace(/\s+/g, " ")}` : ok, failed: faults.length > 0};
}

const all = [...libraries, ...agents].filter((c) => !names.length || names.includes(c.name));
const context = {server: await startServer(), sink: await startSink()};
context.proxy = await startProxy(context.server.url);
const rows = [["client", "version", "request", "result"]];
let failed = 0;
for (const client of all) {
    const manifest = path.join(folder, "node_modules", client.package, "package.json");
    const row = await check(client, context);
    failed += row.failed;
    rows.push([client.name, JSON.parse(fs.readFileSync(manifest)).version, row.request, row.result]);
}
const widths = [0, 1, 2].map((i) => Math.max(...rows.map((r) => r[i].length)));
for (const r of rows)
    console.log(r.map((text, i) => text.padEnd(widths[i] ?? 0)).join("  ").trimEnd());
console.log(`${all.length - failed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
