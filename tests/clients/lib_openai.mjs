// The library openai: chats, completions, embeddings, responses.
import OpenAI from "openai";
import {zodResponseFormat, zodTextFormat} from "openai/helpers/zod";
import {z} from "zod";
import {assert, BASE, CITIES, KEY, QUESTION, SCHEMA, TOO_LONG, failure, leave, step} from "./steps.mjs";

const client = new OpenAI({baseURL: BASE + "/v1", apiKey: KEY, maxRetries: 0});
const model = "model", max_tokens = 12;
const messages = [{role: "user", content: QUESTION}];
const tools = [{type: "function", function: {name: "weather", parameters: SCHEMA, strict: true}}];
const tool_choice = {type: "function", function: {name: "weather"}};
const City = z.object({city: z.enum(CITIES)});

await step("models", async () => {
    const {data} = await client.models.list();
    assert.equal((await client.models.retrieve(data[0].id)).id, data[0].id);
});
await step("chat", async () => {
    const a = await client.chat.completions.create({model, messages, max_tokens, seed: 1});
    let text = "", usage;
    const options = {stream: true, stream_options: {include_usage: true}};
    for await (const c of await client.chat.completions.create({model, messages, max_tokens, seed: 1, ...options})) {
        text += c.choices[0]?.delta.content ?? "";
        usage = c.usage ?? usage;
    }
    assert.ok(text);
    assert.equal(text, a.choices[0].message.content);
    assert.equal(usage.completion_tokens, a.usage.completion_tokens);
});
await step("tool turn", async () => {
    const {choices: [c]} = await client.chat.completions.create({model, messages, tools, tool_choice});
    assert.equal(c.finish_reason, "tool_calls");
    const [call] = c.message.tool_calls;
    City.parse(JSON.parse(call.function.arguments));
    const next = [...messages, c.message, {role: "tool", tool_call_id: call.id, content: "21 degrees"}];
    const b = await client.chat.completions.create({model, messages: next, tools, tool_choice: "none", max_tokens});
    assert.ok(b.choices[0].message.content);
});
await step("tool turn, streamed", async () => {
    const stream = client.chat.completions.stream({model, messages, tools, tool_choice});
    const {choices: [c]} = await stream.finalChatCompletion();
    const [call] = c.message.tool_calls;
    City.parse(JSON.parse(call.function.arguments));
    const next = [...messages, c.message, {role: "tool", tool_call_id: call.id, content: "21 degrees"}];
    let text = "";
    const last = {model, messages: next, tools, tool_choice: "none", max_tokens, stream: true};
    for await (const e of await client.chat.completions.create(last))
        text += e.choices[0].delta.content ?? "";
    assert.ok(text);
});
await step("structured output", async () => {
    const response_format = zodResponseFormat(City, "city");
    const {choices: [c]} = await client.chat.completions.parse({model, messages, response_format});
    assert.ok(CITIES.includes(c.message.parsed.city));
});
await step("completions", async () => {
    const a = await client.completions.create({model, prompt: "The weather is", max_tokens});
    assert.ok(a.choices[0].text);
});
await step("embeddings", async () => {
    const a = await client.embeddings.create({model, input: ["one", "two"]});
    const b = await client.embeddings.create({model, input: ["one", "two"], encoding_format: "float"});
    assert.equal(a.data.length, 2);
    for (const [i, {embedding}] of a.data.entries())
        for (const [k, x] of embedding.entries())
            assert.ok(Math.abs(x - b.data[i].embedding[k]) < 1e-6);
});
await step("errors", async () => {
    const chat = (more, c = client) => failure(() => c.chat.completions.create({model, messages, max_tokens, ...more}));
    const bad = await chat({temperature: -1});
    assert.ok(bad instanceof OpenAI.BadRequestError);
    assert.equal(bad.param, "temperature");
    const long = await chat({messages: [{role: "user", content: TOO_LONG}]});
    assert.ok(long instanceof OpenAI.BadRequestError);
    assert.equal(long.code, "context_length_exceeded");
    const key = await chat({}, client.withOptions({apiKey: "wrong-key-wrong-key"}));
    assert.ok(key instanceof OpenAI.AuthenticationError);
    const none = await failure(() => client.models.retrieve("absent"));
    assert.ok(none instanceof OpenAI.NotFoundError);
});
await step("cancellation", async () => {
    await leave((signal) => client.chat.completions.create({model, messages, stream: true}, {signal}));
    const signal = AbortSignal.timeout(200);
    const e = await failure(() => client.chat.completions.create({model, messages}, {signal}));
    assert.ok(e instanceof OpenAI.APIUserAbortError);
});
await step("responses", async () => {
    const a = await client.responses.create({model, input: QUESTION, max_output_tokens: 12, temperature: 0});
    assert.ok(a.output_text);
    let text = "", last;
    for await (const e of await client.responses.create({model, input: QUESTION, max_output_tokens: 12, temperature: 0, stream: true})) {
        text += e.type === "response.output_text.delta" ? e.delta : "";
        last = e;
    }
    assert.equal(text, a.output_text);
    assert.equal(last.type, "response.incomplete");
    const f = await client.responses.parse({model, input: QUESTION, text: {format: zodTextFormat(City, "city")}});
    assert.ok(CITIES.includes(f.output_parsed.city));
});
await step("responses: tool turn", async () => {
    const input = messages, flat = [{type: "function", name: "weather", parameters: SCHEMA, strict: true}];
    const choice = {type: "function", name: "weather"};
    const turn = async (create) => {
        const a = await create({model, input, tools: flat, tool_choice: choice});
        const call = a.output.find((o) => o.type === "function_call");
        City.parse(JSON.parse(call.arguments));
        const result = {type: "function_call_output", call_id: call.call_id, output: "21 degrees"};
        const next = [...input, ...a.output, result];
        const b = await create({model, input: next, tools: flat, tool_choice: "none", max_output_tokens: 12});
        assert.ok(b.output.some((o) => o.type === "message" && o.content[0].text));
    };
    await turn((body) => client.responses.create(body));
    await turn((body) => client.responses.stream(body).finalResponse());
});
await step("responses: errors, cancellation", async () => {
    const bad = await failure(() => client.responses.create({model, input: QUESTION, previous_response_id: "resp_1"}));
    assert.ok(bad instanceof OpenAI.BadRequestError);
    assert.equal(bad.param, "previous_response_id");
    await leave((signal) => client.responses.create({model, input: QUESTION, stream: true}, {signal}));
});
