"""The scores of one model: before training, at every evaluation, and of the best weights."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dml.core.errors import UserError
from dml.core.metric_names import ACCURACIES
from dml.data.protocol import FOLDS, Split
from dml.methods.chance_constrained import StageStart
from dml.methods.extra_metrics import ExtraMetrics, false_match_rates
from dml.retrieval.compression_scores import score_forms
from dml.retrieval.embeddings import SplitEmbeddings, save_embeddings
from dml.runs.compression_table import fit_on_training
from dml.runs.context import JobModel
from dml.runs.figures.run_figures import AFTER, BEFORE, draw_test_images
from dml.runs.folder.run_folder import EMBEDDINGS, STAGE_EMBEDDINGS
from dml.training.stopping import NO_SCORE, Stopping

log = logging.getLogger(__name__)
COLLAPSED = "collapsed"  # a metric: 1 if all embeddings of an evaluation are equal
TEST_CURVE = "test_"  # start of the columns of `evaluation.test_curve` in history.csv


class JobScores:
    """Scores a model, and keeps the embeddings of its test images.

    Args:
        model: the model, which is trained meanwhile.
        folder: of the files of its embeddings.
        scores_test: whether test images are scored: not in a search.
        continues: whether the training continues from a checkpoint.
        draws: whether figures of the test images follow.
    """

    def __init__(
        self, model: JobModel, folder: Path, scores_test: bool, continues: bool, draws: bool
    ) -> None:
        self.model, self.folder, self.scores_test = model, folder, scores_test
        job, evaluation = model.job, model.config.evaluation
        # If test and validation images are the same, each evaluation scores both.
        self._tests_apart = scores_test and job.validation is not job.test
        self._has_test_curve = self._tests_apart and evaluation.test_curve
        self._is_untrained = scores_test and not continues  # until the first evaluation
        self._embeddings: dict[str, SplitEmbeddings] = {}  # of the test images, on the CPU
        self._measures = evaluation.measures
        self._validation: SplitEmbeddings | None = None  # by the best weights, if they are needed
        self._extra_metrics = ExtraMetrics(
            evaluation.measures,
            model.embedder,
            model.method,
            model.embed_training,
            model.whole_batches,
        )
        self.untrained: dict[str, float] | None = None
        self._measured: dict[str, float] = {}  # of the best weights
        self._score_before(for_figures=continues and draws)
        if scores_test and evaluation.keep_embeddings:
            model.method.on_stage = self._keep_stage

    def _score_before(self, for_figures: bool) -> None:
        """Embeds the test images by the network as it is, and scores them if none are validated.

        Args:
            for_figures: whether figures need them where they are validated, too.
        """
        job = self.model.job
        if self._tests_apart or for_figures:
            self._embeddings[BEFORE] = self._embed(job.test).to("cpu")
        if self._tests_apart:
            self.untrained = self._score(job.test, self._embeddings[BEFORE])
            self.untrained |= self._score_classes(self._embeddings[BEFORE])
        if not self._has_test_curve:
            self.model.evaluator.cache_clear()  # the test images are needed again only at the end

    def score_evaluation(self, stopping: Stopping) -> dict[str, float]:
        """Returns the metrics of the current network at an evaluation.

        Args:
            stopping: knows the best evaluation so far; the test embeddings of a better one are
                kept.
        """
        job = self.model.job
        if not len(job.validation.query):
            return {}
        embeddings = self._embed(job.validation)
        metrics = self._score(job.validation, embeddings)
        if self._selects_accuracy:
            metrics |= self._score_classes(embeddings)
        metrics |= self._extra_metrics.at_evaluation(embeddings)
        tested = None
        if job.validation is job.test:
            tested = embeddings
        elif self._has_test_curve:
            tested = self._embed_test_curve()
            scores = self._score(job.test, tested)
            if self._selects_accuracy:
                scores |= self._score_classes(tested)
            for name, value in scores.items():
                metrics[f"{TEST_CURVE}{name}"] = value
        self._is_untrained = False
        score = metrics.get(self.model.config.protocol.select_metric, NO_SCORE)
        if tested is not None:
            self._embeddings.setdefault(BEFORE, tested.to("cpu"))
        if stopping.is_better(score):
            self._keep_best(tested, embeddings)
        if self.model.world.broadcast_from_main(lambda: embeddings.collapsed):
            metrics[COLLAPSED] = 1.0
        return metrics

    def _keep_best(self, tested: SplitEmbeddings | None, validated: SplitEmbeddings) -> None:
        """Keeps the embeddings by the best weights so far that the end of the run needs."""
        if tested is not None:
            self._embeddings[AFTER] = tested.to("cpu")
        if self._validates_thresholds:
            self._validation = validated.to("cpu")

    @property
    def _selects_accuracy(self) -> bool:
        """Whether every evaluation embeds the training images, for the score that selects."""
        return self.model.config.protocol.select_metric in ACCURACIES

    def _embed(self, split: Split) -> SplitEmbeddings:
        """Returns the embeddings of a split: on the first process, or for measures on all."""
        return self.model.embed(split, everywhere=bool(self._measures))

    def _score(
        self, split: Split, embeddings: SplitEmbeddings, is_final: bool = False
    ) -> dict[str, float]:
        return self.model.evaluator(split).score(embeddings, is_final)

    def _score_classes(self, embeddings: SplitEmbeddings) -> dict[str, float]:
        """Returns the accuracies of embeddings by the current weights; none of unseen classes."""
        model = self.model
        references = model.embed_references(model.training_split)
        return model.accuracies(embeddings.to(model.device), references)

    def _embed_test_curve(self) -> SplitEmbeddings:
        if self._is_untrained:
            return self._embeddings[BEFORE]
        return self._embed(self.model.job.test)

    def score_test(
        self, rows: Sequence[Mapping[str, float]], best: Mapping[str, Any]
    ) -> dict[str, float]:
        """Returns the scores of the test images by the best weights, which are loaded.

        Saves the embeddings if the models of the folds are concatenated later.

        Args:
            rows: of the model in `history.csv`.
            best: the best evaluation, with `metrics`.
        """
        split, config = self.model.job.test, self.model.config
        if not len(split.query):
            return {}
        if AFTER not in self._embeddings:
            is_untrained = best["step"] == 0 and BEFORE in self._embeddings
            if is_untrained:
                self._embeddings[AFTER] = self._embeddings[BEFORE]
            else:
                self._embeddings[AFTER] = self._embed(split)
        embeddings = self._embeddings[AFTER].to(self.model.device)
        if FOLDS[config.protocol.splits] > 1 or config.evaluation.keep_embeddings:
            self._save(EMBEDDINGS, embeddings)
        extra = self._extra_metrics.of_run(rows, best, embeddings, self._embed_validation())
        self._measured = extra
        scores = self._score(split, embeddings, is_final=True)
        return scores | self._score_classes(embeddings) | extra

    @property
    def _validates_thresholds(self) -> bool:
        """Whether validation images that are others than the test images choose thresholds."""
        job, measures = self.model.job, self.model.config.evaluation.measures
        if job.validation is job.test or not len(job.validation.query):
            return False
        return self.scores_test and bool(false_match_rates(measures))

    def _embed_validation(self) -> SplitEmbeddings | None:
        """Returns embeddings of validation images by the best weights, which choose thresholds.

        None: there is no need of any.
        """
        if not self._validates_thresholds:
            return None
        if self._validation is None:  # continued after the best evaluation
            self._validation = self._embed(self.model.job.validation)
        return self._validation.to(self.model.device)

    def score_categories(self) -> dict[str, dict[str, float]]:
        """Returns the scores of each category of the test images, after `score_test`."""
        split = self.model.job.test
        return self.model.evaluator(split).score_categories(self._embeddings[AFTER])

    def score_forms(self) -> dict[str, Any] | None:
        """Returns the scores of smaller vectors of the test images, after `score_test`.

        They are fitted on the embeddings of the training images.

        Returns:
            See `dml.retrieval.compression_scores`. None, with a warning: a form does not fit the
            embeddings, such as those that vary in few dimensions only.
        """
        model = self.model
        embeddings = self._embeddings[AFTER].to(model.device)
        fitting = fit_on_training(model.embed, model.job.train, embeddings)
        evaluation = model.config.evaluation
        recall_at = model.job.test.query.index.recall_at

        def score() -> dict[str, Any] | None:
            forms, backend = evaluation.compress, evaluation.backend
            try:
                return score_forms(embeddings, forms, fitting, recall_at, backend)
            except UserError as error:  # the training stands without them
                log.warning("%s", error)
                return None

        return model.world.broadcast_from_main(score)

    def draw(self, folder: Path, trained: bool) -> None:
        """Draws the test images before and after training.

        Args:
            folder: of the figures.
            trained: whether the best weights are others than those before training.
        """
        names = {BEFORE: BEFORE, AFTER: AFTER} if trained else {"nearest": AFTER}
        networks = {
            title: self._embeddings[name].to(self.model.device) for title, name in names.items()
        }
        stages = sorted(self.folder.glob(STAGE_EMBEDDINGS.replace("{:02d}", "*")))
        draw_test_images(self.model, networks, stages, folder, self._measured)

    def _keep_stage(self, start: StageStart) -> None:
        """Saves the test embeddings of the network at the end of the previous stage of CCP."""
        if start.stage:
            embeddings = self._embed(self.model.job.test)
            self._save(STAGE_EMBEDDINGS.format(start.stage - 1), embeddings)

    def _save(self, name: str, embeddings: SplitEmbeddings) -> None:
        """Saves embeddings of the test images."""
        names = self.model.job.test.names
        save = partial(save_embeddings, self.folder / name, embeddings, names)
        self.model.world.broadcast_from_main(save)
