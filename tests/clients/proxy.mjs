// The proxy between a client and the server. It logs requests; for an agent it also
// makes the random model's answers harmless: the user's message is answered by a call
// of the tool `weather`, everything else by a short text.
import http from "node:http";

export const ANSWER = "It is sunny.";

// What came after the model's last answer.
function lastTurn(items, isAnswer) {
    return items.slice(items.findLastIndex(isAnswer) + 1);
}

// One row a protocol. hasResult: the request brings the result of a call. tools: names.
// force: the answer must call this tool. finish: the answer must be text, and end.
// usage: of an answer or an event, prompt and cached tokens, or undefined.
const protocols = {
    "/v1/chat/completions": {
        hasResult: (b) => lastTurn(b.messages, (m) => m.role === "assistant").some((m) => m.role === "tool"),
        tools: (b) => (b.tools ?? []).map((t) => ({name: t.function.name})),
        force(b, tool) {
            b.tool_choice = {type: "function", function: {name: tool.name}};
        },
        finish(b) {
            delete b.tool_choice;
            b.choices = [ANSWER];
        },
        usage: (e) => e.usage && {
            prompt: e.usage.prompt_tokens, cached: e.usage.prompt_tokens_details.cached_tokens,
        },
    },
    "/v1/responses": {
        hasResult: (b) => typeof b.input !== "string" &&
            lastTurn(b.input, (i) => i.role === "assistant" || i.type === "function_call")
                .some((i) => i.type === "function_call_output"),
        tools: (b) => (b.tools ?? []).flatMap((t) =>
            (t.type === "namespace" ? t.tools.map((f) => ({name: f.name, namespace: t.name})) : [{name: t.name}])),
        force(b, tool) {
            b.tool_choice = {type: "function", ...tool};
        },
        finish(b) {
            delete b.tool_choice;
            b.text = {format: {type: "json_schema", name: "answer", strict: true, schema: {enum: [ANSWER]}}};
        },
        usage(e) {
            const u = e.response?.usage ?? e.usage;
            return u && {prompt: u.input_tokens, cached: u.input_tokens_details.cached_tokens};
        },
    },
    "/v1/messages": {
        hasResult: (b) => lastTurn(b.messages, (m) => m.role === "assistant")
            .some((m) => Array.isArray(m.content) && m.content.some((c) => c.type === "tool_result")),
        tools: (b) => (b.tools ?? []).map((t) => ({name: t.name})),
        force(b, tool) {
            b.tool_choice = {type: "tool", name: tool.name};
            b.thinking = {type: "disabled"};
        },
        finish(b) {
            delete b.tool_choice;
            b.output_config = {format: {type: "json_schema", schema: {enum: [ANSWER]}}};
        },
        usage(e) {
            const u = e.message?.usage ?? e.usage;
            const cached = u?.cache_read_input_tokens ?? 0;
            return u?.input_tokens !== undefined &&
                {prompt: u.input_tokens + cached + (u.cache_creation_input_tokens ?? 0), cached};
        },
    },
};

// Change the body of an agent's request. Returns what the log says about it.
function steer(protocol, body) {
    const tools = protocol.tools(body);
    const weather = tools.find((t) => /weather/.test(t.name) && !/resource/.test(t.name));
    const result = protocol.hasResult(body);
    if (weather && !result)
        protocol.force(body, weather);
    else
        protocol.finish(body);
    return {n_tools: tools.length, forced: Boolean(weather && !result), result};
}

// The objects of an answer: its events, or itself.
function* objects(text) {
    for (const line of text.startsWith("{") ? ["data: " + text] : text.split("\n"))
        if (/^data: \{.*\}$/.test(line)) // not the last line of a client that left
            yield JSON.parse(line.slice(6));
}

// Start a proxy for the server at `target`. Returns its URL, and `log`, an array of the
// requests since it was last emptied. With `steers`, answers are as said above.
export async function startProxy(target) {
    const proxy = {log: [], steers: false};
    const server = http.createServer(async (req, res) => {
        const chunks = [];
        for await (const chunk of req)
            chunks.push(chunk);
        let body = Buffer.concat(chunks);
        const path = req.url.split("?")[0], protocol = protocols[path];
        const entry = {method: req.method, path};
        proxy.log.push(entry);
        if (protocol && body.length) {
            const json = JSON.parse(body);
            entry.sent = JSON.parse(body);
            entry.stream = json.stream ?? false;
            if (proxy.steers) {
                Object.assign(entry, steer(protocol, json));
                body = Buffer.from(JSON.stringify(json));
            }
        }
        const headers = {...req.headers, "content-length": body.length};
        delete headers["transfer-encoding"];
        if (!body.length)
            delete headers["content-length"];
        const up = http.request(target + req.url, {method: req.method, headers, agent: false}, (answer) => {
            entry.status = answer.statusCode;
            res.writeHead(answer.statusCode, answer.headers);
            answer.on("data", (d) => { text += d; });
            answer.pipe(res);
        });
        let text = "";
        up.on("error", () => res.destroy());
        res.on("close", () => { // a client may leave after the last event
            up.destroy();
            if (entry.status >= 400)
                entry.error = text.slice(0, 500);
            for (const o of protocol ? objects(text) : [])
                entry.usage = protocol.usage(o) || entry.usage;
        });
        up.end(body);
    });
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    proxy.url = `http://127.0.0.1:${server.address().port}`;
    return proxy;
}

// A proxy for everything that is not on this machine: it refuses, and keeps in `log`
// where clients wanted to go.
export async function startSink() {
    const sink = {log: []};
    const server = http.createServer((req, res) => {
        sink.log.push(req.url);
        res.writeHead(403).end();
    });
    server.on("connect", (req, socket) => {
        sink.log.push(req.url);
        socket.on("error", () => {});
        socket.end("HTTP/1.1 403 Forbidden\r\n\r\n");
    });
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    sink.url = `http://127.0.0.1:${server.address().port}`;
    return sink;
}
