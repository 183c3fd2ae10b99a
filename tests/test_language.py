"""Words to avoid in docs, help texts, errors and docstrings."""

import ast
import io
import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: What to write instead of each word.
VOCABULARY = {
    r"mends?": "fix",
    r"beside": "next to, compared with, in addition to",
    r"told apart|tells? apart": "significantly different",
    r"rivals?": "baseline",
    r"doors?": "integration",
    r"judged|judging": "evaluated",
    r"put aside|kept back": "held out",
    r"stands? in for|stood in for": "replaces, is used instead of",
    r"dear|a price": "expensive, cost",
    r"where nothing is said": "by default",
    r"settled?|settles|left open": "resolved, chosen, unset",
    r"den(?:y|ies|ied)": "contradicts",
    r"less refined": "not refined",
    r"nobody|whoever": "name the thing",
    r"(?:is|are) made of|(?:is|are) written from": "generated from",
    r"learnt": "learned",
    r"so many": "give the number",
    r"promis(?:e|es|ed)": "predict, guarantee",
    r"anew|asked of": "again, required of",
    r"reckoned|passed over|hearken|heard": "computed, skipped, checked",
}
#: File, word and the reason why it stays.
ALLOWED = {
    ("src/bicore/coreset.py", "less refined"): "a value of version 0.2",
    ("src/bicore/_deprecated.py", "learnt"): "a value of version 0.2",
    ("src/bicore/streaming/base.py", "learnt"): "a value of version 0.2",
    ("src/bicore/cli/app.py", "learnt"): "an option of version 0.2",
    ("src/bicore/streaming/moment_memory.py", "settled"): "a field of files of version 0.2",
}
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]


def texts(path):
    """Prose of a page without code, or string literals and comments of a module."""
    text = path.read_text()
    if path.suffix == ".md":
        return [re.sub(r"```.*?```|`[^`\n]*`|\([^)\s]*\)", " ", text, flags=re.DOTALL)]
    found = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = [one.string for one in tokens if one.type == tokenize.COMMENT]
    return [value for value in found if isinstance(value, str)] + comments


def test_docs_and_strings_use_plain_words():
    wrong = []
    for path in [*PAGES, *(ROOT / "src" / "bicore").rglob("*.py")]:
        name = path.relative_to(ROOT).as_posix()
        for text in texts(path):
            for words, better in VOCABULARY.items():
                found = re.findall(rf"\b(?:{words})\b", text, re.IGNORECASE)
                left = [word for word in found if (name, word.lower()) not in ALLOWED]
                wrong += [f"{name}: {word!r} (write: {better})" for word in left]
    assert not wrong, "\n".join(sorted(set(wrong)))
