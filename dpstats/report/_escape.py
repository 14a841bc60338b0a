"""Any string made safe to print: visible characters only, then escaped for the output format."""

# ruff: noqa: RUF001 - the table of characters holds the very ones that look alike
from __future__ import annotations

import csv
import html
import io
import re
import unicodedata
from collections.abc import Sequence

__all__ = [
    "UNICODE_MACRO",
    "csv_line",
    "display_width",
    "html_text",
    "latex_text",
    "markdown_text",
    "plain",
]

# typesets a character where the engine can, its code point under pdfLaTeX
UNICODE_MACRO = (
    r"\providecommand{\dpstatsunicode}[2]{\ifdefined\XeTeXversion#1\else"
    r"\ifdefined\directlua#1\else\texttt{U+#2}\fi\fi}"
)

_JOINERS = "\u200c\u200d"
_NUMBER = re.compile(r"(-?)(\d[\d,]*\.?\d*|\.\d+)(?:e([-+]?\d+))?")
# what CommonMark, GitHub, pandoc or MathJax may read as markup; entities where that is surer
_MARKDOWN = {char: f"\\{char}" for char in "\\`*_{}[]#|~$^!"}
_MARKDOWN |= {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_MARKDOWN_MARKUP = re.compile(
    # an interval of numbers is no link
    r"(\[-?[\d.,]+(?:e[-+]?\d+)?, -?[\d.,]+(?:e[-+]?\d+)?\])(?![\[(:])"
    rf"|[{re.escape(''.join(_MARKDOWN))}]"
)

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "_": r"\_",
    "%": r"\%",
    "&": r"\&",
    "#": r"\#",
    "$": r"\$",
    "~": r"\ensuremath{\sim}",
    "^": r"\textasciicircum{}",
    "<": r"\ensuremath{<}",
    ">": r"\ensuremath{>}",
    "|": r"\ensuremath{|}",
    '"': r"\char34{}",
    "`": "{`}",
    # after `\\` a bracket or a star would be read as its argument
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    "ß": r"\ss{}",
    "æ": r"\ae{}",
    "Æ": r"\AE{}",
    "œ": r"\oe{}",
    "Œ": r"\OE{}",
    "ø": r"\o{}",
    "Ø": r"\O{}",
    "ł": r"\l{}",
    "Ł": r"\L{}",
    "ı": r"\i{}",
    "–": r"\textendash{}",
    "—": r"\textemdash{}",
    "‘": r"\textquoteleft{}",
    "’": r"\textquoteright{}",
    "“": r"\textquotedblleft{}",
    "”": r"\textquotedblright{}",
    "…": r"\ldots{}",
    "−": r"\ensuremath{-}",
    "±": r"\ensuremath{\pm}",
    "×": r"\ensuremath{\times}",
    "·": r"\ensuremath{\cdot}",
    "≤": r"\ensuremath{\leq}",
    "≥": r"\ensuremath{\geq}",
    "≠": r"\ensuremath{\neq}",
    "≈": r"\ensuremath{\approx}",
    "∞": r"\ensuremath{\infty}",
    "√": r"\ensuremath{\surd}",
    "²": r"\ensuremath{^{2}}",
    "³": r"\ensuremath{^{3}}",
    "°": r"\ensuremath{^{\circ}}",
}
_GREEK = (
    "αalpha βbeta γgamma δdelta εvarepsilon ϵepsilon ζzeta ηeta θtheta ιiota κkappa λlambda μmu "
    "νnu ξxi πpi ρrho σsigma τtau υupsilon φphi χchi ψpsi ωomega ΓGamma ΔDelta ΘTheta ΛLambda "
    "ΞXi ΠPi ΣSigma ΦPhi ΨPsi ΩOmega"
)
_LATEX |= {word[0]: rf"\ensuremath{{\{word[1:]}}}" for word in _GREEK.split()}
# accents that the default font encoding has
_ACCENTS = {
    "\u0300": "`",
    "\u0301": "'",
    "\u0302": "^",
    "\u0303": "~",
    "\u0304": "=",
    "\u0306": "u",
    "\u0307": ".",
    "\u0308": '"',
    "\u030a": "r",
    "\u030b": "H",
    "\u030c": "v",
    "\u0327": "c",
}


def plain(value: object) -> str:
    r"""Return one line of visible characters.

    Line breaks, tabs and odd spaces become spaces. Control characters, lone surrogates and
    invisible direction marks are written out, so that no name can move the cursor or turn the text
    around.

    Examples
    --------
    >>> plain("two\nlines"), plain("\x1b[31mred")
    ('two lines', '\\x1b[31mred')
    """
    text = unicodedata.normalize("NFC", str(value))
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_visible, text))


def _visible(char: str) -> str:
    category = unicodedata.category(char)
    if char.isspace() or category in {"Zs", "Zl", "Zp"}:
        return " "
    if category in {"Cc", "Cs"} or (category == "Cf" and char not in _JOINERS):
        return char.encode("unicode_escape").decode("ascii")
    return char


def display_width(text: str) -> int:
    """Columns that `text` takes on a terminal; a mark on a letter counts as one, to be safe.

    Examples
    --------
    >>> display_width("abc"), display_width("中文")
    (3, 4)
    """
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def html_text(value: object) -> str:
    """Escape for HTML text and quoted attributes.

    Examples
    --------
    >>> html_text("<b> & 'x'")
    '&lt;b&gt; &amp; &#x27;x&#x27;'
    """
    return html.escape(plain(value), quote=True)


def latex_text(value: object) -> str:
    r"""Escape for LaTeX text mode under any engine and without packages.

    Numbers get a proper minus sign and powers of ten. Characters that pdfLaTeX does not have come
    out through `\dpstatsunicode` (see `UNICODE_MACRO`).

    Examples
    --------
    >>> print(latex_text("a_b"), latex_text("50%"), latex_text("-1.5"), latex_text("1e-06"))
    a\_b 50\% $-1.5$ $10^{-6}$
    """
    text = plain(value)
    number = _NUMBER.fullmatch(text)
    if number:
        return _latex_number(*number.groups())
    escaped = "".join(map(_latex_char, text))
    return re.sub(r"(?<=([-',]))(?=\1)", "{}", escaped)  # no ligatures


def _latex_number(sign: str, digits: str, exponent: str | None) -> str:
    digits = digits.replace(",", "{,}")
    if exponent is None:
        return f"${sign}{digits}$" if sign or "{" in digits else digits
    power = f"10^{{{int(exponent)}}}"
    return f"${sign}{power}$" if digits == "1" else rf"${sign}{digits}\times {power}$"


def _latex_char(char: str) -> str:
    if char in _LATEX:
        return _LATEX[char]
    if char.isascii():
        return char
    base, *marks = list(unicodedata.normalize("NFD", char))
    if base.isascii() and base.isalpha() and len(marks) == 1 and marks[0] in _ACCENTS:
        letter = rf"\{base}" if base in "ij" and marks[0] != "\u0327" else base
        return rf"\{_ACCENTS[marks[0]]}{{{letter}}}"
    return rf"\dpstatsunicode{{{char}}}{{{ord(char):04X}}}"


def markdown_text(value: object) -> str:
    r"""Escape for Markdown, inside a line or a cell of a table.

    Intervals of numbers keep their brackets.

    Examples
    --------
    >>> print(markdown_text("a_b | <c> & $d$"), markdown_text("[0.5, 1.5]"))
    a\_b \| &lt;c&gt; &amp; \$d\$ [0.5, 1.5]
    """
    return _MARKDOWN_MARKUP.sub(lambda found: found[1] or _MARKDOWN[found[0]], plain(value))


def csv_line(cells: Sequence[object]) -> str:
    """Join cells into one line of comma separated values, quoted where needed.

    Examples
    --------
    >>> print(csv_line(["a,b", "1.5"]))
    "a,b",1.5
    """
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([plain(cell) for cell in cells])
    return line.getvalue()
