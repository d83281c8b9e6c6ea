import pytest

from dml.config.resolvers import class_name, folder_name


@pytest.mark.parametrize(
    ("target", "name"),
    [("a.b.Net", "Net"), ("a.b:Net", "Net"), ("my_data.read_birds", "birds"), ("Net", "Net")],
)
def test_names_of_classes(target, name):
    assert class_name(target) == name


@pytest.mark.parametrize(
    ("root", "name"),
    [
        ("/x/my birds", "my_birds"),
        ("/x/birds/", "birds"),
        ("/x/birds/list.csv", "birds"),
        ("/x/.birds", "birds"),
        ("/", "folder"),
    ],
)
def test_names_of_folders(root, name):
    assert folder_name(root) == name


def test_the_current_folder_has_a_name(tmp_path, monkeypatch):
    (tmp_path / "birds").mkdir()
    monkeypatch.chdir(tmp_path / "birds")
    assert folder_name(".") == "birds"


def test_own_classes_name_their_nodes(composed):
    own = ("method=custom", "method._target_=my_methods.Noisy", "data=custom")
    cfg = composed(*own, "data.reader._target_=my_data.read_birds", "loss=ms")
    assert (cfg.method.name, cfg.method.result_id, cfg.data.name) == ("Noisy", "ms+Noisy", "birds")
