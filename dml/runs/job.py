"""One model of a run: built, trained or continued, and scored with its best weights.

`RunContext` holds what the models of a run share.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dml.config.check import change
from dml.config.schema import Config
from dml.core.atomic_io import write_json
from dml.core.errors import RunStopped, UserError, is_out_of_memory
from dml.core.launcher import read_launch
from dml.core.option_values import selection_section
from dml.core.progress import format_epoch, show_task
from dml.core.signals import raise_on_signals
from dml.data.image_dataset import ImageSource
from dml.data.image_index import ImageIndex
from dml.data.loaders import (
    DEAD_WORKER,
    Batches,
    pool_batches,
    train_batches,
)
from dml.data.protocol import FOLDS, Job, Split, create_jobs
from dml.data.samplers import build_schedule
from dml.methods.chance_constrained import StageStart
from dml.methods.extra_metrics import ExtraMetrics
from dml.retrieval.embeddings import SplitEmbeddings, save_embeddings
from dml.runs.build import Builder
from dml.runs.console import print_line
from dml.runs.drawing_guard import DrawingGuard
from dml.runs.embeddings import Evaluator
from dml.runs.folder.run_folder import FIGURES_STATE, RESULT
from dml.runs.model import Model
from dml.runs.training_status import TrainingStatus, Trial
from dml.tracking import History, Tracker
from dml.training.checkpoint_files import Checkpoints, translate_state_errors
from dml.training.device import resolve_device
from dml.training.interfaces import EMPTY_STEPS, Callbacks, TrainConfig
from dml.training.process_group import SINGLE_PROCESS, ProcessGroup
from dml.training.stopping import Stopping
from dml.training.train_state import TrainState, random_state, set_random_state
from dml.training.trainer import Trainer

EMBEDDINGS = "test_embeddings.npz"  # of one of several models, or if they are to be kept
STAGE_EMBEDDINGS = "test_embeddings_stage{:02d}.npz"  # at the end of a stage of CCP, if kept
COLLAPSED = "collapsed"  # a metric: 1 if all embeddings of an evaluation are equal
TEST_CURVE = "test_"  # start of the columns of `evaluation.test_curve` in history.csv

BEFORE, AFTER = "before training", "after training"  # names of embeddings in pictures
Result = dict[str, Any]
DrawTest = Callable[["JobRun", dict[str, SplitEmbeddings]], None]


@dataclass
class RunContext:
    """What the models of a run share.

    Attributes:
        config: of the run; on a GPU with the options that `speed=fast` sets.
        world: the processes that train each model together.
        images: the dataset; None: that of the config, read when it is needed.
        dataset: as its reader gave it, if it was read before.
        trial: the trial of a search that the models belong to.
        device: of the networks, which the config names.
        builder: of network, method and optimizer.
    """

    config: Config
    world: ProcessGroup = SINGLE_PROCESS
    images: ImageIndex | None = None
    trial: Trial | None = None
    dataset: ImageIndex | None = None

    def __post_init__(self) -> None:
        self.device = resolve_device(self.config.device, self.world)
        self.config = self.config.on_device(self.device.type == "cuda")
        self.builder = Builder(self.config)

    def with_values(self, values: dict[str, Any], trial: Trial | None = None) -> RunContext:
        """Returns the context with other values of dotted options, on the same device."""
        config = change(self.config, values).model_copy(update={"device": self.config.device})
        return RunContext(config, self.world, self.index, trial)

    @cached_property
    def index(self) -> ImageIndex:
        """The dataset."""
        if self.images is not None:
            return self.images
        with show_task(f"reading {self.config.data.name}"):
            return self.builder.index(self.dataset)

    @cached_property
    def source(self) -> ImageSource | None:
        """The cached images, which are made at the first access; None: decode at every access."""
        return self.builder.source(self.index)

    @cached_property
    def jobs(self) -> list[Job]:
        """The models of the run, in order."""
        c, p = self.config, self.config.protocol
        return create_jobs(p.splits, p.repeats, self.index, c.data.label_noise, c.seed)


class JobRun:
    """Builds a model of a run, and trains it with checkpoints in a separate folder.

    Args:
        context: shared by the models of the run.
        job: the model.
        folder: of its checkpoints.

    Raises:
        ConfigError: an option that network, loss or method rejects.
        UserError: there are not enough images to fill the batches.
    """

    def __init__(self, context: RunContext, job: Job, folder: Path) -> None:
        self.context, self.config, self.job = context, context.config, job
        self.device, self.world = context.device, context.world
        self.checkpoints = Checkpoints(folder, self.config.identity, self.world)
        seeds = np.random.SeedSequence([self.config.seed, *job.key]).generate_state(2)
        model_seed, self._batch_seed = (int(seed) for seed in seeds)
        data = self.config.data
        if job.train.index.features is not None and self.device.type == "cpu":
            torch.set_num_threads(1)  # a step is too small for several, which wait for each other
        try:
            self.schedule = build_schedule(
                data.sampler,
                job.train.labels,
                batch_size=data.batch_size,
                images_per_class=data.images_per_class,
                seed=self._batch_seed,
                steps_per_epoch=self.config.protocol.steps_per_epoch,
            )
        except ValueError as error:
            raise UserError(f"data.{error}") from error
        torch.manual_seed(model_seed)
        self.embedder = context.builder.network(job.train, self.world, self.device)
        self.model = Model(
            context.builder,
            self.embedder,
            context.index,
            self.device,
            context.source,
            self.world,
            processes=max(read_launch().local_size, self.config.protocol.workers),
        )
        classes, size = job.train.num_classes, self.embedder.embedding_size
        self.method = context.builder.method(classes, size).to(self.device)
        self._random = self.world.broadcast_from_main(lambda: random_state(self.device))
        names, training = self.config.evaluation.measures, (self._embed_training, self.batches)
        self._extra_metrics = ExtraMetrics(names, self.embedder, self.method, *training)
        self._test_embeddings: dict[str, SplitEmbeddings] = {}  # on the CPU
        self._training_images = Split(job.train)
        self._drawing = DrawingGuard(folder / FIGURES_STATE)
        images, seed = (job.train, self.model.transforms.train), self._batch_seed
        self._train_batches = partial(train_batches, *images, schedule=self.schedule, seed=seed)

    def run(
        self,
        history: History,
        tracker: Tracker,
        should_stop: Callable[[], RunStopped | None],
        draw_test: DrawTest | None = None,
    ) -> Result:
        """Trains from the last checkpoint, or from the start, to the end; scores the best weights.

        In a search, neither the test images nor the untrained network are scored.

        Args:
            history: receives a row per evaluation.
            tracker: also receives the rows.
            should_stop: called after every step.
            draw_test: receives the embeddings of the test images before and after training.

        Returns:
            `repeat`, `fold`, `embedding_size`, `validation` or `selection` (best weights; see
            `selection_section`), `best_epoch`, `best_step`, `steps`; of training `seconds` and
            `images_per_second`; without a search also `metrics` (test, best weights, and those of
            `evaluation.measures`) and `untrained` (test, before training). `collapsed` if the
            embeddings of the validation images by the best network are all equal.

        Raises:
            RunStopped: `should_stop` asked for it; the state is saved.
            UserError: see `Trainer.fit` and `Checkpoints`.
        """
        set_random_state(self._random, self.device)
        stored = self.checkpoints.load()
        untrained = self._score_untrained(draws_again=draw_test is not None and stored is not None)
        self._untrained = self._tests and stored is None  # until the first evaluation
        self._attach_method()
        test_curve = self._tests_apart and self.config.evaluation.test_curve
        if not test_curve:
            self.model.evaluator.cache_clear()  # the test images are needed again only at the end
        trainer, status = self._create_trainer(history, tracker, should_stop, test_curve)
        try:
            self._begin(trainer, stored)
            self.world.broadcast_from_main(lambda: history.rewind(self.job.key, trainer.rows))
            with show_task(f"{status.place}preparing", status.total) as status.update:
                trainer.fit()
            if trainer.epoch < self.config.protocol.epochs:
                status.show_early_stop()
            with raise_on_signals(saved=True) if self.world.size == 1 else nullcontext():
                return self._conclude(trainer, history, untrained, draw_test)
        finally:
            self.model.evaluator.cache_clear()

    @property
    def _tests(self) -> bool:
        """Whether test images are scored: not in a search."""
        return self.context.trial is None

    @property
    def _tests_apart(self) -> bool:
        """Whether test images are others than those of validation.

        If they are not, the first evaluation scores the untrained network.
        """
        return self._tests and self.job.validation is not self.job.test

    def _score_untrained(self, draws_again: bool) -> dict[str, float] | None:
        """Embeds the test images before training where that is needed, and returns their scores."""
        if self._tests_apart or draws_again:
            self._test_embeddings[BEFORE] = self.model.embed(self.job.test).to("cpu")
        if not self._tests_apart:
            return None
        return self.model.evaluator(self.job.test).score(self._test_embeddings[BEFORE])

    def _attach_method(self) -> None:
        """Gives the method the training images, and keeps the embeddings of its stages."""
        images = self.job.train, self.model.transforms.train, self.model.loading
        sizes = self._batch_seed, self.model.eval_batch_size
        self.method.attach(partial(pool_batches, *images, *sizes))
        if self._tests and self.config.evaluation.keep_embeddings:
            self.method.on_stage = self._keep_stage

    def _begin(self, trainer: Trainer, stored: dict[str, Any] | None) -> None:
        """Restores the state of a checkpoint if there is one."""
        if stored is not None:
            with translate_state_errors(self.checkpoints.last):
                trainer.load_state_dict(stored)
            if not trainer.finished:
                print_line(f"continuing {self.job.name} from epoch {format_epoch(trainer.epoch)}")
        elif self.method.loss_constant and self.job.key == (0, 0):
            print_line(
                "note: in brackets, the constant part of the loss and the part that training "
                "changes"
            )

    def _conclude(
        self,
        trainer: Trainer,
        history: History,
        untrained: dict[str, float] | None,
        draw_test: DrawTest | None,
    ) -> Result:
        """Scores the best weights, and stores the result before figures are drawn."""
        best = self.checkpoints.load_best()
        result = self._describe_best(trainer, best)
        if self._tests:
            first = {k: v for k, v in trainer.first_metrics.items() if k != COLLAPSED}
            result["untrained"] = first if untrained is None else untrained
            result["metrics"] = self._test(history, best)
        if draw_test is not None:
            self.world.run_on_main(self._drawing.plan)
        # Before the figures, so that no figure can cost it.
        path = self.checkpoints.folder / RESULT
        self.world.broadcast_from_main(lambda: write_json(path, result))
        if draw_test is not None:
            self._draw(draw_test, untrained=best["step"] == 0)
        self.world.broadcast_from_main(self.checkpoints.remove_states)
        return result

    def batches(self, epochs: int = 1) -> Batches:
        """Returns the augmented training batches of the first epochs, complete on any process."""
        complete = replace(self.model.loading, rank=0, world_size=1)
        return self._train_batches(
            options=complete, start=0, stop=epochs * self.schedule.steps_per_epoch
        )

    def _create_trainer(
        self,
        history: History,
        tracker: Tracker,
        should_stop: Callable[[], RunStopped | None],
        test_curve: bool,
    ) -> tuple[Trainer, TrainingStatus]:
        c, p, steps = self.config, self.config.protocol, self.schedule.steps_per_epoch
        every = p.evaluate_every * (steps if p.evaluate_unit == "epochs" else 1)
        limits = {"warmup_epochs", "clip_value", "clip_norm", "clip_loss_parameters"}
        length = TrainConfig(
            p.epochs,
            steps,
            every,
            p.select_metric,
            precision=c.precision,
            score_untrained=self.context.trial is None,
            micro_batch=c.data.micro_batch,
            **c.optim.model_dump(include=limits),
        )
        optimizer, scheduler = self.context.builder.optimizer(self.embedder, self.method)
        state = TrainState(self.embedder, self.method, optimizer, scheduler)
        best, key = Stopping(**p.stopping.model_dump()), self.job.key
        models = p.repeats, FOLDS[p.splits]
        place = key, models, self.context.trial
        status = TrainingStatus(*place, length, self.schedule.batch_size, state, best)
        validation = self.model.evaluator(self.job.validation)

        def log(metrics: dict[str, Any], step: int) -> None:
            since = (step - 1) % every + 1  # steps since the last evaluation
            if metrics.get(EMPTY_STEPS) == since:
                print_line(
                    f"note: {self.job.name}: all {since} steps up to step {step} were empty: the "
                    f"loss returned 0 for each batch, from which nothing is learned"
                )
            job = {"repeat": key[0], "fold": key[1]}
            history.append({**job, "epoch": metrics["epoch"], "step": step, **metrics})
            tracker.log({**job, **metrics}, step)
            status.show_evaluation(metrics)

        callbacks = Callbacks(
            lambda: self._validate(validation, best, test_curve), log, should_stop, status.on_step
        )

        def batches(start: int) -> Batches:
            return self._train_batches(
                options=self.model.loading, start=start, stop=length.total_steps
            )

        trainer = Trainer(state, length, batches, best, self.checkpoints, callbacks, self.world)
        return trainer, status

    def _validate(
        self, validation: Evaluator, best: Stopping, test_curve: bool
    ) -> dict[str, float]:
        """Returns the metrics of the current network; keeps the test embeddings of the best one."""
        if not len(validation.split.query):
            return {}
        embeddings = validation.embed(self.embedder)
        metrics = validation.score(embeddings)
        metrics |= self._extra_metrics.at_evaluation(embeddings)
        tested, kept = None, self._test_embeddings
        untrained, self._untrained = self._untrained, False
        if self.job.validation is self.job.test:
            tested = embeddings
        elif test_curve:
            tested = kept[BEFORE] if untrained else self.model.embed(self.job.test)
            scores = self.model.evaluator(self.job.test).score(tested)
            metrics |= {f"{TEST_CURVE}{name}": value for name, value in scores.items()}
        if tested is not None:
            kept.setdefault(BEFORE, tested.to("cpu"))
            if best.is_better(metrics[self.config.protocol.select_metric]):
                kept[AFTER] = tested.to("cpu")
        return metrics | ({COLLAPSED: 1.0} if embeddings.collapsed else {})

    def _describe_best(self, trainer: Trainer, best: dict[str, Any]) -> Result:
        """Restores the weights of the best evaluation, and returns the result without test."""
        with translate_state_errors(self.checkpoints.best):
            self.embedder.load_state_dict(best["embedder"])
            self.method.load_state_dict(best["method"])
        metrics = best["metrics"]
        images = trainer.step * self.config.data.batch_size
        result = {
            "repeat": self.job.repeat,
            "fold": self.job.fold,
            "embedding_size": self.embedder.embedding_size,
            selection_section(self.config.protocol.selected_on): {
                k: v for k, v in metrics.items() if not k.startswith((COLLAPSED, TEST_CURVE))
            },
            "best_epoch": best["epoch"],
            "best_step": best["step"],
            "steps": trainer.step,
            "seconds": trainer.seconds,
            "images_per_second": images / max(trainer.seconds, 1e-9),
        }
        if COLLAPSED in metrics:
            result[COLLAPSED] = True
            print_line(
                f"note: {self.job.name}: the best network maps all images to one point; its scores "
                f"come from the order of ties"
            )
        if self.job.noise is not None:
            result["label_noise"] = asdict(self.job.noise)
        return result

    def _test(self, history: History, best: dict[str, Any]) -> dict[str, float]:
        """Scores the test images and, if models are concatenated later, saves their embeddings."""
        split = self.job.test
        if not len(split.query):
            return {}
        if AFTER not in self._test_embeddings:
            self._test_embeddings[AFTER] = self.model.embed(split)
        embeddings = self._test_embeddings[AFTER].to(self.device)
        if FOLDS[self.config.protocol.splits] > 1 or self.config.evaluation.keep_embeddings:
            self._save(EMBEDDINGS, embeddings)
        rows = self.world.broadcast_from_main(lambda: history.job_rows(*self.job.key))
        extra = self._extra_metrics.of_run(rows, best, embeddings)
        return self.model.evaluator(split).score(embeddings) | extra

    def _draw(self, draw_test: DrawTest, untrained: bool) -> None:
        """Draws the test images before and after training."""
        names = {"nearest": AFTER} if untrained else {BEFORE: BEFORE, AFTER: AFTER}
        networks = {k: self._test_embeddings[name].to(self.device) for k, name in names.items()}
        set_random_state(self._random, self.device)  # pictures do not depend on interruptions
        draw = partial(draw_test, self, networks)
        self.world.broadcast_from_main(lambda: self._drawing.draw("figures of test images", draw))

    def _save(self, name: str, embeddings: SplitEmbeddings) -> None:
        """Saves embeddings of the test images."""
        path, names = self.checkpoints.folder / name, self.job.test.names
        self.world.broadcast_from_main(lambda: save_embeddings(path, embeddings, names))

    def _keep_stage(self, start: StageStart) -> None:
        """Saves the test embeddings of the network at the end of the previous stage."""
        if start.stage:
            self._save(STAGE_EMBEDDINGS.format(start.stage - 1), self.model.embed(self.job.test))

    def _embed_training(self) -> tuple[Tensor, Tensor]:
        """Embeddings N×D of the training images under the test transform, and their labels."""
        embeddings = self.model.embed(self._training_images)
        return embeddings.query, torch.from_numpy(self.job.train.labels).to(self.device)


@contextmanager
def translate_resource_errors() -> Iterator[None]:
    """Turns errors of the machine into messages for users.

    Raises:
        UserError: a loading process died, or there is not enough memory; names the option.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        text = str(error)
        if isinstance(error, torch.OutOfMemoryError):
            message = (
                "data.eval_batch_size: so many images, or their embeddings, do not fit into the "
                "GPU's memory; try fewer, or precision=bf16"
            )
        elif text.startswith(DEAD_WORKER):
            reason = re.sub(r"DataLoader worker (\(pid(\(s\))? [\d, ]*\) )?|[.\n].*", "", text)
            message = (
                f"data.workers: a loading process died ({reason}); where memory is short, fewer of "
                f"them need less"
            )
        elif is_out_of_memory(error):
            message = (
                "data.workers: the machine's memory is full; try fewer, a smaller "
                "data.eval_batch_size, or a smaller data.batch_size"
            )
        else:
            raise
        raise UserError(
            f"{message}; what was saved before is intact, and the same command continues"
        ) from error
