// What the programs of the libraries share: the server, the tool, and steps, each of
// which prints a line.
import assert from "node:assert/strict";

export {assert};
export const BASE = process.env.BASE, KEY = process.env.KEY;
export const CITIES = ["Lima", "Oslo", "Rome"];
export const SCHEMA = {
    type: "object", properties: {city: {type: "string", enum: CITIES}},
    required: ["city"], additionalProperties: false,
};
export const QUESTION = "What is the weather?";

export async function step(name, run) {
    try {
        await run();
        console.log(`ok ${name}`);
    } catch (e) {
        console.log(`FAIL ${name}: ${e.stack ?? e}`);
        process.exitCode = 1;
    }
}

// The error that `run` ends with.
export async function failure(run) {
    try {
        await run();
    } catch (e) {
        return e;
    }
    throw new Error("no error");
}

// Texts longer than the context of the model, in any tokenizer.
export const TOO_LONG = "word ".repeat(60000);

// Begin a stream, take one event, and leave: begin(signal) gives an async iterable.
export async function leave(begin) {
    const controller = new AbortController();
    for await (const _ of await begin(controller.signal))
        controller.abort();
}
