#!/usr/bin/env python3
"""Write tests/golden/template/cases.jsonl: small templates with what Jinja2 makes of them.

Needs Python's jinja2 (3.1). The environment is the one that transformers uses for chat
templates. Usage: scripts/make-template-goldens.py >tests/golden/template/cases.jsonl
"""
import datetime
import json
import sys

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2026, 11, 22, 10, 30)


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_run")
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _run(self, caller):
        return caller()


def fail(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, "jinja2.ext.loopcontrols"])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = fail
    env.globals["strftime_now"] = NOW.strftime
    return env


VARS = {
    "n": 7, "neg": -3, "zero": 0, "f": 2.5, "big": 123456789012345678901234567890,
    "s": "Hello World", "u": "Grüße an Øystein 漢字 🙂", "empty": "", "yes": True, "no": False,
    "nil": None, "pad": "  a b\t\n", "dashes": "a-b--c", "lines": "one\ntwo\r\n\nfour\n",
    "xs": [3, 1, 2], "ws": ["pear", "Apple", "fig", "apple"], "mixed": [1, "a", None, True, 2.5],
    "none_list": [], "d": {"b": 2, "a": 1, "C": 3}, "nested": {"k": {"l": [1, {"m": "deep"}]}},
    "html": "<b>&'\"</b>", "html2": "x<y",
    "people": [{"name": "Ann", "age": 31, "tags": ["x", "y"]}, {"name": "bob", "age": 25},
               {"name": "Cid", "age": 31, "tags": []}],
    "items_dict": {"items": [1, 2], "keys": "K", "get": 5},
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
                 {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYo", "n": 1},
                 {"role": "user", "content": [{"type": "text", "text": "A"},
                                              {"type": "image"}, {"type": "text", "text": "B"}]}],
}

E = """
1|1.0|1e3|1E-2|1_000|0x1F|0b101|0o17|12.5e2|1.|"a" 'b'|'it''s'|"q\\"q"|'\\x41\\u00e9\\U0001F642\\101\\n\\t\\\\'|'\\d\\q'|'\\0'
true|True|false|none|None|()|(1,)|(1,2)|1,2|[]|[1,]|[1,2,[3]]|{}|{'a':1,}|{'a':1,'b':[1]}|{1:2,none:3,true:4,(1,2):5}
1 + 2|1 - 2|2 * 3|7 / 2|6 / 2|7 // 2|-7 // 2|7 // -2|-7 % 3|7 % -3|7.5 // 2|-7.5 % 2|7.5 % -2|2 ** 10|2 ** -1|2 ** 0.5|-2 ** 2|(-2) ** 2|2 ** 3 ** 2|0 ** 0
1 / 0|1 // 0|1 % 0|1.0 / 0|'a' + 1|1 + 'a'|none + 1|[1] + (2,)|[1] + [2]|(1,) + (2,)|'a' * 3|3 * 'ab'|[0] * 3|(1,2) * 2|'a' * -1|-true|+true|-'a'|+3|--3|- 3
9223372036854775807|9223372036854775807 - 1|-9223372036854775808 + 0|big|big ~ 'x'|-(-3)|not 1|not not 1|not none
0.1 + 0.2|1e16|1e15|123456789.123|1e-5|0.0001|1e22|1.5e300|2.0|100.0|-0.0|5e-324|1/3|3.0 * 2|1e308 * 10|7 // 2.0|0.1 * 3
1 == 1.0|1 == true|'a' == 'a'|'a' == 1|[1] == [1]|[1] == (1,)|{'a':1} == {'a':1.0}|none == none|1 != 2|x == y|x == none|x != x|'' == none
1 < 2|1 < 2 < 3|1 < 3 < 2|3 > 2 >= 2|'a' < 'b'|'a' < 'B'|[1,2] < [1,3]|[1] < [1,0]|1 < 'a'|none < 1|x < 1|[1] < ['a']|1 < 2.5|'é' > 'z'|(1,2) < (1,'a')
1 in [1,2]|'a' in 'cat'|'' in ''|'x' in d|'a' in d|1 in d|3 not in xs|'q' not in 'abc'|1 in x|x in 'abc'|1 in 'abc'|1 in 5|none in mixed|2 in range(5)|[1] in [[1]]|'name' in people[0]
1 and 2|0 and 2|0 or 'a'|'' or none|1 or x.y|not 0 and 1|1 if true|1 if false|1 if 0 else 2|1 if 0 else 2 if 0 else 3|(1 if no) ~ 'x'|'a' if x is defined else 'b'|x or 'dflt'|yes and no or 3
1 ~ 2|'a' ~ none ~ true ~ 1.0|x ~ 'u'|[1] ~ {'a': 1}|1 + 2 ~ 3 * 4|1 ~ 2 + 3|'a' ~ -1
s[0]|s[-1]|s[99]|s[1:4]|s[::-1]|s[::2]|s[-3:]|s[:-3]|s[5:2]|s[10:0:-3]|u[0:5]|u[::-1]|u[-1]|u[18:]|u[::3]|s[none:3]|s['a']|s[1:2:0]|s[true]|s[1.0]|s[100:]|s[:100]|s[-100:3]
xs[0]|xs[-1]|xs[3]|xs[1:]|xs[::-1]|xs[5:]|xs['a']|xs[none]|xs.0|xs.1.2|(1,2,3)[1:]|range(10)[2]|range(10)[2:5]|xs[0:2][1]|[1,2,3][-2:]|xs[:-1]|xs[-1:]|xs[1:-1]|xs[::-2]
d.a|d['a']|d.zz|d.zz.y|d['zz']|d[1]|nested.k.l[1].m|nested['k']['l'][1]['m']|nested.k.l.1.m|items_dict.items|items_dict['items']|items_dict['keys']|items_dict['values'] is callable|d.items is callable|x.y|x['y']|none.y|none['y']|1.5.y|n.y|s.zz|d[[1]]
items_dict.get('get')|d.get('a')|d.get('q')|d.get('q', 5)|d.get()|d.get('a', default=1)|d.keys()|d.values()|d.items()|d.items()|list|d.keys()|list|d.values()|sum
d.keys() | join(',')|d.items() | length|d.items()[0]|d.pop('a')|d.update({})|xs.append(4)|xs.pop()|xs.sort()|d.clear|xs.append|xs.index(1)|xs.index(9)|xs.count(3)|(1,1).count(1)|d.copy()|xs.copy()|x()|x.y()|'a'()|n()|d()
s.upper()|s.lower()|s.title()|s.capitalize()|s.swapcase()|'ß'.upper()|'ﬁx'.capitalize()|'ΑΣ'.lower()|'ΑΣΑ Σ'.lower()|'İ'.lower()|u.upper()|u.lower()|"they're bill's".title()|'ǆ'.title()|'hELLO'.capitalize()
pad.strip()|pad.lstrip()|pad.rstrip()|'xxaxx'.strip('x')|'xyaxy'.strip('yx')|'aaa'.strip('a')|'éaé'.strip('é')|'abc'.lstrip('ab')|'abc'.rstrip('bc')|''.strip()|'a'.strip(none)|'a'.strip(1)|'\\u00a0\\u3000a\\x1f'.strip() ~ '.'
'a,b,,c'.split(',')|'a,b,c'.split(',', 1)|' a  b '.split()|' a  b c '.split(none, 1)|''.split()|''.split(',')|'abc'.split('')|'a--b-c'.split('--')|'a b c'.rsplit(' ', 1)|'a b c'.rsplit(none, 1)|' a  b '.rsplit()|'a,b,c'.split(sep=',', maxsplit=1)|'aaa'.split('a')|'a b'.split(' ', 0)|' a b '.split(none, 0)|' a b '.rsplit(none, 0)|'a,b,c'.rsplit(',', 1)|'aXbX'.rsplit('X')
lines.splitlines()|lines.splitlines(true)|''.splitlines()|'a\\n'.splitlines()|'\\n'.splitlines()|'a\\x0bb\\x85c\\u2028d'.splitlines()
'abc'.startswith('a')|'abc'.startswith(('x','a'))|'abc'.endswith('bc')|'abc'.startswith('b', 1)|'abc'.endswith('b', 0, 2)|'abc'.startswith('')|'abc'.startswith(1)|'abc'.endswith(('c',))|''.startswith('a')|'a'.endswith('aa')
'abcabc'.find('c')|'abc'.find('x')|'abcabc'.rfind('c')|'abc'.index('c')|'abc'.index('x')|'abcabc'.find('a', 1)|'éàü'.find('ü')|'éàé'.rfind('é')|'abc'.find('')|'abc'.find('', 9)|'abc'.find('c', 0, 2)|'aaa'.count('a')|'aaa'.count('aa')|'abc'.count('')|'abc'.count('a', 1)|'abc'.rindex('x')|'abc'.find('c', -1)
'a.b.c'.replace('.', '-')|'aaa'.replace('a', 'b', 2)|'abc'.replace('', '-')|'abc'.replace('', '-', 2)|'abc'.replace('x', 'y')|'aaa'.replace('a', '')|'abc'.replace('b', 'b')|'a'.replace(1, 2)|''.replace('', 'x')|'éa'.replace('', '.')|'a'.replace('a','b',0)
','.join(['a','b'])|','.join('abc')|','.join([1])|''.join([])|','.join(d)|'-'.join(('x',))|'a'.join(none)
'abc'.removeprefix('a')|'abc'.removesuffix('bc')|'abc'.removeprefix('x')|'a=b=c'.partition('=')|'a=b=c'.rpartition('=')|'abc'.partition('=')|'abc'.rpartition('=')|'abc'.partition('')
'7'.zfill(3)|'-7'.zfill(4)|'abc'.center(8) ~ '.'|'abc'.center(7, '*')|'ab'.center(5, '*')|'abc'.ljust(5, '.')|'abc'.rjust(5)|'abc'.ljust(2)|'a'.center(4, 'xy')|'+1'.zfill(5)
'12'.isdigit()|'1a'.isdigit()|''.isdigit()|'ab'.isalpha()|'a1'.isalnum()|' \\t'.isspace()|'AB'.isupper()|'Ab'.isupper()|'ab1'.islower()|'1'.islower()|'é'.isalpha()|'a'.isascii()|'é'.isascii()|'5'.isnumeric()|'5'.isdecimal()
'{} {}'.format(1, 'a')|'{0} {1} {0}'.format('x', 'y')|'{a}-{b}'.format(a=1, b=none)|'{:>5}|{:<5}|{:^5}'.format('a','b','c')|'{:*^7}'.format('ab')|'{:05d}'.format(42)|'{:,}'.format(1234567)|'{:.2f}'.format(3.14159)|'{:x} {:X} {:o} {:b} {:#x}'.format(255,255,8,5,255)|'{:+d} {: d}'.format(3, 4)|'{{}}'.format()|'{'.format()|'}'.format()|'{0.a}'.format(d)|'{0[a]}'.format(d)|'{!r}'.format('a')|'{:.3}'.format('abcdef')|'{:e}'.format(12345.678)|'{:%}'.format(0.25)|'{:10.3f}|'.format(2.5)|'{} {}'.format(1)|'{:d}'.format('a')|'{:s}'.format(1)|'{:5}|'.format(3)|'{:<5}|'.format(3)|'{:=+5}'.format(3)|'{:g}'.format(1e20)|'{:é>4}'.format('a')
'%s and %s' % ('a', 1)|'%d%%' % 5|'%5d|%-5d|%05d' % (1,2,3)|'%.2f' % 2.345|'%(a)s' % d|'%s' % 'x'|'%r' % 'x'|'%x' % 255|'%s' % [1]|'%s %s' % ('a',)|'%s' % ('a','b')|'%d' % 'a'|'%d' % 2.9|'%e' % 12.5|'%g' % 0.0001|'%+d' % 3|'%5s|%-5s|' % ('a','b')|'%.1s' % 'abc'|'%q' % 1|'%' % 1|'%s' % none|'%s' % (none,)|'%c' % 1|'%(zz)s' % d|'%#x' % 10
-3 | abs|n | abs|'a' | abs|x | abs|-2.5 | abs|true | abs|none | abs
s | upper|s | lower|s | capitalize|s | title|'hello-world (foo) [bar] <baz> {qux}' | title|'ñandú ß' | title|n | upper|none | upper|x | upper|true | lower|mixed | upper
pad | trim ~ '.'|'xxaxx' | trim('x')|n | trim|x | trim|none | trim|'aXa' | trim(chars='a')|lines | trim
'abc' | replace('b', 'x')|'aaa' | replace('a', 'b', 2)|n | replace(7, 8)|'abc' | replace('', '.')|'aaa' | replace('a','b',count=1)|'abc' | replace('a')|none | replace('None', 'x')|'abc' | replace(old='a', new='z')
s | length|u | length|xs | length|d | length|x | length|n | length|none | length|s | count|d.items() | length|range(4) | length|(xs | map('string')) | length|[] | length|people | length
s | first|s | last|xs | first|xs | last|none_list | first|none_list | last is undefined|d | first|d | last|x | first|n | first|u | last|(xs | reverse) | first|(xs | map('abs')) | last|(1,2) | last
ws | join|ws | join(', ')|xs | join('-')|people | join(', ', attribute='name')|s | join('.')|d | join(',')|x | join|mixed | join('|')|n | join|[[1],[2]] | join(',')|ws | join(1)|people | join('/', 'age')
x | default('d')|x | default|empty | default('d')|empty | default('d', true)|none | default('d')|none | d('e', true)|nested.zz | default('q')|0 | default(5, boolean=true)|x | default(default_value=3)|no | d(1)
xs | sort|xs | sort(reverse=true)|ws | sort|ws | sort(case_sensitive=true)|people | sort(attribute='name') | map(attribute='name') | list|people | sort(attribute='age,name') | map(attribute='name') | join(',')|mixed | sort|people | sort(attribute='age', reverse=true) | map(attribute='name') | list|d | sort|s | sort | join|x | sort|[[2,1],[1,2]] | sort|[none, none] | sort|['a', 1] | sort
d | dictsort|d | dictsort(true)|d | dictsort(by='value')|d | dictsort(reverse=true)|d | dictsort(false, 'value', true)|d | dictsort(by='x')|xs | dictsort|x | dictsort|{'b': {}, 'a': {}} | dictsort|{'b': {}, 'a': 1} | dictsort(by='value')
xs | min|xs | max|ws | min|ws | max|none_list | min|people | max(attribute='age')|ws | max(case_sensitive=true)|x | max|mixed | max|[1, 1.0, true] | max
xs | sum|people | sum(attribute='age')|xs | sum(start=10)|none_list | sum|ws | sum|[[1],[2]] | sum(start=[])|[0.1,0.2] | sum|['a'] | sum(start='')
xs | reverse | list|s | reverse|ws | reverse | join(' ')|x | reverse | list|d | reverse | list|n | reverse|u | reverse|range(3) | reverse | list
xs | list|s | list|d | list|x | list|n | list|d.items() | list|range(3) | list|none | list|u | list
ws | unique | list|[1, 1.0, true, 2] | unique | list|ws | unique(true) | list|people | unique(attribute='age') | map(attribute='name') | list|[[1]] | unique | list
ws | map('upper') | list|xs | map('string') | join(',')|people | map(attribute='name') | list|people | map(attribute='zz') | list|people | map(attribute='zz', default='?') | list|people | map(attribute='tags.0', default='-') | list|xs | map | list|xs | map('zz') | list|ws | map('replace', 'a', 'o') | list|people | map(attribute='tags') | list|['1','x'] | map('int', 5) | list|[[1,2],[3]] | map('sum') | list|x | map('upper') | list|n | map('upper') | list|ws | map('length') | sum|[[3,4]] | map(attribute=1) | list|ws | map('indent', width=2, first=true) | list
xs | select('odd') | list|xs | reject('odd') | list|mixed | select | list|mixed | select('string') | list|xs | select('gt', 1) | list|people | selectattr('age', 'equalto', 31) | map(attribute='name') | list|people | selectattr('tags') | map(attribute='name') | list|people | rejectattr('tags', 'defined') | map(attribute='name') | list|people | selectattr('zz', 'undefined') | list | length|xs | select('zz') | list|xs | selectattr | list|x | select | list|messages | selectattr('role', 'equalto', 'user') | list | length|mixed | select('in', [1, none]) | list|xs | reject('==', 3) | list
people | groupby('age') | length|people | groupby('age') | map(attribute='grouper') | list|people | groupby('age') | map(attribute='list') | map('length') | list|people | groupby('zz', default='q') | map(attribute=0) | list|ws | groupby(0) | list|[{'k':'b'},{'k':'A'},{'k':'a'}] | groupby('k')|[{'k':'b'},{'k':'A'},{'k':'a'}] | groupby('k', case_sensitive=true)
range(7) | batch(3) | list|range(7) | batch(3, 'x') | list|range(7) | slice(3) | list|range(7) | slice(3, 'x') | list|[] | batch(2) | list|range(3) | slice(0) | list
'42' | int|'42.9' | int|'x' | int|'x' | int(7)|'0x1A' | int(base=16)|'ff' | int(0, 16)|none | int|2.9 | int|-2.9 | int|true | int|x | int|' 5 ' | int|'1_000' | int|'1e3' | int|[] | int|'' | int|'99999999999999999999' | int|'inf' | int|'-7' | int|'١' | length|'0b11' | int(base=2)|'12' | int(base=3)
'2.5' | float|'x' | float|'x' | float(1.5)|3 | float|none | float|x | float|' 1e3 ' | float|'inf' | float|'nan' | float|'1_0.5' | float|'0x10' | float|true | float|[] | float(2)
2.5 | round|3.5 | round|2.567 | round(2)|2.5 | round(method='ceil')|2.5 | round(method='floor')|2.567 | round(1, 'ceil')|1234 | round(-2)|1250 | round(-2)|1350 | round(-2)|1234.5 | round(-2)|7 | round|2.675 | round(2)|'a' | round|2.5 | round(method='x')|-2.5 | round|true | round|0.5 | round|1e20 | round(2)
lines | indent|lines | indent(2)|lines | indent(2, true)|lines | indent(2, blank=true)|lines | indent('> ', first=true)|'' | indent(first=true)|'a' | indent(2, true)|n | indent|x | indent|'a\\n\\nb' | indent(1, blank=true)
s | truncate(8)|s | truncate(8, true, leeway=0)|s | truncate(5, leeway=0)|s | truncate(8, leeway=0)|s | truncate(9, false, '…', 0)|s | truncate(2, leeway=0)|s | truncate|s | truncate(10, true, '', 0)
s | wordcount|'' | wordcount|u | wordcount|'a-b_c d' | wordcount|n | wordcount
'a b/c?d=é&' | urlencode|d | urlencode|[('a', 'b c'), ('d/', 1)] | urlencode|n | urlencode|'~x' | urlencode|x | urlencode
html | e|html | escape|html | forceescape|html | e | e|html | e | forceescape|n | e|html | safe|html | safe | e|(html | e) is escaped|html is escaped|(html | safe) + html2|html2 + (html | safe)|(html | e) ~ html2|(html | safe | upper) + html2|html | safe | string|[html | safe]|'%s' | format(html)
'%s-%s' | format('a', 1)|'%(k)s' | format(k=3)|'%d' | format('x')|'%s' | format|'%s %(a)s' | format(1, a=2)|'%05.1f' | format(3.14159)
s | center(20) ~ '.'|s | center ~ '.'|s | center(3)|'ab' | center(5) ~ '.'
d | tojson|mixed | tojson|s | tojson|u | tojson|u | tojson(ensure_ascii=true)|html | tojson|nested | tojson|nested | tojson(indent=2)|none_list | tojson(indent=2)|d | tojson(sort_keys=true)|d | tojson(separators=(',', ':'))|nested | tojson(indent=1, separators=(',', ':'))|x | tojson|{} | tojson(indent=4)|(1,2) | tojson|{1:1, none:2, true:3, 2.5:4} | tojson|range(3) | tojson|2.0 | tojson|1e22 | tojson|'\\x00\\x1f\\x7f\\u2028/' | tojson|big | tojson|d.items() | tojson|d | tojson(indent='\\t')|[[], {}] | tojson(indent=2)|[1] | tojson(false, 3)|d | tojson(indent=0)|{'a': x} | tojson|raise_exception | tojson|[1,[2,[3]]] | tojson(indent=1)|d | tojson(zz=1)|'\\b\\f\\n\\r\\t"\\\\' | tojson|(1e308*10) | tojson
d | items | list|x | items | list|xs | items | list|d | attr('a')|d | attr('keys') is callable|s | attr('upper') is callable|d | string|none | string|x | string|1.0 | string|xs | string | length|d | zz
n is defined|x is defined|x is undefined|x.y is defined|d.q is defined|n is not defined|nil is none|x is none|n is number|s is number|yes is number|f is float|n is float|n is integer|yes is integer|yes is boolean|n is boolean|s is string|x is string|d is mapping|xs is mapping|xs is sequence|s is sequence|d is sequence|n is sequence|x is sequence|xs is iterable|n is iterable|x is iterable|s is iterable|range is callable|s is callable|x is callable|d.items() is sequence|d.items() is iterable|nil is sequence|(xs | map('abs')) is iterable|big is integer|big is number
3 is odd|4 is even|4 is odd|9 is divisibleby 3|9 is divisibleby(2)|2.0 is even|'a' is odd|x is odd|yes is true|yes is false|1 is true|no is false|0 is false|'abc' is lower|'ABC' is upper|'aBC' is upper|'1' is upper|n is eq 7|n is equalto(7)|n is ne 3|n is gt 3|n is ge 7|n is lt 3|n is le 7|n is greaterthan 1|n is lessthan 1|'a' is in 'abc'|3 is in xs|3 is not in xs|nil is sameas none|1 is sameas true|n is sameas 7|1 is sameas 1.0|s is zz|n is eq|'upper' is filter|'odd' is test|'zz' is filter|n is not odd|n is gt 3 and n is lt 9|not n is odd|n is odd is even|[] is sameas []|n is divisibleby 0
range(5) | list|range(2, 5) | list|range(5, 0, -2) | list|range(0)|range(1, 3)|range(0, 9, 3)|range()|range('a')|range(1, 2, 0)|range(100001)|range(3)[1]|range(1.5)|range(-3) | list|range(3) == range(3)
dict(a=1)|dict({'a':1}, b=2)|dict([['a', 1]])|dict()|dict(1)|dict(a=1).a|namespace(a=1).a|namespace(a=1)|namespace().zz|namespace({'x': 1}).x|namespace() | tojson|namespace(a=1)['a']|dict([[1]])
joiner() is callable|cycler(1,2).next()|cycler()|cycler(1,2).current|raise_exception('no')|raise_exception()|strftime_now('%Y-%m-%d')|strftime_now('%d %b %Y %H:%M:%S %A %j %p')|strftime_now('%-d/%f/%z|%Z|%%')|strftime_now('')|strftime_now(1)|lipsum|self|range|zz(1)
(1, 2) ~ ''|[1, 'a', "it's", "q\\"'", 1.5, none, true, x, u]|{'a': [1, {'b': none}]}|('a',)|'\\x00\\x7f\\xa0é\\u200b\\U0001F642\\ue000' ~ ['\\x00\\x7f\\xa0é\\u200b\\U0001F642\\ue000\\t\\\\']|[x]|[[]]|{}|[()]|people[0]|xs.index|d.get
foo(|1 +|{{|(1|[1|{'a'}|{'a':}|1 2|a b|'abc|"a|@|a.|a.'b'|a..b|a[|a[]|f(a b)|f(,)|f(a=1, 2)|f(*[1], 2)|f(**d, *xs)|is odd|1 is|a \\| |a \\| 1|not|1 if|if|a if else b|1 == |in xs|{1:2|;|1;2|$|`a`|a?b|a:b|x = 1|1..2|.5|a!|#
s|default(1)|f(a=1)|d.get(*['a'])|d.get(*['q', 9])|'{a}'.format(**{'a': 1})|range(*[1, 3]) | list|dict(**{'a': 1}, b=2)|dict(a=1, a=2)|dict(**{1: 2})|dict(**5)|range(*5)|dict(a=1, **{'a': 2})
'é' | length|'🙂'[0]|'a🙂b'[1:2]|'a🙂b' | reverse|'日本語'.split('本')|'日本語'.find('語')|u.find('漢')|u[u.find('漢'):]|u.replace('漢', '汉')|u | list | length|'é' in u|'Straße' | upper|'ŉ' | upper|'ΐ' | title|'Ǆ' | lower
""".strip("\n")

T = [
    "", "\n", "\n\n", "a", "a\n", "a\n\n", "a\r\nb\r\n", "a\rb", "{{ 1 }}\n", "{{ 1 }}\n\n", " {{ 1 }} ",
    # white space
    "a\n{% if yes %}\nb\n{% endif %}\nc", "a\n  {% if yes %}  \nb\n  {% endif %}\nc", "a {% if yes %}\n b{% endif %} c",
    "a\n  {%+ if yes %}\nb{% endif %}", "a\n  {%- if yes -%}  \n b \n {%- endif -%}\n c", "{% if yes +%}\nb{% endif %}",
    "  {% if yes %}x{% endif %}", "\t {% set a = 1 %}{{ a }}", "a  {{- 1 -}}  b", "a\n {{- 1 }}\n b", "a {{ 1 -}}\n\n b",
    "a\n  {# c #}  \nb", "a\n  {# c #}\nb", "a {#- c -#} b", "a {# c #} b", "{# a\nb #}\nc", "{# unclosed", "{#-#}x", "a\n {#+ c #}b",
    "{% raw %}{{ x }}{% endraw %}", "{%- raw -%} {{ a }} {%- endraw -%} b", "a\n  {% raw %}\n b \n  {% endraw %}\nc", "{% raw %}x", "{% raw %}{% if %}{% endraw %}", "{% raw +%}x{% endraw %}", "{%raw%}a{%endraw%}b", "{% raw -%}\n\n a{% endraw %}",
    "{{ '{{' }}", "{{ '}}' }}", "{{ {'a': {'b': 1}} }}", "{{ {'a': {'b': 1}}}}", "{{-5}}", "{{+5}}", "{{ -5 -}} x", "{% set a = 5 -%}\n\n{{ a }}", "{{ 1 }}}", "{ { 1 } }", "{%", "{{ 1 %}", "{% if yes }}x{% endif %}", "a{{", "}}", "%}", "{% %}", "{{ }}", "{{}}",
    "{% if yes %}\r\nx\r\n{% endif %}\r\n", "x\n\n{% set a=1 %}\n\ny", "{%- set a = 1 -%}\n{{ a }}\n", "\u00a0{%- if yes %}x{% endif %}", "a\u3000{{- 1 -}}\u2003b",
    "  a\n{% if yes -%}\n   b\n{%- endif %}  c", "{{ 1 }}\n{{ 2 }}\n", "{% if yes %}a{% endif %}\n\n{% if yes %}b{% endif %}", "a\n\t{%- if yes %} b {% endif -%}\n\t c", "{%if yes%}a{%endif%}",
    # if
    "{% if n > 5 %}big{% elif n > 2 %}mid{% else %}small{% endif %}", "{% if zero %}a{% elif x %}b{% else %}c{% endif %}", "{% if no %}a{% endif %}b", "{% if x %}a{% else %}b{% endif %}", "{% if yes %}", "{% endif %}", "{% else %}", "{% if %}a{% endif %}", "{% if 1, 0 %}t{% endif %}", "{% if yes %}a{% elif %}b{% endif %}", "{% if x.y %}a{% endif %}", "{% if no %}{{ x.y.z }}{% endif %}ok", "{% if yes %}a{% else %}b{% else %}c{% endif %}",
    # for
    "{% for x in xs %}{{ x }},{% endfor %}", "{% for a in xs %}{{ loop.index }}/{{ loop.length }} {{ loop.index0 }} {{ loop.revindex }} {{ loop.revindex0 }} {{ loop.first }} {{ loop.last }};{% endfor %}",
    "{% for a in xs %}{{ loop.previtem }}<{{ a }}>{{ loop.nextitem }} {% endfor %}", "{% for a in none_list %}x{% else %}none{% endfor %}", "{% for a in x %}x{% else %}none{% endfor %}", "{% for a in xs if a > 1 %}{{ loop.index }}:{{ a }} {% else %}e{% endfor %}", "{% for a in xs if a > 9 %}{{ a }}{% else %}e{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for k, v in d|dictsort %}{{ k }}{{ v }}{% endfor %}", "{% for (a, b) in [(1,2),(3,4)] %}{{ a+b }} {% endfor %}", "{% for a, (b, c) in [(1,(2,3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in [(1,2,3)] %}x{% endfor %}", "{% for a, b in ['xy'] %}{{ b }}{{ a }}{% endfor %}", "{% for a, in [[1],[2]] %}{{ a }}{% endfor %}",
    "{% for c in s %}{{ c }}.{% endfor %}", "{% for c in n %}{{ c }}{% endfor %}", "{% for c in none %}{% endfor %}", "{% for a in xs %}{% if a == 1 %}{% break %}{% endif %}{{ a }}{% endfor %}", "{% for a in xs %}{% if a == 1 %}{% continue %}{% endif %}{{ a }}{% endfor %}", "{% break %}", "{% for a in xs %}{% for b in xs %}{% if b == 1 %}{% break %}{% endif %}{{ a }}{{ b }} {% endfor %}{% endfor %}", "{% for a in xs %}{{ a }}{% break %}{% else %}e{% endfor %}", "{% for a in none_list %}{% else %}{% break %}{% endfor %}",
    "{% for a in xs %}{% set y = a %}{% endfor %}{{ y }}", "{% set y = 0 %}{% for a in xs %}{{ y }}{% set y = a %}{{ y }} {% endfor %}{{ y }}", "{% set ns = namespace(y=0) %}{% for a in xs %}{% set ns.y = ns.y + a %}{% endfor %}{{ ns.y }}", "{% for a in xs %}{% endfor %}{{ a }}", "{% for n in xs %}{{ n }}{% endfor %}{{ n }}", "{% for a in xs %}{% if loop.first %}{% set q = a %}{% endif %}{{ q }};{% endfor %}", "{% if yes %}{% set q = 5 %}{% endif %}{{ q }}",
    "{% for a in xs %}{{ loop.cycle('o', 'e') }}{% endfor %}", "{% for a in [1,1,2] %}{{ loop.changed(a) }} {% endfor %}", "{% for a in xs %}{% for b in ws %}{{ loop.index }}{{ loop.depth }}{{ loop.depth0 }} {% endfor %}{% endfor %}", "{% for a in xs %}{% set outer = loop %}{% for b in [1,2] %}{{ outer.index }}.{{ loop.index }} {% endfor %}{% endfor %}", "{{ loop }}", "{% for a in xs %}{{ loop.zz }}{% endfor %}", "{% for a in xs %}{{ loop }}{% endfor %}"[:0] or "{{ loop.index }}", "{% for a in [[1,[2,[3]]],[4]] recursive %}{% if a is iterable %}({{ loop(a) }}){% else %}{{ a }}{{ loop.depth }}{% endif %}{% endfor %}", "{% for a in xs %}{{ loop([1]) }}{% endfor %}",
    "{% for a in range(3) %}{{ a }}{% endfor %}", "{% for a in xs|reverse %}{{ loop.index }}{{ a }}{% if not loop.last %}-{% endif %}{% endfor %}", "{% for a in (1, 2) %}{{ a }}{% endfor %}", "{% for a in 1, 2 %}{{ a }}{% endfor %}", "{% for in xs %}{% endfor %}", "{% for a xs %}{% endfor %}", "{% for a in %}{% endfor %}", "{% for a in xs %}", "{% for 1 in xs %}{% endfor %}", "{% for a.b in xs %}{% endfor %}", "{% for true in xs %}{% endfor %}", "{% for m in messages %}{{ m.role }}: {{ m['content'] }}\n{% endfor %}", "{% for m in messages[1:] if m.role == 'user' %}{{ loop.index }}{{ m.content }}{% endfor %}", "{% for m in messages[::-1] %}{{ (messages|length - 1) - loop.index0 }}{{ m.role }} {% endfor %}", "{% for a in xs if loop.index %}{% endfor %}"[:0] or "{% for a in [] %}{% endfor %}",
    # set
    "{% set a = 1 %}{{ a }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = xs %}", "{% set (a, b) = (1, 2) %}{{ b }}", "{% set a %}x{{ n }}{% endset %}{{ a }}{{ a|length }}", "{% set a | upper %}abc{% endset %}{{ a }}", "{% set a | replace('b', 'x') | upper %}abc{% endset %}{{ a }}", "{% set a.b = 1 %}", "{% set d.q = 1 %}", "{% set ns = namespace() %}{% set ns.a = 1 %}{% set ns.b = ns.a + 1 %}{{ ns.b }}{{ ns }}", "{% set ns = namespace() %}{% set ns.a %}body{% endset %}{{ ns.a }}", "{% set a = %}", "{% set = 1 %}", "{% set a 1 %}", "{% set true = 1 %}", "{% set none = 1 %}", "{% set a = b = 1 %}", "{% set a = 1, %}{{ a }}", "{% set a = 1 if no %}{{ a is defined }}", "{% set x = x or 5 %}{{ x }}", "{% set n = n + 1 %}{{ n }}", "{% set a %}{% set b = 1 %}{% endset %}{{ b }}", "{% set ns.a = 1 %}", "{% set a = namespace %}{{ a(q=1).q }}", "{% set range = 5 %}{{ range }}", "{% set messages = messages[1:] %}{{ messages | length }}", "{% set a = 'x' %}{% set a = a ~ a %}{{ a }}", "{% set a, ns.b = 1, 2 %}", "{% set f = 1 %}{% if f == 1 %}{% set f = 2 %}{% endif %}{{ f }}",
    # macros
    "{% macro m() %}x{% endmacro %}{{ m() }}{{ m() }}", "{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=4, a=5) }}{{ m() }}", "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}", "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, z=4) }}", "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}body{% endcall %}", "{% macro m() %}[{{ caller(1, 2) }}]{% endmacro %}{% call(a, b) m() %}{{ a }}+{{ b }}{% endcall %}", "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}", "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}", "{% macro m(n) %}{% if n > 0 %}{{ n }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(4) }}", "{% set q = 1 %}{% macro m() %}{{ q }}{% endmacro %}{% set q = 2 %}{{ m() }}", "{% macro m() %}{% set q = 5 %}{{ q }}{% endmacro %}{{ m() }}{{ q }}", "{% for a in xs %}{% macro m() %}{{ a }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro m() %}{{ s }}{% endmacro %}{{ m() | upper }}", "{{ m() }}{% macro m() %}x{% endmacro %}", "{% macro m(a, b) %}{% endmacro %}{{ m.name }} {{ m.arguments }}{{ m.catch_kwargs }}{{ m.caller }}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m %}x{% endmacro %}", "{% macro (a) %}{% endmacro %}", "{% macro m() %}x", "{% macro m() %}{% break %}{% endmacro %}", "{% for a in xs %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "{% macro m() -%}\n  x\n{%- endmacro %}[{{ m() }}]", "{% macro outer() %}{% macro inner() %}i{% endmacro %}o{{ inner() }}{% endmacro %}{{ outer() }}", "{% macro m(d) %}{% for k, v in d.items() %}{{ k }}:{% if v is mapping %}{{ '{' ~ m(v) ~ '}' }}{% else %}{{ v }}{% endif %};{% endfor %}{% endmacro %}{{ m(nested) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(*[1]) }}{{ m(**{'a': 2}) }}", "{% macro m(x) %}{{ x|default('dd') }}{% endmacro %}{{ m() }}{{ m(1) }}", "{% macro m(a) %}{{ caller(a) }}{% endmacro %}{% call(b) m(5) %}<{{ b }}>{% endcall %}", "{% call s %}x{% endcall %}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}", "{% macro m() %}{{ kwargs.q }}{% endmacro %}{{ m(q=1) }}{{ m }}", "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}", "{% macro m() %}{{ n }}{% set n = 1 %}{{ n }}{% endmacro %}{{ m() }}", "{{ [m] | length }}{% macro m() %}{% endmacro %}",
    # other blocks
    "{% filter upper %}abc {{ s }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}aaa{% endfilter %}", "{% filter zz %}a{% endfilter %}", "{% filter trim %}  a  {% endfilter %}.", "{% filter upper %}{% set q = 1 %}{% endfilter %}{{ q }}", "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with %}{% set a = 1 %}{% endwith %}{{ a }}", "{% with a = 1 %}{% with b = a + 1 %}{{ b }}{% endwith %}{% endwith %}", "{% with a = 1, b = a %}{{ b }}{% endwith %}", "{% generation %}x{{ n }}{% endgeneration %}y", "{% generation %}{% set q = 1 %}{% endgeneration %}{{ q }}", "{%- generation -%}\n  a\n{%- endgeneration -%}\n b", "{% generation %}x", "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% endif %}{% endfor %}", "{% for a in xs %}{% generation %}{% break %}{% endgeneration %}{% endfor %}", "{% block b %}x{% endblock %}", "{% block b %}x{% endblock b %}y", "{% print n %}", "{% print n, s %}", "{% do n %}", "{% zz %}", "{% include 'a' %}", "{% extends 'a' %}", "{% import 'a' as b %}", "{% endfor %}", "{% if yes %}{% endfor %}", "{% 1 %}", "{% for a in xs %}{% if yes %}{% endfor %}{% endif %}", "{% if yes %}x{% endif y %}", "{% autoescape true %}x{% endautoescape %}"[:0] or "x",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }}", "{% set j = joiner() %}{% for a in xs %}{{ j() }}{{ a }}{% endfor %}", "{% set j = joiner(' | ') %}{{ j() }}a{{ j() }}b", "{% if n is zz %}{% endif %}", "{% if no %}{{ n | zz }}{% endif %}ok", "{% if no %}{{ n is zz }}{% endif %}ok", "{% for a in [] %}{{ a | zz }}{% endfor %}", "{% if no %}{% for a in [] %}{{ a | zz }}{% endfor %}{% endif %}", "{{ (n | zz) if no else 'ok' }}", "{{ 'ok' if yes else n is zz }}", "{% macro m() %}{{ 1 | zz }}{% endmacro %}",
    "{{ raise_exception('x') if no }}ok", "{{ raise_exception('bad ' ~ n) }}", "{% if messages[0].role != 'user' %}{{ raise_exception('first') }}{% endif %}",
    # as chat templates do
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + (m.content if m.content is string else m.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join('')) + '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "{% for m in messages %}\n{% if loop.first and m['role'] != 'system' %}\nX\n{% endif %}\n{{ m['role'] }}:\n{%- if m.content is string %} {{ m.content | trim }}{% endif %}\n\n{% endfor %}",
    "{%- set ns = namespace(last=-1) %}{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}{{ ns.last }}",
    "{%- for m in messages -%}{%- if m.content is string and '</think>' in m.content -%}{{ m.content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') }}|{{ m.content.split('</think>')[-1].lstrip('\\n') }}{%- endif -%}{%- endfor -%}",
    "{% set loop_messages = messages[1:] if messages[0]['role'] == 'system' else messages %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}{{ message.role }}{% endfor %}",
    "{{ messages }}", "{{ messages[2] | tojson(indent=2) }}", "{{ people | map(attribute='name') | map('lower') | sort | join(', ') }}", "{{ messages | map(attribute='role') | unique | list }}",
    "{% set roles = {'user': 'U', 'assistant': 'A'} %}{% for m in messages %}{{ roles[m.role] | default('?') }}{% endfor %}", "{{ bos_token }}{{ messages[0].content.strip() }}{{ eos_token }}",
    "{% for a in xs %}{{ loop }}{% endfor %}", "{{ x.y }}", "{{ x }}", "a\n{{ d.zz.y }}", "{{ 1 if x else 2 }}", "{{ x | length == 0 }}", "{{ not x }}", "{{ x == '' }}", "{{ [x] == [y] }}", "{{ x in [y] }}", "{{ x + 1 }}", "{{ 1 + x }}", "{{ -x }}", "{{ x * 2 }}", "{{ '' ~ x }}", "{{ x < 1 }}", "{{ x[0] }}", "{{ x[1:] }}", "{{ x() }}", "{{ {x: 1} }}", "{{ {[]: 1} }}", "{{ d == {'a':1,'b':2,'C':3} }}",
]


def cases():
    for row in E.split("\n"):
        # "|" divides expressions where no blank stands next to it.
        part, out = "", []
        for i, c in enumerate(row):
            near = row[max(i - 1, 0)] == " " or row[i + 1:i + 2] == " " or row[i + 1:i + 2] == ""
            if c == "|" and not near:
                out.append(part)
                part = ""
            else:
                part += c
        yield from ("{{ %s }}" % p for p in out + [part])
    yield from T


def main():
    env = environment()
    seen = set()
    for source in cases():
        if source in seen:
            continue
        seen.add(source)
        used = {k: v for k, v in VARS.items() if k in source}
        line = {"template": source, "vars": used}
        try:
            line["text"] = env.from_string(source).render(**used)
            line["text"].encode()
        except Exception as e:  # whatever Python raises is an error of the template
            line.pop("text", None)
            line["error"] = type(e).__name__
        if any(s in line.get("text", "") for s in (" at 0x", "TemplateReference")):  # addresses
            continue
        print(json.dumps(line))
    print(f"{len(seen)} cases, jinja2 {jinja2.__version__}", file=sys.stderr)


main()
