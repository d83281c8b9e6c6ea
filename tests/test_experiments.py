"""Every table and figure: its runs compose, are the papers' rows, and run on stand-ins."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from dml.config.check import check
from dml.config.config_groups import CONFIGS
from dml.config.identity import digest, identity
from dml.config.schema import Config
from dml.core.errors import ConfigError
from dml.reporting import cost as plan
from dml.reporting.catalog import about, cells, composed, names
from dml.reporting.pairing import Pair, pairs, without_cell
from dml.reporting.published_results import read_table, settings
from dml.reporting.report import source_of
from dml.runs.folder.run_folder import RunFolder
from dml.runs.folder.summary import result_id

PAPERS = ("mft", "pfml", "metrix", "ccp")
# The smallest of everything; `scale=standin` as it is takes minutes.
SMALLEST = (
    "scale=standin",
    "device=cpu",
    "backbone.width=4",
    "data.eval_batch_size=1000",
    "protocol.epochs=1",
    "protocol.steps_per_epoch=2",
    "protocol.repeats=1",
)
DIGITS = ("data=digits",)
# a search needs several classes to validate on
FEW_GLYPHS = ("data=glyphs", "data.reader.classes=24", "data.reader.per_class=6")
ONE_TRIAL = (*FEW_GLYPHS, "search.trials=1", "data.batch_size=8")
# In every test run those that differ most; the others before a release.
QUICK = (
    "mft_figure5",
    "mft_table15",
    "pfml_table1",
    "pfml_table3",
    "metrix_figure2",
    "metrix_text",
    "ccp_figure7",
    "ccp_text",
)


def trained() -> list[str]:
    return [name for name in names() if about(name)["trains"]]


def setting_of(cfg: DictConfig) -> dict[str, object]:
    """What the table of printed results would write of a config as its setting."""
    method, loss = cfg.method, cfg.loss
    found = {
        "batch_size": cfg.data.batch_size,
        "query_gallery": cfg.data.query_gallery,
        "label_noise": f"{100 * cfg.data.label_noise:g}%",
        "alpha": loss.get("alpha"),
        "lambda_mf": loss.get("lambda_mf"),
        "M": loss.get("proxies_per_class"),
        "size": {1: "S", 4 if cfg.data.name in ("sop", "inshop") else 10: "L"}.get(
            loss.get("centers_per_class")
        ),
    }
    if method.name == "metrix":
        hard = [method.hard_negatives[kind] or "all" for kind in method.types]
        found |= {"mixup": "+".join(method.types), "k_hard": "/".join(map(str, hard))}
    pairs = {"imix": ["anc_neg"], "proxy_synthesis": ["pos_neg", "neg_neg"]}.get(
        method.name, method.get("pairs")
    )
    if pairs:
        found["pairs"] = "/".join([pairs] if isinstance(pairs, str) else pairs).replace("_", "-")
    return found


@pytest.mark.parametrize("paper", PAPERS)
def test_every_cell_has_its_printed_row_and_every_row_its_cell(paper):
    """In one test per paper, since composing is what takes the time.

    A row that nothing runs and a cell that nobody printed need a reason; two cells never share a
    row; and what a row says of its setting is what the cell runs.
    """
    found: list[Pair] = []
    for name in (name for name in names() if name.startswith(paper)):
        node, runs = about(name), cells(name)
        assert node["id"] == name
        assert node["title"]
        assert len({cell.folder for cell in runs}) == len(runs)
        assert bool(runs) == node["trains"]
        assert node["trains"] or node["script"]
        hours = 0.0
        for cell in runs:
            check(cell.config, Config)
            hours += plan.hours(cell.config) * cell.trainings
        if node["trains"]:
            assert node["gpu_hours"] == pytest.approx(hours, rel=0.06, abs=0.01), name
        found += pairs(name, runs, source_of(node))
    for pair in found:
        assert pair.numbers or pair.reason, (pair.experiment, pair.facts)
        says, runs_with = settings(pair.facts.setting), setting_of(pair.cell.config)
        for key, value in says.items():
            if key != "study":
                assert {key: value} == settings(f"{key}={runs_with[key]}"), pair.facts
    shared = Counter(one.line for pair in found for all in pair.numbers.values() for one in all)
    assert [line for line, times in shared.items() if times > 1] == []
    left = [row for row, reason in without_cell(found) if reason is None]
    assert [row for row in left if row["source"].startswith(paper)] == []


def test_a_reason_is_not_given_for_what_is_run():
    """Only the first version of mft, the metrics of gains and quoted rows are left out whole."""
    for line in read_table("out_of_scope.csv"):
        narrow = line["method"] or line["origin"] or line["metric"].startswith("gain_")
        assert narrow or (line["source"], line["table"]) in {
            *(("mft_v1", f"T{n}") for n in (1, 2, 3, 4, 6, 7, 8, 9)),
            ("mft", "T10"),
            ("pfml", "T8"),
        }


@pytest.mark.parametrize("name", trained())
def test_a_command_runs_its_cell_and_no_other(name):
    from dml.config.grids import expand_grids

    whole = composed_sweeper(name)
    everything = expand_grids(whole["params"], whole["grids"], [f"experiment={name}"])
    for job in everything:
        given = [word for word in job if not word.startswith("experiment.")]
        (found,) = expand_grids(whole["params"], whole["grids"], given)
        assert sorted(found) == sorted(job)


def composed_sweeper(name: str) -> dict:
    """The grids of an experiment, from its file alone."""
    from omegaconf import OmegaConf

    node = OmegaConf.load(CONFIGS / "experiment" / f"{name}.yaml")
    sweeper = OmegaConf.select(node, "hydra.sweeper") or {}
    return {"params": sweeper.get("params"), "grids": sweeper.get("grids")}


@pytest.mark.parametrize("name", names())
def test_files_open_with_their_command(name):
    lines = (CONFIGS / "experiment" / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# @package _global_"
    assert lines[1] == f"# python train.py experiment={name}"
    hours = about(name)["gpu_hours"]
    if hours is not None:
        assert f"# About {hours:g} GPU hours, estimated (dml/plan.py says how)." in lines
    if lines[2].startswith("# python"):
        words = shlex.split(lines[2].removeprefix("# python train.py "))
        OverridesParser.create().parse_overrides(words)


@pytest.mark.pictures
@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.soak) for n in trained()]
)
def test_a_cell_runs_on_a_stand_in(name, tmp_path, glyphs_root):
    from dml.runs.experiment import run

    own = DIGITS if composed([f"experiment={name}"]).search is None else ONE_TRIAL
    found = cells(name, [*SMALLEST, *own, f"outputs={tmp_path}", f"data.root={glyphs_root}"])
    cell = found[-1]
    config = check(cell.config, Config)
    summary = run(cell.config, config)
    assert RunFolder.of(cell.config, config).path == cell.folder
    assert (cell.folder / "summary.json").exists()
    assert summary["stand_in"]
    assert summary["result_id"] == result_id(config)
    measured = set(config.evaluation.measures) - {"positivity"}
    assert measured <= summary["metrics"].keys()
    for figure in config.experiment.figures:
        if figure in ("neighbors", "positivity", "stages", "search_history"):
            assert (cell.folder / "figures" / f"{figure}.png").exists()
        if figure == "embedding_map":
            assert list(cell.folder.glob("checkpoints/*/test_embeddings.npz"))


TINY = (*SMALLEST, *DIGITS, "loss.alpha=-1,0.01")


def test_a_failed_cell_is_listed_and_the_others_are_run(command_line, tmp_path):
    words = ["experiment=mft_table12", *TINY, f"outputs={tmp_path}"]
    status, out, err = command_line(*words)
    assert status == 2  # the only failure is the user's mistake
    assert "1 of 2 runs failed" in err
    assert "loss.alpha=-1" in err
    bad, good = cells("mft_table12", words[1:])
    assert (good.folder / "summary.json").exists()
    assert not bad.folder.exists()
    status, out, _ = command_line(*shlex.split(good.command)[2:], f"outputs={tmp_path}")
    assert status == 0
    assert "finished before" in out
    line = plan.line("mft_table12", words[1:-1], str(tmp_path))
    assert (line.done, len(line.cells)) == (1, 2)
    assert line.measured > 0
    assert [plan.status(cell) for cell in line.cells] == [plan.Status.MISSING, plan.Status.DONE]
    assert plan.reduced(good) == [
        "protocol.epochs=1",
        "protocol.steps_per_epoch=2",
        "protocol.repeats=1",
    ]


def test_what_a_script_draws_is_not_trained(command_line):
    status, _, err = command_line("experiment=pfml_figure2")
    assert status == 2
    assert "python scripts/show_field.py" in err


def test_no_such_experiment():
    with pytest.raises(ConfigError, match="did you mean 'mft_table1'"):
        cells("mft_tabel1")


def test_trainings_count_trials_and_folds():
    found = cells("mft_table1", ["data=cub", "loss=mfcwms"])
    assert [cell.trainings for cell in found] == [240]
    (cell,) = cells("mft_table1", ["data=cub", "loss=mfcwms", "search.trials=5"])
    assert cell.trainings == 60


def test_the_description_of_an_experiment_leaves_runs_where_they_are(composed):
    words = ["experiment=mft_table12", "loss.alpha=20"]
    one, other = composed(*words), composed(*words, "experiment.title=another")
    assert digest(one) == digest(other)
    assert not any(name.startswith("experiment") for name in identity(one))


def test_the_papers_values_hold_where_nothing_else_is_said(composed):
    (cell,) = cells("ccp_table4", ["data=cars", "loss=c2", "method=plain"])
    assert cell.config.loss.positive_margin == 0.2652
    (cell,) = cells(
        "ccp_table4", ["data=cars", "loss=c2", "method=plain", "loss.positive_margin=1"]
    )
    assert cell.config.loss.positive_margin == 1
    (cell,) = cells("mft_table14", ["data=cub", "loss=mfcwms"])
    assert (cell.config.loss.alpha, cell.config.experiment.setting) == (20, "alpha=20")


def test_large_data_have_fewer_proxies_and_more_memory():
    sop = cells("ccp_table3", ["data=sop", "loss=c1"])
    assert [cell.config.method.get("pool_size") for cell in sop] == [None, 7, 7, None, None]
    assert [cell.config.method.get("memory_batches") for cell in sop][3:] == [1400, 400]


def test_the_table_of_the_readme_is_up_to_date():
    """All but its status, which tells what was run where it was made."""
    readme = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")

    def bare(text: str) -> list[str]:
        table = text.partition(plan.BEGIN)[2].partition(plan.END)[0]
        return [line.rpartition(" | ")[0] for line in table.strip().splitlines()]

    assert bare(readme) == bare(plan.with_table(readme, dict.fromkeys(names(), "not run")))


def test_the_field_is_drawn(tmp_path):
    from scripts.show_field import main

    assert main(["--out", str(tmp_path / "field.png")]) == 0
    assert (tmp_path / "field.png").stat().st_size > 10_000


def test_a_plan_is_shown(tmp_path, capsys):
    from scripts.plan import main

    assert main(["mft_table12", "--runs", str(tmp_path), "protocol.repeats=2"]) == 0
    out = capsys.readouterr().out
    assert out.count("missing") == 6
    assert "[reduced: protocol.repeats=2]" in out
    assert main(["mft_table99"]) == 1
