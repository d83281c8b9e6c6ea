import pytest

from dml.config.check import check
from dml.config.compatibility import find_notes
from dml.config.schema import Config
from dml.core.errors import ConfigError

# An option, words with which it has no effect, and one with which it has.
IDLE = [
    ("optim.clip_loss_parameters=true", ["optim.clip_value=null"], "optim.clip_norm=1"),
    ("optim.schedule_unit=steps", ["optim.schedule=null"], "optim.schedule=cosine"),
    ("embedder.hidden=512", [], "embedder.head=mlp"),
    ("embedder.token_pooling=mean", ["embedder.pooling=native"], "embedder.pooling=avg"),
    (
        "transform.degrees=5",
        ["transform.augmentation=none", "transform.padding=0"],
        "transform.augmentation=random_affine",
    ),
    (
        "transform.padding=3",
        ["transform.augmentation=none", "transform.degrees=0"],
        "transform.augmentation=random_affine",
    ),
    ("data.micro_batch=128", ["data.batch_size=128"], "data.batch_size=256"),
]


def test_pruning_needs_several_folds(composed):
    words = ("search=bayes", "loss=contrastive", "search.pruning=true")
    (note,) = find_notes(check(composed(*words, "data=digits", "protocol=validation")))
    assert note.startswith("search.pruning has no effect with one fold")
    assert not [*find_notes(check(composed(*words, "data=digits", "protocol=mlrc")))]


@pytest.mark.parametrize(("option", "idle", "needed"), IDLE)
def test_options_without_effect_are_noted(composed, option, idle, needed):
    words = ("data=digits", "loss=proxy_anchor", option)
    (note,) = find_notes(check(composed(*words, *idle)))
    assert note.startswith(f"{option.partition('=')[0]} has no effect")
    assert not [*find_notes(check(composed(*words, needed)))]


def test_stages_need_scores(composed):
    words = ["data=digits", "method=ccp", "loss=c2", "protocol=all_classes"]
    with pytest.raises(ConfigError, match=r"method\.stages: a stage ends when the scores stall"):
        check(composed(*words))
    for change in (["method.stages=1"], ["protocol=validation"]):
        check(composed(*words, *change))


@pytest.mark.parametrize(
    ("words", "noted"),
    [
        (["method=xbm", "loss=ms"], 1),
        (["method=ccp", "loss=ms"], 1),
        (["loss=ms"], 0),
        (["method=xbm", "loss=c1"], 0),
    ],
)
def test_lengths_that_a_loss_no_longer_divides_by_are_noted(composed, words, noted):
    options = ["data=digits", "protocol=validation", *words]
    notes = find_notes(check(composed(*options, "embedder.normalize=none")))
    assert sum("no longer divides them by their length" in note for note in notes) == noted
    assert not [*find_notes(check(composed(*options, "embedder.normalize=l2")))]


FROZEN = [(1, 1, 1), (3, 5, 1), (2, 1, 0), (0, 1, 0)]


@pytest.mark.parametrize(("epochs", "warmup", "noted"), FROZEN)
def test_a_backbone_that_is_frozen_all_the_time_is_noted(composed, epochs, warmup, noted):
    words = ("data=digits", f"protocol.epochs={epochs}", f"optim.warmup_epochs={warmup}")
    notes = [*find_notes(check(composed(*words)))]
    assert len(notes) == noted
    assert all("the backbone is not trained" in note for note in notes)


@pytest.mark.parametrize(
    ("overrides", "option", "said"),
    [
        ("data.sampler=class_stream data.images_per_class=7 data.batch_size=120", "data.batch_size",
         "batch 120 must be a multiple of 7 images per class (nearest 119, 126)"),
        ("optim.schedule=null +optim.schedule_args.gamma=0.1", "optim.schedule_args",
         "no schedule"),
        ("data.sampler=class_stream data.images_per_class=null", "data.images_per_class", "number"),
        ("data.sampler=class_stream data.images_per_class=1 loss.batch_kind=pair",
         "data.images_per_class", "2 or more"),
        ("data.sampler=category data.categories_per_batch=3 data.images_per_class=4 "
         "data.batch_size=100", "data.batch_size",
         "batch 100 must be a multiple of 3 categories x 4 images per class (nearest 96, 108)"),
        ("data.sampler=category data.categories_per_batch=3 data.images_per_class=4 "
         "data.batch_size=8", "data.batch_size", "(nearest 12)"),
        ("data.sampler=category data.images_per_class=4 data.categories_per_batch=null",
         "data.categories_per_batch", "needs a number"),
        ("data.sampler=category data.categories_per_batch=1 data.images_per_class=4 "
         "data.batch_size=4 loss.batch_kind=pair", "data.batch_size", "holds one class"),
        ("transform.augmentation=random_resized_crop", "transform.size", "transform.size=64"),
    ],
)  # fmt: skip
def test_conflict(changed, overrides, option, said):
    with pytest.raises(ConfigError) as caught:
        check(changed(*overrides.split()), Config)
    (line,) = caught.value.problems
    assert line.startswith(f"{option}: ")
    assert said in line


def test_an_option_without_effect_is_noted(changed):
    (note,) = find_notes(check(changed("data.images_per_class=4")))
    assert note.startswith("data.images_per_class has no effect")
    balanced = changed("data.images_per_class=4", "data.sampler=balanced")
    assert not [*find_notes(check(balanced))]
    (note,) = find_notes(check(changed("data.categories_per_batch=2")))
    assert note.startswith("data.categories_per_batch has no effect")
    words = ("data.categories_per_batch=2", "data.images_per_class=4", "data.sampler=category")
    assert not [*find_notes(check(changed(*words)))]


@pytest.mark.parametrize(
    ("overrides", "option", "end"),
    [
        ("method=metrix loss=ms", "data.micro_batch", "; use 'method.types=[embed]'"),
        ("method=imix loss=ms", "data.micro_batch", "parts"),
        ("compile=reduce-overhead", "compile", "data.micro_batch does"),
    ],
)
def test_what_cannot_embed_in_parts(composed, overrides, option, end):
    with pytest.raises(ConfigError) as caught:
        check(composed("data.micro_batch=32", *overrides.split()), Config)
    (line,) = caught.value.problems
    assert line.startswith(f"{option}: ")
    assert line.endswith(end)


@pytest.mark.parametrize("resize", ["null", "256", "300"])
@pytest.mark.parametrize("cache", ["null", "full", "256"])
def test_a_cache_of_smaller_images_than_those_of_the_crops_is_noted(changed, cache, resize):
    notes = [*find_notes(check(changed(f"data.cache={cache}", f"transform.resize={resize}")))]
    crops_differ = cache == "256" and resize != "256"
    assert len(notes) == crops_differ
    if crops_differ:
        size = {"null": "as decoded", "300": "resized to 300"}[resize]
        assert notes[0].startswith("data.cache=256")
        assert notes[0].endswith(size)


def test_a_network_without_published_numbers_is_noted(composed):
    words = ("data=cub", "protocol=mlrc")
    assert not [*find_notes(check(composed(*words)))]
    (note,) = find_notes(check(composed(*words, "backbone=vit_s16")))
    assert note.startswith("protocol=mlrc was published with bn_inception")


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["data.batch_size=30"], "batch 30 must be a multiple of 4 processes (nearest 28, 32)"),
        (["data.batch_size=42", "data.sampler=balanced", "data.images_per_class=7"],
         "must be a multiple of 4 processes (nearest 28, 56)"),
        (["data.batch_size=42", "data.sampler=category", "data.images_per_class=7",
          "data.categories_per_batch=2"],
         "must be a multiple of 4 processes (nearest 28, 56)"),
        (["data.batch_size=2"], "(nearest 4)"),
        (["protocol.workers=2"], "protocol.workers: 2 models in parallel"),
        (["protocol=mlrc", "search=bayes"], "search: torchrun's processes would share each trial"),
    ],
)  # fmt: skip
def test_conflicts_of_several_processes(composed, monkeypatch, overrides, expected):
    cfg = composed(*overrides)
    check(cfg)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ConfigError) as caught:
        check(cfg)
    assert expected in str(caught.value)


@pytest.mark.parametrize("sampler", ["class_stream", "balanced"])
@pytest.mark.parametrize(
    ("batch", "m", "end"),
    [
        (4, 4, "holds one class, 4 images of it, and loss 'ms_miner' needs two; use 8 or more"),
        (2, 2, "use 4 or more"),
        (1, 4, "(nearest 8)"),
        (5, 4, "(nearest 8)"),
        (9, 4, "(nearest 8, 12)"),
    ],
)
def test_pair_losses_need_two_classes_in_a_batch(composed, sampler, batch, m, end):
    sizes = (f"data.sampler={sampler}", f"data.batch_size={batch}", f"data.images_per_class={m}")
    with pytest.raises(ConfigError) as caught:
        check(composed("data=digits", "loss=ms_miner", *sizes))
    (line,) = caught.value.problems
    assert line.startswith(f"data.batch_size: batch {batch} ")
    assert line.endswith(end)
    if batch == m:
        check(composed("data=digits", "loss=proxy_anchor", *sizes))  # compares with proxies


def test_pair_losses_need_two_images_in_a_random_batch(composed):
    words = ("data=digits", "data.sampler=random", "data.batch_size=1")
    with pytest.raises(
        ConfigError, match=r"data\.batch_size: loss 'ms' compares images .*2 or more"
    ):
        check(composed(*words, "loss=ms"))
    check(composed(*words, "loss=proxy_anchor"))


def test_processes_get_a_batch_of_two_classes_recommended(composed, monkeypatch):
    cfg = composed("data=digits", "loss=ms", "data.batch_size=9", "data.images_per_class=3")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=r"2 processes \(nearest 6, 12\)"):
        check(cfg)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("data=digits", "data.crop=boxes"), "data.crop"),
        (("data=sop", "data.crop=boxes"), "data.crop"),
        (("data=cub", "data.images=highres"), "data.images"),
        (("data=cub", "data.reader.crop=boxes"), "data.reader.crop"),
        (("data=inshop", "data.reader.resolution=highres"), "data.reader.resolution"),
        (("data=cub", "data.crop=boxes", "data.reader.crop=null"), "data.reader.crop"),
    ],
)
def test_images_that_a_dataset_does_not_have_are_named(composed, words, option):
    with pytest.raises(ConfigError) as caught:
        check(composed(*words))
    (problem,) = caught.value.problems
    assert problem.startswith(f"{option}: ")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("data=cars", "data.crop=boxes"), "cars_boxes"),
        (("data=inshop", "data.images=highres"), ""),
    ],
)
def test_other_images_than_the_papers_are_noted(composed, words, name):
    assert any(name or "inshop_highres" in note for note in find_notes(check(composed(*words))))
    assert not any("other ones" in note for note in find_notes(check(composed(words[0]))))
