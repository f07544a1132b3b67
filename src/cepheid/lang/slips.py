"""Hints for slips: what to write instead where a text cannot be parsed, such as habits of other languages."""

from __future__ import annotations

import re

from cepheid.errors import Span
from cepheid.lang.expressions import HYPHEN
from cepheid.lang.text import skeleton

COMMENTS = "comments are written -- to the end of the line, or /* ... */"
_AT_WORD = re.compile(r"[^\W\d]\w*")
_GROUPING = re.compile(r"(?:GROUP|PARTITION)\s+BY\s+(?:\w+\.)?(\w+|`[^`]+`)", re.IGNORECASE)
_ALIAS = re.compile(r"([\w`-]+)\s+AS\s*\Z", re.IGNORECASE)
_ODD_NAME = re.compile(r"[\[\"'“‘]([^\[\]\"'”’\n]{1,60})[\]\"'”’]")
_SPLIT_NAME = re.compile(r"(\w+)\.(\w+)\s+\Z")
_CLAUSES = frozenset(
    [
        "WHERE",
        "WITHIN",
        "RETURN",
        "OUTPUT",
        "LIMIT",
        "FROM",
        "EVENT",
        "PATTERN",
        "SELECT",
        "SCHEMA",
        "ON",
        "GROUP",
        "PARTITION",
    ]
)
_ANOTHER_QUERY = re.compile(r";?\s*(EVENT|PATTERN|SELECT)\s+[\w`(*!]", re.IGNORECASE)
_BEGINS = re.compile(r"\b(EVENT|PATTERN|SELECT)\b", re.IGNORECASE)
_SELECT = re.compile(r"\bSELECT\b", re.IGNORECASE)
_COLUMNS = re.compile(r"SELECT\b(?!.*\bFROM\b)", re.IGNORECASE | re.DOTALL)
_FROM, _RETURN = re.compile(r"\bFROM\b", re.IGNORECASE), re.compile(r"\bRETURN\b", re.IGNORECASE)
_PATTERN_BEFORE = re.compile(r"(?:\bSEQ\s*\([^()]*|\b(?:EVENT|PATTERN)\s*)\Z", re.IGNORECASE)
_ANY_TYPE = re.compile(r"\bANY\s*\(\s*\Z", re.IGNORECASE)
_BEFORE_WHERE = re.compile(r".*\b(WITHIN|RETURN|LIMIT|OUTPUT)\b", re.IGNORECASE | re.DOTALL)


_ORDERING = re.compile(r"ORDER\s+BY\b", re.IGNORECASE)


def _slip(pattern: str, hint: str) -> tuple[re.Pattern[str], str]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL), hint


_UNITS = "(?:h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?|d|days?|w|weeks?)"
_TYPE = "(?:\\w+|`[^`]+`)"
_NO_UNIT = f"(?!{_UNITS}\\b)"
_IN_BRACKETS = r"\[(?:[^\[\]]*,)?\s*"
_IN_PATTERN = r"(?:[(,;!]|\b(?:EVENT|PATTERN|FROM))\s*"
_KEYWORDS = r"IN|AND|OR|AS|IS|LIKE|NULL|TRUE|FALSE|BETWEEN|LIMIT|WHERE|WITHIN|RETURN|OUTPUT|CASE|END|FROM|CONTAINS"
_NOT_WHERE = r"(?:(?!\bWHERE\b).)*?"
_EVENT = r"(\w+(?:\[[^\[\]]*\])?)"
_SLIPS = (
    _slip(
        r"(?:\bPATTERN\s*\([^()]*\0[^()]*\)\s*DEFINE|\0(?:DEFINE|MEASURES))\b",
        "write the events with commas, and the conditions of DEFINE in WHERE: EVENT SEQ(A a, B b) WHERE b.x > a.x",
    ),
    _slip(rf"{_IN_PATTERN}NOT\s+EXISTS\s+({_TYPE})\s+\0(\w+)", r"write an event that does not occur as !(\1 \2)"),
    _slip(rf"{_IN_PATTERN}NOT\s+EXISTS\s*\0\(?\s*({_TYPE})\s+(\w+)", r"write an event that does not occur as !(\1 \2)"),
    _slip(rf"{_IN_PATTERN}NEXT\s+{_TYPE}\s+\0", "an event follows another after a comma: leave NEXT out"),
    _slip(rf"{_IN_PATTERN}\0[‘’“”„«]([^‘’“”„«»\n]*)[‘’“”»]", r"write the type in backticks: `\1`"),
    _slip(r",\s*\0\)", "leave out the comma before the parenthesis"),
    _slip(r"\b(?:WHERE|RETURN)\b.*\0[‘’“”„«]([^‘’“”„«»\n]*)[‘’“”»]", r"write a string in straight quotes: '\1'"),
    _slip(
        rf"\b(\d+(?:\.\d+)?)\s*\0({_NO_UNIT}[A-Za-z_]\w*(?:\[[^\[\]]*\])?\.(?:\w+|`[^`]+`))",
        r"write a product with `*`: \1 * \2",
    ),
    _slip(r"\bEVENT\s+\0[|]", "write the events, and their conditions in WHERE: EVENT SEQ(A a, B b) WHERE a.x > 1"),
    _slip(
        r"(\w+\.\w+)\s*\[[^\[\]]*:[^\[\]]*\]\s*\0",
        r"a part of a text is substr(\1, 2), and its number CAST(substr(\1, 2) AS int)",
    ),
    _slip(
        rf"{_IN_BRACKETS}(\w[\w ]*?)\s+\0(\w[^\],\n]*?)\s*[\],]", r"write a name with a blank in backticks: [`\1 \2`]"
    ),
    _slip(rf"{_IN_BRACKETS}\0['\"]([^'\"]+)['\"]", r"write a name with other characters in backticks: [`\1`]"),
    _slip(
        rf"{_IN_BRACKETS}(\w+)\s*\0([-.:/#@%°][^\],\n]*?)\s*[\],]",
        r"write a name with other characters in backticks: [`\1\2`]",
    ),
    _slip(
        rf"{_EVENT}\.(\w+\.?\s*)?\0([#$@?°€][^\s,)}}\]]*)",
        r"write a name with other characters in backticks: \1.`\2\3`",
    ),
    _slip(rf"{_EVENT}\.(\w+(?:-\w+)*\.)\s*\0[=<>!]", r"write a name with other characters in backticks: \1.`\2`"),
    _slip(
        r"\0\.(?:win|std)\b|\.(?:win|std)\0",
        "write the window with the pattern: WITHIN 5 minutes, in EQL (first, last) OCCURS WITHIN 5 minutes",
    ),
    _slip(rf"{_IN_PATTERN}every\s+\w+\s*\0", "a match may begin at every event: leave EVERY out"),
    _slip(
        rf"{_IN_PATTERN}([\w`]+)\s*\0\(\s*[\w.`]+\s*(?:[<>=!]|LIKE\b|IN\b|IS\b)",
        r"write the conditions of an event in WHERE: \1 a ... WHERE a.x > 1",
    ),
    _slip(rf"{_IN_PATTERN}\0\[\s*([^\[\]\n=>]*[^\[\]\s])\s*\]", r"write the type in backticks: `\1`"),
    _slip(
        rf"{_IN_PATTERN}([A-Za-z]\w*)\s*\0:\s*([A-Za-z]\w*)\s*[,)]",
        r"the type comes first, then the variable: \2 \1; a type with other characters is in backticks: `\1:\2`",
    ),
    _slip(
        rf"{_IN_PATTERN}\0AND\s*\(\s*([A-Za-z]\w*\s+\w+)\s*,\s*([A-Za-z]\w*\s+\w+)\s*\)",
        r"write events in any order in ZStream: PATTERN \1 & \2",
    ),
    _slip(rf"{_IN_PATTERN}\0AND\s*\(", "write events in any order in ZStream: PATTERN A a & B b"),
    _slip(
        rf"{_IN_PATTERN}([A-Za-z]\w*)\0([./:#@][^\s+*,(){{}};]+)(?=\s*[\w+*,(){{}};])",
        r"write a type with other characters in backticks: `\1\2`",
    ),
    _slip(
        r"\bCASE\b(?:(?!\b(?:WHEN|END)\b).)*\0THEN\b", "write WHEN before the condition: CASE WHEN a.x > 1 THEN 1 END"
    ),
    _slip(r"\bCASE\b(?:(?!\bEND\b).)*\0(?:(?:WITHIN|RETURN|LIMIT|OUTPUT)\b|\}|\Z)", "close CASE with END"),
    _slip(r"\bCAST\s*\(\s*([\w.`\[\]]+)\s*\0,\s*(\w+)", r"write CAST(\1 AS \2)"),
    _slip(r"\b(TIMESTAMP|DATE)\s+\0(\d+(?:-\d+)*)", r"write the time in quotes: \1 '\2'"),
    _slip(
        r"\bINTERVAL\s*['\"](\d+)\s*(\w+)['\"]\s*\0", r"write the number alone in quotes: INTERVAL '\1' \2, or \1 \2"
    ),
    _slip(r"\bcomplex\b.*\bcount\s*\(\s*([\w`-]+)\s*\0\)", r"write a window: count(\1; 5 min)"),
    _slip(rf"\bPATTERN\b{_NOT_WHERE}[;&|]\s*NOT\s+(\w+|`[^`]+`)\s+\0(\w+)", r"write a negation with `!`: !\1 \2"),
    _slip(rf"\bPATTERN\s+(?!SEQ){_NOT_WHERE}(\w+|`[^`]+`)\s*([+*])\s*\0(\w+)", r"write the variable first: \1 \3\2"),
    _slip(rf"\bPATTERN\s+(?!SEQ){_NOT_WHERE}\s\0AND\b", "write events in any order with &: PATTERN A & B"),
    _slip(rf"\bPATTERN\s+(?!SEQ){_NOT_WHERE}\s\0OR\b", "write one event or the other with |: PATTERN A | B"),
    _slip(r"\bWITHIN\s+\0\(\s*(\d+\s*\w+)\s*\)", r"write a length of time without parentheses: WITHIN \1"),
    _slip(
        r"\b(AND|OR|WHERE|NOT)\s*\0(?:(?:WITHIN|RETURN|LIMIT|OUTPUT)\b|\Z)",
        r"there is no condition after \1: write one, or leave \1 out",
    ),
    _slip(r"\bWITHIN\s+\0['\"](\d+\s*\w+)['\"]", r"write a length of time without quotes: WITHIN \1"),
    _slip(
        r"\bcomplex\s+(\w+)\s*\0(?:[:=]+\s*)?(seq|and|or)\b",
        r"write `event` before the operator: complex \1 event \2(A, B; 10 min)",
    ),
    _slip(r"\bcomplex\b.*,\s*\0(\d+(?:\s*\w+)?)\s*\)", r"write `;` before the window: seq(a, b; \1)"),
    _slip(
        r"\bcomplex\b.*\b(?:seq|and|or)\s*\(\s*\w+\s*\0;\s*[A-Za-z_]",
        "write `,` between events and `;` before the window: seq(a, b; 5)",
    ),
    _slip(
        r"\bcomplex\b.*\bevent\s+!?(\w+)\s+\0(and|or)\s+(\w+)",
        r"write the operator first, its window last: \2(\1, \3; 10)",
    ),
    _slip(r"\bcomplex\b.*\bevent\s+\w+\s*\0\(", "the operators are seq(a, b; 10), and(a, b; 10) and or(a, b)"),
    _slip(r"\bcomplex\b.*\)\s*\0within\s+(\d+\s*\w*)", r"write the window in its operator: seq(a, b; \1)"),
    _slip(
        r"\bschema\s+(?:[^;]*,)?\s*(\w+)\0\.(\w+)\s+as\s+(\w+)", r"the name of the attribute comes first: \3 as \1.\2"
    ),
    _slip(r"\bsource\s+([\w-]+)\s+\0(?!schema)\w", r"write the attributes of the source: source \1 schema string name"),
    _slip(r"\bFILTER\s+\0\w", "write the condition in parentheses: FILTER(a.x = b.x)"),
    _slip(rf"\bFROM\b{_NOT_WHERE}(\w+)\s*([+*])\s*\0(\w+)", r"write the variable before the closure: \1 \3\2"),
    _slip(rf"\bFROM\b{_NOT_WHERE}\0(?:NOT\b|!)", r"an exception cancels what waits: FROM (A a; B b) \\ C c"),
    _slip(r"\bSELECT\b[^;]*\.\0\*", "write SELECT * for all events, or name the variables: SELECT a, b"),
    _slip(r"\bLIMIT\s+\d+\s*\0(?:OFFSET\b|,)", "there is no OFFSET: LIMIT takes the first matches that are found"),
    _slip(r"\bLIMIT\s+\d+\s+\0(\w+)", r"LIMIT stands last: \1 ... LIMIT 5"),
    _slip(r"\bIS\s+NOT\s+\0['\"\w]", "write != 'text' for other values; IS NOT tests for NULL only: a.x IS NOT NULL"),
    _slip(r"\bIS\s+\0['\"\w]", "write = 'text' for a value; IS tests for NULL only: a.x IS NULL"),
    _slip(
        r"(?:skip_till|_contiguity)\w*\s*\([^)]*\)\s*\0(?!\{)[\[(\w]",
        "write the conditions in braces: { [id] AND a.x > 1 }",
    ),
    _slip(r"\bWHERE\s+\0\{", "name a strategy before the braces: skip_till_next_match(a, b[]) { ... }"),
    _slip(r"(\w+|`[^`]+`)\s+(\w+)(?:\[\s*\])?\0([+*]|\{[\d, ]+\})", r"write the closure after the type: \1\3 \2[]"),
    _slip(rf"{_IN_PATTERN}([\w`]+)\s*\0\{{\s*,\s*(\d+)\s*\}}", r"write both bounds: \1{1,\2}, or \1{0,\2}"),
    _slip(rf"{_IN_PATTERN}([\w`]+)\s*\0\?\s*(\w*)", r"write one or none as a closure: \1{0,1} \2[]"),
    _slip(
        r"\bWHERE\b.*\S\s+\0((?:skip_till|strict|partition)_\w+)",
        r"the strategy stands first, the conditions in braces: WHERE \1 { [id] AND a.x > 1 }",
    ),
    _slip(r"\0AFTER\s+MATCH\b", "write OUTPUT NON-OVERLAPPING, in SASE+, for one of the matches that overlap"),
    _slip(r"\0NON[-\s]*OVERLAPPING\b", "write OUTPUT NON-OVERLAPPING"),
    _slip(
        r"\bSEQ\s*\((?:[^()]*,)?\s*([\w`]+)\s+\w+\s+\0OR\s+([\w`]+)",
        r"write one event of several types as ANY(\1, \2) x",
    ),
    _slip(r"(\w+\.(?:\w+|`[^`]+`))\s+\0(?:NOT\s+)?(?:starts_?with|hasprefix)\b", r"write \1 LIKE 'a%'"),
    _slip(r"(\w+\.(?:\w+|`[^`]+`))\s+\0(?:NOT\s+)?(?:ends_?with|hassuffix)\b", r"write \1 LIKE '%a'"),
    _slip(r"(\w+\.(?:\w+|`[^`]+`))\s+\0(?:has|includes)\b", r"write \1 CONTAINS 'a'"),
    _slip(
        rf"\bPATTERN\b{_NOT_WHERE}[(,]\s*([\w`]+)\0\[\s*(\d+)\s*\]\s*(\w*)", r"write the number in braces: \1{\2} \3[]"
    ),
    _slip(
        rf"\bPATTERN\s+SEQ\b{_NOT_WHERE}[,(]\s*\0\(",
        "a closure repeats one event; give a query over several events a label, and repeat it: P+ p[]",
    ),
    _slip(r"\bEVENT\s+\0\(", "write SEQ before the parenthesis: EVENT SEQ(A a, B b)"),
    _slip(
        r"\bPATTERN\s+[\w`]+(?:\s+\w+)?\s*\0,",
        "write `;` between an event and the next one: PATTERN A; B, or SEQ(A a, B b)",
    ),
    _slip(rf"{_IN_PATTERN}\0(\d+)\s+(?:x\s+)?([A-Za-z]\w*)\s+(\w+)", r"write the number after the type: \2{\1} \3[]"),
    _slip(
        rf"{_IN_PATTERN}\0(?:['\"]([^'\"]+)['\"]|(\d+)(?!\d)(?=\s*[\w+*),;{{]))", r"write the type in backticks: `\1\2`"
    ),
    _slip(
        r"\bSEQ\s*\((?:[^()]*,)?\s*(\w+)\s+(\w+)\s+\0(\w+)\s*[),]",
        r"write a type with a blank in backticks: `\1 \2` \3",
    ),
    _slip(r"\0(?:(?:INNER|LEFT|CROSS)\s+)?JOIN\b", "write `;` between an event and the next one: FROM A a; B b"),
    _slip(rf"\bFROM\b{_NOT_WHERE}\0,", "write `;` between an event and the next one: FROM A a; B b"),
    _slip(r"\bSELECT\b.*\0WITHIN\s+(\d+\s*\w+)", r"write the window as a condition: (first, last) OCCURS WITHIN \1"),
    _slip(r"\0(?:RLIKE|ILIKE|REGEXP|SIMILAR|MATCHES|GLOB)\b", "write LIKE 'a%', CONTAINS 'a' or lower(a.x) LIKE 'a%'"),
    _slip(r"==\0=", "write ="),
    _slip(r"\bWITHIN\s+\d+\0:\d", "write one number and one unit: WITHIN 5 minutes for 00:05:00"),
    _slip(r"(\w+(?:\.\w+)?)\s*\0::\s*(\w+)", r"write CAST(\1 AS \2)"),
    _slip(r"(\w+)\s*\0:\s*(\w+)", r"the type comes first, then the variable: \2 \1"),
    _slip(rf"{_IN_PATTERN}\0({_KEYWORDS})(?=\s+\w+\s*[),;]|[+*{{])", r"a keyword is a name in backticks: `\1`"),
    _slip(r"\b(?:EVENT|PATTERN)\s+[\w`]+(?:\s+\w+)?\s*\0,", "write a sequence in parentheses: SEQ(A a, B b)"),
    _slip(r"(?:\bFOLLOWED\s+\0BY|\0(?:FOLLOWED|THEN))\b", "write a sequence: SEQ(A a, B b)"),
    _slip(rf"\b(?:PATTERN|EVENT)\b{_NOT_WHERE}\bAND\s+\0", "write events in any order with &: PATTERN A & B"),
    _slip(rf"\b(?:PATTERN|EVENT)\b{_NOT_WHERE}\bOR\s+\0", "write one event or the other with |: PATTERN A | B"),
    _slip(
        r"\bEVENT\b.*(?:skip_till|_contiguity)\w*\s*\([^)]*\)\s*\0\{",
        "strategies are in SASE+: write PATTERN instead of EVENT",
    ),
    _slip(rf"\bEVENT\b{_NOT_WHERE}\0[{{+]", "closures are in SASE+: PATTERN SEQ(A{3,} a[], B+ b[])"),
    _slip(
        r"\0HAVING\b",
        "write it as a condition in WHERE: count(a) > 3, of the events of a closure a; count matches in their table",
    ),
    _slip(
        r"\(\s*DISTINCT\s+\0",
        "aggregates range over all events of a closure; count different values in the table of matches",
    ),
    _slip(r"\bRETURN\s+DISTINCT\s+\0", "drop duplicates in the table of matches: leave DISTINCT out"),
    _slip(r"\0EMIT\b", "the columns of the output are in RETURN: RETURN a.x, b.y"),
    _slip(r"\bFROM\s+pattern\s*\0\[", "write the events after FROM: FROM A a; B b WHERE FILTER(a.x = b.x)"),
    _slip(
        r"\)\s*\0OCCURS\s+WITHIN\s+(\d+\s*\w+)",
        r"write a comma and two variables: FILTER(...), (first, last) OCCURS WITHIN \1",
    ),
    _slip(
        r"\bEVENT\s+([\w`]+(?:\s+\w+)?)\s*\0;\s*([\w`]+(?:\s+\w+)?)",
        r"write a sequence: EVENT SEQ(\1, \2), or in ZStream PATTERN \1; \2",
    ),
    _slip(r";\s*\0(?:WHERE|WITHIN|RETURN)\b", "write `;` only between two events"),
    _slip(r"=\0[<>]", "write >= for at least, <= for at most"),
    _slip(r"\0[（），；［］｛｝＝＜＞]", "write it as a character of ASCII: ( ) , ; [ ] { } = < >"),
    _slip(r";\s*\0;|\0;\s*(?:;|\Z)", "one `;` ends a query"),
    _slip(r"\bFROM\s*\(?\s*\0FILTER\b", "FILTER stands in WHERE: FROM A a; B b WHERE FILTER(a.x = b.x)"),
    _slip(
        r"\bSEQ\s*\((?:[^()]*,)?\s*([\w`]+)\s*\0\|\s*(\w+|`[^`]+`)\s*(\w*)",
        r"write one event of several types as ANY(\1, \2) \3",
    ),
    _slip(
        rf"\bEVENT\s+SEQ\b{_NOT_WHERE}[,(]\s*\0\(",
        "write one event of several types as ANY(A, B) x, and groups in ZStream: PATTERN A a; (B b | C c)",
    ),
    _slip(rf"\bEVENT\b(?!\s+SEQ){_NOT_WHERE}\0([&|])", r"write it in ZStream: PATTERN A a \1 B b"),
    _slip(r"(?:\bNOT|[!~])\s*\(\s*([\w`]+)\s*\)\s*\0(\w+)", r"the variable stands inside: !(\1 \2)"),
    _slip(
        r"\b(?:EVENT|PATTERN)\s+SEQ\s*\([^()]*\0(?:-+>|;(?!\s*\d)|&|\|)",
        "write commas between the components: SEQ(A x, B y)",
    ),
    _slip(
        r"\bEVENT\s+([\w`]+(?:\s+\w+)?)\s*\0-+>\s*([\w`]+(?:\s+(?!WITHIN|WHERE|RETURN|LIMIT)\w+)?)",
        r"write a sequence: SEQ(\1, \2)",
    ),
    _slip(r"\0-+>", "write `;` between an event and the next one: A; B"),
    _slip(r"\0\{\s*(\d+)\s*(?:\.\.+|-|:)\s*(\d*)\s*\}", r"write the bounds with a comma: {\1,\2}"),
    _slip(r"\bPATTERN\b[^{}]*?([\w`]+)\s+(\w+)\s*\0\[\s*(\d+)\s*\]", r"write the number after the type: \1{\3} \2[]"),
    _slip(r"\}\s*\0(?:AND|OR)\b", "write all conditions inside the braces: { [key] AND ... }"),
    _slip(r"\bEVENT\b.*\0OUTPUT\b", "OUTPUT is in SASE+: write PATTERN instead of EVENT, and a strategy"),
    _slip(r"\d\0,\d", "write a decimal point: 10.5"),
    _slip(r"\0contains\s*\(", "write a.name LIKE '%text%'"),
    _slip(
        rf"[<>=]\s*[$:]?([a-z_]\w*)\s+\0({_UNITS})\b",
        r"multiply by one unit: \1 * 1 \2, or give the parameter a timedelta in Python",
    ),
    _slip(rf"\0{_UNITS}\s?\d+\s?{_UNITS}\b", "write one number and one unit: 90 minutes for 1h30m"),
    _slip(
        rf"WITHIN\s+\d+\s*{_UNITS}\s*\0(?:and\s+\d|,|\d)", "write one number and one unit: 90 minutes for 1 hour and 30"
    ),
    _slip(
        r"WITHIN\s+\d+\s+EVENT\s+\0\w",
        "each of several queries has a label: First: ... Second: EVENT ..., and a window a unit: WITHIN 5 seconds",
    ),
    _slip(rf"WITHIN\s+\d+\s*{_UNITS}\s*\0(?:AND|OR)\b", "write conditions in WHERE, which stands before WITHIN"),
    _slip(r"WITHIN\s+\0-", "write a length of time greater than 0: WITHIN 1 hour"),
    _slip(r"\bIN\s+\0[\d'\"\[{]", "write the values in parentheses: IN (1, 2)"),
    _slip(r"\bIN\s*\([^()]*['\"\d]\s+\0", "write commas between the values: IN (1, 2)"),
    _slip(
        r"\b(last|first|max|min|avg|sum)\s*\(\s*(\w+)(?:\[\])?\s*\)\s*\0\.\s*(\w+|`[^`]+`)",
        r"write the attribute inside: \1(\2.\3)",
    ),
    _slip(r"\bSEQ\s*\([^()]*\0(WHERE|WITHIN|RETURN)\b", r"close the parenthesis of the pattern: SEQ(A a, B b) \1 ..."),
    _slip(r"\bWHERE\b.*\0&", "write AND between conditions"),
    _slip(r"\bWHERE\b.*\0\|", "write OR between conditions"),
    _slip(
        r"[=<>(,+*/-]\s*\0[:@?%{]\(?(\w+)", r"a parameter is a bare name: \1, with --param \1=... or params={'\1': ...}"
    ),
    _slip(r"[=<>(,+*/-]\s*\0\?", "a parameter is a bare name: limit, with --param limit=... or params={'limit': ...}"),
    _slip(r"\bLIKE\s+\0\w", "write the pattern in quotes: LIKE 'a%'"),
    _slip(r"\bLIMIT\s+\0", "write a number: LIMIT 10"),
    _slip(r"\bANY\s*\(([^()]*?\w)\s+\0\w", r"write the variable after the parenthesis: ANY(\1) x"),
    _slip(
        r"\bRETURN\b[^;]*?(\w+)\.(\w+)\s+\0(\w+)\s+AS\b", r"write a name with a blank in backticks: \1.`\2 \3` AS name"
    ),
    _slip(r"\bRETURN\b[^;]*?(\w+\.\w+(?:\s+AS\s+\w+)?)\s+\0(\w+\.\w+)", r"write a comma between two columns: \1, \2"),
    _slip(
        r"\bRETURN\b[^;]*?(\w+)\.(\w+)\s+\0(\w+)",
        r"write AS before the name of a column: \1.\2 AS \3; and a name with a blank in backticks: \1.`\2 \3`",
    ),
    _slip(
        r"\bAS\s+(\w+)\s+\0((?:in|is|or|and|of|per)\s+\w+)\s*(?:[,;]|$)",
        r"write a name with a blank in backticks: AS `\1 \2`",
    ),
    _slip(r"\bAS\s+(\w+)\s+\0(\w+)\s*(?:[,;]|$)", r"write a name with a blank in backticks: AS `\1 \2`"),
    _slip(r"(\w+)\s*\0\[\s*['\"]([^'\"]+)['\"]", r"write an attribute after a point: \1.`\2`"),
    _slip(r"\b(?:WHERE|RETURN)\b.*\w\s*\0\?", "write if(a.x > 1, 'yes', 'no'), or CASE WHEN a.x > 1 THEN 'yes' END"),
    _slip(r"\bWHERE\b.*\0~", "write LIKE 'a%', or CONTAINS 'a'"),
    _slip(r"\bBETWEEN\b.*\0\.\.", "write both bounds: BETWEEN 1 AND 5"),
    _slip(r"\bBETWEEN\s+([^\s,]+)\s*\0,", r"write both bounds: BETWEEN \1 AND ..."),
    _slip(r"\bWHERE\b[^()]*\0,", "write AND between conditions"),
    _slip(r"\bBETWEEN\s+(\S+)\s+\0", r"write both bounds: BETWEEN \1 AND ..."),
    _slip(r"\bOCCURS\s+WITHIN\s+\d+\s+\0[A-Za-z]", "write a unit such as seconds, minutes, hours, days or events"),
    _slip(
        r"\bSEQ\s*\([^()]*\w+\s+\w+\s+\0(?!W|RETURN)\w",
        "write a comma between two components: SEQ(A x, B y), and a type with blanks in backticks: `a type` x",
    ),
    _slip(
        r"\bPATTERN\s*(?!SEQ)\(?\s*[\w`]+\s+\w+\s+\0(?!WITHIN|WHERE|RETURN|LIMIT)\w",
        "write `;` between an event and the next one: A a; B b",
    ),
    _slip(
        r"(?:[=<>]\s*\0(?:(?:WITHIN|RETURN|LIMIT|OUTPUT|AND|OR)\b|[,)}]|\Z)|\.\s*\0(?:[=<>,)}]|\Z))",
        "a value or a name is missing here; in a shell, write the query in single quotes: in double quotes, $name and "
        "`name` are replaced",
    ),
    _slip(r"\s\0#", COMMENTS),
)
"""Slips in queries, by the text around the unexpected token, at which a NUL stands, each with what to write."""


def hint_at(text: str, span: Span) -> str | None:
    """What to write in place of the unexpected token at this position; None if no slip is recognised."""
    text = text.replace(HYPHEN, "-")
    word, before = text[span.start : span.end].upper(), text[: span.start]
    if word == "BY":
        words = before.split()
        span = Span(len(before.rstrip()) - len(words[-1]), span.end) if words else span
    grouping = _GROUPING.match(text, span.start)
    if grouping is not None and _FROM.search(skeleton(before)):
        name = grouping[1]
        return f"write FILTER(a.{name} = b.{name}) in WHERE: the next event then has the same {name}"
    if grouping is not None and word != "PARTITION" and _RETURN.search(skeleton(before)):
        name = grouping[1].strip("`")
        return (
            f'RETURN the group, and count the rows of each in the table of matches: .groupby("{name}").size() in pandas'
        )
    if grouping is not None:
        name = grouping[1]
        return f"write [{name}] as a condition in WHERE: all events of a match then have the same {name}"
    if _ORDERING.match(text, span.start) or (word == "BY" and before.rstrip().upper().endswith("ORDER")):
        return "events are ordered by their time; leave ORDER BY out"
    earlier = _BEFORE_WHERE.match(skeleton(before)) if word == "WHERE" else None
    if earlier is not None:
        return f"WHERE stands before {earlier[1].upper()}"
    odd = _ODD_NAME.match(text, span.start) if before.endswith(".") else None
    if odd is not None:
        return f"write a name with other characters in backticks: `{odd[1].strip()}`"
    if _COLUMNS.match(text, span.start) and _BEGINS.search(skeleton(before)):
        return "the columns of the output are in RETURN: RETURN a.x, b.y"
    if (
        (following := _ANOTHER_QUERY.match(text, span.start))
        and not before.rstrip().endswith("(")
        and _BEGINS.search(skeleton(before))
    ):
        return f"each of several queries has a label: First: ... Second: {following[1].upper()} ..."
    if word == "NEXT" and _FROM.search(skeleton(before)):
        return "write `;` between an event and the next one: A a; B b"
    if word == "*" and _ANY_TYPE.search(before[-100:]):
        return "name the types: ANY(A, B) x; ANY(*), for every type, is in ZStream: PATTERN ANY(*) x; B y"
    if word == "*" and _PATTERN_BEFORE.search(skeleton(before)[-100:]):
        return "name the types: ANY(A, B) x; ANY(*), for every type, is in ZStream: PATTERN ANY(*) x; B y"
    if word == "*" and not (before.endswith(".") and _SELECT.search(before)):
        return "leave RETURN out for all events with all attributes, or name the variables: RETURN a, b"
    alias = _ALIAS.search((before + word if word == "AS" else before)[-100:])
    if alias is not None and _AT_WORD.match(text, span.start):
        return f"write the variable after the type, without AS: {alias[1]} x"
    around = f"{before[-300:]}\0{text[span.start : span.start + 40]}"
    for pattern, hint in _SLIPS:
        slip = pattern.search(around)
        if slip is not None:
            return slip.expand(hint)
    if word == ")" and skeleton(before).count("(") == skeleton(before).count(")"):
        return "no parenthesis is open here: leave it out, or open one before"
    split = _SPLIT_NAME.search(before[-100:])
    if split is not None and _AT_WORD.fullmatch(text[span.start : span.end]) and word not in _CLAUSES:
        return f"write a name with a blank in backticks: {split[1]}.`{split[2]} {text[span.start : span.end]}`"
    return None
