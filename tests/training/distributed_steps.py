"""What two processes compute for `test_process_group.py`, beside what one computes of the same."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from torch import Tensor, nn

from dml.config.check import check
from dml.config.schema import Config
from dml.core.errors import RunStopped, UserError
from dml.core.installation import CONFIGS
from dml.methods.plain import Plain
from dml.models.backbones import Backbone
from dml.models.embedder import Embedder
from dml.models.small_cnn import SmallCNN
from dml.runs.build import Builder
from dml.training.interfaces import Method, TrainConfig
from dml.training.process_group import SINGLE_PROCESS, STOP_EVERY, ProcessGroup, distributed_session
from dml.training.step import TrainingStep
from dml.training.train_state import TrainState
from tests.methods.tiny_embedder import TinyMaps

LOSSES = sorted({path.stem for path in (CONFIGS / "loss").glob("*.yaml")} - {"custom"})
METHODS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "metrix input": ("contrastive", "metrix", {"types": ["input"]}),
    "metrix feature": ("ms", "metrix", {"types": ["feature"]}),
    "metrix embed": ("proxy_nca", "metrix", {"types": ["embed"]}),
    "metrix of all": ("proxy_anchor", "metrix", {"types": ["input", "feature", "embed"]}),
    "imix": ("contrastive", "imix", {}),
    "mochi": ("contrastive", "mochi", {}),
    "proxy_synthesis": ("proxy_nca_pp", "proxy_synthesis", {}),
    "xbm": ("c1", "xbm", {"start_after": 1}),
    "xbm with a miner": ("ms_miner", "xbm", {"start_after": 1}),
}
NETWORKS = (
    "frozen",
    "bf16",
    "clipped",
    "warm-up",
    "unused",
    "micro-batches",
    "empty",
    "all empty",
    "empty micro-batches",
)
CASES = [*LOSSES, *METHODS, *NETWORKS]
STEPS = 3
LABELS = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 3, 0, 3, 1])


class Unused(Method):
    """A method with a parameter that every other step uses, and one that none uses."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method
        self.sometimes, self.never = (nn.Parameter(torch.ones(3)) for _ in range(2))
        self._steps = 0

    def forward(self, *batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        loss, logs = self.method(*batch)
        self._steps += 1
        return loss * self.sometimes.mean() if self._steps % 2 else loss, logs


class Empty(nn.Module):
    """A loss with proxies that returns 0 without a graph in some steps."""

    def __init__(self, steps: set[int]) -> None:
        super().__init__()
        self.proxies = nn.Parameter(torch.eye(4, 5))
        self.steps, self._step = steps, -1

    def forward(self, x: Tensor, labels: Tensor) -> Any:
        self._step += 1
        if self._step in self.steps:
            return 0
        return (x - self.proxies[labels]).square().sum(dim=1).mean()


def method_of(case: str) -> Method:
    if "empty" in case:
        return Plain(Empty({0, 1, 2} if "all" in case else {1}))
    method: Method = Builder(config_of(case)).method(4, 5)
    return Unused(method) if case == "unused" else method


def config_of(case: str) -> Config:
    """The files of loss and method in a config; composing one per case would take a minute."""
    name, method, changes = METHODS.get(case, (case if case in LOSSES else "mfcwms", "plain", {}))
    nodes = OmegaConf.load(CONFIGS / "loss" / f"{name}.yaml")
    node = OmegaConf.load(CONFIGS / "method" / f"{method}.yaml")
    nodes.method = node.get("method", node)
    nodes.method.update(changes)
    plain = OmegaConf.to_container(nodes, resolve=True)
    assert isinstance(plain, dict)
    return default_config().model_copy(update={"loss": plain["loss"], "method": plain["method"]})


@cache
def default_config() -> Config:
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return check(compose("train", ["data=digits"]))


def trained(
    case: str, world: ProcessGroup, device: str = "cpu", micro_batch: int | None = None
) -> dict[str, Tensor]:
    """Gradients of the first step, loss, weights and buffers after the last, by name."""
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(3)
    images = torch.randn(STEPS, len(LABELS), 3, 8, 8)
    images += LABELS.view(1, -1, 1, 1, 1)  # classes that differ
    backbone: Backbone = SmallCNN(width=2) if case in NETWORKS else TinyMaps()
    embedder = Embedder(backbone, 5, pooling="avg+max", freeze_batch_norm=True)
    embedder = embedder.to(device)
    method = method_of(case).to(device)
    parameters = [p for m in (embedder, method) for p in m.parameters() if p.requires_grad]
    # pfml's gradients are so large that a step of this rate would be a leap into the unknown
    optimizer = torch.optim.SGD(parameters, lr=1e-4 if case == "pfml" else 0.05, momentum=0.9)
    clip = 1e-2 if case == "clipped" else None
    options = {"micro_batch": 4 if "micro-batches" in case else micro_batch, "clip_norm": clip}
    plan = TrainConfig(1, 1, 1, precision="bf16" if case == "bf16" else "fp32", **options)
    step = TrainingStep(TrainState(embedder, method, optimizer), plan, world)
    own = world.local_slice(len(LABELS))
    found: dict[str, Tensor] = {}
    for number in range(STEPS):
        batch = images[number][own].to(device), LABELS[own].to(device)
        values = step(*batch, case == "warm-up" and number < 2)
        found[f"loss {number}"] = values["loss"]
        if number == 0:
            found |= {
                f"gradient of {name}": p.grad.clone()
                for module in (embedder, method)
                for name, p in module.named_parameters()
                if p.grad is not None
            }
    if case == "bf16":  # sums of rounded numbers; what does not depend on them
        return {
            name: found[name] for name in found if name.startswith(("loss", "gradient of head"))
        }
    for module in (embedder, method):
        found |= {k: v for k, v in module.state_dict().items() if isinstance(v, Tensor)}
    state = method.state_dict().get("_extra_state", {})
    return found | {k: v for k, v in state.items() if isinstance(v, Tensor)}


def differences(cases: Sequence[str] = CASES) -> dict[str, Any]:
    """Per case the largest relative difference of a tensor; then what else `ProcessGroup` does."""
    with distributed_session("cpu") as world:
        found: dict[str, Any] = {case: difference(case, world) for case in cases}
        return found | exchanges(world)


def difference(case: str, world: ProcessGroup) -> list[Any]:
    """[largest relative difference, its tensor, how many tensors were compared]."""
    # float64: rounding of float32 makes a difference of its own, a thousandfold in some losses
    torch.set_default_dtype(torch.float32 if case == "bf16" else torch.float64)
    try:
        two, one = trained(case, world), trained(case, SINGLE_PROCESS)
    finally:
        torch.set_default_dtype(torch.float32)
    assert two.keys() == one.keys(), two.keys() ^ one.keys()
    worst = max(one, key=lambda name: relative(two[name], one[name]))
    return [relative(two[worst], one[worst]), worst, len(one)]


def relative(a: Tensor, b: Tensor) -> float:
    scale = max(b.double().norm().item(), 1e-3)
    return (a.double() - b.double()).norm().item() / scale


def exchanges(world: ProcessGroup) -> dict[str, Any]:
    """What `ProcessGroup` does beside averaging gradients."""
    whole = torch.arange(15.0).view(5, 3)
    uneven = whole[world.local_slice(5)].requires_grad_()
    gathered = world.gather(uneven, 5)
    (gathered * whole).sum().backward()  # on both: the gradient is twice what it is of one
    assert uneven.grad is not None
    main_only = {}
    for length in (1, 4, 5):  # a rank without rows, and parts of equal and other sizes
        rows = world.gather_on_main(whole[:length][world.local_slice(length)], length)
        main_only[str(length)] = rows.tolist()
    sizes_unknown = world.gather_variable(whole[: 1 + world.rank])
    ask = world.share_stop_request(lambda: RunStopped("time", 75) if world.rank else None)
    stops = [ask() for _ in range(STOP_EVERY)]

    # a loss that is empty on one process only: the other's gradient is halved, on both
    loss, network = Empty({0} if world.rank else set()), Embedder(TinyMaps(), 5)
    trained_on = torch.optim.SGD([*network.parameters(), *loss.parameters()], lr=0.1)
    for parameter in network.parameters():
        torch.distributed.broadcast(parameter.detach(), 0)
    step = TrainingStep(TrainState(network, Plain(loss), trained_on), TrainConfig(1, 1, 1), world)
    own = world.local_slice(len(LABELS))
    one_empty = step(torch.ones(len(LABELS), 3, 8, 8)[own], LABELS[own], False)
    gradients = [p.grad.norm().item() for p in network.parameters() if p.grad is not None]

    def rank() -> int:
        return world.rank

    return {
        "gathered": torch.equal(gathered, whole),
        "adjoint": torch.equal(uneven.grad, 2 * whole[world.local_slice(5)]),
        "main_only": main_only,
        "sizes_unknown": sizes_unknown.tolist(),
        "stops": [None if stop is None else stop.status for stop in stops],
        "one_empty": [*gradients, loss.proxies.grad.norm().item()],  # type: ignore[union-attr]
        "counted": "empty_steps" in one_empty,
        "failed": problem(lambda: world.broadcast_from_main(fails)),
        "called": [world.broadcast_from_main(rank), world.run_main_first(rank)],
    }


def problem(work: Any) -> str | None:
    try:
        work()
    except UserError as error:
        return f"{error.repeated} {error}"
    return None


def fails() -> None:
    raise UserError("data: it is not there")
