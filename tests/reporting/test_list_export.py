import csv
import io
import json

from dml.reporting.list_export import write_csv_list, write_json_list
from dml.reporting.run_list import list_runs
from tests.reporting.listed_runs import write_listed_run


def test_all_values_can_be_read_back(tmp_path):
    for score, lr in ((0.4, 0.1), (None, 0.2)):
        write_listed_run(tmp_path, score, lr=lr)
    runs = list_runs(tmp_path)
    out = io.StringIO()
    write_json_list(runs, out)
    records = {one["state"]: one for one in json.loads(out.getvalue())}
    assert records["finished"]["scores"]["map_at_r"] == 0.4
    assert records["stopped"]["options"]["optim.lr"] == 0.2
    out = io.StringIO()
    write_csv_list(runs, out)
    rows = {row["state"]: row for row in csv.DictReader(io.StringIO(out.getvalue()))}
    assert rows["finished"]["optim.lr"] == "0.1"
    assert rows["finished"]["map_at_r"] == "0.4"
    assert rows["stopped"]["map_at_r"] == ""
    assert "protocol.epochs" not in rows["stopped"]  # does not differ
