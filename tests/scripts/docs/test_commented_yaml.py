"""Options of a config file, with the comments that belong to each."""

from pathlib import Path

from scripts.docs.commented_yaml import read_header, read_options

TEXT = """\
# @package _global_
# python train.py loss=one
# python train.py data=two        <class>/<image>
#                                 or a list
# A long command: python train.py is not at the beginning.
loss:  # the node
  # above, on
  # two lines
  alpha: 1.0e-3
  beta: {low: 1, high: 2}   # behind, on
                            # two lines
  # of gamma
  gamma: "# no comment"
  delta: 3
"""


def write(folder: Path) -> Path:
    path = folder / "one.yaml"
    path.write_text(TEXT)
    return path


def test_values_are_as_written_and_comments_stay_with_their_option(tmp_path):
    found = {one.name: (one.value, one.comment) for one in read_options(write(tmp_path))}
    assert found == {
        "loss": ("", "the node"),
        "loss.alpha": ("1.0e-3", "above, on two lines"),
        "loss.beta": ("{low: 1, high: 2}", "behind, on two lines"),
        "loss.gamma": ('"# no comment"', "of gamma"),
        "loss.delta": ("3", ""),
    }


def test_a_header_has_commands_and_text(tmp_path):
    header = read_header(write(tmp_path))
    assert header.commands == ("python train.py loss=one", "python train.py data=two")
    assert header.text == "A long command: python train.py is not at the beginning."
