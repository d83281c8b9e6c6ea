"""Random commands: choices at the smallest scale, and mutations at any place of their config."""

from __future__ import annotations

import random
from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from dml.config.config_groups import CONFIGS
from dml.config.explain import list_options

CHOICES = {
    group: tuple(sorted(path.stem for path in (CONFIGS / group).glob("*.yaml")))
    for group in ("loss", "method", "protocol")
}
SMALL = """\
# @package _global_
device: cpu
protocol: {epochs: 1, steps_per_epoch: 2, evaluate_unit: epochs, evaluate_every: 1}
data: {batch_size: 24, eval_batch_size: 1000}
embedder: {size: 8}
backbone: {width: 4}
"""
SCALES = {  # files of a search path
    "digits": SMALL,
    "glyphs": SMALL.replace("1000", "1000, reader: {classes: 24, per_class: 6}"),
    "folder": SMALL + "transform: {size: 16}\n",
}
VALUES = (
    *("0", "1", "-1", "2", "7", "0.5", "-0.5", "1e-30", "1e30", "nan", "inf", "1000000000"),
    *("9223372036854775808", "null", "true", "[]", "[1]", "[a,b]", "[[1]]", "[-1,nan]"),
    *("{}", "{a:{b:c}}", "{1:2}", "{_target_:builtins.dict}", "{low:0,high:1}", "", "abc", "''"),
    *("ünïcode", "../x", "/dev/null/x", "???", "a b", "a=b", "1_000", "0x10", "two\nlines", "["),
    *("${seed}", "${nope}", "${loss}", "${data}", "${a", "${oc.env:NO_SUCH_NAME}", "${hydra:job}"),
    *("1,2", "range(0,3)", "range(1,0)", "interval(0,1)", "glob(*)", "int(3)", "none", "full"),
    *("auto", "random", "balanced", "avg+max", "steps", "[nmi]", "bf16", "cosine"),
)
TARGETS = (
    *("", "3", "dml", "dml.losses.Nothing", "no.such.module", "builtins.print", "math.pi"),
    *("torch.nn.Linear", "torch.optim.LBFGS", "torch.optim.SparseAdam", "torch.optim.Optimizer"),
    *("torch.optim.lr_scheduler.OneCycleLR", "pytorch_metric_learning.losses.TripletMarginLoss"),
    *("dml.losses.PotentialFieldLoss", "dml.methods.plain.Plain", "dml.data.digits.read_digits"),
    *("dml.models.small_cnn.SmallCNN", "dml.tracking.NullTracker"),
)
NOISE = ("foo", "=", "=3", "~", "~loss", "+", "+seed=1", "--nope", "@=1", "params=mlrc")


def write_scales(home: Path) -> list[str]:
    """Writes the scales below `home`; returns the words with which a command finds them."""
    for name, content in SCALES.items():
        path = home / "configs" / "scale" / f"tiny_{name}.yaml"
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
    data = rng.choice(sorted(SCALES))
    words = [f"data={data}"]
    words += [f"{group}={rng.choice(CHOICES[group])}" for group in CHOICES if rng.random() < 0.6]
    words += ["search=bayes", "search.trials=2"] if rng.random() < 0.1 else []
    words += ["backbone=small_cnn", f"data.root={folder}"] if data == "folder" else []
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        names = list_options(OmegaConf.to_container(compose("train", words)))
    words.append(f"scale=tiny_{data}")
    return [*words, *(mutate(rng, names) for _ in range(rng.choice((0, 1, 1, 2, 3))))]


def mutate(rng: random.Random, names: list[str]) -> str:
    """Returns one more word, which overrides earlier ones."""
    name = rng.choice(names)
    kind = rng.random()
    if kind < 0.75:
        return f"{name}={rng.choice(VALUES)}"
    if kind < 0.82:
        targets = [one for one in names if one.endswith("_target_")]
        return f"{rng.choice(targets)}={rng.choice(TARGETS)}"
    if kind < 0.88:
        return f"~{name}"
    if kind < 0.96:
        place = rng.randrange(len(name))
        other = name[:place] + rng.choice(("", "a", "_", ".")) + name[place + 1 :]
        return f"{rng.choice(('', '+', '++'))}{other}={rng.choice(VALUES)}"
    return rng.choice(NOISE)
