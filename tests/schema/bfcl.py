"""The functions of the Berkeley Function Calling Leaderboard as tools in OpenAI's
form, as its own harness writes them for OpenAI's API."""
import collections
import glob
import json
import re

TYPES = {
    "integer": "integer", "number": "number", "float": "number",
    "string": "string", "boolean": "boolean", "bool": "boolean",
    "array": "array", "list": "array", "dict": "object", "object": "object",
    "tuple": "array", "any": "string", "byte": "integer", "short": "integer",
    "long": "integer", "double": "number", "char": "string",
    "ArrayList": "array", "Array": "array", "HashMap": "object",
    "Hashtable": "object", "Queue": "array", "Stack": "array",
    "Any": "string", "String": "string", "Bigint": "integer",
}
FORMS = "qwen", "qwen-coder"


def convert_items(items):
    items["type"] = TYPES[items["type"]]
    if items["type"] == "array" and "items" in items:
        items["items"]["type"] = TYPES[items["items"]["type"]]
    elif items["type"] == "object" and "properties" in items:
        convert(items["properties"])


def convert(properties):
    """Replace the types of BFCL by those of JSON schemas."""
    for value in properties.values():
        own = value.get("type", "string")
        if own == "float":
            value["format"] = "float"
            value["description"] = value.get("description", "") + \
                " This is a float type value."
        value["type"] = TYPES.get(own, "string")
        if value["type"] not in ("array", "object"):
            continue
        if "properties" in value:
            convert(value["properties"])
        elif "items" in value:
            convert_items(value["items"])


def tool_of(function):
    f = json.loads(json.dumps(function))
    f["name"] = re.sub(r"\.", "_", f["name"])
    f["parameters"]["type"] = "object"
    convert(f["parameters"]["properties"])
    f.pop("response", None)
    return {"type": "function", "function": f}


def functions(folder):
    """The functions of all files, each once."""
    found = {}
    for path in sorted(glob.glob(folder + "/BFCL_*.json") +
                       glob.glob(folder + "/multi_turn_func_doc/*.json")):
        for line in open(path):
            try:
                v = json.loads(line)
            except ValueError:
                break  # a file that is no suite
            list_ = v.get("function", [v] if "parameters" in v else [])
            for f in [list_] if isinstance(list_, dict) else list_:
                found[json.dumps(f, sort_keys=True)] = f
    return list(found.values())


def run(server, folder, report):
    all_ = functions(folder)
    reasons = collections.defaultdict(list)
    compiled = dict.fromkeys(FORMS, 0)
    for f in all_:
        tools = json.dumps([tool_of(f)])
        for form in FORMS:
            answer = server.tools(tools, form)
            compiled[form] += answer.startswith("ok")
            if not answer.startswith("ok"):
                reason = re.sub('tool ".*?": ', "", answer)
                reasons[form + ": " + reason].append(f["name"])
    report.say("BFCL: of %d functions compile %s" % (len(all_), ", ".join(
        "%d (%s)" % (compiled[form], form) for form in FORMS)))
    for reason, names in sorted(reasons.items(), key=lambda r: -len(r[1])):
        report.say("  %5d  %s  [%s]" % (len(names), reason,
                                        " ".join(names[:3])))
