// The library @anthropic-ai/sdk: messages and the count of tokens.
import Anthropic from "@anthropic-ai/sdk";
import {zodOutputFormat} from "@anthropic-ai/sdk/helpers/zod";
import {z} from "zod";
import {assert, BASE, CITIES, KEY, QUESTION, SCHEMA, TOO_LONG, failure, leave, step} from "./steps.mjs";

const client = new Anthropic({baseURL: BASE, apiKey: KEY, maxRetries: 0});
const model = "model", max_tokens = 12;
const messages = [{role: "user", content: QUESTION}];
const tools = [{name: "weather", description: "The weather of a city.", input_schema: SCHEMA}];
const tool_choice = {type: "tool", name: "weather"};

await step("message", async () => {
    const a = await client.messages.create({model, messages, max_tokens, temperature: 0});
    assert.equal(a.stop_reason, "max_tokens");
    const stream = client.messages.stream({model, messages, max_tokens, temperature: 0});
    assert.equal(await stream.finalText(), a.content[0].text);
    assert.deepEqual((await stream.finalMessage()).usage.output_tokens, a.usage.output_tokens);
});
for (const [name, ask] of [
    ["tool turn", (body) => client.messages.create(body)],
    ["tool turn, streamed", (body) => client.messages.stream(body).finalMessage()],
])
    await step(name, async () => {
        const a = await ask({model, messages, tools, tool_choice, max_tokens: 200});
        assert.equal(a.stop_reason, "tool_use");
        const call = a.content.find((c) => c.type === "tool_use");
        assert.ok(CITIES.includes(call.input.city));
        const result = {type: "tool_result", tool_use_id: call.id, content: "21 degrees"};
        const next = [...messages, {role: "assistant", content: a.content}, {role: "user", content: [result]}];
        const b = await ask({model, messages: next, tools, tool_choice: {type: "none"}, max_tokens});
        assert.ok(b.content.some((c) => c.type === "text" && c.text));
    });
await step("structured output", async () => {
    const output_config = {format: zodOutputFormat(z.object({city: z.enum(CITIES)}))};
    const a = await client.messages.parse({model, messages, max_tokens: 200, output_config});
    assert.ok(CITIES.includes(a.parsed_output.city));
});
await step("count_tokens", async () => {
    const {input_tokens} = await client.messages.countTokens({model, messages, tools, system: "Be short."});
    const {usage} = await client.messages.create({model, messages, tools, system: "Be short.", max_tokens: 1});
    assert.equal(input_tokens, usage.input_tokens + usage.cache_read_input_tokens);
});
await step("errors", async () => {
    const ask = (more, c = client) => failure(() => c.messages.create({model, messages, max_tokens, ...more}));
    const bad = await ask({temperature: -1});
    assert.ok(bad instanceof Anthropic.BadRequestError);
    assert.equal(bad.error.error.type, "invalid_request_error");
    assert.ok(await ask({max_tokens: undefined}) instanceof Anthropic.BadRequestError);
    assert.ok(await ask({messages: [{role: "user", content: TOO_LONG}]}) instanceof Anthropic.BadRequestError);
    const key = await ask({}, client.withOptions({apiKey: "wrong-key-wrong-key"}));
    assert.ok(key instanceof Anthropic.AuthenticationError);
    const none = await failure(() => client.models.retrieve("absent"));
    assert.ok(none instanceof Anthropic.NotFoundError);
});
await step("cancellation", async () => {
    await leave((signal) => client.messages.create({model, messages, max_tokens: 4000, stream: true}, {signal}));
    const signal = AbortSignal.timeout(200);
    const e = await failure(() => client.messages.create({model, messages, max_tokens: 4000}, {signal}));
    assert.ok(e instanceof Anthropic.APIUserAbortError);
});
