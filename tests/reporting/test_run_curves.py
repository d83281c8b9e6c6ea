from dml.reporting.run_curves import read_curves
from dml.reporting.run_list import read_run
from tests.reporting.listed_runs import write_listed_run


def test_curves_are_named_by_what_differs(tmp_path):
    paths = [
        write_listed_run(tmp_path, loss="ms", lr=0.1, curve=(0.1, 0.5)),
        write_listed_run(tmp_path, loss="ms", lr=0.2),
        write_listed_run(tmp_path, loss="triplet", lr=0.1, name="mine"),
        write_listed_run(tmp_path, loss="ms", lr=0.1, seed=1),
        write_listed_run(tmp_path, None, loss="ms", lr=0.3, curve=()),
    ]
    curves = read_curves([read_run(path) for path in paths])
    assert [one.name for one in curves] == ["ms, lr=0.1", "ms, lr=0.2", "mine", "ms, lr=0.1"]
    assert (curves[0].epochs, curves[0].values) == ((0, 1), (10, 50))
    assert curves[0].group == curves[3].group != curves[1].group


def test_models_are_averaged_where_all_have_a_score(tmp_path):
    folder = write_listed_run(tmp_path)
    rows = [
        "repeat,fold,epoch,step,map_at_r",
        "0,0,0.0,0,0.1",
        "0,1,0.0,0,0.3",
        "0,0,1.0,5,0.4",
        "",
    ]
    (folder / "history.csv").write_text("\n".join(rows))
    (curve,) = read_curves([read_run(folder)])
    assert (curve.epochs, curve.values) == ((0,), (20,))
