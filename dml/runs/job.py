"""The training of a model from its last checkpoint to the scores of its best weights."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from dml.core.atomic_io import write_json
from dml.core.errors import RunStopped
from dml.core.option_values import selection_section
from dml.core.progress import format_epoch, show_task
from dml.core.signals import raise_on_signals
from dml.data.loaders import end_processes
from dml.data.protocol import FOLDS
from dml.runs.category_scores import means_of_categories
from dml.runs.console import print_line
from dml.runs.context import JobModel
from dml.runs.drawing_guard import DrawingGuard
from dml.runs.folder.run_folder import FIGURES_STATE, RESULT
from dml.runs.job_scores import COLLAPSED, TEST_CURVE, JobScores
from dml.runs.training_status import TrainingStatus, Trial
from dml.tracking import History, Tracker
from dml.training.checkpoint_files import Checkpoints, translate_state_errors
from dml.training.interfaces import EMPTY_STEPS, Callbacks, TrainConfig
from dml.training.stopping import Stopping
from dml.training.trainer import Trainer

Result = dict[str, Any]


class JobRun:
    """Trains a model of a run with checkpoints in a separate folder, and scores its best weights.

    Args:
        model: the model, as it was built.
        folder: of its checkpoints.
        trial: of a search, in which neither test images nor the untrained network are scored.
        figures: folder of the figures of the test images; None: they are not drawn.
    """

    def __init__(
        self,
        model: JobModel,
        folder: Path,
        trial: Trial | None = None,
        figures: Path | None = None,
    ) -> None:
        self.model, self.job, self.config = model, model.job, model.config
        self.world, self.trial, self.figures = model.world, trial, figures
        self.checkpoints = Checkpoints(folder, self.config.identity, self.world)
        self._drawing = DrawingGuard(folder / FIGURES_STATE)

    def run(
        self, history: History, tracker: Tracker, should_stop: Callable[[], RunStopped | None]
    ) -> Result:
        """Trains from the last checkpoint, or from the start, to the end; scores the best weights.

        Args:
            history: receives a row per evaluation.
            tracker: also receives the rows.
            should_stop: called after every step.

        Returns:
            `repeat`, `fold`, `embedding_size`, `validation` or `selection` (best weights; see
            `selection_section`), `best_epoch`, `best_step`, `steps`; of training `seconds` and
            `images_per_second`; without a search also `metrics` (test, best weights, and those of
            `evaluation.measures`) and `untrained` (test, before training); with `evaluation.by`
            also `categories` and `compression` (test, best weights). `collapsed` if the
            embeddings of the validation images by the best network are all equal.

        Raises:
            RunStopped: `should_stop` asked for it; the state is saved.
            UserError: see `Trainer.fit` and `Checkpoints`.
        """
        self.model.restore_random_state()
        stored = self.checkpoints.load()
        scores = JobScores(
            self.model,
            self.checkpoints.folder,
            scores_test=self.trial is None,
            continues=stored is not None,
            draws=self.figures is not None,
        )
        self.model.attach_method()
        trainer, status = self._create_trainer(scores, history, tracker, should_stop)
        try:
            self._begin(trainer, stored)
            status.untrained = trainer.first_metrics.get(status.train.select_metric, 0.0)
            self.world.broadcast_from_main(lambda: history.rewind(self.job.key, trainer.rows))
            with show_task(f"{status.position}preparing", status.total) as status.update:
                trainer.fit()
            if trainer.epoch < self.config.protocol.epochs:
                status.show_early_stop()
            with raise_on_signals(saved=True) if self.world.size == 1 else nullcontext():
                return self._conclude(trainer, scores, history)
        except BaseException:
            end_processes()
            raise
        finally:
            self.model.evaluator.cache_clear()

    def _create_trainer(
        self,
        scores: JobScores,
        history: History,
        tracker: Tracker,
        should_stop: Callable[[], RunStopped | None],
    ) -> tuple[Trainer, TrainingStatus]:
        """Returns the training loop, and the status whose lines it prints."""
        length, protocol = self._training_config(), self.config.protocol
        state, stopping = self.model.create_state(), Stopping(**protocol.stopping.model_dump())
        status = TrainingStatus(
            self.job.key,
            (protocol.repeats, FOLDS[protocol.splits]),
            self.trial,
            length,
            self.model.schedule.batch_size,
            state,
            stopping,
        )

        def log(metrics: dict[str, Any], step: int) -> None:
            self._note_empty_steps(metrics, step, length.evaluate_every)
            job = {"repeat": self.job.repeat, "fold": self.job.fold}
            history.append({**job, "epoch": metrics["epoch"], "step": step, **metrics})
            tracker.log({**job, **metrics}, step)
            status.show_evaluation(metrics)

        evaluate = partial(scores.score_evaluation, stopping)
        callbacks = Callbacks(evaluate, log, should_stop, status.on_step)
        batches = partial(self.model.batches, stop=length.total_steps)
        trainer = Trainer(state, length, batches, stopping, self.checkpoints, callbacks, self.world)
        return trainer, status

    def _training_config(self) -> TrainConfig:
        config, protocol = self.config, self.config.protocol
        steps_per_epoch = self.model.schedule.steps_per_epoch
        evaluate_every = protocol.evaluate_every
        if protocol.evaluate_unit == "epochs":
            evaluate_every *= steps_per_epoch
        limits = {"warmup_epochs", "clip_value", "clip_norm", "clip_loss_parameters"}
        return TrainConfig(
            protocol.epochs,
            steps_per_epoch,
            evaluate_every,
            protocol.select_metric,
            precision=config.precision,
            score_untrained=self.trial is None,
            micro_batch=config.data.micro_batch,
            **config.optim.model_dump(include=limits),
        )

    def _note_empty_steps(self, metrics: dict[str, Any], step: int, evaluate_every: int) -> None:
        """Prints a note if the loss was empty in all steps since the last evaluation."""
        since = (step - 1) % evaluate_every + 1
        if metrics.get(EMPTY_STEPS) == since:
            print_line(
                f"note: {self.job.name}: all {since} steps up to step {step} were empty: the "
                f"loss returned 0 for each batch, from which nothing is learned"
            )

    def _begin(self, trainer: Trainer, stored: dict[str, Any] | None) -> None:
        """Restores the state of a checkpoint if there is one."""
        if stored is not None:
            with translate_state_errors(self.checkpoints.last):
                trainer.load_state_dict(stored)
            if not trainer.finished:
                print_line(f"continuing {self.job.name} from epoch {format_epoch(trainer.epoch)}")
        elif self.job.key == (0, 0) and self.config.protocol.epochs:
            self._note_constant()

    def _note_constant(self) -> None:
        """Prints how a loss with a constant is shown."""
        if self.model.method.loss_constant:
            print_line(
                "note: in brackets, the constant part of the loss and the part that training "
                "changes"
            )

    def _conclude(self, trainer: Trainer, scores: JobScores, history: History) -> Result:
        """Scores the best weights, and stores the result before figures are drawn."""
        best = self.checkpoints.load_best()
        result = self._describe_best(trainer, best)
        if scores.scores_test:
            untrained = scores.untrained
            if untrained is None:  # the first evaluation had the test images
                untrained = _without(trainer.first_metrics, COLLAPSED)
            rows = self.world.broadcast_from_main(lambda: history.job_rows(*self.job.key))
            result["untrained"] = untrained
            result["metrics"] = scores.score_test(rows, best)
            if self.config.evaluation.by is not None and result["metrics"]:
                result["categories"] = scores.score_categories()
                result["metrics"] |= means_of_categories(result["categories"])
            if self.config.evaluation.compress and result["metrics"]:
                compression = scores.score_forms()
                if compression is not None:
                    result["compression"] = compression
        self.world.broadcast_from_main(lambda: self._store(result))
        if self.figures is not None:
            self.model.restore_random_state()  # pictures do not depend on interruptions
            draw = partial(scores.draw, self.figures, trained=best["step"] > 0)
            self.world.broadcast_from_main(
                lambda: self._drawing.draw("figures of test images", draw)
            )
        self.world.broadcast_from_main(self.checkpoints.remove_states)
        return result

    def _store(self, result: Result) -> None:
        """Writes the result, before the figures, so that no figure can cost it."""
        if self.figures is not None:
            self._drawing.plan()
        write_json(self.checkpoints.folder / RESULT, result)

    def _describe_best(self, trainer: Trainer, best: dict[str, Any]) -> Result:
        """Restores the weights of the best evaluation, and returns the result without test."""
        with translate_state_errors(self.checkpoints.best):
            self.model.embedder.load_state_dict(best["embedder"])
            self.model.method.load_state_dict(best["method"])
        metrics = best["metrics"]
        images = trainer.step * self.config.data.batch_size
        section = selection_section(self.config.protocol.selected_on)
        result = {
            "repeat": self.job.repeat,
            "fold": self.job.fold,
            "embedding_size": self.model.embedder.embedding_size,
            section: _without(metrics, COLLAPSED, TEST_CURVE),
            "best_epoch": best["epoch"],
            "best_step": best["step"],
            "steps": trainer.step,
            "seconds": trainer.seconds,
            "images_per_second": images / max(trainer.seconds, 1e-9),
        }
        select = self.config.protocol.select_metric
        if metrics and select not in metrics:
            print_line(
                f"note: {self.job.name}: {select} has no value in any evaluation; the first epoch "
                f"is reported"
            )
        if COLLAPSED in metrics:
            result[COLLAPSED] = True
            print_line(
                f"note: {self.job.name}: the best network maps all images to one point; its scores "
                f"come from the order of ties"
            )
        if self.job.noise is not None:
            result["label_noise"] = asdict(self.job.noise)
        return result


def _without(metrics: dict[str, float], *starts: str) -> dict[str, float]:
    """Returns the metrics whose names do not begin with one of the texts."""
    return {name: value for name, value in metrics.items() if not name.startswith(starts)}
