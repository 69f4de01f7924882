// The library @ai-sdk/openai-compatible, with the functions of `ai`.
import {createOpenAICompatible} from "@ai-sdk/openai-compatible";
import {APICallError, Output, embedMany, generateText, jsonSchema, stepCountIs, streamText, tool} from "ai";
import {z} from "zod";
import {assert, BASE, CITIES, KEY, QUESTION, SCHEMA, failure, step} from "./steps.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;
const qwick = createOpenAICompatible({
    name: "qwick", baseURL: BASE + "/v1", apiKey: KEY, includeUsage: true, supportsStructuredOutputs: true,
});
const request = {model: qwick("model"), prompt: QUESTION, maxOutputTokens: 12, maxRetries: 0, seed: 1};
const asked = [];
const weather = tool({
    description: "The weather of a city.", inputSchema: jsonSchema(SCHEMA),
    execute({city}) {
        asked.push(city);
        return `${city}: 21 degrees`;
    },
});
const turn = {
    ...request, maxOutputTokens: 200, tools: {weather}, stopWhen: stepCountIs(2),
    prepareStep: ({stepNumber}) => ({toolChoice: stepNumber ? "none" : {type: "tool", toolName: "weather"}}),
};

await step("text", async () => {
    const a = await generateText(request);
    const b = streamText(request);
    let text = "";
    for await (const t of b.textStream)
        text += t;
    assert.ok(text);
    assert.equal(text, a.text);
    assert.equal((await b.usage).outputTokens, a.usage.outputTokens);
});
await step("tool turn", async () => {
    const a = await generateText(turn);
    assert.equal(a.steps.length, 2);
    assert.ok(a.text);
});
await step("tool turn, streamed", async () => {
    const a = streamText(turn);
    await a.consumeStream();
    assert.equal((await a.steps).length, 2);
    assert.ok(await a.text);
});
await step("the tool was called with its cities", () => {
    assert.equal(asked.length, 2);
    assert.ok(asked.every((c) => CITIES.includes(c)));
});
await step("structured output", async () => {
    const output = Output.object({schema: z.object({city: z.enum(CITIES)})});
    const a = await generateText({...request, maxOutputTokens: 200, output});
    assert.ok(CITIES.includes(a.output.city));
});
await step("embeddings", async () => {
    const {embeddings} = await embedMany({model: qwick.embeddingModel("model"), values: ["one", "two"]});
    assert.equal(embeddings.length, 2);
});
await step("errors", async () => {
    const e = await failure(() => generateText({...request, temperature: -1}));
    assert.ok(APICallError.isInstance(e));
    assert.equal(e.statusCode, 400);
    const wrong = createOpenAICompatible({name: "qwick", baseURL: BASE + "/v1", apiKey: "wrong-key-wrong-key"});
    assert.equal((await failure(() => generateText({...request, model: wrong("model")}))).statusCode, 401);
});
await step("cancellation", async () => {
    const controller = new AbortController();
    const a = streamText({...request, maxOutputTokens: 4000, abortSignal: controller.signal});
    let aborted = false;
    for await (const part of a.fullStream) {
        if (part.type === "text-delta")
            controller.abort();
        aborted ||= part.type === "abort";
    }
    assert.ok(aborted);
    const abortSignal = AbortSignal.timeout(200);
    await failure(() => generateText({...request, maxOutputTokens: 4000, abortSignal}));
});
