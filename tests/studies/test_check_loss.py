"""Losses of a user in a small comparison."""

import re
import shlex
from itertools import product
from pathlib import Path

import pytest
import torch

from dml.core.errors import UserError
from studies import check_loss
from studies.comparison import check
from studies.comparison.declaration import Claim
from studies.comparison.trainings import train_search
from tests.runs.test_stored_features import write

SMALL = {
    "search.trials": 2,
    "search.startup": 1,
    "protocol.workers": 1,
    "protocol.steps_per_epoch": 4,
    "data.batch_size": 16,
    "embedder.size": 8,
}


class Constant(torch.nn.Module):
    def forward(self, embeddings, labels):
        return 0 * embeddings.sum()


class Squares(torch.nn.Module):
    def __init__(self, scale=1.0):
        super().__init__()
        self.scale = scale

    def forward(self, embeddings, labels):
        same = labels[:, None] == labels
        return self.scale * (same.float() - embeddings @ embeddings.T).square().mean()


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Trains two searches of two arms; returns the study, its features and its tables."""
    folder = tmp_path_factory.mktemp("study")
    features = write(folder / "made.npz", classes=24)
    declared = check.read_declaration(check.DECLARATION)
    options = [*declared.options, *(f"{name}={value}" for name, value in SMALL.items())]
    arms = {name: declared.arms[name] for name in ("proxy_anchor", "contrastive")}
    claims = [Claim(better="proxy_anchor", than="contrastive", source="a test")]
    changes = {"options": options, "epochs": [2, 4], "evaluations": 2, "arms": arms}
    study = declared.model_copy(update={**changes, "claims": claims})
    for arm, number in product(arms, range(2)):
        place = folder / arm / str(number)
        results = train_search(study, arm, arms[arm], number, features, place)
        results.scores["declared"] = "0000000"
        results.add_to(folder / "tables")
    return study, features, folder / "tables"


@pytest.fixture
def ranked(published, tmp_path, monkeypatch):
    study, features, tables = published
    monkeypatch.setattr(check, "read_declaration", lambda path: study)
    monkeypatch.setattr(check, "RESULTS", tables)

    def run(*options, quick=False):
        check.check_loss(features, options, "yours", quick, tmp_path)
        return tmp_path

    return run


def test_a_loss_is_ranked_among_the_published_ones(ranked, capsys):
    folder = ranked(
        f"loss._target_={__name__}.Squares", "+loss.scale=1", "+space.loss.scale={low:0.1,high:2}"
    )
    page = (folder / "yours_page.md").read_text()
    assert "`yours` above `proxy_anchor`" in page
    assert "loss.scale=" in page
    assert "studies/compare.py" not in page  # which knows the declared arms only
    (command,) = re.findall("^    python (studies/check_loss.py .*)$", page, re.M)
    script, features, *options = shlex.split(command)
    assert (Path(__file__).parents[2] / script).exists()
    assert Path(features).exists()
    assert options[2:] == ["+space.loss.scale={low:0.1,high:2}", "--name", "yours"]
    assert (folder / "yours_page" / "scores.png").exists()
    text = capsys.readouterr().out
    assert "of 3" in text
    _, table = text.split("points  interval")
    assert table.splitlines()[0].endswith("compared with")
    rows = [line.split() for line in table.splitlines()[1:3]]
    assert "proxy_anchor" in [row[-1] for row in rows]
    points = [float(row[0]) for row in rows]
    assert points == sorted(points)  # the best loss first, to which yours loses the most


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (["loss._target_=my_losses.MyLoss", "+loss.margin=0.2"], "MyLoss"),
        (["optim.lr=1", "loss=supcon"], "supcon"),
        (["loss=custom", "loss._target_=my_losses.Best"], "Best"),
        (["optim.lr=1"], "yours"),
    ],
)
def test_a_row_has_the_name_of_its_loss(options, name):
    assert check.name_loss(options) == name


def test_a_loss_without_gradient_is_named(ranked):
    with pytest.raises(UserError, match="no gradient"):
        ranked(f"loss._target_={__name__}.Constant")


def test_a_quick_look_is_marked(ranked, capsys):
    folder = ranked("loss=ms", quick=True)
    page = (folder / "yours_page.md").read_text()
    assert "one search of 3 trials, others have 2" in page
    assert re.search(r"^\| `yours` \| .* \| 1 \|", page, re.M)
    assert "30 of its 32 arms have none" not in page  # both arms of this study are there
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert lines[0].startswith("first, 100 steps without a search")
    assert re.fullmatch(r"MAP@R [\d.]+ % after 100 steps, [\d.]+ % before", lines[1])
    assert re.fullmatch(r"(warning: .*|training yours takes about .* \(on idle cores\))", lines[2])
    assert "no evidence" in text


def test_a_loss_is_checked_again_by_the_same_command(ranked, published, tmp_path, capsys):
    """First quickly, then fully, and once more: the page is of this command."""
    words = [str(published[1]), "loss=ms", "--name", "yours", "--outputs", str(tmp_path)]
    for quick in (["--quick"], [], []):
        assert check_loss.main([*words, *quick]) == 0
    assert capsys.readouterr().out.count("less what an earlier command did") == 2
    assert "(quick" not in (tmp_path / "yours_page.md").read_text()
    (tmp_path / "yours_page.md").write_text("# my notes\n")
    assert check_loss.main(words) == 1
    assert "did not write it" in capsys.readouterr().err


def test_features_that_are_missing(ranked, published, tmp_path):
    with pytest.raises(UserError, match="does not exist; make features"):
        check.check_loss(tmp_path / "features.npz", ["loss=ms"], "yours", False, tmp_path)
    with pytest.raises(UserError, match=r"--outputs: .* cannot be written to"):
        check.check_loss(published[1], ["loss=ms"], "yours", False, published[1])


def test_names_of_the_study_and_other_features_are_refused(ranked, published, tmp_path):
    with pytest.raises(
        UserError, match="proxy_anchor is a row of the study; give yours another name"
    ):
        check.check_loss(published[1], ["loss=ms"], "proxy_anchor", False, tmp_path)
    other = write(tmp_path / "other.npz", classes=20)
    with pytest.raises(UserError, match="not the features of the study: 60 images of 10"):
        check.check_loss(other, ["loss=ms"], "yours", False, tmp_path)
