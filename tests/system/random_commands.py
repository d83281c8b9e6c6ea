"""Random commands: valid ones, and mutations of them at any place of the config."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from dml.config.config_groups import CONFIGS

GROUPS = frozenset(path.name for path in CONFIGS.iterdir() if path.is_dir())
# Choices of the groups; runs must be short, so the network is the small one.
LOSSES = tuple(sorted(path.stem for path in (CONFIGS / "loss").glob("*.yaml")))
METHODS = tuple(sorted(path.stem for path in (CONFIGS / "method").glob("*.yaml")))
PROTOCOLS = tuple(sorted(path.stem for path in (CONFIGS / "protocol").glob("*.yaml")))
OPTIMIZERS = ("adam", "adamw", "rmsprop")
TINY = """\
# @package _global_
device: cpu
protocol: {epochs: 1, steps_per_epoch: 2, evaluate_unit: epochs, evaluate_every: 1}
data: {batch_size: 24, eval_batch_size: 1000}
embedder: {size: 8}
"""
SCALES = {  # files of a search path beside the repository's own
    "tiny": TINY + "backbone: {width: 4}\n",
    "tiny_glyphs": TINY.replace("1000", "1000, reader: {classes: 24, per_class: 6}")
    + "backbone: {width: 4}\n",
    "tiny_folder": TINY + "backbone: {width: 4}\ntransform: {size: 16}\n",
}
FEATURES: dict[str, tuple[str, ...]] = {  # options whose values are names, with some of them
    "precision": ("fp32", "tf32", "bf16"),
    "data.sampler": ("random", "class_stream", "balanced"),
    "data.images_per_class": ("1", "2", "4", "null"),
    "data.cache": ("null", "full", "16"),
    "data.workers": ("0", "1"),
    "data.label_noise": ("0", "0.2"),
    "data.query_gallery": ("split", "none"),
    "channels_last": ("true", "false"),
    "embedder.pooling": ("avg", "max", "avg+max"),
    "embedder.head": ("linear", "linear+relu", "none"),
    "embedder.normalize": ("l2", "clipped", "none"),
    "embedder.layer_norm": ("true", "false"),
    "embedder.freeze_batch_norm": ("true", "false"),
    "evaluation.measures": ("[]", "[w2]", "[regularizer,utilization]", "[positivity]"),
    "evaluation.keep_embeddings": ("true", "false"),
    "transform.augmentation": ("random_resized_crop", "random_affine", "random_crop", "none"),
    "transform.size": ("null", "8", "16"),
    "transform.test_resize": ("null", "8"),
    "protocol.evaluate_unit": ("epochs", "steps"),
    "protocol.repeats": ("1", "2"),
    "optim.warmup_epochs": ("0", "1"),
    "optim.clip_norm": ("null", "1"),
    "optim.schedule": ("null", "{_target_:torch.optim.lr_scheduler.StepLR,step_size:1}"),
    "method.stages": ("null", "1"),
    "method.types": ("[feature]", "[input,embed]"),
    "loss.distance": ("null", "{_target_:pytorch_metric_learning.distances.LpDistance}"),
    "params": ("mlrc", "mft", "ccp", "no_such"),
    "experiment": ("mft_table2", "ccp_table1", "pfml_figure2", "no_such"),
}

NUMBERS = (
    *("0", "1", "-1", "2", "3", "7", "0.5", "1.5", "-0.5", "1e-30", "1e30", "-1e30"),
    *("nan", "inf", "-inf", "1000000000", "9223372036854775807", "9223372036854775808", "1" * 40),
)
STRUCTURES = (
    *("null", "true", "false", "[]", "[1]", "[null]", "[a,b]", "[[1]]", "[-1,nan]", "[1,2,3]"),
    *("{}", "{a:1}", "{a:{b:c}}", "{1:2}", "{_target_:builtins.dict}", "{low:0,high:1}"),
)
WORDS = (
    *("", "abc", "''", "' '", "'3'", "ünïcode", "𝒳", "a/b", "../x", "..", "/dev/null/x", "???"),
    *("x" * 5000, "a b", "a=b", "a:b", "a,b", "1_000", "0x10", "07", "1e3", "-", "*", "%s", "\\n"),
    *("two\nlines", "'two\nlines'", "tab\there", "\u200b", "\x07", "[", "}", "'", "yes", "None"),
)
REFERENCES = (
    *("${seed}", "${nope}", "${loss}", "${data.batch_size}", "${data}", "${a", "$", "${}", "${.}"),
    *("${oc.env:HOME}", "${oc.env:NO_SUCH_NAME}", "${nope:1}", "${oc.select:nope,1}", "${..}"),
    *("${hydra:job.name}", "${now:%Y}", "${oc.decode:'{'}", "a${seed}b", "${seed}${seed}"),
)
SWEEPS = ("1,2", "choice(1,2)", "range(0,3)", "range(1,0)", "interval(0,1)", "glob(*)", "int(3)")
TARGETS = (
    *("", "3", "null", "dml", "dml.losses", "dml.losses.Nothing", "dml..losses", "no.such.module"),
    *("builtins.dict", "builtins.print", "builtins.len", "math.pi", "collections.OrderedDict"),
    *("torch.nn.Linear", "torch.nn.Identity", "torch.Tensor", "torch.optim.LBFGS"),
    *("torch.optim.SparseAdam", "torch.optim.Adadelta", "torch.optim.Optimizer", "torch.zeros"),
    *("torch.optim.lr_scheduler.CosineAnnealingLR", "torch.optim.lr_scheduler.StepLR"),
    *("torch.optim.lr_scheduler.ReduceLROnPlateau", "torch.optim.lr_scheduler.OneCycleLR"),
    *("pytorch_metric_learning.losses.TripletMarginLoss", "pytorch_metric_learning.losses.NCALoss"),
    *("pytorch_metric_learning.losses.BaseMetricLossFunction", "dml.losses.ProxyNCALoss"),
    *("dml.losses.MeanFieldContrastiveLoss", "dml.losses.PotentialFieldLoss"),
    *("dml.methods.plain.Plain", "dml.methods.metrix.Metrix", "dml.data.digits.read_digits"),
    *("dml.models.small_cnn.SmallCNN", "dml.tracking.NullTracker", "dml.config.check.check"),
)
NOISE = (
    "foo",
    "=",
    "=3",
    "loss",
    "~",
    "~loss",
    "+",
    "++seed=1",
    "+seed=1",
    "--nope",
    "seed",
    "@=1",
)


def write_scales(home: Path) -> list[str]:
    """Writes the scales below `home`; returns the words with which a command finds them."""
    for name, content in SCALES.items():
        path = home / "configs" / "scale" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return [f"hydra.searchpath=[file://{home / 'configs'}]"]


def random_command(seed: int, folder: Path) -> list[str]:
    """Returns the words of a command; the same words for the same seed.

    Args:
        seed: of the random choices.
        folder: a few images, for `data=folder`.
    """
    rng = random.Random(seed)
    words = choose(rng, folder)
    for _ in range(rng.choice((0, 1, 1, 1, 1, 2, 2, 3))):
        words.append(mutate(rng, words))
    return words


def choose(rng: random.Random, folder: Path) -> list[str]:
    """Combines choices, which may or may not be compatible, at the smallest scale."""
    data = rng.choice(("digits", "glyphs", "folder"))
    words = [f"loss={rng.choice(LOSSES)}", f"data={data}"]
    if rng.random() < 0.5:
        words.append(f"method={rng.choice(METHODS)}")
    if rng.random() < 0.5:
        words.append(f"protocol={rng.choice(PROTOCOLS)}")
    if rng.random() < 0.2:
        words.append(f"optim={rng.choice(OPTIMIZERS)}")
    if rng.random() < 0.1:
        words += ["search=bayes", "search.trials=2", f"search.sampler={rng.choice(('gp', 'tpe'))}"]
    if rng.random() < 0.05:
        words.append("scale=standin")
        words += ["data.reader.classes=24", "data.reader.per_class=6"] if data == "glyphs" else []
    else:
        words.append("scale=tiny" if data == "digits" else f"scale=tiny_{data}")
    if data == "folder":
        words += ["backbone=small_cnn", f"data.root={folder}"]
    there = option_names(words)
    for name in rng.sample(sorted(FEATURES), rng.choice((0, 1, 2, 3))):
        if name in there or "." not in name:
            words.append(f"{name}={rng.choice(FEATURES[name])}")
    return words


def mutate(rng: random.Random, words: list[str]) -> str:
    """Returns one more word, which overrides earlier ones."""
    names = option_names(words)
    name = rng.choice(names)
    kind = rng.random()
    if kind < 0.45:
        return f"{name}={rng.choice(NUMBERS)}"
    if kind < 0.55:
        return f"{name}={rng.choice(STRUCTURES)}"
    if kind < 0.65:
        return f"{name}={rng.choice(WORDS)}"
    if kind < 0.72:
        return f"{name}={rng.choice((*REFERENCES, '${' + name + '}'))}"
    if kind < 0.75:
        return f"{name}={rng.choice(SWEEPS)}"
    if kind < 0.82:
        targets = [one for one in names if one.endswith("_target_")]
        return f"{rng.choice(targets)}={rng.choice(TARGETS)}"
    if kind < 0.88:
        return f"~{name}"
    if kind < 0.96:
        sign = rng.choice(("", "+", "++"))
        where = rng.choice((misspell(rng, name), f"{name}.{rng.choice('ax1')}", f"{name}_"))
        return f"{sign}{where}={rng.choice((*NUMBERS, *STRUCTURES, *WORDS[:6]))}"
    return rng.choice(NOISE)


def misspell(rng: random.Random, name: str) -> str:
    """Removes, doubles or changes a letter of a name."""
    place = rng.randrange(len(name))
    letter = rng.choice(("", name[place] * 2, rng.choice("aez_.")))
    return name[:place] + letter + name[place + 1 :]


def option_names(words: list[str]) -> list[str]:
    """Dotted names of a command's options and nodes, as listed in the files of its choices."""
    names = set(_names("train", ""))
    for word in words:
        group, _, choice = word.partition("=")
        if choice in _choices(group):
            names |= set(_names(f"{group}/{choice}", group))
    return sorted(name for name in names if not name.startswith(("hydra", "defaults")))


@cache
def _choices(group: str) -> frozenset[str]:
    found = (CONFIGS / group).glob("*.yaml") if group in GROUPS else ()
    return frozenset(path.stem for path in found)


@cache
def _names(file: str, group: str) -> tuple[str, ...]:
    path = CONFIGS / f"{file}.yaml"
    content: Any = OmegaConf.to_container(OmegaConf.load(path))
    whole = file == "train" or "# @package _global_" in path.read_text()
    return tuple(_dotted(content if whole else {group: content}))


def _dotted(node: dict[Any, Any], path: str = "") -> list[str]:
    found = []
    for key, value in node.items():
        found.append(f"{path}{key}")
        if isinstance(value, dict):
            found += _dotted(value, f"{path}{key}.")
    return found
