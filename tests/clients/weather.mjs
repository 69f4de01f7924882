// An MCP server over standard input and output, with one tool that only reads: the
// weather of a city. It appends the cities that are asked for to the file $WEATHER_LOG.
import fs from "node:fs";
import readline from "node:readline";

const tool = {
    name: "weather", description: "The weather of a city.", annotations: {readOnlyHint: true},
    inputSchema: {
        type: "object", properties: {city: {type: "string", enum: ["Lima", "Oslo", "Rome"]}},
        required: ["city"], additionalProperties: false,
    },
};

function call({city}) {
    fs.appendFileSync(process.env.WEATHER_LOG, city + "\n");
    return {content: [{type: "text", text: `${city}: 21 degrees`}]};
}

const methods = {
    "initialize": ({protocolVersion}) =>
        ({protocolVersion, capabilities: {tools: {}}, serverInfo: {name: "weather", version: "1"}}),
    "ping": () => ({}),
    "tools/list": () => ({tools: [tool]}),
    "tools/call": (params) => call(params.arguments),
};

readline.createInterface({input: process.stdin}).on("line", (line) => {
    const {id, method, params} = JSON.parse(line);
    if (id === undefined)
        return;
    const answer = methods[method] ? {result: methods[method](params)} :
        {error: {code: -32601, message: `no method ${method}`}};
    process.stdout.write(JSON.stringify({jsonrpc: "2.0", id, ...answer}) + "\n");
});
