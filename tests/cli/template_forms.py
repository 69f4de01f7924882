#!/usr/bin/env python3
"""Chat templates in the forms of many families: template_forms.py FAMILY DIR writes a
tokenizer of bytes with the family's control tokens, and a short template of our own.
template_forms.py list prints the families. template_forms.py facts FAMILY prints what
qwick should find out, as JSON."""

import json
import subprocess
import sys

ARGS = "{{ c.arguments|tojson }}"
OBJECT = '{"name": "{{ c.name }}", "arguments": ' + ARGS + "}"
PARAMETERS = "{% for k, v in c.arguments|items %}[K]{{ v if v is string else v|tojson }}[V]{% endfor %}"
CHATML = {"system": "<|im_start|>system\n@<|im_end|>\n", "user": "<|im_start|>user\n@<|im_end|>\n",
          "tool": "<|im_start|>tool\n@<|im_end|>\n", "assistant": "<|im_start|>assistant\n",
          "end": "<|im_end|>", "after": "\n", "added": ["<|im_start|>", "<|im_end|>"], "stops": ["<|im_end|>"]}
TAGS = ["<tool_call>", "</tool_call>"]
THINK = ["<think>", "</think>"]
QWEN_OFF = "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
MISTRAL = {"bos": "<s>", "system": "[SYSTEM_PROMPT]@[/SYSTEM_PROMPT]", "user": "[INST]@[/INST]",
           "tool": "[TOOL_RESULTS]@[/TOOL_RESULTS]", "end": "</s>", "stops": ["</s>"], "id": 9,
           "check": "{% if m.tool_call_id and m.tool_call_id|length != 9 %}{{ raise_exception('id') }}{% endif %}",
           "added": ["<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]",
                     "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[ARGS]"]}
QUOTE = '<|"|>'
BARE = ("{% for k, v in c.arguments|dictsort %}{{ k }}:{{ '" + QUOTE + "' ~ v ~ '" + QUOTE +
        "' if v is string else v|tojson }}{{ ',' if not loop.last }}{% endfor %}")
HARMONY = {"form": "harmony", "system": "<|start|>system<|message|>@<|end|>", "single": True, "messages": True,
           "user": "<|start|>user<|message|>@<|end|>", "assistant": "<|start|>assistant",
           "tool": "<|start|>functions.weather to=assistant<|channel|>commentary<|message|>@<|end|>",
           "content": "<|channel|>final<|message|>@<|end|>", "end": "", "called": "<|call|>",
           "thinks": "Reasoning: {{ reasoning_effort|default('medium') }}",
           "stops": ["<|return|>", "<|call|>"], "off": "{#- low effort -#}",
           "thought": "<|channel|>analysis<|message|>@<|end|><|start|>assistant",
           "added": ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>"]}
HEADER = "<|start_header_id|>%s<|end_header_id|>\n\n"
BAR, SPACE = "\uff5c", "\u2581"


def ds(words):
    return "<" + BAR + words.replace(" ", SPACE) + BAR + ">"


def tagged(k, v, call):
    return call.replace("[P]", PARAMETERS.replace("[K]", k).replace("[V]", v))


# form: the name of the row; call: one call; sep: between calls
FAMILIES = {
    "qwen": {**CHATML, "form": "qwen", "added": CHATML["added"] + TAGS + THINK,
             "call": "<tool_call>\n" + OBJECT + "\n</tool_call>", "sep": "\n", "off": QWEN_OFF},
    "coder": {**CHATML, "form": "qwen-coder", "added": CHATML["added"] + TAGS, "sep": "\n",
              "call": tagged("<parameter={{ k }}>\n", "\n</parameter>\n",
                             "<tool_call>\n<function={{ c.name }}>\n[P]</function>\n</tool_call>")},
    # the template does not print calls, it only says how to write them
    "smollm": {**CHATML, "form": "qwen", "added": CHATML["added"] + TAGS + THINK, "sep": "\n",
               "tools": 'Write <tool_call>\n{"name": NAME, "arguments": OBJECT}\n</tool_call>',
               "call": None, "off": QWEN_OFF},
    "llama": {"form": "llama", "bos": "<|begin_of_text|>", "system": HEADER % "system" + "@<|eot_id|>",
              "user": HEADER % "user" + "@<|eot_id|>", "tool": HEADER % "ipython" + "@<|eot_id|>",
              "assistant": HEADER % "assistant", "end": "<|eot_id|>", "single": True,
              "call": '{"name": "{{ c.name }}", "parameters": ' + ARGS + "}",
              "added": ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
                        "<|eom_id|>", "<|python_tag|>"], "stops": ["<|eot_id|>", "<|eom_id|>"]},
    "mistral": {**MISTRAL, "form": "mistral", "begin": "[TOOL_CALLS][", "close": "]", "sep": ", ",
                "call": OBJECT},
    "mistral-small": {**MISTRAL, "form": "mistral-spaced", "begin": "[TOOL_CALLS] [", "close": "]",
                      "sep": ", ", "call": OBJECT},
    "ministral": {**MISTRAL, "form": "mistral-args", "added": MISTRAL["added"] + ["[THINK]", "[/THINK]"],
                  "call": "[TOOL_CALLS]{{ c.name }}[ARGS]" + ARGS, "opens": "[THINK]"},
    "granite": {"form": "granite", "system": "<|start_of_role|>system<|end_of_role|>@<|end_of_text|>\n",
                "user": "<|start_of_role|>user<|end_of_role|>@<|end_of_text|>\n",
                "tool": "<|start_of_role|>tool_response<|end_of_role|>@<|end_of_text|>\n",
                "assistant": "<|start_of_role|>assistant<|end_of_role|>", "end": "<|end_of_text|>",
                "after": "\n", "begin": "<|tool_call|>[", "close": "]", "sep": ", ", "call": OBJECT,
                "added": ["<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>", "<|tool_call|>"],
                "stops": ["<|end_of_text|>"], "switch": "thinking",
                "tools": "{% if thinking %}Think first.{% endif %}"},
    "phi": {"form": "phi", "system": "<|system|>@<|end|>", "user": "<|user|>@<|end|>",
            "tool": "<|tool_response|>@<|end|>", "assistant": "<|assistant|>", "end": "<|end|>",
            "call": "<|tool_call|>" + OBJECT + "<|/tool_call|>",
            "added": ["<|system|>", "<|user|>", "<|end|>", "<|tool_response|>", "<|assistant|>",
                      "<|tool_call|>", "<|/tool_call|>"], "stops": ["<|end|>"]},
    "exaone": {"form": "exaone", "system": "[|system|]\n@[|endofturn|]\n", "user": "[|user|]\n@[|endofturn|]\n",
               "tool": "[|tool|]\n@[|endofturn|]\n", "assistant": "[|assistant|]\n", "end": "[|endofturn|]",
               "after": "\n", "call": "<tool_call>" + OBJECT + "</tool_call>", "sep": "\n",
               "added": ["[|system|]", "[|user|]", "[|tool|]", "[|assistant|]", "[|endofturn|]"] + TAGS + THINK,
               "stops": ["[|endofturn|]"], "off": QWEN_OFF},
    "glm": {"form": "glm", "bos": "[gMASK]<sop>", "system": "<|system|>\n@", "user": "<|user|>\n@",
            "tool": "<|observation|>\n@", "assistant": "<|assistant|>\n", "end": "",
            "call": tagged("<arg_key>{{ k }}</arg_key>\n<arg_value>", "</arg_value>\n",
                           "<tool_call>{{ c.name }}\n[P]</tool_call>"), "sep": "\n",
            "added": ["[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>",
                      "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"] + TAGS + THINK,
            "stops": ["<|user|>", "<|observation|>"],
            "off": "{% if enable_thinking is defined and not enable_thinking %}<think></think>\n{% endif %}"},
    "seed": {"form": "seed", "system": "<seed:bos>system\n@<seed:eos>", "user": "<seed:bos>user\n@<seed:eos>",
             "tool": "<seed:bos>tool\n@<seed:eos>", "assistant": "<seed:bos>assistant\n", "end": "<seed:eos>",
             "call": tagged("<parameter={{ k }}>", "</parameter>\n",
                            "<seed:tool_call>\n<function={{ c.name }}>\n[P]</function>\n</seed:tool_call>"),
             "sep": "\n", "added": ["<seed:bos>", "<seed:eos>", "<seed:tool_call>", "</seed:tool_call>",
                                    "<seed:think>", "</seed:think>"], "stops": ["<seed:eos>"],
             "off": "{% if thinking_budget is defined and thinking_budget == 0 %}<seed:think></seed:think>{% endif %}"},
    "deepseek": {"form": "deepseek", "bos": ds("begin of sentence"), "system": "@", "user": ds("User") + "@",
                 "tool": ds("tool output begin") + "@" + ds("tool output end"), "assistant": ds("Assistant"),
                 "end": ds("end of sentence"), "begin": ds("tool calls begin"), "close": ds("tool calls end"),
                 "call": ds("tool call begin") + "function" + ds("tool sep") + "{{ c.name }}\n```json\n" + ARGS +
                 "\n```" + ds("tool call end"), "sep": "\n", "stops": [ds("end of sentence")],
                 "added": [ds(w) for w in ("begin of sentence", "end of sentence", "User", "Assistant",
                                           "tool calls begin", "tool calls end", "tool call begin",
                                           "tool call end", "tool sep")] + THINK, "opens": "<think>\n"},
    "gemma": {"form": "gemma", "bos": "<bos>", "system": "<|turn>system\n@<turn|>\n",
              "user": "<|turn>user\n@<turn|>\n", "assistant": "<|turn>model\n",
              "tool": "<|tool_response>response:weather{value:" + QUOTE + "@" + QUOTE + "}<tool_response|>",
              "end": "<turn|>", "after": "\n", "called": "", "thinks": "<|think|>\n",
              "call": "<|tool_call>call:{{ c.name }}{{ '{' }}" + BARE + "{{ '}' }}<tool_call|>",
              "added": ["<bos>", "<eos>", "<|turn>", "<turn|>", "<|tool_call>", "<tool_call|>", "<|tool_response>",
                        "<tool_response|>", QUOTE, "<|channel>", "<channel|>", "<|think|>"],
              "stops": ["<turn|>", "<|tool_response>"], "closed": "<|channel>thought\n<channel|>",
              "off": "{% if not enable_thinking|default(false) %}<|channel>thought\n<channel|>{% endif %}"},
    # messages with channels. The template prints whom a call is for before its channel or after it.
    "harmony": {**HARMONY, "call": " to=functions.{{ c.name }}<|channel|>commentary json<|message|>" + ARGS},
    "harmony-after": {**HARMONY, "call": "<|channel|>commentary to=functions.{{ c.name }} <|constrain|>json<|message|>"
                      + ARGS},
    # calls in a form that is not known
    "olmo": {**CHATML, "form": "none", "call": "<function_calls>{{ c.name }}(a=1)</function_calls>"},
}


def quoted(text):
    return "{{ " + json.dumps(text, ensure_ascii=False) + " }}" if text else ""


def template(f):
    def wrapped(part, value):
        before, after = f[part].split("@")
        return quoted(before) + "{{ " + value + " }}" + quoted(after)

    def turn(role):
        return wrapped(role, "m.content")
    calls = thinks = ""
    content = "{{ m.content }}"
    if "content" in f:
        content = ("{% if m.tool_calls and m.thinking %}" + wrapped("thought", "m.thinking") + "{% endif %}"
                   "{% if m.content %}" + wrapped("content", "m.content") + "{% endif %}")
        thinks = wrapped("system", json.dumps(f["thinks"]).replace("{{ ", '" ~ (').replace(" }}", ') ~ "'))
    elif "thinks" in f:
        thinks = "{% if enable_thinking %}" + quoted(f["system"].replace("@", f["thinks"])) + "{% endif %}"
    if f["call"]:
        calls = ("{% if m.tool_calls %}{% if m.content %}{{ '\\n' }}{% endif %}" + quoted(f.get("begin")) +
                 "{% for t in m.tool_calls %}{% set c = t.function %}" + f["call"] +
                 "{% if not loop.last %}" + quoted(f.get("sep")) + "{% endif %}{% endfor %}" +
                 quoted(f.get("close")) + "{% endif %}")
    end = quoted(f["end"]) + quoted(f.get("after"))
    if "called" in f:
        end = "{% if m.tool_calls %}" + quoted(f["called"]) + "{% else %}" + end + "{% endif %}"
    return ("{% if messages|length > 90 %}x{% endif %}{{ bos_token if bos_token else '' }}" +
            thinks + "{% if tools %}" + turn("system").replace("m.content", "tools|tojson") + f.get("tools", "") + "{% endif %}"
            "{% for m in messages %}" + f.get("check", "") +
            "{% if m.role == 'system' %}" + turn("system") + "{% elif m.role == 'user' %}" + turn("user") +
            "{% elif m.role == 'tool' %}" + turn("tool") + "{% else %}" + quoted(f.get("assistant")) +
            content + calls + end + "{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}" + quoted(f.get("assistant")) + f.get("off", "") +
            quoted(f.get("opens")) + "{% endif %}")


def main(what, out):
    if what == "facts":
        f = FAMILIES[out]
        print(json.dumps({k: f.get(k) for k in ("form", "stops", "single", "id", "off", "opens", "closed", "switch", "bos", "messages")}))
        return
    f = FAMILIES[what]
    subprocess.run([sys.executable, "tests/cli/byte_tokenizer.py", out], check=True)
    path = out + "/tokenizer.json"
    tok = json.load(open(path))
    tok["added_tokens"] = [{**tok["added_tokens"][0], "id": 300 + i, "content": t, "special": True}
                           for i, t in enumerate(f["added"])]
    bos = [300 + f["added"].index(f["bos"])] if f.get("bos") in f["added"] else []
    if bos:  # the tokenizer puts it before texts, and so does the template
        tok["post_processor"] = {
            "type": "TemplateProcessing", "pair": [],
            "single": [{"SpecialToken": {"id": f["bos"], "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {f["bos"]: {"id": f["bos"], "ids": bos, "tokens": [f["bos"]]}}}
    json.dump(tok, open(path, "w"))
    json.dump({"bos_token": f.get("bos")}, open(out + "/tokenizer_config.json", "w"))
    json.dump({"do_sample": False}, open(out + "/generation_config.json", "w"))
    open(out + "/chat_template.jinja", "w").write(template(f))


if sys.argv[1] == "list":
    print(*FAMILIES)
else:
    main(*sys.argv[1:])
