"""Equations in Markdown as MathML, which needs neither scripts nor fonts from a server."""

from __future__ import annotations

import re

# Fenced code, inline code, and code that is written as HTML.
_CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`|<code>.*?</code>)", re.M | re.S)
_MATH_FENCE = re.compile(r"^```math\n(.*?)^```$", re.M | re.S)
_BLOCK = re.compile(r"^\$\$(.+?)\$\$$", re.M | re.S)
_INLINE = re.compile(r"(?<![\\$\w])\$(?=\S)([^$\n]+?)(?<=\S)\$(?![$\w])")
# A prime as the only superscript of a letter. Fonts have it raised already, and as a superscript it
# would be drawn once more as small.
_PRIME = re.compile(r"<msup>(<m[in]>[^<]*</m[in]>)<mi>(&#x0203[2-4];)</mi></msup>")
# What Markdown would read as formatting between the tags of an equation.
_SPECIAL = re.compile(r"[*_`\[\]\\|~^]")


def draw_equations(markdown: str) -> str:
    """Returns a page whose equations are MathML: `math` fences, `$$…$$` and `$…$`."""
    page = _MATH_FENCE.sub(_draw_block, markdown)
    drawn = []
    for number, part in enumerate(_CODE.split(page)):
        is_code = number % 2 == 1
        if not is_code:
            part = _BLOCK.sub(_draw_block, part)
            part = _INLINE.sub(_draw_inline, part)
        drawn.append(part)
    return "".join(drawn)


def _draw_block(equation: re.Match[str]) -> str:
    return f'\n<div class="equation">{_convert(equation[1], "block")}</div>\n'


def _draw_inline(equation: re.Match[str]) -> str:
    # At the beginning of a line, Markdown reads <math> as a block, which ends paragraphs and lists.
    return f"<span>{_convert(equation[1], 'inline')}</span>"


def _convert(equation: str, display: str) -> str:
    """Returns the MathML of an equation, on one line."""
    from latex2mathml.converter import convert  # installed by `make docs`

    mathml = convert(equation.strip(), display=display)
    mathml = _PRIME.sub(r'<mrow>\1<mo lspace="0" rspace="0">\2</mo></mrow>', mathml)
    return re.sub(r">[^<]+<", _escape_text, mathml)


def _escape_text(text: re.Match[str]) -> str:
    """Returns a text between two tags with entities for the characters that Markdown formats."""
    return _SPECIAL.sub(_write_entity, text[0])


def _write_entity(character: re.Match[str]) -> str:
    return f"&#{ord(character[0])};"
