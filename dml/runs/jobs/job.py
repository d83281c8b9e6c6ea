"""One model of a run: built, trained or continued, and scored with its best weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dml.core.atomic_io import write_json
from dml.core.errors import RunStopped
from dml.data.samplers import BatchSchedule
from dml.runs import build
from dml.runs.console import Display, console
from dml.runs.context import RunContext
from dml.runs.figures.neighbors import draw_neighbors
from dml.runs.jobs.job_data import JobData
from dml.runs.jobs.job_result import COLLAPSED, EMBEDDINGS, RESULT
from dml.runs.jobs.resource_errors import translate_resource_errors
from dml.runs.jobs.throughput import ThroughputLog
from dml.runs.protocols import FOLDS, Job
from dml.runs.scores.embeddings_file import save_embeddings
from dml.runs.scores.evaluator import Embedded, Evaluator, Split
from dml.runs.scores.extra_metrics import ExtraMetrics
from dml.tracking import JobTracker, RunTables, Tracker
from dml.training.checkpoint import fitting, random_state, set_random_state
from dml.training.interfaces import TrainConfig
from dml.training.precision import autocast
from dml.training.shared_checkpoints import SharedCheckpoints
from dml.training.stopping import Stopping
from dml.training.trainer import Trainer


class JobRun:
    """Trains one model of a run in its own folder of checkpoints.

    Args:
        context: what it shares with the other models of the run.
        job: which model.
        folder: of its checkpoints.
    """

    def __init__(self, context: RunContext, job: Job, folder: Path) -> None:
        config, device, world = context.config, context.device, context.world
        self.config, self.job, self.device = config, job, device
        self.world, self.hint = world, context.hint
        self.checkpoints = SharedCheckpoints(folder, context.identity, world)
        self.result_file = folder / RESULT
        seeds = np.random.SeedSequence([config.seed, job.repeat, job.fold]).generate_state(2)
        model_seed, batch_seed = (int(seed) for seed in seeds)
        torch.manual_seed(model_seed)
        self.embedder = build.build_network(config, world, device)
        self.transforms = build.build_transforms(config, self.embedder)
        self.data = JobData(config, job, self.transforms, batch_seed, device, context.source, world)
        self.method = build.build_method(
            config, job.train.num_classes, self.embedder.embedding_size
        ).to(device)
        world.copy_from_main(self.embedder, self.method)
        set_random_state(world.on_main(lambda: random_state(device)), device)
        self.extra_metrics = ExtraMetrics(
            config.evaluation.measures,
            self.embedder,
            self.method,
            self._embedded_training,
            lambda: self.data.batches(1),
        )

    @translate_resource_errors()
    def run(
        self,
        records: RunTables,
        tracker: Tracker,
        should_stop: Callable[[], RunStopped | None],
        test: bool = True,
    ) -> dict[str, Any]:
        """Trains from the last checkpoint, or from the start, to the end; scores the best weights.

        Args:
            records: get a row per evaluation.
            tracker: gets those of the history too.
            should_stop: asked after every step.
            test: False leaves the test images alone, as a search must.

        Returns:
            `repeat`, `fold`, `embedding_size`, `validation` (best weights), `best_epoch`,
            `best_step`, `steps`; of training `seconds`, `images_per_second` and `waiting_share`
            (of the seconds, for data); with `test` also `metrics` (test, best weights, and what
            `evaluation.measures` asks for) and `untrained` (test, before training). `collapsed` if
            all embeddings of the best network's validation images are one point.
        """
        tested = self.job.validation is self.job.test  # the first evaluation is of the test images
        untrained = None if tested or not test else self._scored(self.job.test)
        schedule = self.data.schedule()
        self.method.attach(self.data.pool)  # type: ignore[operator]
        trainer = self._trainer(schedule, records, tracker, should_stop)
        loaded = self.checkpoints.load(trainer.STATE)
        if loaded is not None:
            state, note = loaded
            if note:
                console.print(f"note: {note}")
            with fitting(self.checkpoints.last):
                trainer.load_state_dict(state)
        own = self.job.repeat, self.job.fold
        self.world.on_main(lambda: records.rewind(own, trainer.rows, trainer.step))
        if loaded is not None and not trainer.finished:
            console.print(f"continuing {self.job.name} from epoch {trainer.epoch:g}")
        with self.display.showing(trainer.step):
            trainer.fit()
        best = self.load_best()
        collapsed = best["metrics"].pop(COLLAPSED, 0)
        result = {
            "repeat": self.job.repeat,
            "fold": self.job.fold,
            "embedding_size": self.embedder.embedding_size,
            "validation": best["metrics"],
            "best_epoch": best["epoch"],
            "best_step": best["step"],
            "steps": trainer.step,
            "seconds": trainer.clock.total.seconds,
            "images_per_second": trainer.clock.total.images_per_second(schedule.batch_size),
            "waiting_share": trainer.clock.total.waiting_share,
        }
        if test:
            embedded = self._embedded(self.job.test)
            if FOLDS[self.config.protocol.splits] > 1 or self.config.evaluation.keep_embeddings:
                path = self.checkpoints.folder / EMBEDDINGS
                self.world.on_main(
                    lambda: save_embeddings(path, embedded, self.job.test, "float32")
                )
            rows = self.world.on_main(lambda: records.history.of(*own))
            measured = self.extra_metrics.of_run(rows, best, embedded)
            result["metrics"] = {
                **self.data.evaluator(self.job.test).score(embedded),
                **measured,
            }
            first = {k: v for k, v in trainer.first_metrics.items() if k != COLLAPSED}
            result["untrained"] = first if untrained is None else untrained
        if collapsed:
            result[COLLAPSED] = True
            console.print(
                f"note: {self.job.name}: the best network maps all images to one point; its scores "
                f"come from the order of ties"
            )
        if self.job.noise is not None:
            result["label_noise"] = asdict(self.job.noise)
        self.world.on_main(lambda: write_json(self.result_file, result))
        return result

    def draw_neighbors(self, name: str, path: Path) -> None:
        """The neighbors that the network as it is retrieves on the test images."""
        embedded = self._embedded(self.job.test)
        split, transform = self.job.test, self.transforms.test
        self.world.on_main(lambda: draw_neighbors(split, embedded, transform, name, path))

    def load_best(self) -> dict[str, Any]:
        """Puts the weights of the best evaluation into network and method; returns its state."""
        best = self.checkpoints.load_best()
        with fitting(self.checkpoints.best):
            self.embedder.load_state_dict(best["embedder"])
            self.method.load_state_dict(best["method"])
        return best

    def _embedded(self, split: Split) -> Embedded:
        with autocast(self.config.precision, self.device):
            return self.data.evaluator(split).embed(self.embedder)

    def _embedded_training(self) -> tuple[Tensor, Tensor]:
        """Embeddings N×D of the training images under the test transform, and their labels."""
        embedded = self._embedded(Split(self.job.train))
        return embedded.query, torch.from_numpy(self.job.train.labels).to(self.device)

    def _scored(self, split: Split) -> dict[str, float]:
        return self.data.evaluator(split).score(self._embedded(split))

    def _validated(self, validation: Evaluator) -> dict[str, float]:
        embedded = validation.embed(self.embedder)
        noted = {COLLAPSED: 1.0} if embedded.collapsed else {}
        return {**validation.score(embedded), **self.extra_metrics.at_evaluation(embedded), **noted}

    def _trainer(
        self,
        schedule: BatchSchedule,
        records: RunTables,
        tracker: Tracker,
        should_stop: Callable[[], RunStopped | None],
    ) -> Trainer:
        c, p = self.config, self.config.protocol
        total = p.epochs * schedule.steps_per_epoch

        optimizer, scheduler = build.build_training(c, self.embedder, self.method)
        self.display = Display(self.job.name, total)
        validation = self.data.evaluator(self.job.validation)
        per_unit = schedule.steps_per_epoch if p.evaluate_unit == "epochs" else 1
        return Trainer(
            self.embedder,
            self.method,
            optimizer,
            scheduler,
            lambda start: self.data.training_batches(schedule, start, total, self.world),
            lambda: self._validated(validation),
            TrainConfig(
                epochs=p.epochs,
                steps_per_epoch=schedule.steps_per_epoch,
                evaluate_every=p.evaluate_every * per_unit,
                select_metric=p.select_metric,
                warmup_epochs=c.optim.warmup_epochs,
                clip_value=c.optim.clip_value,
                clip_norm=c.optim.clip_norm,
                clip_loss_parameters=c.optim.clip_loss_parameters,
                precision=c.precision,
            ),
            Stopping(p.stopping.patience, p.stopping.unit, p.stopping.min_delta),
            JobTracker(records.history, tracker, self.job.repeat, self.job.fold, self._evaluated),
            self.checkpoints,
            should_stop,
            self.display.step,
            ThroughputLog(
                records.throughput,
                (self.job.repeat, self.job.fold),
                schedule.batch_size,
                self.device,
                self.hint,
            ),
            self.world,
        )

    def _evaluated(self, metrics: dict[str, Any]) -> None:
        self.display.evaluated(metrics, self.config.protocol.select_metric)
