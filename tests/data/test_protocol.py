from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest

from dml.config.check import check
from dml.core.errors import UserError
from dml.core.installation import CONFIGS
from dml.data import protocol
from dml.data.image_index import ImageIndex
from tests.runs.small_runs import rows


def index_of(classes, per_class=2, trained=None, query=False):
    """Classes in order; the first `trained` (default: half) are for training."""
    labels = np.repeat(np.arange(classes), per_class)
    trained = classes // 2 if trained is None else trained
    roles = np.where(labels < trained, "train", "test").astype(object)
    if query:
        test = np.flatnonzero(roles == "test")
        roles[test[::2]], roles[test[1::2]] = "query", "gallery"
    images = np.zeros((len(labels), 4, 4, 3), dtype=np.uint8)
    return ImageIndex("probe", images, labels, roles.astype(str))


def classes(view):
    return sorted(view.classes.tolist())


def test_folds_of_mlrc_on_cub():
    jobs = protocol.create_jobs("mlrc", 2, index_of(200))
    assert [(job.repeat, job.fold) for job in jobs] == list(product(range(2), range(4)))
    validated = [classes(job.validation.query) for job in jobs[:4]]
    assert validated == [list(range(a, a + 25)) for a in (75, 0, 25, 50)]
    for job in jobs:
        together = classes(job.train) + classes(job.validation.query)
        assert sorted(together) == list(range(100))
        assert classes(job.test.query) == list(range(100, 200))
        assert job.validation.gallery is None  # queries rank within their own split


def test_mlrc_halves_all_classes_and_ccp_keeps_the_published_ones():
    index = index_of(21, trained=12)
    assert classes(protocol.create_jobs("mlrc", 1, index)[0].test.query) == list(range(10, 21))
    ccp = protocol.create_jobs("ccp", 1, index)
    assert classes(ccp[0].test.query) == list(range(12, 21))
    validated = [classes(job.validation.query) for job in ccp]
    assert validated == [[9, 10, 11], [6, 7, 8], [3, 4, 5], [0, 1, 2]]


def test_queries_are_tested_against_the_gallery():
    job = protocol.create_jobs("mlrc", 1, index_of(16, query=True))[0]
    assert job.test.gallery is not None
    assert classes(job.test.query) == classes(job.test.gallery) == list(range(8, 16))
    assert job.validation.gallery is None


def test_holdout_is_one_model_on_two_thirds():
    (job,) = protocol.create_jobs("holdout", 1, index_of(24))
    assert classes(job.train) == list(range(8))
    assert classes(job.validation.query) == list(range(8, 12))


def test_two_or_three_classes_are_validated_by_images():
    labels = np.repeat(np.arange(6), [7, 4, 11, 2, 2, 2])
    roles = np.where(labels < 3, "train", "test")
    index = ImageIndex("probe", np.zeros((28, 4, 4, 3), np.uint8), labels, roles)
    (job,) = protocol.create_jobs("holdout", 1, index)
    assert classes(job.train) == classes(job.validation.query) == [0, 1, 2]
    assert job.train.rows.tolist() == [*range(5), *range(7, 9), *range(11, 19)]
    assert job.validation.query.rows.tolist() == [5, 6, 9, 10, 19, 20, 21]
    assert classes(job.test.query) == [3, 4, 5]


def test_all_classes_leave_nothing_to_test():
    (job,) = protocol.create_jobs("all", 1, index_of(6, query=True))
    assert classes(job.train) == list(range(6))
    assert len(job.test.query) == len(job.validation.query) == 0
    with pytest.raises(UserError, match="no images are left"):
        protocol.protocol_test("all", index_of(6))


def test_too_few_classes_for_validation():
    with pytest.raises(
        UserError,
        match=r"3 training classes; 4 are needed, .* selects the epoch on the test classes",
    ):
        protocol.create_jobs("mlrc", 1, index_of(6))


def test_label_noise_changes_training_labels_only():
    clean = protocol.create_jobs("mlrc", 1, index_of(40, per_class=10))
    noisy = protocol.create_jobs("mlrc", 1, index_of(40, per_class=10), label_noise=0.2, seed=1)
    for one, other in zip(clean, noisy, strict=True):
        assert other.noise.changed == round(0.2 * len(one.train))
        assert (one.train.labels != other.train.labels).sum() == other.noise.changed
        assert np.array_equal(one.validation.query.labels, other.validation.query.labels)
        assert np.array_equal(one.test.query.labels, other.test.query.labels)


def test_every_model_has_label_noise_of_its_own():
    jobs = protocol.create_jobs("mlrc", 3, index_of(40, per_class=10), label_noise=0.2, seed=1)
    assert len({job.noise.seed for job in jobs}) == 3 * 4
    for first, second in combinations(jobs, 2):
        if first.fold == second.fold:
            assert not np.array_equal(first.train.labels, second.train.labels)


def group(name):
    return sorted(path.stem for path in (CONFIGS / name).glob("*.yaml"))


CLASSES = {  # that custom choices leave to the user
    "data=custom": "data.reader._target_=dml.data.readers.digits.read_digits",
    "backbone=custom": "backbone._target_=dml.models.small_cnn.SmallCNN",
    "backbone=timm": "backbone.model=resnet18",
}


def checked(composed, *overrides):
    classes = [CLASSES[word] for word in overrides if word in CLASSES]
    return check(composed(*overrides, *classes))


def protocols_with_datasets():
    """Pairs with a recipe, every protocol with data that stands in, every dataset with one."""
    recipes = [tuple(name.rsplit("_", 1)) for name in group("recipe")]
    stand_ins = product(group("protocol"), ("digits", "glyphs"))
    datasets = product(("holdout",), group("data"))
    return sorted({*recipes, *stand_ins, *datasets})


@pytest.mark.parametrize(("protocol", "data"), protocols_with_datasets())
def test_protocols_compose_with_datasets(composed, protocol, data):
    config = checked(composed, f"protocol={protocol}", f"data={data}")
    assert config.protocol.name == protocol
    if config.data.stand_in:  # a network from scratch, whatever the protocol does to others
        assert config.optim.lr >= 1e-4
        assert config.optim.warmup_epochs == 0
        assert config.transform.size is config.transform.resize is None
        assert config.embedder["freeze_batch_norm"] is False


def test_an_evaluation_by_steps_has_fractional_epochs(run_small):
    folder = run_small("protocol=holdout", "protocol.steps_per_epoch=4", "protocol.epochs=1",
                       "protocol.evaluate_every=3", "loss=contrastive")  # fmt: skip
    evaluated = [(float(row["epoch"]), int(row["step"])) for row in rows(folder)]
    assert evaluated == [(0.0, 0), (0.75, 3), (1.0, 4)]


def test_images_without_another_of_their_class_are_refused_before_training():
    labels = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4])
    roles = np.where(labels < 4, "train", "test")
    lonely = ImageIndex("probe", np.zeros((9, 4, 4, 3), dtype=np.uint8), labels, roles)
    assert protocol.create_jobs("published", 1, lonely)
    with pytest.raises(UserError, match=r"no image of 'probe' for validation \(fold"):
        protocol.create_jobs("ccp", 1, lonely)
    with pytest.raises(UserError, match="no image of 'probe' for test"):
        protocol.create_jobs("published", 1, index_of(4, per_class=1))
    assert protocol.create_jobs("published", 1, index_of(4, query=True))


def test_queries_without_a_match_in_the_gallery_are_refused():
    labels = np.repeat(np.arange(6), 2)
    roles = np.repeat(["train", "train", "query", "query", "gallery", "gallery"], 2)
    index = ImageIndex("probe", np.zeros((12, 4, 4, 3), np.uint8), labels, roles)
    with pytest.raises(UserError, match="no image of 'probe' for test has another of its class"):
        protocol.create_jobs("published", 1, index)


def test_names_of_a_split_are_those_of_its_images():
    names = ("a", "b", "c", "d", "e")
    index = replace(index_of(5, per_class=3, trained=2, query=True), class_names=names)
    test = protocol.published_test(index)
    assert test.names == [["6", "8", "10", "12", "14"], ["7", "9", "11", "13"]]
    some = protocol.Split(test.query.of_classes([1]), test.gallery)
    assert some.class_names == ["c", "d", "e"]
    files = [Path(f"{row}.png") for row in range(15)]
    assert protocol.published_test(replace(index, images=files)).names[1] == [
        *("7.png", "9.png", "11.png", "13.png")
    ]


def test_queries_search_in_the_gallery():
    """One query and three items of the gallery a class: neither may take the other's place."""
    labels = np.repeat(np.arange(4), 4)
    roles = np.where(labels < 2, "train", "gallery").astype(object)
    roles[[8, 12]] = "query"
    index = ImageIndex("probe", np.zeros((16, 4, 4, 3), np.uint8), labels, roles.astype(str))
    (job,) = protocol.create_jobs("published", 1, index)
    for test in (job.test, protocol.protocol_test("published", index)):
        assert test.query.rows.tolist() == [8, 12]
        assert test.gallery.rows.tolist() == [9, 10, 11, 13, 14, 15]
