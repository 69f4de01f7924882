/* The rows of all options, in the order of --help. Included several times, with
 * other macros each time:
 *
 *   OPTION(type, id, "name", verbs, .member = ...)   an option; see struct opt
 *   VARIANT(type, id, "name", verbs, .member = ...)  its row for other verbs,
 * which say or do something else with it
 *   GROUP("heading", .shared = ...)                  the following options
 *
 * ONCE marks what belongs to one command (.single), LIVE what /set of chat
 * changes. RANGE and FROM give the ends of an integer, BETWEEN
 * those of a number.
 *
 * A new option is one row here. Its value is the member `id` of struct args.
 * Rules between options are rows of relations.c. */
/* clang-format off */

GROUP("Task")
OPTION(TEXTS, answer, "answer", V_CHOOSE, .letter = 'a', .arg = "TEXT", ONCE,
       .help = "a possible answer; give two or more")
OPTION(FLAG, yes, "yes", V_CHOOSE, ONCE,
       .help = "the answers are yes and no; print one of them, exit status 10 "
               "for no")
OPTION(FLAG, no_end, "no-end", V_CHOOSE,
       .help = "the reply may go on after the answer: leave out the "
               "probability that it ends there")
OPTION(TEXT, query, "query", V_RERANK, .letter = 'q', .letter_late = true,
       .arg = "QUERY", ONCE,
       .help = "question that the documents should answer")
OPTION(TEXT, id, "id", V_SIMILAR, .arg = "ID", ONCE,
       .help = "the query is the vector of the text with this id in the index; "
               "no model is needed")
OPTION(TEXT, instruct, "instruct", V_EMBED, .arg = "TASK",
       .help = "the texts are queries of this task: put \"Instruct: "
               "TASK\\nQuery:\" before each")
OPTION(TEXT, prompt_name, "prompt-name", V_EMBED, .arg = "NAME",
       .def = "the model's default prompt, if it has one",
       .help = "put this prompt of config_sentence_transformers.json before "
               "each text")
VARIANT(TEXT, prompt_name, "prompt-name", V_SIMILAR, .arg = "NAME",
        .def = "query, or the model's default prompt, if it has them",
        .help = "put this prompt of config_sentence_transformers.json before "
                "each query")
VARIANT(TEXT, instruct, "instruct", V_SIMILAR, .arg = "TASK",
        .help = "the task of the queries: put \"Instruct: TASK\\nQuery:\" "
                "before each")
VARIANT(TEXT, instruct, "instruct", V_RERANK, .arg = "TASK",
        .def = "Given a web search query, retrieve relevant passages that "
               "answer the query", .help = "what relevant means")
OPTION(TEXT, given, "given", V_SCORE, ONCE,
       .help = "text before the scored text; it is not scored itself")
OPTION(FILE, given_file, "given-file", V_SCORE, ONCE,
       .help = "read the text of --given from FILE, - is stdin")
OPTION(FILE, against, "against", V_SCORE, .arg = "MODEL", .access = OPT_MODEL,
       ONCE,
       .help = "compare the model with the reference MODEL, which has the same "
               "tokens: KL divergence, agreement, perplexities, with intervals")
OPTION(INT, window, "window", V_SCORE, FROM(2), .def = "the context",
       .help = "evaluate a longer text in windows of N tokens")
OPTION(INT, stride, "stride", V_SCORE, FROM(1), .def = "half of the window",
       .help = "move the window by N tokens; each window scores its new tokens")
OPTION(FLAG, unordered, "unordered", V_BATCH,
       .help = "write answers as they finish, not in the order of the input")
OPTION(TEXT, shard, "shard", V_BATCH, .arg = "I/N", ONCE,
       .help = "answer every N-th record, beginning with the I-th; 1/1: all")
OPTION(INT, line_offset, "line-offset", V_BATCH, RANGE(0, 4503599627370496),
       ONCE, .def = "0",
       .help = "count the lines of the input from N + 1, for a part of a "
               "larger file")
OPTION(INT, debounce, "debounce", V_BATCH, .arg = "MS", RANGE(0, 60000),
       .def = "5",
       .help = "when idle, wait for records until none has come for MS "
               "milliseconds or a batch is full; with --seed: until a batch is "
               "full")
OPTION(INT, prompt_tokens, "prompt-tokens", V_PLAN, FROM(1),
       .def = "half of the context, at most 512",
       .help = "tokens of the prompt; qwick count counts those of a text")
OPTION(INTS, prompt_lens, "prompt-lens", V_BENCH, RANGE(1, 10000000),
       .def = "512", .help = "tokens of the prompts whose prefill is timed")
OPTION(INT, gen, "gen", V_BENCH, RANGE(1, 10000000), .def = "at most 64",
       .help = "decode steps of a timed run")
OPTION(INTS, depths, "depths", V_BENCH, RANGE(1, 10000000), .def = "16",
       .help = "tokens in the context before the decode steps")
OPTION(INTS, batches, "batches", V_BENCH, RANGE(1, 1024), .def = "none",
       .help = "sequences decoded together, at each of the depths")
OPTION(INT, reps, "reps", V_BENCH, RANGE(1, 1000), .def = "5, with --tune 25",
       .help = "timed runs of each measurement")
OPTION(INT, warmup, "warmup", V_BENCH, RANGE(0, 1000), .def = "1",
       .help = "runs before the timed ones that do not count")
OPTION(FLAG, parts, "parts", V_BENCH,
       .help = "also show where a pass spends its time")
OPTION(FLAG, tune, "tune", V_BENCH,
       .help = "instead measure all variants of each choice between kernels")
OPTION(FILE, compare, "compare", V_BENCH, ONCE,
       .help = "also show the ratio of each row to that in FILE, which --json "
               "printed")
OPTION(NUMBER, fail_below, "fail-below", V_BENCH, .arg = "RATIO",
       BETWEEN(0.001, 1000), .def = "never",
       .help = "exit status 1 if a row's share of its limit is below RATIO of "
               "that in FILE")
OPTION(FLAG, compare_any, "compare-any", V_BENCH,
       .help = "FILE may be about another machine, model or settings")
OPTION(NUMBER, seconds, "seconds", V_SELFTEST, .arg = "N", BETWEEN(0, 1000000),
       .def = "60",
       .help = "cut the checks that have not ended after N seconds; 0: no "
               "limit")
OPTION(CHOICE, type, "type", V_QUANTIZE, .arg = "NAME",
       .choices = "Q8_0|Q6_K|Q5_K_M|Q4_K_M|Q4_0|IQ4_NL|Q3_K_M|Q2_K|BF16|F16|MXFP4",
       .def = "Q4_K_M, or MXFP4 if the source has weights in it",
       .help = "which types the matrices of a GGUF file get")
OPTION(CHOICE, bits, "bits", V_QUANTIZE, .arg = "N", .choices = "2|3|4|5|6|8",
       .def = "4, or the source's if its codes can stay",
       .help = "bits of a weight")
OPTION(CHOICE, group, "group", V_QUANTIZE, .arg = "N", .choices = "32|64|128",
       .def = "64, or the largest that the source's codes can have",
       .help = "weights that share one scale and bias")
OPTION(CHOICE, head_bits, "head-bits", V_QUANTIZE, .arg = "N",
       .choices = "2|3|4|5|6|8", .def = "as --bits",
       .help = "bits of lm_head, or of the embedding if that is the head")
OPTION(TEXTS, only, "only", V_QUANTIZE, .arg = "PATTERN", ONCE,
       .help = "quantize only modules whose names match a shell pattern such "
               "as \"*.mlp.*\"; repeatable")
OPTION(TEXTS, skip, "skip", V_QUANTIZE, .arg = "PATTERN", ONCE,
       .help = "leave modules whose names match unchanged; repeatable")
OPTION(CHOICE, scales, "scales", V_QUANTIZE, .choices = "mlx|lsq|feedback",
       .def = "mlx, with calibration feedback",
       .help = "choose scales as MLX does, or search for the least squared "
               "error; feedback: and choose codes together")
OPTION(FILES, calibrate, "calibrate", V_QUANTIZE, .arg = "FILE", ONCE,
       .help = "run over the text of FILE first, or over the lines of a .jsonl "
               "file, to learn which errors matter; repeatable")
OPTION(INT, calibrate_self, "calibrate-self", V_QUANTIZE, .arg = "N",
       RANGE(1, 4096), ONCE,
       .help = "do so over N texts of 512 tokens that the model writes")
OPTION(SIZE, calibrate_memory, "calibrate-memory", V_QUANTIZE, .arg = "SIZE",
       .imin = 1, ONCE, .def = "4G",
       .help = "memory for what is learnt, at most, with K, M, G or T")
OPTION(NUMBER, bpw, "bpw", V_QUANTIZE, .arg = "BITS", BETWEEN(1, 32), ONCE,
       .help = "choose the bits of each module so that the matrices have BITS a "
               "weight as stored, by the loss measured on calibration texts")
OPTION(SIZE, target, "target", V_QUANTIZE, .imin = 1, ONCE,
       .help = "do so with at most SIZE bytes in all, with K, M, G or T")
OPTION(FLAG, dry_run, "dry-run", V_QUANTIZE, ONCE,
       .help = "with these, print the choice and write nothing")
OPTION(FILE, report, "report", V_QUANTIZE, .access = OPT_READS, ONCE,
       .help = "afterwards print the sizes, and what the result has lost on the "
               "text of FILE (.jsonl: records of score)")
OPTION(FLAG, force, "force", V_QUANTIZE, ONCE,
       .help = "replace an existing checkpoint or GGUF file")
VARIANT(FLAG, force, "force", V_LOG, ONCE,
        .help = "rm --all, rm --conversation: do not ask")
VARIANT(FLAG, force, "force", V_MODELS, ONCE, .help = "rm: do not ask")
OPTION(SIZE, size, "size", V_CACHE, .imin = 0, ONCE, .def = "4G",
       .help = "gc: keep at most SIZE bytes, with K, M, G or T")
OPTION(FILE, revision, "revision", V_PULL, .letter = 'r', .arg = "REVISION",
       ONCE, .def = "main", .help = "branch, tag or commit")
OPTION(FILE, dir, "dir", V_PULL, .letter = 'd', .arg = "DIR", ONCE,
       .def = "the Hugging Face cache", .help = "put plain files into DIR")
VARIANT(FILE, dir, "dir", V_CACHE, .letter = 'd', .arg = "DIR", ONCE,
        .def = "$XDG_CACHE_HOME/qwick or ~/.cache/qwick",
        .help = "the cache's directory, as with --prefix-cache=DIR")
OPTION(FLAG, verify, "verify", V_PULL, ONCE,
       .help = "check cached files by their checksums too, and download those "
               "that are damaged again")
OPTION(FLAG, allow_http, "allow-http", V_PULL, ONCE,
       .help = "let HF_ENDPOINT be http://, which does not protect the "
               "download or HF_TOKEN on their way")
OPTION(FLAG, tensors, "tensors", V_INSPECT,
       .help = "list every tensor, not one line per kind")
OPTION(FLAG, names, "names", V_MODELS,
       .help = "print only the name for -m and the id of each model, with a "
               "tab between them, and open none")

GROUP("Server")
OPTION(TEXTS, listen, "listen", V_SERVE, .arg = "ADDRESS",
       .peers = "host port bind",
       .access = OPT_LISTENS,
       .def = "127.0.0.1:8080",
       .help = "accept connections at 127.0.0.1:PORT, [::1]:PORT, unix:PATH "
               "or fd:systemd; repeatable")
OPTION(FILE, api_key_file, "api-key-file", V_SERVE, .peers = "api-key",
       .access = OPT_REREADS,
       .help = "answer only requests with a key of FILE, which has one in each "
               "line")
OPTION(FLAG, no_auth, "no-auth", V_SERVE, ONCE,
       .help = "let other machines send requests without a key")
OPTION(TEXTS, allow_host, "allow-host", V_SERVE, .arg = "HOST",
       .help = "also accept requests whose Host is this name; repeatable")
OPTION(TEXTS, allow_origin, "allow-origin", V_SERVE, .arg = "ORIGIN",
       .help = "let pages of this origin send requests, as "
               "\"https://chat.example\"; repeatable")
OPTION(INT, queue, "queue", V_SERVE, RANGE(0, 100000), .def = "64",
       .help = "most requests that wait; further ones get status 429")
OPTION(SIZE, kv_memory, "kv-memory", V_SERVE, .imin = 1,
       .def = "what is free",
       .help = "let the KV caches of all requests take at most SIZE bytes, "
               "with K, M, G or T, and the prefix cache in memory as much "
               "again")
OPTION(INT, drain, "drain", V_SERVE, .arg = "SECONDS", RANGE(0, 86400),
       .def = "30",
       .help = "after SIGTERM, let running answers go on for so long")
OPTION(INT, idle_exit, "idle-exit", V_SERVE, .arg = "SECONDS",
       RANGE(0, 31536000), .def = "0, never",
       .help = "exit after so long without a request")
OPTION(FLAG, embeddings, "embeddings", V_SERVE,
       .help = "give embeddings also from a model that is made for chats")

GROUP("Input")
OPTION(TEXT, prompt, "prompt", V_GENERATE | V_CHOOSE, .letter = 'p', ONCE,
       .help = "the prompt, as the argument")
VARIANT(TEXT, prompt, "prompt", V_LOGITS, .letter = 'p', ONCE,
        .help = "the text, as the argument")
OPTION(TEXTS, file, "file", V_GENERATE | V_CHOOSE, .letter = 'f', .arg = "FILE",
       ONCE, .peers = "prompt-file",
       .first = "text of FILE before the prompt",
       .help = "text of FILE before the prompt; repeatable, - is stdin")
VARIANT(TEXTS, file, "file", V_BATCH, .letter = 'f', .arg = "FILE", ONCE,
        .help = "text before each prompt; repeatable")
VARIANT(TEXTS, file, "file", V_TEXT_IO, .letter = 'f', .arg = "FILE", ONCE,
        .help = "read FILE instead of standard input; repeatable, - is stdin")
VARIANT(TEXTS, file, "file", V_RENDER, .letter = 'f', .arg = "FILE", ONCE,
        .def = "standard input", .help = "read the chat from FILE, - is stdin")
VARIANT(TEXTS, file, "file", V_EMBED, .letter = 'f', .arg = "FILE",
        .access = OPT_READS, ONCE,
        .help = "a text from FILE, in place of arguments; repeatable, - is "
                "stdin")
VARIANT(TEXTS, file, "file", V_SIMILAR, .letter = 'f', .arg = "FILE",
        .access = OPT_READS, ONCE,
        .help = "a query from FILE, in place of arguments; repeatable, - is "
                "stdin")
VARIANT(TEXTS, file, "file", V_RERANK, .letter = 'f', .arg = "FILE",
        .access = OPT_READS, ONCE,
        .help = "a document from FILE, in place of arguments; repeatable, - is "
                "stdin")
VARIANT(TEXTS, file, "file", V_LOGITS, .letter = 'f', .arg = "FILE", ONCE,
        .help = "text before the argument; repeatable, - is stdin")
VARIANT(TEXTS, file, "file", V_SCORE, .letter = 'f', .arg = "FILE",
        .access = OPT_READS, ONCE, .def = "standard input",
        .help = "score the text of FILE; repeatable, each on its own; - is "
                "stdin")
OPTION(FLAG, file_names, "file-names",
       V_GENERATE | V_CHAT | V_BATCH | V_CHOOSE, LIVE,
       .help = "put the name of each file above its text")
OPTION(FLAG, text, "text", V_BATCH, ONCE,
       .help = "write only texts, one answer per line; a line end in an answer "
               "becomes \\n")
OPTION(TEXTS, input, "input", V_BATCH, .letter = 'i', .arg = "FILE", ONCE,
       .peers = "input-file infile", .def = "standard input",
       .help = "records, one JSON object per line")
VARIANT(TEXTS, input, "input",
        V_TEXT_IO | V_RENDER | V_EMBED | V_SIMILAR | V_RERANK | V_SCORE |
            V_CHOOSE,
        .letter = 'i', .arg = "FILE", .access = OPT_READS, ONCE,
        .def = "standard input",
        .help = "records from FILE, - is stdin; repeatable; without another "
                "form they are those of --jsonl")
OPTION(CHOICE, input_format, "input-format", V_BATCH, .arg = "FORM",
       .choices = "jsonl|openai|lines|csv|tsv", ONCE,
       .def = "jsonl or openai, as the first record",
       .help = "form of the input")
VARIANT(CHOICE, input_format, "input-format", V_CHOOSE, .arg = "FORM",
        .choices = "jsonl|lines|csv|tsv", ONCE,
        .help = "form of the records; all but jsonl give a label for each")
OPTION(FLAG, lines, "lines", V_BATCH, ONCE,
       .help = "each line is a prompt, as --input-format lines")
VARIANT(FLAG, lines, "lines", V_EMBED, ONCE,
        .help = "each line of the input is a text")
VARIANT(FLAG, lines, "lines", V_SIMILAR, ONCE,
        .help = "each line of the input is a query")
VARIANT(FLAG, lines, "lines", V_RERANK, ONCE,
        .help = "each line of the input is a document")
VARIANT(FLAG, lines, "lines", V_CHOOSE, ONCE,
        .help = "each line is a prompt; print its label and the probability")
OPTION(TEXT, system, "system", V_GENERATE | V_CHAT | V_CHOOSE, .letter = 's',
       .peers = "system-prompt", .first = "system prompt",
       .help = "system prompt")
VARIANT(TEXT, system, "system", V_BATCH, .letter = 's',
        .help = "system prompt for records that have none")
VARIANT(TEXT, system, "system", V_SERVE, .letter = 's',
        .help = "system prompt for chats that have none")
OPTION(FILE, system_file, "system-file", V_ANSWER | V_CHOOSE,
       .peers = "system-prompt-file", .help = "system prompt from a file")
OPTION(FILE, chat_json, "chat-json", V_GENERATE | V_CHOOSE, ONCE,
       .help = "a chat as JSON: an array of messages, or an object with them; "
               "the prompt, if there is one, is its next message")
VARIANT(FILE, chat_json, "chat-json", V_CHAT, ONCE,
        .help = "begin with the messages of FILE, as /load does")
OPTION(TEXT, prompt_ids, "prompt-ids", V_GENERATE | V_CHOOSE, .arg = "IDS",
       ONCE, .help = "the prompt as token ids, \"1,2,3\"; no template")
VARIANT(TEXT, prompt_ids, "prompt-ids", V_LOGITS, .arg = "IDS", ONCE,
        .help = "token ids instead of a text, \"1,2,3\"")
VARIANT(TEXT, prompt_ids, "prompt-ids", V_EMBED, .arg = "IDS", ONCE,
        .help = "complete sequences as token ids in place of texts, "
                "\"1,2,3\", one a line")
VARIANT(TEXT, prompt_ids, "prompt-ids", V_RERANK, .arg = "IDS", ONCE,
        .help = "complete sequences of query and document as token ids, one a "
                "line; ids after a \"|\" have type 1")
OPTION(FLAG, no_stdin, "no-stdin", V_GENERATE | V_LOGITS | V_CHOOSE,
       .help = "do not read standard input")
OPTION(CHOICE, overflow, "overflow", V_GENERATE | V_CHOOSE, .arg = "HOW",
       .choices = "error|head|tail|middle", .peers = "truncation",
       .def = "error",
       .help = "what to do with a prompt that does not fit: refuse it, or keep "
               "its head, its tail, or both ends")
OPTION(FILE, preset, "preset",
       V_GENERATE | V_CHAT | V_BATCH | V_SCORE | V_CHOOSE, .letter = 'T',
       .arg = "TEMPLATE", ONCE,
       .first = "your prompt template of this name or path",
       .help = "use your prompt template, by its name or path; see qwick help "
               "templates")
OPTION(FILE, prompt_template, "prompt-template",
       V_GENERATE | V_CHAT | V_BATCH | V_SCORE | V_CHOOSE, .arg = "TEXT", ONCE,
       .help = "the prompt is TEXT with the input in place of {}")
OPTION(TEXTS, set, "set",
       V_GENERATE | V_CHAT | V_BATCH | V_SCORE | V_CHOOSE, .arg = "NAME=VALUE",
       ONCE,
       .help = "replace {NAME} in the template by VALUE; repeatable")
OPTION(FILE, tools, "tools", V_GENERATE, ONCE,
       .help = "definitions of tools that the model may call, as JSON")
VARIANT(FILE, tools, "tools", V_BATCH, ONCE, .record = "tools",
        .help = "definitions of tools, for records that have none")
VARIANT(FILE, tools, "tools", V_RENDER, ONCE,
        .help = "definitions of tools, for chats that have none")
OPTION(TEXT, tool_choice, "tool-choice", V_GENERATE | V_BATCH,
       .arg = "auto|none|required|NAME", ONCE, .def = "auto",
       .record = "tool_choice",
       .help = "auto: text with calls or without; none: no calls; required: "
               "only calls; a tool's name: one call of it")
OPTION(CHOICE, think, "think", V_ANSWER, LIVE, .choices = "on|off|auto",
       .peers = "enable-thinking reasoning", .def = "auto", .record = "think",
       .first = "let the model think first",
       .help = "let the model think first; auto: as its template does")
VARIANT(CHOICE, think, "think", V_RENDER, .choices = "on|off|auto",
        .def = "auto",
        .help = "enable_thinking, where the chat does not say; auto: the "
                "template is not told")
OPTION(INT, think_budget, "think-budget", V_ANSWER, LIVE, FROM(0), .def = "none",
       .peers = "reasoning-budget thinking-budget", .record = "think_budget",
       .help = "let the model think for at most N tokens, then make it answer")
OPTION(FLAG, chat, "chat", V_LOGITS, ONCE,
       .help = "apply the chat template; otherwise the text is raw")
VARIANT(FLAG, chat, "chat", V_SCORE, ONCE,
        .help = "--given is a request and the text is its answer: put both "
                "into the chat template, thinking off")
OPTION(FILE, chat_template, "chat-template", V_TEMPLATE, .arg = "NAME|FILE",
       .peers = "chat-template-file", .def = "the checkpoint's",
       .help = "one of the checkpoint's chat templates by its name, or a file "
               "with a template")
OPTION(TEXTS, template_arg, "template-arg", V_TEMPLATE, .arg = "NAME=VALUE",
       .peers = "chat-template-kwargs",
       .help = "a variable of the template: a JSON value, else a text; "
               "repeatable")
OPTION(FILE, template_time, "template-time", V_TEMPLATE, .arg = "TIME",
       .def = "now, in local time",
       .help = "the time that templates see, as \"2026-11-22 10:30:00\"")
OPTION(FLAG, allow_special, "allow-special", V_ANSWER | V_CHOOSE, ONCE,
       .help = "text such as <|im_end|> in the prompt becomes a control token")
VARIANT(FLAG, allow_special, "allow-special", V_EMBED | V_SIMILAR, ONCE,
        .help = "text such as <|im_end|> becomes a control token")
OPTION(FLAG, no_special, "no-special", V_TOKENIZE | V_COUNT | V_SCORE,
       .help = "text such as <|im_end|> is plain text, not a control token")
OPTION(FLAG, skip_special, "skip-special", V_DETOKENIZE,
       .help = "leave out control tokens")
OPTION(FLAG, no_generation_prompt, "no-generation-prompt", V_RENDER,
       .help = "do not begin the assistant's turn, where the chat does not say")
OPTION(FLAG, truncate, "truncate", V_EMBED | V_SIMILAR,
       .help = "drop the end of a text that does not fit the context")
OPTION(FLAG, raw, "raw", V_GENERATE | V_BATCH, .peers = "no-chat-template",
       .help = "no chat template: continue the text as it is")
VARIANT(FLAG, raw, "raw", V_CHOOSE,
        .help = "no chat template: answers continue the text as it is")
OPTION(TEXT, prefill, "prefill", V_GENERATE,
       .help = "begin the answer with TEXT (not printed)")
VARIANT(TEXT, prefill, "prefill", V_CHOOSE,
        .help = "begin the reply with TEXT, before the answer")

OPTION(TEXT, suffix, "suffix", V_GENERATE, ONCE,
       .help = "write what comes between the prompt and TEXT; for models that "
               "learned to fill in")

GROUP("Conversation")
OPTION(FLAG, keep, "keep", V_GENERATE, .access = OPT_KEEPS,
       .help = "keep the conversation, for --continue")
OPTION(FLAG, go_on, "continue", V_GENERATE, .letter = 'C', .access = OPT_KEEPS,
       ONCE,
       .first = "go on with the conversation that --keep kept",
       .help = "go on with the conversation that was kept last, and keep it")
VARIANT(FLAG, go_on, "continue", V_CHAT, .letter = 'C', .access = OPT_KEEPS,
        ONCE, .help = "begin with the conversation that qwick --keep kept last")
OPTION(TEXT, conversation, "conversation", V_GENERATE, .arg = "NAME",
       .access = OPT_KEEPS, ONCE, .peers = "cid conversation-id",
       .help = "go on with your conversation NAME, or begin it, and keep it")
VARIANT(TEXT, conversation, "conversation", V_CHAT, .arg = "NAME", ONCE,
        .help = "go on with your conversation NAME, or begin it, and keep it "
                "after each answer")
VARIANT(TEXT, conversation, "conversation", V_LOG, .arg = "NAME", ONCE,
        .help = "only answers of this conversation; rm removes it, too")
OPTION(FLAG_FILE, log, "log", V_GENERATE | V_BATCH, .choices = "all",
       .access = OPT_LOGS,
       .help = "keep the prompt and the answer for qwick log; log = on in the "
               "config file does so in generate, log = all in chat and batch, "
               "too")
VARIANT(FLAG_FILE, log, "log", V_CHAT, .choices = "all",
        .help = "keep the prompts and the answers for qwick log, as log = all "
                "in the config file does")
OPTION(FLAG, no_log, "no-log", V_GENERATE | V_CHAT | V_BATCH,
       .help = "do not keep them, whatever the config file says")
OPTION(FILE, session, "session", V_GENERATE, ONCE, .peers = "prompt-cache",
       .help = "continue a session that --save-session wrote; the prompt is "
               "its next message")
VARIANT(FILE, session, "session", V_CHAT, .access = OPT_REWRITES, ONCE,
        .help = "go on with the session in FILE, if there is one, and save it "
                "there after each answer")
OPTION(FILE, save_session, "save-session", V_GENERATE, .access = OPT_REWRITES,
       ONCE, .help = "write the prompt, the answer and their KV cache to FILE")
OPTION(FLAG, no_history, "no-history", V_CHAT,
       .help = "neither read nor write the history of messages")

GROUP("Length")
OPTION(INT, max_tokens, "max-tokens", V_ANSWER, LIVE, .letter = 'n', FROM(1),
       .peers = "max-new-tokens max-length n-predict num-predict predict",
       .def = "until the model stops", .record = "max_tokens",
       .first = "at most N tokens",
       .help = "at most N tokens")
VARIANT(INT, max_tokens, "max-tokens", V_PLAN, .letter = 'n', FROM(1),
        .def = "256", .help = "at most N tokens of answer")
OPTION(INT, ctx, "ctx", V_EVALUATE, .letter = 'c', FROM(1),
       .peers = "ctx-size context-size context-length max-model-len num-ctx "
                "n-ctx max-kv-size", .def = "the model's maximum",
       .help = "most tokens of prompt and answer")
OPTION(TEXTS, stop, "stop", V_ANSWER, LIVE, .arg = "TEXT",
       .peers = "stop-sequence reverse-prompt", .record = "stop",
       .help = "stop before TEXT; repeatable")
OPTION(FLAG, ignore_eos, "ignore-eos", V_ANSWER, LIVE,
       .help = "never draw a stop token")
OPTION(INT, loop_guard, "loop-guard", V_ANSWER, LIVE, RANGE(0, 1000000),
       .def = OPT_STRING(QWICK_LOOP_GUARD_DEFAULT) ", 0 with --raw and "
                                                   "--ignore-eos",
       .help = "stop when the last N tokens repeat one sequence three times or "
               "more; 0: never")
OPTION(NUMBER, timeout, "timeout", V_ANSWER, LIVE, .arg = "SECONDS",
       BETWEEN(0.001, 1000000000), .def = "none",
       .help = "stop an answer that takes longer, prompt included")
OPTION(FLAG, require_answer, "require-answer", V_GENERATE,
       .help = "fail when an answer is empty or cut, by -n too: exit status 6")
VARIANT(FLAG, require_answer, "require-answer", V_BATCH,
        .help = "fail when an answer is empty or cut, by -n too: exit status 1")

GROUP("Constraints (a cut answer: exit status 6; in batch 1, in chat a "
      "warning)")
OPTION(TEXT, regex, "regex", V_ANSWER, .arg = "RE", .record = "regex",
       .help = "the whole answer matches the regular expression RE")
OPTION(TEXT, choices, "choices", V_ANSWER, .arg = "TEXT,TEXT,...",
       .record = "choices",
       .help = "the answer is one of these texts; \\, is a comma")
OPTION(FILE, grammar, "grammar", V_ANSWER, .peers = "grammar-file",
       .record = "grammar",
       .help = "the answer follows the GBNF grammar in FILE; FILE.lark: Lark's "
               "form")
OPTION(TEXT, json_schema, "json-schema", V_ANSWER, .arg = "FILE|TEXT",
       .peers = "schema json-schema-file", .access = OPT_LOADS, .record = "json_schema",
       .first = "the answer is JSON that the schema admits",
       .help = "the answer is JSON that the schema admits; a TEXT begins with "
               "{")
OPTION(FLAG, schema_lenient, "schema-lenient", V_ANSWER,
       .record = "schema_lenient",
       .help = "leave out what cannot be held exactly of a schema, and check "
               "the finished answer instead")
OPTION(TEXT, json_indent, "json-indent", V_ANSWER, .arg = "N|free",
       .def = "0, compact",
       .help = "indent that JSON by N blanks per level, at most 16; free: white "
               "space as the model writes it")
OPTION(CHOICE, json_order, "json-order", V_ANSWER, .choices = "schema|any",
       .def = "schema", .record = "json_order",
       .help = "write members in the order of the schema, or in any")

GROUP("Sampling (defaults: generation_config.json, else greedy; each of "
      "these\noptions turns sampling on)")
OPTION(FLAG, greedy, "greedy", V_ANSWER, LIVE,
       .help = "always take the likeliest token, as with --temp 0")
OPTION(NUMBER, temp, "temp", V_ANSWER, LIVE, .arg = "T",
       BETWEEN(0, QWICK_TEMPERATURE_MAX), .peers = "temperature",
       .record = "temperature", .help = "temperature")
OPTION(INT, top_k, "top-k", V_ANSWER, LIVE, .arg = "K", FROM(0), .record = "top_k",
       .help = "draw among the K likeliest, 0: off")
OPTION(NUMBER, top_p, "top-p", V_ANSWER, LIVE, .arg = "P", BETWEEN(0, 1),
       .record = "top_p",
       .help = "draw among the likeliest that together have probability P, 1: "
               "off")
OPTION(NUMBER, min_p, "min-p", V_ANSWER, LIVE, .arg = "P", BETWEEN(0, 1),
       .record = "min_p",
       .help = "draw among those at least P times as likely as the likeliest, "
               "0: off")
OPTION(NUMBER, repeat_penalty, "repeat-penalty", V_ANSWER, LIVE, .arg = "X",
       BETWEEN(QWICK_REPEAT_PENALTY_MIN, QWICK_REPEAT_PENALTY_MAX),
       .peers = "repetition-penalty", .record = "repeat_penalty",
       .help = "make tokens of prompt and answer less likely, 1: off")
OPTION(NUMBER, presence_penalty, "presence-penalty", V_ANSWER, LIVE, .arg = "X",
       BETWEEN(-QWICK_PENALTY_MAX, QWICK_PENALTY_MAX),
       .record = "presence_penalty",
       .help = "make tokens of the answer less likely, 0: off")
OPTION(NUMBER, frequency_penalty, "frequency-penalty", V_ANSWER, LIVE, .arg = "X",
       BETWEEN(-QWICK_PENALTY_MAX, QWICK_PENALTY_MAX),
       .record = "frequency_penalty",
       .help = "make tokens of the answer less likely each time they occur, 0: "
               "off")
OPTION(TEXTS, logit_bias, "logit-bias", V_GENERATE, .arg = "ID=B", ONCE,
       .help = "add B, -100 to 100, to the logit of token ID before each draw; "
               "repeatable")
OPTION(INT, seed, "seed", V_GENERATE | V_CHAT, LIVE, RANGE(0, INT64_MAX),
       .def = "random",
       .help = "seed of the draws; does not turn sampling on by itself")
VARIANT(INT, seed, "seed", V_BATCH, RANGE(0, INT64_MAX), .def = "random",
        .record = "seed",
        .help = "seed of the run: with its line number, it gives a record its "
                "seed; records are grouped by number, not by arrival")
VARIANT(INT, seed, "seed", V_QUANTIZE, RANGE(0, INT64_MAX), ONCE, .def = "0",
        .help = "seed of the texts of --calibrate-self")
VARIANT(INT, seed, "seed", V_SERVE, RANGE(0, INT64_MAX), .def = "random",
        .record = "seed", .help = "seed of requests that have none")
OPTION(INT, samples, "samples", V_GENERATE, RANGE(1, OPT_MAX_SAMPLES),
       .def = "1",
       .help = "give N answers, each with a seed of its own; the prompt is "
               "evaluated once")

GROUP("Output")
OPTION(FILE, output, "output", V_BATCH, .letter = 'o', .access = OPT_REWRITES,
       ONCE, .peers = "output-file outfile", .def = "standard output",
       .help = "answers, one JSON object per line; a file that is there is "
               "continued")
VARIANT(FILE, output, "output", V_EMBED, .letter = 'o', .access = OPT_RENAMES,
        ONCE,
        .help = "write to FILE, which appears when it is complete; an "
                "interrupted run is continued")
VARIANT(FILE, output, "output", V_LOGITS, .letter = 'o', ONCE,
        .help = "write all logits as safetensors: logits F32 [positions, "
                "vocab_size], input_ids I64 [tokens]")
VARIANT(FILE, output, "output", V_QUANTIZE, .letter = 'o', .arg = "PATH",
        .access = OPT_MAKES, ONCE,
        .help = "directory to create, or file with --format gguf; it appears "
                "when it is complete")
OPTION(FLAG, redo, "redo", V_BATCH, ONCE,
       .help = "replace answers in FILE that another model, prompt, seed or "
               "other options gave")
VARIANT(FLAG, redo, "redo", V_EMBED, ONCE,
        .help = "drop vectors that an interrupted run with another model or "
                "other options has left")
OPTION(FLAG, retry_errors, "retry-errors", V_BATCH, ONCE,
       .help = "answer records again whose lines in FILE are errors")
OPTION(FILE, index, "index", V_EMBED, .arg = "DIR", .access = OPT_INDEXES,
       ONCE,
       .help = "add the texts and their vectors to the index in DIR, for "
               "qwick similar; print nothing")
OPTION(CHOICE, index_type, "index-type", V_EMBED, .choices = "f32|f16",
       .def = "f32, or that of the index",
       .help = "numbers of a new index: f16 needs half of the memory")
OPTION(CHOICE, format, "format", V_EMBED, .choices = "jsonl|tsv|f32|npy",
       .def = "jsonl",
       .help = "JSON lines, tab-separated numbers, raw float32, NumPy's file")
VARIANT(CHOICE, format, "format", V_QUANTIZE, .choices = "mlx|gguf",
        .def = "mlx",
        .help = "write a directory in MLX's affine format, or one GGUF file; a "
                "name in -o that ends in .gguf means gguf")
OPTION(INT, dim, "dim", V_EMBED, FROM(1), .def = "the model's",
       .help = "print only the first N numbers of each vector")
OPTION(FLAG, no_normalize, "no-normalize", V_EMBED,
       .help = "print vectors as the model gives them, not scaled to length 1")
OPTION(FLAG, raw_scores, "raw-scores", V_RERANK,
       .help = "print logits (log-odds), not probabilities")
OPTION(FLAG, json, "json", V_GENERATE,
       .first = "print one JSON object: text, tokens, timing",
       .help = "print one JSON object when done")
VARIANT(FLAG, json, "json", V_TOKENIZE, .help = "print {\"ids\":[...]}")
VARIANT(FLAG, json, "json", V_DETOKENIZE,
        .help = "print {\"text\",\"bytes_hex\"}")
VARIANT(FLAG, json, "json", V_COUNT, .help = "print {\"count\":N}")
VARIANT(FLAG, json, "json", V_RENDER, .help = "print {\"text\"}")
VARIANT(FLAG, json, "json", V_RERANK,
        .help = "print one JSON object instead of a table")
VARIANT(FLAG, json, "json", V_SIMILAR,
        .help = "print a JSON object for each result, instead of a table")
VARIANT(FLAG, json, "json", V_LOGITS, .help = "print JSON instead of lines")
VARIANT(FLAG, json, "json", V_SCORE, .help = "print one object for each text")
VARIANT(FLAG, json, "json", V_CHOOSE, .help = "print one JSON object")
VARIANT(FLAG, json, "json", V_INSPECT | V_MODELS | V_PLAN | V_SELFTEST,
        .help = "print JSON")
VARIANT(FLAG, json, "json", V_BENCH,
        .help = "print JSON, one object for each model")
VARIANT(FLAG, json, "json", V_QUANTIZE, .help = "print JSON when done")
VARIANT(FLAG, json, "json", V_CACHE, .help = "ls: print JSON")
VARIANT(FLAG, json, "json", V_LOG,
        .help = "print one object for each answer, or conversation, with "
                "everything that is known")
OPTION(FLAG, jsonl, "jsonl", V_GENERATE, ONCE,
       .help = "print a JSON object per token, then one when done")
VARIANT(FLAG, jsonl, "jsonl", V_TOKENIZE, ONCE,
        .help = "lines of {\"text\"} in, lines of {\"ids\"} out")
VARIANT(FLAG, jsonl, "jsonl", V_DETOKENIZE, ONCE,
        .help = "lines of {\"ids\",\"skip_special\"} in, lines of "
                "{\"text\",\"bytes_hex\"} out")
VARIANT(FLAG, jsonl, "jsonl", V_COUNT, ONCE,
        .help = "lines of {\"text\"} in, lines of {\"count\"} out")
VARIANT(FLAG, jsonl, "jsonl", V_RENDER, ONCE,
        .help = "one chat per line in, lines of {\"text\"} out")
VARIANT(FLAG, jsonl, "jsonl", V_EMBED, ONCE,
        .help = "each line is an object {\"text\",\"id\",\"instruct\"}; \"id\" "
                "and \"instruct\" are optional, and \"prompt_ids\" may replace "
                "\"text\"")
VARIANT(FLAG, jsonl, "jsonl", V_SIMILAR, ONCE,
        .help = "each line is an object {\"text\",\"id\",\"instruct\"}; \"id\" "
                "and \"instruct\" are optional; results as with --json")
VARIANT(FLAG, jsonl, "jsonl", V_RERANK, ONCE,
        .help = "each line is an object {\"text\",\"id\"}; \"id\" is optional; "
                "lines of {\"id\",\"index\",\"score\",...} out")
VARIANT(FLAG, jsonl, "jsonl", V_SCORE, ONCE,
        .help = "lines of {\"text\",\"given\"} in, lines of {\"logprob\",...} "
                "out, with units when --by is given")
VARIANT(FLAG, jsonl, "jsonl", V_CHOOSE, ONCE,
        .help = "lines of {\"prompt\"}, {\"messages\"} or {\"prompt_ids\"} in, "
                "lines of {\"answer\",...} out")
OPTION(INT, top, "top", V_RERANK, FROM(1), .def = "all",
       .help = "print only the N best documents")
VARIANT(INT, top, "top", V_SIMILAR, FROM(1), .def = "10",
        .help = "print the N best texts of each query")
VARIANT(INT, top, "top", V_LOGITS, .arg = "K", RANGE(1, 1000000), .def = "10",
        .help = "print the K likeliest next tokens")
OPTION(FLAG, all, "all", V_LOGITS,
       .help = "print every position, not only the last")
VARIANT(FLAG, all, "all", V_LOG, ONCE, .help = "rm: remove all answers")
OPTION(INT, last, "last", V_LOG, RANGE(0, INT32_MAX),
       .def = "20, with search and --conversation 0",
       .help = "list the newest N answers, 0: all")
OPTION(NUMBER, threshold, "threshold", V_RERANK, .arg = "P",
       BETWEEN(-1e6, 1e6), .def = "all",
       .help = "print only documents with at least this score")
VARIANT(NUMBER, threshold, "threshold", V_CHOOSE, .arg = "P", BETWEEN(0, 1),
        .def = "none; 0.5 with --yes",
        .help = "exit status 10 when the likeliest answer (with --yes: yes) "
                "has a probability below P; a record's label is then empty")
OPTION(NUMBER, min_score, "min-score", V_SIMILAR, .arg = "S",
       BETWEEN(-1e30, 1e30), .def = "none",
       .help = "print only texts with at least this score")
OPTION(FLAG, ids_only, "ids-only", V_SIMILAR,
       .help = "print only the ids, one per line")
OPTION(FLAG, in_order, "in-order", V_RERANK,
       .help = "print documents in input order, not the best first")
VARIANT(FLAG, in_order, "in-order", V_CHOOSE,
        .help = "print answers in the order in which they were given, not by "
                "probability")
OPTION(CHOICE, by, "by", V_SCORE, .choices = "token|word|line|byte",
       .def = "token",
       .help = "unit that gets a line each: offset, bits, and text as JSON")
OPTION(FLAG, perplexity, "perplexity", V_SCORE, .help = "print only the totals")
OPTION(FLAG, heat, "heat", V_SCORE,
       .help = "print the text with each token coloured by its probability")
OPTION(FILE, html, "html", V_SCORE, .access = OPT_REPLACES, ONCE,
       .help = "also write a page with the coloured text to FILE")
VARIANT(FILE, html, "html", V_EMBED, .access = OPT_REPLACES, ONCE,
        .help = "also write a page to FILE with a map of the texts, at most "
                "5000")
VARIANT(FILE, html, "html", V_BENCH, .access = OPT_REPLACES, ONCE,
        .help = "also write a page with charts to FILE")
OPTION(FLAG, md, "md", V_BENCH, .help = "print a Markdown table")
OPTION(FLAG, csv, "csv", V_BENCH, .help = "print CSV, one line for each row")
VARIANT(FLAG, csv, "csv", V_CHOOSE, ONCE,
        .help = "of records: write CSV, the input's columns, then answer, "
                "probability and error")
VARIANT(FLAG, csv, "csv", V_BATCH, ONCE,
        .help = "write CSV: the input's columns, then answer, finish_reason "
                "and error")
OPTION(FLAG, with_input, "with-input", V_CHOOSE, ONCE,
       .help = "put the line, or the fields of the row, after each label")
OPTION(FLAG, extract, "extract", V_GENERATE, .letter = 'x',
       .first = "print only the first code block of the answer",
       .help = "print only the first fenced code block; without one: exit "
               "status 6")
VARIANT(FLAG, extract, "extract", V_BATCH, .letter = 'x',
        .help = "also give the first fenced code block of each answer, as "
                "\"code\"")
OPTION(FLAG, show_thinking, "show-thinking", V_GENERATE | V_CHAT, LIVE,
       .help = "print the thinking on stdout, before the answer")
OPTION(FILE, think_file, "think-file", V_GENERATE, .access = OPT_OPENS, ONCE,
       .help = "write the thinking to FILE")
OPTION(INT, logprobs, "logprobs", V_GENERATE, .arg = "K", RANGE(1, 100),
       .peers = "top-logprobs n-probs", .def = "off",
       .help = "give log-probabilities of each token and the K likeliest")
VARIANT(INT, logprobs, "logprobs", V_BATCH, .arg = "K", RANGE(1, 100),
        .def = "off", .record = "logprobs",
        .help = "give log-probabilities of each token and the K likeliest")
OPTION(FLAG, no_newline, "no-newline", V_GENERATE,
       .help = "do not add a newline to a text that ends without one")
OPTION(FLAG, null, "null", V_GENERATE, .letter = '0',
       .help = "end the text with a NUL byte instead of a newline")
VARIANT(FLAG, null, "null", V_BATCH, .letter = '0',
        .help = "with --text: end each text with a NUL byte, and leave its "
                "line ends alone")
OPTION(FLAG_FILE, profile_timing, "profile-timing", V_GENERATE, .arg = "FILE",
       .place = "profile-file", .access = OPT_OPENS,
       .help = "time every token and print a summary on stderr")
OPTION(INT, repeat, "repeat", V_GENERATE, RANGE(1, 1000), .def = "1",
       .help = "answer N times and report medians")
OPTION(FILE, profile_file, "profile-file", V_GENERATE, .access = OPT_OPENS,
       ONCE,
       .help = "write the summary as JSON to FILE; turns --profile-timing on")
OPTION(FLAG, confidence, "confidence", V_GENERATE,
       .help = "colour each token of the answer by its probability")
OPTION(CHOICE, color, "color", V_GENERATE | V_CHAT | V_SCORE, LIVE, .arg = "WHEN",
       .choices = "auto|always|never", .def = "auto",
       .help = "colours; auto: on a terminal that shows them")
OPTION(FLAG, no_speed, "no-speed", V_MODELS,
       .help = "do not estimate tokens per second")
VARIANT(FLAG, no_speed, "no-speed", V_PLAN, .help = "do not estimate times")

GROUP("Model and machine")
OPTION(FILES, models, "model", V_BENCH, .letter = 'm', .arg = "MODEL",
       .def = "the built-in demo model",
       .help = "model, see qwick(1); repeatable, measured one after the other")
OPTION(INTS, thread_list, "threads", V_BENCH, .letter = 't', RANGE(1, 1024),
       .def = "physical cores", .help = "numbers of threads to measure with")
OPTION(INT, max_batch, "max-batch", V_BATCH, RANGE(1, 1024),
       .peers = "batch-size max-num-seqs", .def = "16",
       .help = "most sequences to evaluate at once")
VARIANT(INT, max_batch, "max-batch", V_SERVE, RANGE(1, 1024), .def = "16",
        .help = "most answers to generate at once; further requests wait")
VARIANT(INT, max_batch, "max-batch", V_EMBED | V_SIMILAR, RANGE(1, 1024), .def = "64",
        .help = "most texts to evaluate together")
VARIANT(INT, max_batch, "max-batch", V_RERANK, RANGE(1, 1024), .def = "64",
        .help = "most documents to evaluate together")
OPTION(TEXT, core, "core", V_INSPECT | V_BENCH, .arg = "NAME",
       .def = "this CPU's core",
       .help = "use the record of another core, or measure with probe")
OPTION(INT, lookup, "lookup", V_GENERATE | V_CHAT, LIVE, RANGE(0, QWICK_LOOKUP_MAX),
       .def = OPT_STRING(QWICK_LOOKUP_DEFAULT),
       .help = "where the answer repeats the context, guess up to N tokens and "
               "check them in one pass; 0: off")

GROUP("Model and machine", .shared = true)
OPTION(FILE, model, "model",
       V_EVALUATE | V_TEXT_IO | V_RENDER | V_INSPECT | V_SELFTEST | V_QUANTIZE,
       .letter = 'm', .arg = "MODEL", .access = OPT_MODEL,
       .def = "the built-in demo model",
       .first = "name (qwick models), hub id, directory, .gguf file",
       .help = "checkpoint directory, .gguf file, hub id (org/name) in the "
               "local Hugging Face cache, or short name; see qwick(1)")
OPTION(INT, threads, "threads",
       V_EVALUATE | V_INSPECT | V_MODELS | V_SELFTEST | V_QUANTIZE,
       .letter = 't', RANGE(1, 1024), .peers = "num-threads n-threads",
       .def = "physical cores", .help = "number of threads")
OPTION(TEXT, isa, "isa", V_EVALUATE | V_INSPECT | V_BENCH, .arg = "LEVEL",
       .def = "the best this CPU has",
       .help = "highest level of kernels to use; qwick(1) lists them")
OPTION(FLAG, exact, "exact", V_EVALUATE | V_INSPECT | V_BENCH,
       .help = "compute in float32 with one fixed order of sums, without BLAS")
OPTION(CHOICE, kv, "kv", V_EVALUATE | V_INSPECT | V_BENCH,
       .choices = "f32|f16|q8|q4", .peers = "kv-cache-dtype cache-type-k",
       .def = "f16, f32 with --exact and for Gemma 4", .help = "type of the KV cache")
OPTION(INT, prefill_chunk, "prefill-chunk", V_EVALUATE | V_BENCH,
       RANGE(1, 65536), .def = "512", .help = "tokens per prefill pass")
OPTION(FLAG, preload, "preload", V_EVALUATE | V_BENCH, .peers = "mlock no-mmap",
       .help = "copy the weights into memory at start")
OPTION(CHOICE, numa, "numa", V_EVALUATE | V_BENCH, .arg = "MODE",
       .choices = "off|interleave|bind", .def = "off",
       .help = "on several memory nodes: spread the copy of --preload, or bind "
               "threads and copy to their nodes")
OPTION(FILES, lora, "lora", V_EVALUATE | V_INSPECT | V_BENCH | V_QUANTIZE,
       .arg = "PATH[:SCALE]", .access = OPT_MODEL, .def = "none",
       .peers = "lora-scaled adapter-path",
       .help = "add a LoRA adapter to the model: a directory of PEFT or mlx-lm, "
               "or a GGUF file; repeatable; serve: [NAME=]PATH[:SCALE], for "
               "requests whose \"model\" is NAME")
OPTION(FILE, draft, "draft", V_ANSWER, .arg = "MODEL", .access = OPT_MODEL,
       .help = "a smaller model with the same tokenizer, or a copy of the "
               "model with fewer bits: it guesses tokens, which are checked in "
               "one pass")
OPTION(FLAG_FILE, prefix_cache, "prefix-cache", V_ANSWER, .arg = "DIR",
       .place = "cache-dir", .access = OPT_CACHES,
       .help = "keep the beginnings of prompts on disk, so that later runs do "
               "not evaluate them again")
OPTION(FILE, cache_dir, "cache-dir", V_ANSWER, .arg = "DIR",
       .def = "$XDG_CACHE_HOME/qwick or ~/.cache/qwick",
       .help = "directory of the prefix cache; turns --prefix-cache on")
OPTION(SIZE, prefix_cache_size, "prefix-cache-size", V_ANSWER, .imin = 1,
       .def = "4G", .help = "keep at most SIZE bytes, with K, M, G or T")
OPTION(FLAG, no_sandbox, "no-sandbox",
       V_ANSWER | V_EMBED | V_SIMILAR | V_RERANK | V_SCORE | V_CHOOSE |
           V_QUANTIZE,
       .help = "keep the rights to open files, use the network and start "
               "programs; see qwick(1)")

GROUP("General", .shared = true)
OPTION(FLAG, quiet, "quiet", V_ALL, .letter = 'q', .help = "print no warnings")
OPTION(FLAG, verbose, "verbose", V_ALL, .letter = 'v',
       .help = "print notes on stderr")
OPTION(FLAG, no_config, "no-config", V_ALL,
       .help = "do not read the config file")
OPTION(FLAG, show_config, "show-config", V_ALL, ONCE,
       .help = "print each option's value and where it is set")
OPTION(FLAG, help, "help", V_ALL, .letter = 'h', ONCE,
       .help = "print this help")
OPTION(FLAG, version, "version", V_ALL, .letter = 'V', ONCE,
       .help = "print the version")

#undef OPTION
#undef VARIANT
#undef GROUP
/* clang-format on */
