// The library @langchain/openai.
import {HumanMessage, ToolMessage} from "@langchain/core/messages";
import {tool} from "@langchain/core/tools";
import {ChatOpenAI, OpenAIEmbeddings} from "@langchain/openai";
import {z} from "zod";
import {assert, BASE, CITIES, KEY, QUESTION, failure, step} from "./steps.mjs";

const shared = {model: "model", apiKey: KEY, maxRetries: 0, configuration: {baseURL: BASE + "/v1"}};
const chat = (more) => new ChatOpenAI({...shared, maxTokens: 12, temperature: 0, ...more});
const City = z.object({city: z.enum(CITIES)});
const weather = tool(({city}) => `${city}: 21 degrees`, {name: "weather", description: "The weather of a city.", schema: City});

// `streaming: true` would fetch OpenAI's tokenizer, to count tokens.
async function streamed(model, chat) {
    let all;
    for await (const chunk of await model.stream(chat))
        all = all ? all.concat(chunk) : chunk;
    return all;
}

for (const [name, more] of [["chat completions", {}], ["responses", {useResponsesApi: true}]]) {
    await step(`${name}: text`, async () => {
        const a = await chat(more).invoke(QUESTION);
        const b = await streamed(chat(more), QUESTION);
        assert.ok(a.text);
        assert.equal(b.text, a.text);
        assert.equal(a.usage_metadata.output_tokens, 12);
    });
    for (const [way, ask] of [["", (model, chat) => model.invoke(chat)], [", streamed", streamed]])
        await step(`${name}: tool turn${way}`, async () => {
            const question = new HumanMessage(QUESTION);
            const model = chat({...more, maxTokens: 200});
            const a = await ask(model.bindTools([weather], {tool_choice: "weather"}), [question]);
            City.parse(a.tool_calls[0].args);
            const result = await weather.invoke(a.tool_calls[0]);
            assert.ok(result instanceof ToolMessage);
            const b = await ask(chat(more).bindTools([weather], {tool_choice: "none"}), [question, a, result]);
            assert.ok(b.text);
        });
    await step(`${name}: structured output`, async () => {
        for (const method of ["jsonSchema", "functionCalling"]) {
            const a = await chat({...more, maxTokens: 200}).withStructuredOutput(City, {method}).invoke(QUESTION);
            assert.ok(CITIES.includes(a.city));
        }
    });
    await step(`${name}: cancellation`, async () => {
        const signal = AbortSignal.timeout(200);
        await failure(() => chat({...more, maxTokens: 4000}).invoke(QUESTION, {signal}));
        for await (const _ of await chat({...more, maxTokens: 4000}).stream(QUESTION))
            break;
    });
}
await step("embeddings", async () => {
    const vectors = await new OpenAIEmbeddings(shared).embedDocuments(["one", "two"]);
    assert.equal(vectors.length, 2);
    assert.ok(vectors[0].every(Number.isFinite));
});
await step("errors", async () => {
    const e = await failure(() => chat({temperature: -1}).invoke(QUESTION));
    assert.equal(e.status, 400);
    const key = await failure(() => chat({apiKey: "wrong-key-wrong-key"}).invoke(QUESTION));
    assert.equal(key.status, 401);
});
