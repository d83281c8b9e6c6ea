"""The folder from which a site is built: plain Markdown that any builder reads."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from dml.core.errors import UserError
from scripts.docs.equations import draw_equations
from scripts.docs.python_reference import describe
from scripts.docs.site import (
    find_repository,
    make_navigation,
    make_notebook_page,
    make_page,
    rewrite_links,
    web_address,
    write_site,
)

ROOT = Path(__file__).parents[3]


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A clone with three pages, a picture, and a document at its root."""
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    for name, text in {
        "docs/index.md": "# Start\n\n[results](results/README.md), [changes](../CHANGELOG.md)\n",
        "docs/results/README.md": "# Results\n\n![a picture](plot.png) [start](../index.md)\n",
        "docs/results/study.md": "# Study\n",
        "docs/results/plot.png": "",
        "docs/site.css": "",
        "docs/.nav.yml": "nav:\n- index.md\n- Results: [results/index.md, results/*.md]\n",
        "CHANGELOG.md": "# Changelog\n\n[results](docs/results/study.md), [code](dml/x.py)\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def read_files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*"))


def test_the_folder_has_every_page_and_picture(repository):
    (repository / "docs/.nav.yml").write_text(
        "nav:\n- index.md\n- More: [changelog.md, results/index.md, results/*.md]\n"
    )
    (repository / "build/pages").mkdir(parents=True)
    (repository / "build/pages/removed.md").write_text("of an earlier call")
    write_site(repository, repository / "build")
    pages = repository / "build/pages"
    assert read_files(pages) == [
        "changelog.md",
        "index.md",
        "results/index.md",
        "results/plot.png",
        "results/study.md",
        "site.css",
    ]
    assert (
        "[results](results/index.md), [changes](changelog.md)" in (pages / "index.md").read_text()
    )
    assert "![a picture](plot.png) [start](../index.md)" in (pages / "results/index.md").read_text()
    assert "[results](results/study.md), code\n" in (pages / "changelog.md").read_text()
    assert yaml.safe_load((repository / "build/nav.yml").read_text()) == {
        "nav": ["index.md", {"More": ["changelog.md", "results/index.md", "results/study.md"]}]
    }


def test_the_navigation_has_the_address_of_the_repository(repository):
    commands = ("init -q", "remote add origin git@example.org:lab/bench.git")
    for words in commands:
        subprocess.run(["git", "-C", str(repository), *words.split()], check=True)
    (repository / "docs/.nav.yml").write_text("nav:\n- '*.md'\n- results/*.md\n")
    write_site(repository, repository / "build")
    settings = yaml.safe_load((repository / "build/nav.yml").read_text())
    assert settings["repo_url"] == "https://example.org/lab/bench"
    assert settings["repo_name"] == "bench"


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("git@example.org:lab/bench.git", "https://example.org/lab/bench"),
        ("ssh://git@example.org/lab/bench.git", "https://example.org/lab/bench"),
        ("https://example.org/lab/bench", "https://example.org/lab/bench"),
        ("https://name:secret@example.org/lab/bench.git", "https://example.org/lab/bench"),
        ("/data/bench.git", ""),
        ("../bench", ""),
        ("", ""),
    ],
)
def test_addresses_of_remotes(remote, address):
    assert web_address(remote) == address


def test_a_workflow_knows_the_address(tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://example.org")
    monkeypatch.setenv("GITHUB_REPOSITORY", "lab/bench")
    assert find_repository(tmp_path) == "https://example.org/lab/bench"


def test_a_notebook_becomes_a_page(repository):
    cells = [
        {"cell_type": "markdown", "source": ["# Tour\n", "\n", "Text."]},
        {"cell_type": "code", "source": ["x = 1\n", "print(x)"], "outputs": ["anything"]},
    ]
    notebook = json.dumps({"cells": cells})
    (repository / "docs/tour.ipynb").write_text(notebook)
    (repository / "docs/index.md").write_text("# Start\n\n[a notebook](tour.ipynb)\n")
    (repository / "docs/.nav.yml").write_text("nav:\n- '*.md'\n- results/*.md\n")
    write_site(repository, repository / "build")
    page = (repository / "build/pages/tour.md").read_text()
    assert page == make_notebook_page(notebook, "tour.ipynb")
    assert page.startswith('# Tour\n\n<a href="tour.ipynb"')
    assert page.endswith("Text.\n\n```python\nx = 1\nprint(x)\n```\n")
    assert (repository / "build/pages/tour.ipynb").read_text() == notebook
    assert "[a notebook](tour.md)" in (repository / "build/pages/index.md").read_text()


def test_a_section_without_pages_is_left_out(repository):
    file = repository / "docs/.nav.yml"
    file.write_text("nav:\n- Start: index.md\n- More: [More: ['other/*.md']]\n- Rest: ['*.md']\n")
    assert make_navigation(file, ["a.md", "index.md"]) == [
        {"Start": "index.md"},
        {"Rest": ["a.md"]},
    ]


def test_a_page_without_a_section_is_named(repository):
    with pytest.raises(UserError, match=r"\.nav\.yml: no section has changelog\.md; add a line"):
        write_site(repository, repository / "build")
    assert not (repository / "build").exists()


def test_a_section_of_a_page_that_is_gone_is_named(repository):
    with pytest.raises(UserError, match=r"results/index\.md does not exist; correct or remove"):
        make_navigation(repository / "docs/.nav.yml", ["index.md", "results/study.md"])


@pytest.mark.parametrize(
    ("source", "link", "rewritten"),
    [
        ("docs/losses/ms.md", "[a](index.md#symbols)", "[a](index.md#symbols)"),
        ("docs/losses/ms.md", "[`a`](../results/README.md)", "[`a`](../results/index.md)"),
        ("docs/glossary.md", "[a](../README.md#methods)", "[a](index.md)"),
        ("docs/results/README.md", "[a](../../data/README.md#emoji)", "a"),
        ("docs/results/README.md", "[a](../../dml/losses)", "a"),
        ("CONTRIBUTING.md", "[a](docs/guides/own_loss.md)", "[a](guides/own_loss.md)"),
        ("CONTRIBUTING.md", "[a](BENCHMARKS.md) [b](LICENSE)", "[a](benchmarks.md) b"),
        (
            "docs/a.md",
            "[a](https://x.org/b.md) [b](mailto:c)",
            "[a](https://x.org/b.md) [b](mailto:c)",
        ),
        ("docs/a.md", "![two [x]](x.png)", "![two [x]](x.png)"),
        ("docs/a.md", "```python\nx[0](../train.py)\n```", "```python\nx[0](../train.py)\n```"),
    ],
)
def test_links_lead_from_page_to_page(source, link, rewritten):
    assert rewrite_links(link, source) == rewritten


def test_equations_are_mathml():
    pytest.importorskip("latex2mathml")
    page = draw_equations(
        "```math\n[x]_+ * y'\n```\n\n$$a\n= b$$\n\nThe $x_i$ and $F^*_c$, at 5 $ and 6 $.\n"
    )
    assert page.count('<div class="equation"><math') == 2
    assert page.count('display="inline"') == 2
    assert page.endswith(", at 5 $ and 6 $.\n")
    between_tags = re.findall(r">([^<]+)<", page.replace("\n", ""))
    assert not [text for text in between_tags if re.search(r"[*_`\[\]]", text)]


@pytest.mark.parametrize("begins", ["- Of the\n  ", "Of the\n", ""])
def test_an_equation_at_the_beginning_of_a_line_stays_in_its_paragraph(monkeypatch, begins):
    """Also where lines are wrapped in a list."""
    markdown = pytest.importorskip("markdown")
    monkeypatch.setattr("scripts.docs.equations._convert", lambda *_: "<math><mi>n</mi></math>")
    text = f"{begins}$n$ images\n  are held out.\n\nThe end.\n"
    html = markdown.markdown(draw_equations(text))
    drawn = "<span><math><mi>n</mi></math></span>"
    assert html.count(drawn) == 1
    assert html.replace(drawn, "n") == markdown.markdown(text.replace("$n$", "n"))


@pytest.mark.parametrize(
    ("equation", "raised"),
    [("c'", True), ("q_{cc'}", True), ("f''(x)", True), ("c^\\prime", True), ("x^2", False)],
)
def test_primes_are_no_small_superscripts(equation, raised):
    """Fonts have them raised already."""
    pytest.importorskip("latex2mathml")
    page = draw_equations(f"${equation}$")
    assert bool(re.search(r'<mo lspace="0" rspace="0">&#x0203[23];</mo></mrow>', page)) == raised
    assert ("<msup>" in page) != raised


@pytest.mark.parametrize(
    "text", ["a `$x$` b", "```sh\necho $a $b$c\n```", "a <code>$x$</code> b", "5 $ or $6", "\\$x$"]
)
def test_code_and_amounts_are_no_equations(text):
    assert draw_equations(text) == text


def test_an_entry_of_the_reference_is_markdown():
    page = make_page(
        "## f\n\n::: dml.losses.C1Loss\n    options:\n      members: false\n", "docs/a.md"
    )
    assert "C1Loss(epsilon: float = 1e-05, margin: float = 0.5)" in page
    assert "- `margin`: m, inner product below which" in page
    assert "```pycon\n>>> loss = C1Loss()" in page
    assert ":::" not in page
    assert "&#91;1 − s − ε]&#95;+" in page, "brackets and underscores of prose format nothing"


def test_a_long_signature_has_a_line_for_each_parameter():
    entry = describe("dml.runs.load.load", with_members=False)
    assert entry.split("```")[1].splitlines() == [
        "python",
        "load(",
        "    source: str | Path,",
        "    repeat: int | None = None,",
        "    fold: int | None = None,",
        "    device: str = 'cpu',",
        "    *,",
        "    trust: bool = False,",
        "    loss: bool = False,",
        ") -> tuple[Embedder, nn.Module] | tuple[Embedder, nn.Module, TrainedLoss]",
    ]


def test_members_are_the_documented_public_methods():
    entry = describe("dml.training.interfaces.Method", with_members=True)
    headings = re.findall(r"^### (\w+)$", entry, re.M)
    assert "on_stall" in headings
    assert not [name for name in headings if name.startswith("_") or name == "forward"]
    assert "###" not in describe("dml.training.interfaces.Method", with_members=False)


def test_every_page_of_the_repository_is_in_the_navigation_once():
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")]
    pages = [page.replace("README.md", "index.md") for page in pages]
    pages += ["benchmarks.md", "changelog.md", "contributing.md", "notebooks/tour.md"]
    navigation = str(make_navigation(ROOT / "docs/.nav.yml", sorted(pages)))
    named = re.findall(r"'([\w/]+\.md)'", navigation)
    assert sorted(named) == sorted(pages)
