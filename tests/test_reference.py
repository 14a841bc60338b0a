"""The reference of the documentation names everything that is public."""

import re
from pathlib import Path

import pytest

import dpstats as dp

PAGES = Path(__file__).parents[1] / "docs" / "api"


@pytest.mark.parametrize("name", dp.__all__)
def test_public_names_are_documented(name):
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES.glob("*.rst"))
    object_ = rf"^\.\. auto(function|class|exception):: (dpstats\.)?{name}$"
    module = rf"^\.\. automodule:: dpstats\.{name}$"
    assert re.search(f"{object_}|{module}", text, re.MULTILINE)


def test_pages_are_listed():
    listed = (PAGES / "index.rst").read_text(encoding="utf-8").split()
    assert {page.stem for page in PAGES.glob("*.rst")} - {"index"} <= set(listed)
