import re
from pathlib import Path

from dml.results.report_tables import to_markdown


def test_write(report, tmp_path):
    text = to_markdown([report]).replace(str(tmp_path), "<outputs>")
    (Path(__file__).parent / "golden_report.md").write_text(
        re.sub(r"seed0-\w{8}", "seed0-<id>", text), encoding="utf-8"
    )
