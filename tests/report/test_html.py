"""Pieces of the page: elements that escape, numbers, figures inline."""

from winkel.report.html import Html, element, join, number
from winkel.report.pictures import inline


def test_elements_escape_all_but_html():
    made = element("p", "<b>", Html("<i>x</i>"), class_='"')
    assert made == '<p class="&quot;">&lt;b&gt;<i>x</i></p>'
    assert join(["<", Html("<")], " & ") == "&lt; &amp; <"
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'


def test_numbers():
    assert number(float("nan")) == "–"
    assert number(float("inf")) == "∞"
    assert number(-0.5) == "−0.50"
    assert number(12345.6, 0) == "12,346"


def test_svg_ids_do_not_meet():
    svg = (
        '<?xml version="1.0"?>\n<svg width="72pt" viewBox="0 0 72 72" id="s"><metadata>x</metadata>'
        '<defs><path id="a"/></defs><use xlink:href="#a" clip-path="url(#a)" '
        'style="fill: #222222"/>'
        "</svg>\n"
    )
    made = inline(svg, "one", "A <figure>")
    assert 'id="one-a"' in made
    assert 'href="#one-a"' in made
    assert "url(#one-a)" in made
    assert "fill: var(--ink)" in made
    assert "metadata" not in made
    assert "A &lt;figure&gt;" in made
    assert "--natural:96px" in made
