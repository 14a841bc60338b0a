"""The HTML page: self-contained, escaped, written in one step."""

import base64
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from dpstats.report.html import Figure, Html, Paragraph, Section, Table, page, write_page

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)
HOSTILE = "<script>alert('x')</script> & \"quoted\" <b>_"
VOID = {"meta", "img", "br"}
SHOWN = {"td", "th", "p", "h1", "h2", "title", "caption", "figcaption", "div"}


class Checker(HTMLParser):
    """Check nesting, collect tags, attributes and text."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.stack, self.tags, self.attributes, self.cells = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, key, value) for key, value in attrs]
        if tag not in VOID:
            self.stack.append(tag)
        if tag in SHOWN:
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        if self.stack and self.stack[-1] in SHOWN:
            self.cells[-1] += data


def check(markup):
    checker = Checker()
    checker.feed(markup)
    checker.close()
    assert not checker.stack
    return checker


def sections(text=HOSTILE):
    frame = pd.DataFrame({text: [text, "plain"], "number": [1e-6, -25000.25]})
    return [
        Section(
            text,
            (
                Paragraph(text),
                Paragraph("One.\n\nTwo."),
                Html("<p>as <em>it</em> stands</p>"),
                Table(frame, caption=text, note=text),
                Table(frame.set_index(text)),
                Figure(PIXEL, alt=text, caption=text),
            ),
        ),
        Section("", ()),
    ]


def test_every_string_is_escaped():
    checker = check(page(HOSTILE, sections(), lead=HOSTILE, banner=HOSTILE))
    assert "script" not in checker.tags
    assert "b" not in checker.tags
    shown = [text.strip() for text in checker.cells]
    # title, h1, lead, two banners, heading, paragraph, 3 x 2 in tables, caption, note, figcaption
    assert shown.count(HOSTILE) == 5 + 2 + 4 + 2 + 1
    assert ("img", "alt", HOSTILE) in checker.attributes


def test_page_loads_nothing():
    markup = page("Title", sections("see https://example.org"), banner="https://example.org")
    checker = check(markup)
    assert not {"script", "link", "iframe", "object", "embed", "base", "form"} & set(checker.tags)
    for _, key, value in checker.attributes:
        assert not key.startswith("on")
        if key in {"src", "href", "srcset", "data", "action", "poster", "background"}:
            assert value.startswith("data:image/png;base64,")
    styles = "".join(re.findall(r"<style>(.*?)</style>", markup, re.DOTALL))
    assert styles
    assert not re.search(r"url\(|@import|https?:|//", styles)
    policy = [value for _, key, value in checker.attributes if key == "content"]
    assert any(value.startswith("default-src 'none'") for value in policy)
    assert any("width=device-width" in value for value in policy)
    assert '<meta charset="utf-8">' in markup[:120]


def test_banner_stands_first_and_last():
    markup = page("Title", [Section("H", (Paragraph("text"),))], banner="NOT PRIVATE")
    first, last = (place.start() for place in re.finditer("NOT PRIVATE", markup))
    assert first < markup.index("<h1>") < markup.index("text</p>") < last
    assert "NOT PRIVATE" not in page("Title", [])


def test_values_in_tables():
    frame = pd.DataFrame(
        {
            "float": [1 / 3, np.nan, 1e-7],
            "integer": [1, 2, 3],
            "flag": [True, False, True],
            "string": ["1e-06", "0.5", ""],
            "name": ["a", None, "b"],
            "nullable": pd.array([1, None, 3], dtype="Int64"),
        },
        index=pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)], names=["unit", None]),
    )
    checker = check(page("T", [Section("", (Table(frame),))]))
    dash, minus = "\N{EN DASH}", "\N{MINUS SIGN}"
    rows = [
        ["unit", "", "float", "integer", "flag", "string", "name", "nullable"],
        ["a", "1", "0.3333", "1", "yes", "1e-06", "a", "1"],
        ["a", "2", dash, "2", "no", "0.5", dash, dash],
        ["b", "1", f"1e{minus}07", "3", "yes", "", "b", "3"],
    ]
    assert [text.strip() for text in checker.cells[3:]] == [cell for row in rows for cell in row]
    flush = [tag for tag, key, value in checker.attributes if (key, value) == ("class", "number")]
    assert flush.count("th") == 4  # float, integer, string of numbers, nullable


def test_two_columns_of_one_name_and_no_rows():
    twice = pd.DataFrame([[1, 2]], columns=["x", "x"])
    check(page("T", [Section("", (Table(twice), Table(twice.iloc[:0]), Table(pd.DataFrame())))]))


def test_figure_of_matplotlib_is_embedded():
    figure = pytest.importorskip("matplotlib.figure").Figure(figsize=(2, 1))
    figure.add_subplot()
    checker = check(page("T", [Section("", (Figure(figure, alt="axes"),))]))
    source = next(value for _, key, value in checker.attributes if key == "src")
    assert base64.b64decode(source.split(",")[1]).startswith(b"\x89PNG")
    assert ("img", "width", "192") in checker.attributes


def test_only_png_bytes_are_taken():
    with pytest.raises(ValueError, match="`fig` must be"):
        page("T", [Section("", (Figure(b"GIF89a", alt=""),))])


def test_write_page_is_atomic(tmp_path):
    target = tmp_path / "report é.html"
    assert write_page(str(target), "Tïtle", sections()) == target
    whole = target.read_text(encoding="utf-8")
    assert whole == page("Tïtle", sections())
    with pytest.raises(ValueError, match="`fig` must be"):
        write_page(target, "T", [Section("", (Figure(b"", alt=""),))])
    assert target.read_text(encoding="utf-8") == whole
    assert list(tmp_path.iterdir()) == [target]
    link = tmp_path / "link.html"
    link.symlink_to(target)
    write_page(link, "New", [])
    assert link.is_symlink()
    assert "<h1>New</h1>" in target.read_text(encoding="utf-8")
    with pytest.raises(FileNotFoundError):
        write_page(tmp_path / "missing" / "x.html", "T", [])
