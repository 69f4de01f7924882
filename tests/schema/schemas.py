"""Random JSON schemas, documents for them, and a validator.

Nothing here knows how qwick works, except for the limits that
docs/structured-output.md states: the order of properties, which escapes are
written, and how numbers look.
"""
import datetime
import decimal
import json
import random
import re
from decimal import Decimal
from urllib.parse import unquote, urldefrag, urljoin

import jsonschema

try:
    import referencing  # with jsonschema 4.18 and later
    RESOURCES = True
except ImportError:
    RESOURCES = False  # older versions do not follow each $id

decimal.getcontext().prec = 700  # 1e279 % 5 is exact

# ---- the validator ----------------------------------------------------------

formats = jsonschema.FormatChecker(formats=())


def checks(name):
    return formats.checks(name, raises=ValueError)


@checks("date")
def is_date(s):
    if isinstance(s, str):
        if not re.fullmatch(r"\d{4}-\d\d-\d\d", s, re.ASCII):
            return False
        datetime.date.fromisoformat(s)
    return True


def time_parts(s):
    return re.fullmatch(
        r"(\d\d):(\d\d):(\d\d)(\.\d+)?(Z|[+-](\d\d):(\d\d))", s, re.ASCII)


@checks("time")
def is_time(s):
    if not isinstance(s, str):
        return True
    m = time_parts(s)
    if not m:
        return False
    datetime.time(int(m[1]), int(m[2]), int(m[3]))
    return m[6] is None or (int(m[6]) < 24 and int(m[7]) < 60)


@checks("date-time")
def is_date_time(s):
    if not isinstance(s, str):
        return True
    day, t, time = s.partition("T")
    return t == "T" and is_date(day) and is_time(time)


@checks("uuid")
def is_uuid(s):
    return not isinstance(s, str) or bool(
        re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", s,
                     re.I | re.ASCII))


@checks("email")
def is_email(s):
    if not isinstance(s, str):
        return True
    name, at, host = s.rpartition("@")
    labels = host.split(".")
    return (at == "@" and all(name.split("."))
            and not re.search(r'[^!-~]|[\\"(),:;<>@\[\]]', name)
            and all(re.fullmatch(r"[A-Za-z0-9-]{1,63}", x)
                    and x[0] != "-" and x[-1] != "-" for x in labels))


@checks("ipv4")
def is_ipv4(s):
    if not isinstance(s, str):
        return True
    parts = s.split(".")
    return len(parts) == 4 and all(
        p.isascii() and p.isdigit() and int(p) < 256 and str(int(p)) == p
        for p in parts)


@checks("uri")
def is_uri(s):
    if not isinstance(s, str):
        return True
    if re.search(r"%(?![0-9A-Fa-f]{2})", s):
        return False
    m = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]*):(//[^/?#]*)?([^?#]*)"
                     r"(\?[^#]*)?(#.*)?", s, re.ASCII)
    return bool(m) and not re.search(r"[^!-~]|[\"<>\\^`{|}\[\]]", s) \
        and "#" not in (m[5] or "")[1:]


SPACES = "\\t-\\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"


def pattern_of(p):
    """The expression as ECMA-262 means it: $ is the very end, white space and
    the ends of lines are not the same as Python's."""
    outside = {"$": r"\Z", ".": "[^\\n\\r\u2028\u2029]",
               r"\s": "[%s]" % SPACES, r"\S": "[^%s]" % SPACES}
    out, in_class = [], False
    for part in re.findall(r"\\.|.", p, re.DOTALL):
        if in_class:
            out.append(SPACES if part == r"\s" else part)
            in_class = part != "]"
        else:
            out.append(outside.get(part, part))
            in_class = part == "["
    return re.compile("".join(out), re.ASCII)


def pattern(validator, patrn, instance, schema):
    if validator.is_type(instance, "string") and \
            not pattern_of(patrn).search(instance):
        yield jsonschema.ValidationError("%r does not match" % instance)


Validator = jsonschema.validators.extend(
    jsonschema.Draft202012Validator, {"pattern": pattern})


def parse(text):
    return json.loads(text, parse_float=Decimal)


def repeats_key(text, schema):
    """Whether an object of the document has a member twice that a schema
    names. (jsonschema sees only one of them.)"""
    names = set()

    def collect(s):
        if isinstance(s, dict):
            names.update(s.get("properties", {}))
            for v in s.values():
                collect(v)
        elif isinstance(s, list):
            for v in s:
                collect(v)

    found = []

    def pairs(items):
        keys = [k for k, _ in items]
        found.extend(k for k in set(keys) if keys.count(k) > 1 and k in names)
        return dict(items)

    collect(schema)
    json.loads(text, object_pairs_hook=pairs)
    return False if not found else found


def is_valid(schema_text, doc_text):
    """Check a document with exact numbers, and once more as most programs
    read it, with doubles."""
    for read in parse, json.loads:
        v = Validator(read(schema_text), format_checker=formats)
        try:
            if not v.is_valid(read(doc_text)):
                return False
        except (ValueError, ArithmeticError):
            return False
    return True


# ---- strings ------------------------------------------------------------------

LETTERS = "abcxyzABZ019 _-.é漢😀\"\\/\n\t\x01\x7f{}[]:,'"


def word(r, low=0, high=8, letters=LETTERS):
    return "".join(r.choice(letters) for _ in range(r.randint(low, high)))


def digits(r, n):
    return "".join(r.choice("0123456789") for _ in range(n))


PATTERNS = {
    "^[a-c]{1,3}$": lambda r: word(r, 1, 3, "abc"),
    "x": lambda r: word(r, 0, 3) + "x" + word(r, 0, 3),
    "^a.*z$": lambda r: "a" + word(r, 0, 4, "abz é\"\\/😀") + "z",
    r"\d{2}": lambda r: word(r, 0, 2) + digits(r, 2) + word(r, 0, 2),
    "^(foo|bar|)$": lambda r: r.choice(["foo", "bar", ""]),
    "^[^\"a]+$": lambda r: word(r, 1, 4, "bé/\\\n\t\x01😀"),
    "^[A-Z]|[0-9]$": lambda r: r.choice(["Q" + word(r), word(r) + "7"]),
    r"^\w+\s\w+$": lambda r: word(r, 1, 3, "ab_9") + " " + word(r, 1, 3, "Z0"),
    "^.{2,4}$": lambda r: word(r, 2, 4, "aé😀\"\\ "),
    r"^\+?[\w.]+(-[0-9a-f]{2})*$":
        lambda r: r.choice(["", "+"]) + word(r, 1, 3, "a.B") + "-0f" *
        r.randint(0, 2),
    "é|漢+": lambda r: word(r, 0, 2) + "漢é" + word(r, 0, 2),
}


def some_date(r):
    return str(datetime.date(1, 1, 1) +
               datetime.timedelta(days=r.randrange(3652058)))


def some_time(r):
    fraction = r.choice(["", "." + digits(r, r.randint(1, 9))])
    zone = r.choice(["Z", "+00:00", "-23:59", "+05:30"])
    return "%02d:%02d:%02d%s%s" % (r.randrange(24), r.randrange(60),
                                   r.randrange(60), fraction, zone)


FORMATS = {
    "date": some_date,
    "time": some_time,
    "date-time": lambda r: some_date(r) + "T" + some_time(r),
    "uuid": lambda r: re.sub(
        "x", lambda _: r.choice("0123456789abcdefABCDEF"),
        "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"),
    "email": lambda r: word(r, 1, 4, "ab+_'1") + "." + word(r, 1, 2, "x9") +
    "@" + word(r, 1, 5, "abc1") + r.choice(["", ".org", ".x-y.z"]),
    "ipv4": lambda r: ".".join(str(r.randrange(256)) for _ in range(4)),
    "uri": lambda r: r.choice(
        ["http://a.org", "mailto:a@b", "urn:x:y", "https://u@h:80/p/q",
         "file:///tmp", "a+b:", "x:/y/"]) +
    r.choice(["", "?q=1&r=%20", "#f", "?a#b"]),
}

# ---- schemas ------------------------------------------------------------------


class Maker:
    """Makes schemas with every keyword that qwick supports. closed: few of
    them let a document grow without limit."""

    def __init__(self, seed, closed=False):
        self.r = random.Random(seed)
        self.closed = closed
        self.defs = {}
        self.done = []  # names of definitions that are complete
        self.resources = []  # references to those with an $id
        self.ids = []
        self.base = self.r.choice(["", "http://a.b/c/root.json", "urn:x:y"])

    def chance(self, p):
        return self.r.random() < p

    def open(self):
        return not self.closed or self.chance(0.01)

    def schema(self):
        r = self.r
        top = self.object(3) if self.chance(0.7) else self.any(3)
        if not isinstance(top, dict) or "$id" in top:
            top = {"allOf": [top]}
        if self.base:
            top["$id"] = self.base
        if self.defs:
            top[r.choice(["$defs", "$defs", "definitions"])] = self.defs
            if "definitions" in top:
                top = json.loads(json.dumps(top).replace("#/$defs/",
                                                         "#/definitions/"))
        if self.chance(0.3):
            top.update({"$schema": "https://json-schema.org/draft/2020-12/"
                                   "schema", "title": "t", "examples": [1]})
        return top

    def any(self, depth):
        kinds = [self.string, self.integer, self.number, self.enum, self.const,
                 self.types]
        if depth > 0:
            kinds += [self.object, self.array, self.any_of, self.one_of,
                      self.all_of, self.ref, self.object, self.array]
            kinds += [self.resource] * RESOURCES
        elif self.chance(0.1) and self.open():
            return self.r.choice([True, {}])
        s = self.r.choice(kinds)(depth)
        if isinstance(s, dict) and self.chance(0.1):
            s["description"] = "text"
            s["default"] = None
        return s

    def types(self, depth):
        names = ["null", "boolean", "integer", "number", "string"]
        t = self.r.sample(names, self.r.randint(1, 3))
        s = {"type": t if len(t) > 1 or self.chance(0.3) else t[0]}
        if "string" in t:
            self.limit(s)
        if self.chance(0.2):
            s["not"] = {"enum": [None, True, "a"]} if self.chance(0.5) and \
                set(t) - {"null"} else {"const": "x"}
        return s

    def string(self, depth):
        r = self.r
        s = {"type": "string"}
        what = r.randrange(6)
        if what == 0:
            s["pattern"] = r.choice(list(PATTERNS))
            if not self.open():
                s["maxLength"] = 30
        elif what == 1:
            s["format"] = r.choice(list(FORMATS))
        elif what == 2:
            s["minLength"] = r.randint(0, 4)
            s["maxLength"] = s["minLength"] + r.randint(0, 30)
        elif what == 3:
            s["not"] = r.choice([{"const": "a"}, {"enum": ["", "ab", "é\""]}])
            self.limit(s)
        elif what == 4:
            s["pattern"] = r.choice(["x", "^a.*z$", "^.{2,4}$"])
            s["minLength"] = 2
            s["maxLength"] = r.randint(4, 12)
        else:
            self.limit(s)
        return s

    def limit(self, s):
        """Limit most strings: the demo model hardly ends one by itself."""
        if self.closed and self.chance(0.8):
            s["maxLength"] = 60

    def integer(self, depth):
        r = self.r
        s = {"type": "integer"}
        low = r.choice([-1000, -7, 0, 1, 10, 123456])
        if self.chance(0.4):
            s[r.choice(["minimum", "exclusiveMinimum"])] = low
        if self.chance(0.4):
            s[r.choice(["maximum", "exclusiveMaximum"])] = low + r.choice(
                [20, 99, 100000])
        if self.chance(0.2):
            s["multipleOf"] = r.choice([2, 3, 5, 10, 12])
        if self.chance(0.1):
            s["not"] = {"const": low + 12}
        return s

    def number(self, depth):
        r = self.r
        s = {"type": "number"}
        low = r.choice([-1.5, 0, 0.25, 100, -2.125, -0.0, 1e3])
        if self.chance(0.5):
            s[r.choice(["minimum", "exclusiveMinimum"])] = low
        if self.chance(0.5):
            s[r.choice(["maximum", "exclusiveMaximum"])] = low + r.choice(
                [1, 0.5, 33.75])
        if self.chance(0.1):
            s["not"] = {"const": r.choice([0, 0.5, 101])}
        return s

    def value(self, depth):
        r = self.r
        kinds = [lambda: None, lambda: True, lambda: r.randint(-9, 99),
                 lambda: word(r), lambda: r.choice([1.5, -0.0]), lambda: "plain"]
        if depth > 0:
            kinds += [lambda: [self.value(0), self.value(0)],
                      lambda: {"k": self.value(0), "é": self.value(0)}]
        return r.choice(kinds)()

    def enum(self, depth):
        return {"enum": [self.value(1) for _ in range(self.r.randint(1, 4))]}

    def const(self, depth):
        return {"const": self.value(1)}

    def names(self, n):
        pool = ["a", "b", "ab", "name", "id", "x y", "é", "q\"", "s/t", "x1",
                "value", "list"]
        return self.r.sample(pool, n)

    def object(self, depth):
        r = self.r
        s = {"type": "object"}
        names = self.names(r.randint(0, 5))
        s["properties"] = {n: self.any(depth - 1) for n in names}
        required = [n for n in names if self.chance(0.5)]
        if self.chance(0.1):
            required.append("extra")
        if required or self.chance(0.2):
            s["required"] = required
        if self.chance(0.15) and self.open():
            s["patternProperties"] = {
                r.choice(["^x", "a", "^.{3}$"]): {"type": "integer"}}
            for n in names:  # the same name must not ask for two types
                if re.search(next(iter(s["patternProperties"])), n):
                    s["properties"][n] = {"minimum": 3}
        extra = r.randrange(4) if self.open() else 0
        if extra < 2 and "extra" in required:
            s["properties"]["extra"] = {"type": "null"}
        if extra < 2:
            s["additionalProperties"] = False
        elif extra == 2:
            s["additionalProperties"] = self.any(0)
        if self.chance(0.3):
            items = list(s.items())
            r.shuffle(items)
            s = dict(items)
        return s

    def array(self, depth):
        r = self.r
        s = {"type": "array"}
        if self.chance(0.4):
            s["prefixItems"] = [self.any(depth - 1)
                                for _ in range(r.randint(1, 3))]
        if self.chance(0.8):
            s["items"] = self.any(depth - 1) if self.chance(0.85) else False
        if self.chance(0.3):
            s["minItems"] = r.randint(0, 1 if s.get("items") is False else 3)
        if self.chance(0.6) or not self.open():
            s["maxItems"] = s.get("minItems", 0) + r.randint(0, 4)
        return s

    def any_of(self, depth):
        branches = [self.any(depth - 1) for _ in range(self.r.randint(1, 3))]
        s = {"anyOf": branches}
        if self.chance(0.2):
            s = {"type": "object",
                 "properties": {"m": self.any(0), "n": self.any(0)},
                 "anyOf": [{"required": ["m"]}, {"required": ["n"]}]}
            if not self.open():
                s["additionalProperties"] = False
        return s

    def one_of(self, depth):
        r = self.r
        how = r.randrange(3)
        if how == 0:
            kinds = [self.string(0), self.integer(0), {"type": "null"},
                     self.array(depth - 1), self.object(depth - 1)]
            return {"oneOf": r.sample(kinds, r.randint(2, 3))}
        if how == 1:
            return {"oneOf": [{"const": 1}, {"enum": ["a", "b"]},
                              {"const": {"k": []}}]}
        branches = []
        for kind in r.sample(["circle", "square", "line"], r.randint(2, 3)):
            branches.append({
                "properties": {"kind": {"const": kind},
                               kind: self.any(depth - 1)},
                "required": ["kind", kind]})
            if not self.open():
                branches[-1]["additionalProperties"] = False
        return {"type": "object", "oneOf": branches}

    def all_of(self, depth):
        r = self.r
        if self.chance(0.5):
            return {"allOf": [{"type": ["integer", "string"]},
                              {"minimum": 3, "maxLength": 4},
                              {"type": ["integer", "null", "string"]}]}
        if not self.open():
            s = self.object(depth - 1)
            names = list(s["properties"])
            return {"allOf": [s, {"type": ["object", "null"],
                                  "properties": {n: {} for n in names[:2]},
                                  "required": names[1:3]}]}
        first, second = self.object(depth - 1), self.object(depth - 1)
        for s in first, second:
            s.pop("additionalProperties", None)
            s.pop("patternProperties", None)
        second["properties"] = {
            k: v for k, v in second["properties"].items()
            if k not in first["properties"]}
        s = {"allOf": [first, second]}
        if self.chance(0.3):
            s = {"properties": {"own": self.any(0)}, **s}
        return s

    def resource(self, depth):
        """A schema with an $id, whose references begin in it, or a reference
        to an earlier one. Its definitions have names of others elsewhere."""
        r = self.r
        if self.resources and self.chance(0.5):
            return {"$ref": r.choice(self.resources)}
        name = "r%d" % len(self.resources)
        uri = r.choice(["http://other/" + name, "urn:z:" + name] +
                       ["sub/" + name, "./" + name + "?q", "../" + name] *
                       (not self.base.startswith("urn")))
        other = {"$anchor": "here", "type": "boolean"}
        s = {"$id": uri, "type": "array", "minItems": 1, "maxItems": 3,
             "items": {"$ref": r.choice(["#/%24defs/d0", "#here",
                                         "#/%24defs/c%7E1d"])},
             "default": {"$id": uri, "$defs": {"d0": other}},
             "$defs": {"d0": self.any(0), "c/d": self.enum(0),
                       "x": {"enum": [other]},
                       "e": {"$anchor": "here", **self.const(0)}}}
        self.ids.append(uri)
        whole = urldefrag(urljoin(self.base, uri))[0]
        self.resources += [whole, whole + "#/%24defs/d0", whole + "#here",
                           urldefrag(uri)[0] + "#/%24defs/c~1d"]
        return s

    def ref(self, depth):
        r = self.r
        if self.done and self.chance(0.5):
            return {"$ref": "#/$defs/" + r.choice(self.done)}
        name = "d%d" % len(self.defs)
        self.defs[name] = True
        if self.chance(0.4):  # a list or a tree
            self.defs[name] = {
                "type": "object",
                "properties": {
                    "v": self.any(0),
                    "next": {"anyOf": [{"type": "null"},
                                       {"$ref": "#/$defs/" + name}]},
                    "kids": {"type": "array", "maxItems": 2,
                             "items": {"$ref": "#/$defs/" + name}}},
                "required": ["v", "next"], "additionalProperties": False}
        else:
            self.defs[name] = self.any(depth - 1)
        self.done.append(name)
        s = {"$ref": "#/$defs/" + name}
        if self.chance(0.15):
            s["description"] = "about it"
        return s


def make_schema(seed, closed=False):
    # each schema is an object of its own: the sampler tells them apart
    maker = Maker(seed, closed)
    text = json.dumps(maker.schema())
    if all('"$id": "%s"' % i in text for i in maker.ids):
        return json.loads(text)
    return make_schema(seed + 1000003, closed)  # a part was dropped


# ---- documents ------------------------------------------------------------------


class Sampler:
    """Draws documents that are likely to satisfy a schema. Where schemas are
    combined, the validator has the last word."""

    def __init__(self, schema, seed):
        self.root = schema
        self.r = random.Random(seed)
        self.base, self.named = {}, {}
        self.index(schema, "")

    def index(self, schema, base):
        """Note the URIs of schemas, not of values that look like them."""
        if isinstance(schema, bool):
            return
        base = urldefrag(urljoin(base, schema.get("$id", "")))[0]
        self.base[id(schema)] = base
        if "$id" in schema or schema is self.root:
            self.named[base] = schema
        if "$anchor" in schema:
            self.named[base + "#" + schema["$anchor"]] = schema
        for k, v in schema.items():
            if k in ("items", "not", "additionalProperties"):
                self.index(v, base)
            elif k in ("allOf", "anyOf", "oneOf", "prefixItems"):
                for s in v:
                    self.index(s, base)
            elif k in ("properties", "patternProperties", "$defs",
                       "definitions"):
                for s in v.values():
                    self.index(s, base)

    def resolve(self, schema):
        base, ref = self.base[id(schema)], schema["$ref"]
        uri, fragment = urldefrag(base + ref if ref[0] == "#" else
                                  urljoin(base, ref))
        fragment = unquote(fragment)
        if fragment and fragment[0] != "/":
            return self.named[uri + "#" + fragment]
        s = self.named[uri]
        for token in fragment.split("/")[1:]:
            s = s[token.replace("~1", "/").replace("~0", "~")]
        return s

    def flatten(self, schema, nodes, seen):
        """The schemas that apply to the same value, in the order of their
        keywords in the text."""
        if isinstance(schema, bool) or id(schema) in seen:
            return
        seen.add(id(schema))
        order = [k for k in schema if k in ("$ref", "allOf", "properties")]
        if "properties" not in order:
            order.append("properties")
        for k in order:
            if k == "$ref":
                self.flatten(self.resolve(schema), nodes, seen)
            elif k == "allOf":
                for s in schema[k]:
                    self.flatten(s, nodes, seen)
            else:
                nodes.append(schema)

    def nodes(self, schemas):
        nodes, seen = [], set()
        for s in schemas:
            self.flatten(s, nodes, seen)
        for node in nodes:  # grows
            for key in "anyOf", "oneOf":
                if key in node:
                    self.flatten(self.r.choice(node[key]), nodes, seen)
        return nodes

    def text(self, schemas, depth=0):
        """A document's text for all of the schemas."""
        r = self.r
        nodes = self.nodes(schemas)
        for n in nodes:
            if "const" in n:
                return self.plain(n["const"])
            if "enum" in n:
                return self.plain(r.choice(n["enum"]))
        types = None
        for n in nodes:
            if "type" in n:
                t = n["type"] if isinstance(n["type"], list) else [n["type"]]
                t = set(t) | ({"integer"} if "number" in t else set())
                types = t if types is None else types & t
        types = sorted(types if types is not None else
                       {"null", "boolean", "integer", "number", "string",
                        "array", "object"})
        if depth > 4:
            types = [t for t in types if t not in ("array", "object")] or types
        if not types or depth > 12:
            return "null"
        return getattr(self, r.choice(types))(nodes, depth)

    def null(self, nodes, depth):
        return "null"

    def boolean(self, nodes, depth):
        return self.r.choice(["true", "false"])

    def limits(self, nodes):
        low = max([n[k] for n in nodes for k in ("minimum", "exclusiveMinimum")
                   if k in n], default=None)
        high = min([n[k] for n in nodes for k in ("maximum", "exclusiveMaximum")
                    if k in n], default=None)
        limited = any(k in n for n in nodes for k in (
            "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum",
            "not"))
        return low, high, limited

    def integer(self, nodes, depth):
        r = self.r
        low, high, _ = self.limits(nodes)
        if low is None:
            low = high - 200 if high is not None else -r.choice([9, 10**9])
        if high is None:
            high = low + r.choice([50, 10**6, 10**15])
        v = r.randint(int(low) - 1, int(high) + 1)
        for n in nodes:
            v -= v % int(n.get("multipleOf", 1)) if self.r.random() < 0.9 else 0
        return str(v)

    def number(self, nodes, depth):
        r = self.r
        low, high, limited = self.limits(nodes)
        if any("multipleOf" in n for n in nodes):
            return self.integer(nodes, depth)
        if low is None:
            low = high - 50 if high is not None else -1000
        if high is None:
            high = float(low) + r.choice([1, 1000])
        low, high = float(low) + 0.0, float(high)  # -0.0 becomes 0.0
        v = r.uniform(low - 0.01 * (high - low), high + 0.01 * (high - low))
        how = r.randrange(5)
        if how == 0:
            return str(round(v))
        if how == 1:
            return repr(r.choice([low, high, low + (high - low) / 2]))
        if how == 2 and not limited:
            return "%.*e" % (r.randint(1, 6), v)
        text = "%.*f" % (r.randint(1, 12), v) if how < 4 else repr(v)
        if low >= 0:  # there, a zero has no minus
            text = text.replace("-0", "0") if float(text) == 0 else text
        return text if "e" not in text else "0.5"

    def string(self, nodes, depth):
        r = self.r
        free = True
        makers = []
        for n in nodes:
            if "pattern" in n:
                makers.append(PATTERNS[n["pattern"]])
            if "format" in n:
                makers.append(FORMATS[n["format"]])
            free &= not ({"pattern", "format", "not"} & set(n))
        low = max([n.get("minLength", 0) for n in nodes], default=0)
        high = min([n.get("maxLength", 20) for n in nodes], default=20)
        for _ in range(20):
            s = r.choice(makers)(r) if makers else \
                word(r, low, max(low, min(high, low + 9)))
            if low <= len(s) <= high or r.random() < 0.02:
                break
        return self.quote(s, free)

    def quote(self, s, free):
        """Write a string, with some of the escapes that qwick writes."""
        out = []
        shorts = {"\"": '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b",
                  "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
        for c in s:
            must = c in "\"\\" or c < " "
            may = free or must or c >= "\x7f" or c == "/"
            if c in shorts and (must or self.r.random() < 0.3) and \
                    self.r.random() < 0.7:
                out.append(shorts[c])
            elif must or (may and self.r.random() < 0.2):
                raw = c.encode("utf-16-be")
                hexes = ["%02x%02x" % (raw[i], raw[i + 1])
                         for i in range(0, len(raw), 2)]
                out.extend("\\u" + (h if self.r.random() < 0.5 else h.upper())
                           for h in hexes)
            else:
                out.append(c)
        return '"' + "".join(out) + '"'

    def plain(self, v):
        if isinstance(v, list):
            return "[" + ",".join(map(self.plain, v)) + "]"
        if isinstance(v, dict):
            return "{" + ",".join(self.plain(k) + ":" + self.plain(x)
                                  for k, x in v.items()) + "}"
        if isinstance(v, float) and v == 0:
            v = 0.0  # is written without a minus
        return json.dumps(v, ensure_ascii=self.r.random() < 0.3,
                          separators=(",", ":"))

    def array(self, nodes, depth):
        r = self.r
        low = max([n.get("minItems", 0) for n in nodes], default=0)
        high = min([n.get("maxItems", 4) for n in nodes], default=4)
        n_items = r.randint(low, max(low, high if depth < 4 else low))
        items = []
        for i in range(n_items):
            schemas = []
            for n in nodes:
                prefix = n.get("prefixItems", [])
                if i < len(prefix):
                    schemas.append(prefix[i])
                elif "items" in n:
                    schemas.append(n["items"])
            items.append(self.text(schemas, depth + 1))
        return "[" + ",".join(items) + "]"

    def schemas_of(self, nodes, name):
        schemas = []
        for n in nodes:
            mine = []
            if name in n.get("properties", {}):
                mine.append(n["properties"][name])
            for p, s in n.get("patternProperties", {}).items():
                if pattern_of(p).search(name):
                    mine.append(s)
            if not mine and "additionalProperties" in n:
                mine.append(n["additionalProperties"])
            schemas += mine
        return schemas

    def object(self, nodes, depth):
        r = self.r
        names, required = [], set()
        for n in nodes:
            names += [k for k in n.get("properties", {}) if k not in names]
        for n in nodes:
            required |= set(n.get("required", []))
            names += [k for k in n.get("required", []) if k not in names]
        keys = [k for k in names
                if k in required or (r.random() < 0.5 and depth < 5)]
        if r.random() < 0.3:
            more = ["x" + str(r.randrange(9)), "extra", "aaa", "zzz", "é\t"]
            keys += [k for k in r.sample(more, 2) if k not in names]
        members = []
        for k in keys:
            schemas = self.schemas_of(nodes, k)
            members.append(self.quote(k, False) + ":" +
                           self.text(schemas, depth + 1))
        return "{" + ",".join(members) + "}"


def sample(schema, seed):
    return Sampler(schema, seed).text([schema])


def spoil(text, r):
    """Change a few characters of a document."""
    s = list(text)
    for _ in range(r.randint(1, 2)):
        i = r.randrange(len(s) + 1)
        how = r.randrange(3)
        if how == 0 and s:
            del s[i % len(s)]
        elif how == 1:
            s.insert(i, r.choice("0123456789\"{}[],:abx -.eé\\ntrufals"))
        elif s:
            s[i % len(s)] = r.choice("0123456789\"{}[],:abx -.e\\é")
    return "".join(s)
