"""Every published result has a cell or a reason, and every cell a result or a reason."""

from __future__ import annotations

from collections import Counter

import pytest

from dml.config.check import check
from dml.config.compositions import Options, compose_config
from dml.results.catalog import PAPERS, experiment_ids, list_cells, load_experiment
from dml.results.plan import estimate_hours
from dml.results.published import find_results, parse_setting, read_table


def expected_setting(cfg: Options) -> dict[str, object]:
    """The setting that the table of published results would give a config."""
    method, loss = cfg.method, cfg.loss
    setting = {
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
        setting |= {"mixup": "+".join(method.types), "k_hard": "/".join(map(str, hard))}
    pairs = {"imix": ["anc_neg"], "proxy_synthesis": ["pos_neg", "neg_neg"]}.get(
        method.name, method.get("pairs")
    )
    if pairs:
        setting["pairs"] = "/".join([pairs] if isinstance(pairs, str) else pairs).replace("_", "-")
    return setting


def find_reason(table: str, row: dict[str, str]) -> str:
    """The reason of the first line whose columns all agree; empty columns match all."""
    for line in read_table(table):
        if all(v in ("", row[k]) for k, v in line.items() if k not in ("reason", "line")):
            return line["reason"]
    return ""


@pytest.mark.parametrize("paper", PAPERS)
def test_every_cell_and_every_result_has_a_match_or_a_reason(paper):
    """In one test per paper, since composing takes most of the time.

    Two cells never share a result, and the setting of a result is what the cell runs.
    """
    matches: list[tuple] = []
    for id in (id for id in experiment_ids() if id.startswith(paper)):
        about, cells = load_experiment(id), list_cells(id)
        assert about.id == id
        assert about.title
        assert len({cell.folder for cell in cells}) == len(cells)
        assert bool(cells) == about.trains
        assert about.trains or about.script
        for cell in cells:
            check(compose_config(cell.overrides))
        if about.trains:
            hours = sum(estimate_hours(cell) for cell in cells)
            assert about.gpu_hours == pytest.approx(hours, rel=0.06, abs=0.01), id
        if about.tables:
            matches += [(about, cell, key) for cell in cells for key in cell.result_keys()]
    lines: Counter[int] = Counter()
    for about, cell, key in matches:
        found = [find_results(key, m, about.source, about.tables) for m in about.metrics]
        columns = {"experiment": about.id, "data": key.data, "method": key.method}
        columns["evaluation"] = key.evaluation
        assert any(found) or find_reason("not_printed.csv", columns), (about.id, key)
        lines.update(one.line for some in found for one in some)
        runs_with = expected_setting(cell.options)
        for name, value in parse_setting(key.setting).items():
            if name != "study":
                assert {name: value} == parse_setting(f"{name}={runs_with[name]}"), key
    assert [line for line, times in lines.items() if times > 1] == []
    rest = [row for row in read_table("results.csv") if int(row["line"]) not in lines]
    ours = [row for row in rest if row["source"].startswith(paper)]
    assert [row for row in ours if not find_reason("out_of_scope.csv", row)] == []


def test_no_reason_covers_results_that_are_run():
    """Only mft's first version, tables of settings, gains and quoted rows are left out whole."""
    for line in read_table("out_of_scope.csv"):
        narrow = line["method"] or line["origin"] or line["metric"].startswith("gain_")
        assert narrow or (line["source"], line["table"]) in {
            *(("mft_v1", f"T{n}") for n in (1, 2, 3, 4, 6, 7, 8, 9)),
            ("mft", "T10"),
            ("pfml", "T8"),
            ("metrix", "T4"),
        }


def test_the_table_of_metrix_left_out_whole_has_only_settings():
    rows = [
        row
        for row in read_table("results.csv")
        if (row["source"], row["table"]) == ("metrix", "T4")
    ]
    assert rows
    assert [row for row in rows if not row["metric"].startswith("hp_")] == []
