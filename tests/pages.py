"""Helpers of the tests of pages: a reader of the file, and names that look like markup."""

import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd

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


def write_table(folder, data):
    """A table of three columns, in one of which there is markup."""
    cities = [["Bern", "<b>Rome"][row % 2] for row in range(len(data))]
    columns = {"age": data.x[:, 0], "city": cities, "label": np.array(["a", "b", "c"])[data.y]}
    pd.DataFrame(columns).to_csv(folder / "table.csv", index=False)


def open_page(browser, path):
    browser.emulate(1240, 800)
    browser.open(path)
    return browser


def check_hostile(path):
    """Hostile names are neither scripts nor pictures of the file."""
    tags = Tags(path.read_text())
    found = [tag for tag, _ in tags.found]
    assert not set("<>&\u2028") & set(tags.inside["facts"])
    assert found.count("script") == 2
    assert "img" not in found


def check_hostile_in_browser(browser, path):
    """Nor do they become so in an open page, when all of it is shown."""
    browser.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    browser.wait_for_frames()
    assert browser.run("window.hacked") is None
    assert browser.run("document.querySelectorAll('img[src=x], script').length") == 2
    assert quiet(browser, path)


def check_fits(browser, paths, width, scheme, moves=()):
    """Pages are quiet and no wider than the window, also after some moves."""
    browser.emulate(width, 800, scheme)
    for path in paths:
        browser.open(path)
        for move in moves:
            browser.run(move)
        assert quiet(browser, path), (browser.complaints(), browser.requests())
        # a phone would widen the window itself to what does not fit
        assert browser.run("document.documentElement.scrollWidth") <= width


def check_curve(browser):
    """No labels of the curve overlap, no line leaves it, and tables show that they scroll."""
    box = "(one) => { const b = one.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; }"
    texts = browser.run(f"[...document.querySelectorAll('#curve text')].map({box})")
    for place, one in enumerate(texts):
        for other in texts[place + 1 :]:
            apart = any(
                one[side] >= other[side + 2] or other[side] >= one[side + 2] for side in (0, 1)
            )
            assert apart, (one, other)
    left, _, right, _ = browser.run(f"({box})(document.querySelector('#curve svg'))")
    lines = browser.run(f"[...document.querySelectorAll('#curve path')].map({box})")
    assert all(left <= line[0] and line[2] <= right for line in lines)
    browser.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    browser.wait_for_frames()
    edges = "[...document.querySelectorAll('.scroll')].map(one => getComputedStyle(one).backgroundImage)"
    assert all("gradient" in one for one in browser.run(edges))


def check_names(browser, roles):
    """Whatever takes the keyboard has a name, pictures have words, and these roles are there."""
    named = {"button", "slider", "image", "link", "form", "region", "combobox"}
    found = set()
    for node in browser.call("Accessibility.getFullAXTree")["nodes"]:
        role = node.get("role", {}).get("value", "")
        found.add(role)
        if role in named and not node.get("ignored"):
            assert node.get("name", {}).get("value"), node
    assert roles <= found


def copy_indices(browser):
    """What the button that copies indices puts on the clipboard."""
    browser.run(
        "navigator.clipboard.writeText = (text) => { window.taken = text; return Promise.resolve(); }"
    )
    browser.run("byId('copy-indices').click()")
    browser.wait_for_frames()
    return json.loads(browser.run("window.taken"))
