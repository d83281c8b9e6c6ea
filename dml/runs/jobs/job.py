"""One model of a run: built, trained or continued, and scored with its best weights."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dml.core.atomic_io import write_json
from dml.core.errors import RunStopped
from dml.core.progress import format_epoch, show_task
from dml.core.signals import raise_on_signals
from dml.data.samplers import BatchSchedule
from dml.runs.console import print_line
from dml.runs.context import RunContext
from dml.runs.jobs.job_data import JobData
from dml.runs.jobs.job_list import FOLDS, Job
from dml.runs.jobs.job_result import COLLAPSED, EMBEDDINGS, RESULT, TEST_CURVE, remove_test_curve
from dml.runs.jobs.resource_errors import translate_resource_errors
from dml.runs.scores.embeddings_file import save_embeddings
from dml.runs.scores.evaluator import Evaluator, Split, SplitEmbeddings
from dml.runs.scores.extra_metrics import ExtraMetrics
from dml.runs.training_status import TrainingStatus
from dml.tracking import History, JobTracker, Tracker
from dml.training.checkpoint_files import Checkpoints, translate_state_errors
from dml.training.device import autocast
from dml.training.interfaces import Callbacks, TrainConfig
from dml.training.random_state import random_state, set_random_state
from dml.training.stopping import Stopping
from dml.training.train_state import TrainState
from dml.training.trainer import Trainer


class JobRun:
    """Builds one model of a run, and trains it with checkpoints in a folder of its own.

    Args:
        context: shared by the models of the run.
        job: the model.
        folder: of its checkpoints.
    """

    def __init__(self, context: RunContext, job: Job, folder: Path) -> None:
        self.context, self.config, self.job = context, context.config, job
        self.device, self.world = context.device, context.world
        self.checkpoints = Checkpoints(folder, context.identity, self.world)
        seeds = np.random.SeedSequence([self.config.seed, *job.key]).generate_state(2)
        model_seed, batch_seed = (int(seed) for seed in seeds)
        torch.manual_seed(model_seed)
        builder = context.builder
        self.embedder = builder.network(self.world, self.device)
        self.transforms = builder.transforms(self.embedder)
        self.data = JobData(context, job, self.transforms, batch_seed)
        sizes = job.train.num_classes, self.embedder.embedding_size
        self.method = builder.method(*sizes).to(self.device)
        random = self.world.broadcast_from_main(lambda: random_state(self.device))
        set_random_state(random, self.device)
        self.extra_metrics = ExtraMetrics(
            self.config.evaluation.measures,
            self.embedder,
            self.method,
            self._embed_training,
            lambda: self.data.batches(1),
        )

    @translate_resource_errors
    def run(
        self,
        history: History,
        tracker: Tracker,
        should_stop: Callable[[], RunStopped | None],
        test: bool = True,
    ) -> dict[str, Any]:
        """Trains from the last checkpoint, or from the start, to the end; scores the best weights.

        Args:
            history: receives a row per evaluation.
            tracker: receives the rows too.
            should_stop: called after every step.
            test: False leaves the test images unused, as a search must.

        Returns:
            `repeat`, `fold`, `embedding_size`, `validation` (best weights), `best_epoch`,
            `best_step`, `steps`; of training `seconds` and `images_per_second`; with `test` also
            `metrics` (test, best weights, and those of `evaluation.measures`) and `untrained`
            (test, before training). `collapsed` if the embeddings of the validation images by the
            best network are all equal.
        """
        # With validation on test images, the first evaluation scores the untrained network.
        separate = test and self.job.validation is not self.job.test
        untrained = self._score(self.job.test) if separate else None
        schedule = self.data.schedule()
        self.method.attach(self.data.pool)
        self._test_curve = separate and self.config.evaluation.test_curve
        trainer = self._create_trainer(schedule, history, tracker, should_stop)
        self._restore(trainer, history)
        with show_task(f"{self.status.place}preparing", self.status.total) as self.status.update:
            trainer.fit()
        if trainer.epoch < self.config.protocol.epochs:
            stopping = self.config.protocol.stopping
            unit = stopping.unit.removesuffix("s") if stopping.patience == 1 else stopping.unit
            line = f"stopped early: no improvement in {stopping.patience} {unit}"
            self.context.position.show(self.job.key, line)
        with raise_on_signals(saved=True) if self.world.size == 1 else nullcontext():
            return self._conclude(trainer, history, untrained, test)

    def _conclude(
        self, trainer: Trainer, history: History, untrained: dict[str, float] | None, test: bool
    ) -> dict[str, Any]:
        """Scores the best weights and stores the result."""
        best = self.load_best()
        collapsed = best["metrics"].pop(COLLAPSED, 0)
        best["metrics"] = remove_test_curve(best["metrics"])
        result = self._describe_training(trainer, best)
        if test:
            result["metrics"] = self._test(history, best)
            first = {k: v for k, v in trainer.first_metrics.items() if k != COLLAPSED}
            result["untrained"] = first if untrained is None else untrained
        if collapsed:
            result[COLLAPSED] = True
            print_line(
                f"note: {self.job.name}: the best network maps all images to one point; its scores "
                f"come from the order of ties"
            )
        if self.job.noise is not None:
            result["label_noise"] = asdict(self.job.noise)
        self.world.broadcast_from_main(lambda: write_json(self.checkpoints.folder / RESULT, result))
        return result

    def load_best(self) -> dict[str, Any]:
        """Restores the weights of the best evaluation; returns their checkpoint."""
        best = self.checkpoints.load_best()
        with translate_state_errors(self.checkpoints.best):
            self.embedder.load_state_dict(best["embedder"])
            self.method.load_state_dict(best["method"])
        return best

    def embed_test(self) -> SplitEmbeddings:
        """Returns the embeddings of the test images by the network as it is now."""
        return self._embed(self.job.test)

    def _create_trainer(
        self,
        schedule: BatchSchedule,
        history: History,
        tracker: Tracker,
        should_stop: Callable[[], RunStopped | None],
    ) -> Trainer:
        c, p = self.config, self.config.protocol
        per_unit = schedule.steps_per_epoch if p.evaluate_unit == "epochs" else 1
        length = TrainConfig(
            epochs=p.epochs,
            steps_per_epoch=schedule.steps_per_epoch,
            evaluate_every=p.evaluate_every * per_unit,
            select_metric=p.select_metric,
            warmup_epochs=c.optim.warmup_epochs,
            clip_value=c.optim.clip_value,
            clip_norm=c.optim.clip_norm,
            clip_loss_parameters=c.optim.clip_loss_parameters,
            precision=c.precision,
        )
        optimizer, scheduler = self.context.builder.optimizer(self.embedder, self.method)
        state = TrainState(self.embedder, self.method, optimizer, scheduler)
        best = Stopping(p.stopping.patience, p.stopping.unit, p.stopping.min_delta)
        sizes = length, schedule.batch_size
        self.status = TrainingStatus(self.context.position, self.job.key, *sizes, state, best)
        validation = self.data.evaluator(self.job.validation)
        rows = JobTracker(history, tracker, *self.job.key, self.status.show_evaluation)
        return Trainer(
            state,
            length,
            lambda at: self.data.training_batches(schedule, at, length.total_steps, self.world),
            best,
            self.checkpoints,
            Callbacks(
                evaluate=lambda: self._validate(validation),
                log=rows.log,
                should_stop=should_stop,
                on_step=self.status.on_step,
            ),
            self.world,
        )

    def _restore(self, trainer: Trainer, history: History) -> None:
        """Restores the last checkpoint, if there is one, and the rows that it knows."""
        loaded = self.checkpoints.load()
        if loaded is not None:
            state, note = loaded
            if note:
                print_line(f"note: {note}")
            with translate_state_errors(self.checkpoints.last):
                trainer.load_state_dict(state)
        self.world.broadcast_from_main(lambda: history.rewind(self.job.key, trainer.rows))
        if loaded is not None and not trainer.finished:
            print_line(f"continuing {self.job.name} from epoch {format_epoch(trainer.epoch)}")

    def _describe_training(self, trainer: Trainer, best: dict[str, Any]) -> dict[str, Any]:
        images = trainer.step * self.config.data.batch_size
        return {
            "repeat": self.job.repeat,
            "fold": self.job.fold,
            "embedding_size": self.embedder.embedding_size,
            "validation": best["metrics"],
            "best_epoch": best["epoch"],
            "best_step": best["step"],
            "steps": trainer.step,
            "seconds": trainer.seconds,
            "images_per_second": images / max(trainer.seconds, 1e-9),
        }

    def _test(self, history: History, best: dict[str, Any]) -> dict[str, float]:
        """Scores the test images and, where models are joined, saves their embeddings."""
        split = self.job.test
        embeddings = self._embed(split)
        if FOLDS[self.config.protocol.splits] > 1 or self.config.evaluation.keep_embeddings:
            path = self.checkpoints.folder / EMBEDDINGS
            self.world.broadcast_from_main(
                lambda: save_embeddings(path, embeddings, split, "float32")
            )
        rows = self.world.broadcast_from_main(lambda: history.job_rows(*self.job.key))
        extra = self.extra_metrics.of_run(rows, best, embeddings)
        return {**self.data.evaluator(split).score(embeddings), **extra}

    def _embed(self, split: Split) -> SplitEmbeddings:
        with autocast(self.config.precision, self.device):
            return self.data.evaluator(split).embed(self.embedder)

    def _embed_training(self) -> tuple[Tensor, Tensor]:
        """Embeddings N×D of the training images under the test transform, and their labels."""
        embeddings = self._embed(Split(self.job.train))
        return embeddings.query, torch.from_numpy(self.job.train.labels).to(self.device)

    def _score(self, split: Split) -> dict[str, float]:
        return self.data.evaluator(split).score(self._embed(split))

    def _validate(self, validation: Evaluator) -> dict[str, float]:
        embeddings = validation.embed(self.embedder)
        collapsed = {COLLAPSED: 1.0} if embeddings.collapsed else {}
        scores = validation.score(embeddings)
        extra = self.extra_metrics.at_evaluation(embeddings)
        test = self._score(self.job.test) if self._test_curve else {}
        curve = {f"{TEST_CURVE}{name}": value for name, value in test.items()}
        return {**scores, **extra, **curve, **collapsed}
