"""What a data set shows of itself."""

import pickle
from dataclasses import FrozenInstanceError

import pandas as pd
import pytest

from dpstats.datasets import Dataset, load_prop99, load_texas


@pytest.fixture
def awkward():
    return Dataset(
        name="a<b>",
        data=pd.DataFrame({"y_<b>": [1.5, 2.5], "w": [0, 1], "g": ["u", "v"]}),
        bounds={"y_<b>": (0.0, 5.0)},
        DESCR="y < 5 & w",
        source="<here>",
        levels={"g": ["<u>", "v"]},
        formula="Q('y_<b>') ~ C(g)",
        treat="w",
    )


def test_repr(awkward):
    assert repr(awkward).splitlines() == [
        "Dataset 'a<b>': 2 rows x 3 columns",
        "  columns   y_<b>, w, g",
        "  formula   Q('y_<b>') ~ C(g), treatment w",
        "  source    <here>",
        "  .bounds holds public bounds, .DESCR the description",
    ]


def test_repr_of_a_panel():
    text = repr(load_prop99())
    assert "39 states x 31 years, outcome cigsale" in text
    assert "California after year 1988" in text


def test_html_is_escaped(awkward):
    html = awkward._repr_html_()
    assert "<b>" not in html
    assert "<here>" not in html
    assert "<u>" not in html
    assert "y &lt; 5 &amp; w" in html
    assert "2.5" in html
    for tag in ("div", "table", "details", "tr", "td", "th"):
        assert html.count(f"<{tag}>") + html.count(f"<{tag} ") == html.count(f"</{tag}>")


def test_html_shows_few_rows():
    assert load_texas()._repr_html_().count("Alabama") == 5


def test_frozen_and_slotted(awkward):
    with pytest.raises(FrozenInstanceError):
        awkward.name = "other"
    assert not hasattr(awkward, "__dict__")


def test_pickles(awkward):
    again = pickle.loads(pickle.dumps(awkward))
    assert repr(again) == repr(awkward)
    pd.testing.assert_frame_equal(again.data, awkward.data)
