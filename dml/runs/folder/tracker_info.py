"""The description of a run for trackers, and the completion of a finished run at a tracker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from omegaconf import DictConfig, OmegaConf

from dml.config.schema import Config
from dml.runs.console import print_line
from dml.runs.folder.run_folder import RunFolder
from dml.runs.folder.summary import protocol_id, result_id
from dml.tracking import RunInfo, Tracker, track_run


def tracker_info(
    cfg: DictConfig, config: Config, folder: RunFolder, jobs: Iterable[tuple[int, int]]
) -> RunInfo:
    """Returns the description of a run that trains these (repeat, fold)."""
    plain: Any = OmegaConf.to_container(cfg, resolve=True)
    del plain["tracking"]
    plain["run"] = {
        "result_id": result_id(config),
        "protocol_id": protocol_id(config),
        "selected_on": config.protocol.selected_on,
        "stand_in": config.data.stand_in,
        "folder": str(folder.path),
    }
    tags = [config.data.name, config.protocol.name]
    return RunInfo(
        folder=folder.path,
        run_id=folder.run_id(),
        name=config.name or f"{folder.path.parent.name} seed{config.seed}",
        group=config.experiment.id,
        config=plain,
        jobs=list(jobs),
        tags=[*tags, "stand-in"] if config.data.stand_in else tags,
        notify=print_line,
    )


def complete_tracker(
    tracker: Tracker, summary: dict[str, Any], folder: RunFolder, cfg: DictConfig, config: Config
) -> None:
    """Sends a finished run to a tracker that was unreachable before, or chosen afterwards."""
    results = summary["jobs"]
    jobs = [(result["repeat"], result["fold"]) for result in results]
    with folder.locked(), track_run(tracker, tracker_info(cfg, config, folder, jobs)):
        for result in results:
            tracker.job_done(result)
        tracker.conclude(summary, folder.pictures())
