"""A document of plain blocks, in Markdown and as a self-contained HTML page.

All text is escaped. The HTML page loads nothing, and its content security policy forbids loading. The policy allows
only the scripts of the page's own ``Interactive`` blocks, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from locigraph.kg.language.tokens import printable_line


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; level 1 is the title of the document."""

    text: str
    level: int = 2


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Running text."""

    text: str


@dataclass(frozen=True, slots=True)
class Callout:
    """A warning that must not be overlooked."""

    text: str


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableBlock:
    """A table with words in the first ``text_columns`` columns and numbers, set to the right, in the others."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text_columns: int = 1


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing with its caption."""

    name: str
    caption: str
    svg: str

    @property
    def path(self) -> str:
        """Path of the drawing's file, relative to the Markdown."""
        return f"figures/{self.name}.svg"


@dataclass(frozen=True, slots=True)
class Code:
    """Text that is shown exactly as it is."""

    text: str


@dataclass(frozen=True, slots=True)
class Interactive:
    """A part of the page that a script renders from data; Markdown, and a browser without scripts, show a sentence.

    Attributes:
        element: ID of the element that the script fills.
        data_element: ID of the element that holds the data as JSON.
        data: Any JSON.
        script: Plain JavaScript; part of the library, never made of data.
        instead: The sentence to show without scripts.
    """

    element: str
    data_element: str
    data: Mapping[str, Any]
    script: str
    instead: str


Block = Heading | Paragraph | Callout | Bullets | TableBlock | Figure | Code | Interactive


# Markdown


def markdown_text(blocks: Sequence[Block]) -> str:
    """The document in Markdown; figures are links to their ``path``."""
    return "\n\n".join(_markdown_block(block) for block in blocks) + "\n"


def _markdown_block(block: Block) -> str:
    match block:
        case Heading(text, level):
            rendered = "#" * level + " " + _markdown_text(text)
        case Paragraph(text):
            rendered = _markdown_text(text)
        case Callout(text):
            rendered = "> **Warning:** " + _markdown_text(text)
        case Bullets(items):
            rendered = "\n".join("- " + _markdown_text(item) for item in items)
        case TableBlock():
            rendered = _markdown_table(block)
        case Figure(_, caption, _):
            rendered = f"![{_markdown_text(caption)}]({block.path})"
        case Code(text):
            # A fence longer than any run of backticks inside cannot be closed by the text.
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
            rendered = f"{fence}\n{text}\n{fence}"
        case Interactive():
            rendered = _markdown_text(block.instead)
    return rendered


def _markdown_table(table: TableBlock) -> str:
    align = ["---"] * table.text_columns + ["---:"] * (len(table.header) - table.text_columns)
    header, *rows = ([_markdown_text(cell) for cell in row] for row in (table.header, *table.rows))
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, align, *rows))


def _markdown_text(text: str) -> str:
    """Plain text that Markdown shows as it is: no markup, no HTML, no table cell or line break of its own."""
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", printable_line(text)).replace("&", "&amp;")


# HTML

_STYLE = """
:root { color-scheme: light dark;
        --ink: #1f2328; --ground: #ffffff; --soft: #f3f4f6; --line: #d0d7de; --warn: #9a6700; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --ground: #0d1117; --soft: #161b22; --line: #30363d; --warn: #d29922; }
}
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem; color: var(--ink); background: var(--ground);
       font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .87rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .7rem; border-bottom: 1px solid var(--line); text-align: left; }
td, th { white-space: nowrap; }
.number { text-align: right; }
thead th { border-bottom-width: 2px; }
tbody tr:hover { background: var(--soft); }
figure { margin: 1.2rem 0; } figure svg { width: 100%; height: auto; max-width: 52rem; }
figcaption { font-size: .87rem; opacity: .85; }
details { margin: .3rem 0; } summary { cursor: pointer; } label { margin-right: .8rem; white-space: nowrap; }
select, input, button { font: inherit; font-size: .87rem; }
pre { padding: .8rem; overflow-x: auto; background: var(--soft); border-radius: 6px; font-size: .82rem; }
.warning { padding: .6rem .9rem; border-left: 4px solid var(--warn); background: var(--soft); }
"""


def html_page(blocks: Sequence[Block], title: str) -> str:
    """The document as one HTML page with its figures inside."""
    body = "\n".join(_html_block(block) for block in blocks)
    # The policy allows the page's own styles and scripts and nothing else, so a request that slipped in is blocked.
    hashes = sorted({_sha256(block.script) for block in blocks if isinstance(block, Interactive)})
    scripts = f"; script-src {' '.join(hashes)}" if hashes else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'{scripts}">
<title>{_html_text(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
{body}
</body>
</html>
"""


def _html_block(block: Block) -> str:
    match block:
        case Heading(text, level):
            rendered = f"<h{level}>{_html_text(text)}</h{level}>"
        case Paragraph(text):
            rendered = f"<p>{_html_text(text)}</p>"
        case Callout(text):
            rendered = f'<p class="warning"><strong>Warning:</strong> {_html_text(text)}</p>'
        case Bullets(items):
            rendered = "<ul>\n" + "\n".join(f"<li>{_html_text(item)}</li>" for item in items) + "\n</ul>"
        case TableBlock():
            rendered = _html_table(block)
        case Figure(_, caption, svg):
            rendered = f"<figure>\n{svg}<figcaption>{_html_text(caption)}</figcaption>\n</figure>"
        case Code(text):
            rendered = f"<pre><code>{html.escape(text)}</code></pre>"
        case Interactive():
            # Without the sign < no text in the data can close its element.
            data = json.dumps(block.data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
            rendered = (
                f'<div id="{block.element}"><noscript><p>{_html_text(block.instead)}</p></noscript></div>\n'
                f'<script type="application/json" id="{block.data_element}">{data}</script>\n'
                f"<script>{block.script}</script>"
            )
    return rendered


def _sha256(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _html_text(text: str) -> str:
    return html.escape(printable_line(text))


def _html_table(table: TableBlock) -> str:
    def cells(row: Sequence[str], tag: str) -> str:
        classes = ["" if column < table.text_columns else ' class="number"' for column in range(len(row))]
        return "".join(f"<{tag}{kind}>{_html_text(cell)}</{tag}>" for cell, kind in zip(row, classes, strict=True))

    rows = "\n".join(f"<tr>{cells(row, 'td')}</tr>" for row in table.rows)
    return (
        '<div class="scroll"><table>\n'
        f"<thead><tr>{cells(table.header, 'th')}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>"
    )
