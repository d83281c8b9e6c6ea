"""Takes the place of the `wandb` module: a server in a folder that outlives the process.

It does what matters of W&B online: a run with a known id continues after its last step, and a row
of an earlier step is dropped. `fault_point`s let a test kill the process inside.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from dml.core.fault_injection import fault_point


class Run:
    """What `wandb.init` returns."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows_file = folder / "rows.jsonl"
        self.step = max([row["_step"] for row in self.rows], default=-1) + 1
        self.summary: dict[str, Any] = {}
        self.url, self.dir = f"https://example.org/{folder.name}", str(folder / "files")

    @property
    def rows(self) -> list[dict[str, Any]]:
        text = self.rows_file.read_text() if self.rows_file.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def define_metric(self, name: str, **options: Any) -> None:
        pass

    def log(self, values: dict[str, Any], step: int | None = None, commit: bool = True) -> None:
        fault_point("wandb_log")
        number = self.step if step is None else step
        name = "rows.jsonl" if number >= self.step else "dropped.jsonl"
        with open(self.folder / name, "a") as file:
            file.write(json.dumps({"_step": number, **values}) + "\n")
        self.step = max(self.step, number + 1)

    def log_artifact(self, path: str, **options: str) -> None:
        (self.folder / "artifact.json").write_text(json.dumps({"path": path, **options}))

    def finish(self, exit_code: int = 0) -> None:
        fault_point("wandb_finish")
        (self.folder / "summary.json").write_text(json.dumps(self.summary))
        with open(self.folder / "exits.txt", "a") as file:
            file.write(f"{exit_code}\n")


class Service:
    """The module.

    Args:
        folder: of the server.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def login(self, prompt: bool = True, verify: bool = True) -> bool:
        assert not prompt
        assert not verify
        return True

    def Settings(self, **settings: Any) -> dict[str, Any]:  # noqa: N802
        return settings

    def Image(self, path: str) -> str:  # noqa: N802
        assert Path(path).exists()
        return f"image {Path(path).name}"

    def Table(self, columns: list[str], data: list[list[Any]]) -> dict[str, Any]:  # noqa: N802
        return {"columns": columns, "data": data}

    def init(self, **options: Any) -> Run:
        name = options.get("id") or os.environ["WANDB_RUN_ID"]
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "inits.jsonl", "a") as file:
            file.write(json.dumps(options) + "\n")
        return Run(folder)

    def ids(self) -> list[str]:
        """All runs of the server."""
        return sorted(path.name for path in self.folder.glob("*")) if self.folder.exists() else []

    def inits(self, name: str) -> list[dict[str, Any]]:
        """What `wandb.init` was called with for a run."""
        lines = (self.folder / name / "inits.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def rows(self, name: str) -> list[dict[str, Any]]:
        """A run's history without the rows of pictures."""
        return [row for row in Run(self.folder / name).rows if "epoch" in row]

    def pictures(self, name: str) -> dict[str, str]:
        """A run's pictures."""
        rows = [row for row in Run(self.folder / name).rows if "epoch" not in row]
        return {key: value for row in rows for key, value in row.items() if key != "_step"}

    def summary(self, name: str) -> dict[str, Any]:
        """A run's final scores."""
        return json.loads((self.folder / name / "summary.json").read_text())

    def exits(self, name: str) -> list[int]:
        """How a run was closed, each time."""
        path = self.folder / name / "exits.txt"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def lose(self, name: str, rows: int) -> None:
        """The last rows were still on their way when the process died."""
        path = self.folder / name / "rows.jsonl"
        kept = path.read_text().splitlines(keepends=True)[:-rows]
        path.write_text("".join(kept))
