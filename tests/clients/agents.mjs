// The agents: their packages, programs and settings. qwick-serve(1) shows the same
// settings. All telemetry and all checks for updates are off.
//   config(c): files of the home directory, by name; c has url and key of the server,
//   and weather: the command of the MCP server
//   args: of a turn, after the program's name; with `again` it continues the last one

const json = (value) => JSON.stringify(value, null, 2) + "\n";
const MODEL = "model", CONTEXT = 40960;

export const agents = [
    {
        name: "opencode", package: "opencode-ai", program: "opencode",
        endpoint: "/v1/chat/completions",
        config: (c) => ({
            // with these it installs no packages for plugins
            ".config/opencode/node_modules/none": "",
            ".config/opencode/package-lock.json":
                json({lockfileVersion: 3, packages: {"": {dependencies: {"@opencode-ai/plugin": "*"}}}}),
            ".config/opencode/opencode.json": json({
                model: `qwick/${MODEL}`, small_model: `qwick/${MODEL}`,
                autoupdate: false, share: "disabled", permission: {"*": "ask", "weather_*": "allow"},
                provider: {
                    qwick: {
                        npm: "@ai-sdk/openai-compatible", name: "qwick",
                        options: {baseURL: `${c.url}/v1`, apiKey: c.key},
                        models: {[MODEL]: {name: MODEL, tool_call: true, limit: {context: CONTEXT, output: 4096}}},
                    },
                },
                mcp: {weather: {type: "local", command: c.weather, enabled: true}},
            }),
        }),
        env: () => ({OPENCODE_DISABLE_AUTOUPDATE: "1", OPENCODE_DISABLE_MODELS_FETCH: "1"}),
        args: (question, again) => ["run", "--pure", ...(again ? ["--continue"] : []), question],
    },
    {
        name: "codex", package: "@openai/codex", program: "codex",
        endpoint: "/v1/responses",
        config: (c) => ({
            ".codex/config.toml": `model = "${MODEL}"
model_provider = "qwick"
model_context_window = ${CONTEXT}
approval_policy = "never"
sandbox_mode = "read-only"
web_search = "disabled"
check_for_update_on_startup = false

[model_providers.qwick]
name = "qwick"
base_url = "${c.url}/v1"
wire_api = "responses"
env_key = "QWICK_API_KEY"

[features]
plugins = false
apps = false

[analytics]
enabled = false

[mcp_servers.weather]
command = "${c.weather[0]}"
args = ["${c.weather[1]}"]
env_vars = ["WEATHER_LOG"]
`,
        }),
        env: (c) => ({QWICK_API_KEY: c.key}),
        args: (question, again) => ["exec", ...(again ? ["resume", "--last"] : []), "--skip-git-repo-check", question],
    },
    {
        name: "claude", package: "@anthropic-ai/claude-code", program: "claude",
        endpoint: "/v1/messages",
        config: (c) => ({
            "mcp.json": json({mcpServers: {weather: {command: c.weather[0], args: c.weather.slice(1)}}}),
        }),
        env: (c) => ({
            ANTHROPIC_BASE_URL: c.url, ANTHROPIC_AUTH_TOKEN: c.key, ANTHROPIC_MODEL: MODEL,
            ANTHROPIC_DEFAULT_HAIKU_MODEL: MODEL, CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
            DISABLE_AUTOUPDATER: "1", DISABLE_TELEMETRY: "1", DISABLE_ERROR_REPORTING: "1",
            // room for an answer is taken off the window before it compacts the chat
            CLAUDE_CODE_MAX_CONTEXT_TOKENS: String(CONTEXT), CLAUDE_CODE_MAX_OUTPUT_TOKENS: "4096",
            ENABLE_TOOL_SEARCH: "false",
        }),
        args: (question, again, c) => ["-p", question, ...(again ? ["--continue"] : []), "--mcp-config", `${c.home}/mcp.json`, "--strict-mcp-config",
            "--allowedTools", "mcp__weather__weather"],
    },
];
