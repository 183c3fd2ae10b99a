"""Headings, links, and how much there is to read."""

from __future__ import annotations

import re
import textwrap

#: Of a line of prose.
WIDTH = 130


def slug(heading: str) -> str:
    """The address of a heading within its page, as GitHub makes it."""
    plain = re.sub(r"[^\w\- ]", "", heading.lower())
    return plain.replace(" ", "-")


def words(text: str) -> int:
    """What a reader reads, tables and commands included: everything between spaces and the bars of
    tables that holds a letter or a digit. Addresses of links and pictures are not read."""
    read = re.sub(r"\]\([^)]*\)", "]", text)
    return sum(any(sign.isalnum() for sign in one) for one in re.split(r"[\s|]+", read))


def filled(paragraph: str) -> str:
    """In lines of prose."""
    return textwrap.fill(paragraph, WIDTH, break_long_words=False, break_on_hyphens=False)
