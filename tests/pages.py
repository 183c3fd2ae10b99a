"""What the tests of pages share: a reader of the file, and names that would be markup."""

import json
from html.parser import HTMLParser
from pathlib import Path

#: What would run, load or end something if a page took it for markup.
HOSTILE = [
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 2'>",
    "]]>{{script}}\u2028<!--",
]


class Tags(HTMLParser):
    """The elements of a page, and what stands inside each script and style."""

    def __init__(self, text):
        super().__init__()
        self.found, self.inside, self.open = [], {}, None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag in ("script", "style"):
            self.open = dict(attributes).get("id", tag)
            self.inside[self.open] = ""

    def handle_data(self, data):
        if self.open:
            self.inside[self.open] += data

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self.open = None


def facts_of(path):
    return json.loads(Tags(Path(path).read_text()).inside["facts"])


def quiet(browser, path):
    """Whether the page neither complains nor asks for anything but itself."""
    return browser.complaints() == [] and browser.requests() == [path.resolve().as_uri()]
