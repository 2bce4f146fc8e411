"""The documents as pages: `./run docs` makes site/, which needs no network and opens from a file.

The settings are Sphinx's, over the whole repository, so that a link to any file of it leads somewhere. `setup` adds
docstrings, which are plain text here, as Sphinx wants them, a search that finds Chinese, and an index.html.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

project = html_title = "Regard"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md"]
exclude_patterns = [".*", "site", "runs", "demo", "build"]
default_role = "code"
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
html_theme = "furo"
html_search_language = "en-zh"
html_copy_source = html_show_sourcelink = html_show_sphinx = False
html_show_search_summary = False  # a summary is fetched, and a browser fetches nothing for a page opened from a file
html_theme_options = {
    name: {"font-stack": "'Noto Sans','Noto Sans CJK SC','PingFang SC','Microsoft YaHei',sans-serif"}
    for name in ("light_css_variables", "dark_css_variables")
}


class EnglishAndChinese(SearchEnglish):
    """Words of both: Chinese, which puts no spaces between words, by every two characters that stand together."""

    lang = "en-zh"  # `language_name` stays: it names the stemmer in the browser
    js_splitter_code = r"""
function splitQuery(query) {
  const pairs = (run) => run.length < 2 ? [run] : [...run].slice(1).map((after, i) => run[i] + after);
  return (query.match(/[\u3400-\u9fff]+|[^\u3400-\u9fff\P{L}]+|[\p{N}_]+/gu) || [])
    .flatMap((run) => /[\u3400-\u9fff]/.test(run) ? pairs(run) : [run]);
}
"""

    def split(self, input: str) -> list[str]:
        """A single character may be looked for, too."""
        found = []
        for run in re.findall(r"[\u3400-\u9fff]+|[^\W\d_\u3400-\u9fff]+|[\d_]+", input):
            if "\u3400" <= run[0] <= "\u9fff":
                found += [*run, *(run[i : i + 2] for i in range(len(run) - 1))]
            else:
                found.append(run)
        return found


def as_restructured_text(app: Sphinx, what: str, name: str, found: object, options: Any, lines: list[str]) -> None:
    """A docstring is paragraphs and `code`; a paragraph that is set in is shown as it stands."""
    written: list[str] = []
    for paragraph in re.split(r"\n\s*\n", "\n".join(lines).strip("\n")):
        if paragraph.startswith(" "):
            written += ["::", "", *("    " + line for line in paragraph.split("\n")), ""]
            continue
        parts = re.split(r"`+([^`]+)`+", re.sub(r"\s*\n\s*", " ", paragraph))
        # An escaped space shows nothing, and lets code begin and end inside a word.
        text = [f"\\ ``{part}``\\ " if i % 2 else re.sub(r"([\\*|_<>])", r"\\\1", part) for i, part in enumerate(parts)]
        written += ["".join(text), ""]
    lines[:] = written


def directories(app: Sphinx, document: nodes.document) -> None:
    """A link to a directory, which a code host would list, is its words alone: a page of it there is not."""
    for link in list(document.findall(addnodes.pending_xref)):
        if (Path(app.srcdir) / app.env.docname).parent.joinpath(link.get("reftarget", "")).is_dir():
            link.replace_self(link.children)


def lead_in(app: Sphinx, failure: Exception | None) -> None:
    """The first page under the name that is looked for first."""
    if failure is None:
        lead = '<!DOCTYPE html>\n<meta http-equiv="refresh" content="0; url=docs/index.html">\n<title>Regard</title>\n'
        (Path(app.outdir) / "index.html").write_text(lead, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.add_search_language(EnglishAndChinese)
    app.connect("autodoc-process-docstring", as_restructured_text)
    app.connect("doctree-read", directories)
    app.connect("build-finished", lead_in)
