"""Sphinx configuration. Nothing on the site needs a network: fonts, scripts and mathematics.

Vignettes are executed while the site is built, or taken from the folder of executed notebooks that
the environment variable ``DPSTATS_NOTEBOOKS`` names.
"""

import os
import re
from pathlib import Path

from docutils import nodes
from docutils.utils.math import latex2mathml

import dpstats

HERE = Path(__file__).parent
project = "dpstats"
author = "The dpstats developers"
copyright = f"2026, {author}"
release = version = dpstats.__version__

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
myst_heading_anchors = 4
highlight_language = "none"
default_role = "py:obj"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

html_theme = "furo"
html_title = f"dpstats {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_math_renderer = "mathml"


def visit_math(translator, node):
    """Write a formula as MathML, which browsers show without a script."""
    block = isinstance(node, nodes.math_block)
    translator.body.append(latex2mathml.tex2mathml(node.astext(), as_block=block))
    raise nodes.SkipNode


def write_vignettes(app):
    """Turn each vignette into a page with its results."""
    import jupytext
    from nbclient import NotebookClient
    from nbconvert import MarkdownExporter
    from nbformat import NO_CONVERT, read

    executed = os.environ.get("DPSTATS_NOTEBOOKS")
    exporter = MarkdownExporter()
    for script in sorted((HERE.parent / "vignettes").glob("*.py")):
        page = HERE / "vignettes" / f"{script.stem}.md"
        notebook = Path(executed or HERE) / f"{script.stem}.ipynb"
        if executed and notebook.exists():
            content = read(notebook, NO_CONVERT)
        elif page.exists() and page.stat().st_mtime > script.stat().st_mtime:
            continue
        else:
            content = jupytext.read(script)
            NotebookClient(content, kernel_name="python3", timeout=1800).execute()
        files = f"{script.stem}_files"
        text, parts = exporter.from_notebook_node(
            content, resources={"unique_key": script.stem, "output_files_dir": files}
        )
        (page.parent / files).mkdir(parents=True, exist_ok=True)
        for name, data in parts["outputs"].items():
            (page.parent / name).write_bytes(data)
        page.write_text(_clean(text), encoding="utf-8")


def _clean(text):
    """Drop what a notebook's own page needs and this one does not."""
    text = re.sub(r"<style scoped>.*?</style>\n*", "", text, flags=re.DOTALL)
    text = text.replace("](../docs/", "](../")
    # colours of a terminal
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def write_kernels(app):
    """List the estimators that are registered, each with the proof in its docstring."""
    from dpstats.ate.kernels import KERNELS as EFFECTS
    from dpstats.synth.kernels import KERNELS as PANELS

    for family, kernels in (("ate", EFFECTS), ("synth", PANELS)):
        names = dict.fromkeys(f"{type(k).__module__}.{type(k).__name__}" for k in kernels.values())
        text = "".join(f".. autoclass:: {name}()\n\n" for name in names)
        (HERE / "api" / f"kernels_{family}.inc").write_text(text, encoding="utf-8")


def write_bars(app, what, name, obj, options, lines):
    """Keep the bars of absolute values and norms, which reStructuredText takes for its own."""
    literal = None  # indentation of what leads to a literal block; -1: up to a blank line
    for place, line in enumerate(lines):
        words, indent = line.strip(), len(line) - len(line.lstrip())
        if literal is not None:
            ended = not words if literal < 0 else words and indent <= literal
            if not ended:
                continue
            literal = None
        if words.startswith(">>>"):
            literal = -1
            continue
        parts = re.split(r"(``.+?``|`.+?`)", line)
        lines[place] = "".join(
            part if part.startswith("`") else re.sub(r"(?<!\\)\|", r"\\|", part) for part in parts
        )
        if words.endswith("::"):
            literal = indent


def setup(app):
    """Register the renderer of formulas and what is written before and while pages are read."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
    app.connect("builder-inited", write_vignettes)
    app.connect("builder-inited", write_kernels)
    app.connect("autodoc-process-docstring", write_bars, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
