"""The hashes of the user's own files."""

from __future__ import annotations

import importlib
import os
import sys
import types
import zipfile

import pytest
from omegaconf import OmegaConf

from dml.config.identity import digest, identity
from dml.config.own_code import (
    file_of,
    find_changed,
    find_own_code,
    hash_source,
    package_versions,
    record_own_code,
)

LOSS = "import torch\nclass Loss(torch.nn.Module):\n    pass\n"


@pytest.fixture
def files(tmp_path, monkeypatch, own_modules):
    """Writes files into the current folder, from which modules are imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(**contents: str) -> None:  # my_pack__part: my_pack/part.py
        for name, content in contents.items():
            path = tmp_path / f"{name.replace('__', '/').replace('/_init', '/__init__')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)

    return write


def modules(**nodes) -> list[str]:
    return [*find_own_code(nodes).hashes]


def target(name: str) -> dict[str, str]:
    return {"_target_": name}


@pytest.mark.parametrize(
    "nodes",
    [
        {"loss": target("my_code.Loss")},
        {"loss": target("my_code:Loss")},
        {"loss": {"_target_": "dml.losses.C1Loss", "miner": target("my_code.Miner")}},
        {"loss": {"_target_": "dml.losses.C1Loss", "parts": [{"one": target("my_code.Part")}]}},
        {"method": target("my_code.Method")},
        {"backbone": target("my_code.Network")},
        {"data": {"reader": target("my_code.read")}},
        {"optim": target("my_code.Optimizer")},
        {"optim": {"schedule": target("my_code.Schedule")}},
        {"optim": {"schedule": {"f": {"_target_": "hydra.utils.get_method", "path": "my_code.f"}}}},
        {
            "search": {"name": "bayes"},
            "space": {"loss": {"_target_": {"choices": ["dml.losses.C1Loss", "my_code.Loss"]}}},
        },
    ],
)
def test_every_class_that_decides_the_result_counts(files, nodes):
    files(my_code=LOSS)
    assert modules(**nodes) == ["my_code"]


@pytest.mark.parametrize(
    "nodes",
    [
        {"tracking": target("my_code.Tracker")},
        {"space": {"loss": {"_target_": {"choices": ["my_code.Loss"]}}}, "search": None},
        {"loss": target("dml.losses.C1Loss")},
        {"loss": target("pytorch_metric_learning.losses.TripletMarginLoss")},
        {"optim": target("torch.optim.AdamW")},
        {"loss": target("collections.OrderedDict")},
        {"loss": target("my_missing.Loss")},
        {"loss": {"_target_": None}},
    ],
)
def test_what_is_not_own_code_has_no_hash(files, nodes):
    files(my_code=LOSS)
    assert modules(**nodes) == []


@pytest.mark.parametrize(
    "line",
    [
        "import my_part",
        "import my_part as part, os",
        "from my_part import f",
        "from my_part import *",
        "def f():\n    import my_part",
        "try:\n    import my_part\nexcept ImportError:\n    pass",
        "import importlib\nimportlib.import_module('my_part')",
        "__import__('my_part')",
    ],
)
def test_imports_are_followed_wherever_they_stand(files, line):
    files(my_code=f"{line}\nclass Loss: pass\n", my_part="import my_end\n", my_end="import my_code")
    assert modules(loss=target("my_code.Loss")) == ["my_code", "my_end", "my_part"]


def test_modules_of_a_package(files):
    files(my_pack__inner__loss="from . import near\nfrom ..far import f\nfrom .. import top\n")
    files(my_pack__inner__near="", my_pack__far="", my_pack__top="", my_pack___init="import abc")
    files(my_pack__unused="")
    names = ["far", "inner.loss", "inner.near", "top"]
    wanted = ["my_pack", *(f"my_pack.{name}" for name in names)]
    assert modules(loss=target("my_pack.inner.loss.Loss")) == wanted


def test_a_reexported_class_counts_with_the_file_that_defines_it(files):
    files(my_pack___init="from .losses import Loss", my_pack__losses=LOSS)
    assert modules(loss=target("my_pack.Loss")) == ["my_pack", "my_pack.losses"]


def test_nothing_is_imported(files):
    files(my_pack___init="raise SystemExit", my_pack__loss="raise SystemExit\nimport my_part")
    files(my_part="raise SystemExit")
    assert modules(loss=target("my_pack.loss.Loss")) == ["my_pack", "my_pack.loss", "my_part"]
    assert not [name for name in sys.modules if name.startswith("my_")]


def test_a_file_in_an_archive(files, tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "code.zip", "w") as archive:
        archive.writestr("my_zipped.py", LOSS)
    monkeypatch.syspath_prepend(str(tmp_path / "code.zip"))
    assert find_own_code({"loss": target("my_zipped.Loss")}).hashes == {
        "my_zipped": hash_source(LOSS.encode())
    }


def test_an_installed_package_is_recorded_by_its_version(files):
    files(my_code="import scipy\nimport json\n" + LOSS)
    nodes = {"loss": target("my_code.Loss"), "method": target("omegaconf.OmegaConf")}
    assert package_versions(nodes).keys() == {"omegaconf", "scipy"}
    assert package_versions({"loss": target("dml.losses.C1Loss")}) == {}


def test_a_folder_of_installed_packages_inside_the_users_is_not_own(tmp_path, monkeypatch):
    folder = tmp_path / "env" / "site-packages"
    folder.mkdir(parents=True)
    (folder / "my_installed.py").write_text(LOSS)
    monkeypatch.syspath_prepend(str(folder))
    assert modules(loss=target("my_installed.Loss")) == []


SOURCE = b'"""A."""\nclass A:\n    """B."""\n    def f(self):\n        return {1: [2.5, None]}\n'


@pytest.mark.parametrize(
    "same",
    [
        SOURCE.replace(b"A.", b"Another text."),
        SOURCE.replace(b'    """B."""\n', b""),
        SOURCE.replace(b"\n", b"\r\n"),
        SOURCE.replace(b"class", b"# why\n\nclass"),
        SOURCE.replace(b"[2.5, None]", b"[\n2.50, None,\n]"),
        b"# coding: latin-1\n# \xe9\n" + SOURCE,
    ],
)
def test_comments_docstrings_and_formatting_do_not_change_a_hash(same):
    assert hash_source(same) == hash_source(SOURCE)


@pytest.mark.parametrize(
    "other",
    [
        SOURCE.replace(b"2.5", b"-2.5"),
        SOURCE.replace(b"2.5", b"'2.5'"),
        SOURCE.replace(b"None", b"[]"),
        SOURCE.replace(b"None", b""),
        SOURCE.replace(b"self", b"self, x=1"),
        SOURCE.replace(b"def", b"@staticmethod\n    def"),
        SOURCE + b"'a string'\n",
        b"\x00\xff",
        b"",
    ],
)
def test_every_other_edit_changes_a_hash(other):
    assert hash_source(other) != hash_source(SOURCE)


def test_the_hash_is_equal_for_all_versions_of_python():
    assert hash_source(SOURCE) == "93cabac2e3f6efac"
    deep = b"x = " + b"+".join(b"y" for _ in range(20_000))
    assert hash_source(deep) == hash_source(deep)


def test_own_code_is_part_of_the_identity_and_no_code_is_not(files, changed):
    files(my_code=LOSS)
    cfg, plain = changed(), digest(changed())
    assert record_own_code(cfg) == []
    assert digest(cfg) == plain
    assert digest(OmegaConf.merge(cfg, {"code": {}})) == plain
    cfg = changed("loss._target_=my_code.Loss")
    before = digest(cfg)
    record_own_code(cfg)
    assert digest(cfg) != before
    assert identity(cfg)["code.my_code"] == hash_source(LOSS.encode())
    files(my_code=LOSS.replace("Loss", "Other"))
    other = cfg.copy()
    record_own_code(other)
    assert digest(other) != digest(cfg)


def test_what_the_user_writes_into_the_node_is_replaced(changed):
    cfg = changed("+code.anything=1")
    record_own_code(cfg)
    assert "code" not in cfg


def test_a_config_that_cannot_be_resolved_is_left_to_the_check(changed):
    cfg = changed("loss.alpha=${nothing}")
    assert record_own_code(cfg) == []


def test_files_that_differ_from_a_run(files, tmp_path):
    files(my_code=LOSS, my_pack__part="")
    hashes = find_own_code({"a": target("my_code.Loss"), "b": target("my_pack.part.f")}).hashes
    assert find_changed(hashes) == []
    files(my_pack__part="x = 1")
    assert find_changed(hashes) == [os.path.join("my_pack", "part.py")]
    (tmp_path / "my_code.py").unlink()
    assert find_changed({"my_code": hashes["my_code"]}) == []
    assert file_of("my_code") == "my_code"


def test_a_process_records_the_code_that_it_has_imported(files, changed):
    files(my_code=LOSS)
    cfg = changed("loss._target_=my_code.Loss")
    record_own_code(cfg)
    first = dict(cfg.code)
    module = importlib.import_module("my_code")
    package_versions(OmegaConf.to_container(cfg))  # at the end of a run
    files(my_code=LOSS.replace("pass", "x = 1"))
    (note,) = record_own_code(cfg)
    assert "my_code.py has changed" in note
    assert "importlib.reload" in note
    assert dict(cfg.code) == first
    importlib.reload(module)
    assert record_own_code(cfg) == []
    assert dict(cfg.code) != first


def test_classes_of_a_notebook(monkeypatch):
    def loss(number: int) -> type:
        return type("Loss", (), {"__module__": "__main__", "f": eval(f"lambda x: x + {number}")})

    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    found = []
    for number in (1, 1, 2):
        main.Loss = loss(number)
        found.append(find_own_code({"loss": target("__main__.Loss")}).hashes["__main__"])
    assert found[0] == found[1] != found[2]
