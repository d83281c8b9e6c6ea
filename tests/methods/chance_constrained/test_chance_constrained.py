"""CCP's stages, pull, patience and state, on a network of two layers and as whole runs."""

from __future__ import annotations

import copy

import pytest
import torch
from pytorch_metric_learning.losses import TripletMarginLoss

from dml.core.errors import RunStopped
from dml.losses import C1Loss, C2Loss
from dml.losses.distances import clip_to_ball
from dml.methods.chance_constrained import ChanceConstrained
from dml.methods.chance_constrained.k_center import embed_pool
from dml.runs.folder.run_folder import RunFolder
from tests.methods.tiny_training import Pool, TinyEmbedder, images_of
from tests.runs.small_runs import rows
from tests.system.finished_runs import results_of

LABELS = torch.arange(4).repeat_interleave(5)
IMAGES = images_of(LABELS)


def method_with(pool=None, loss=None, **options):
    options = {"proxies_per_class": 2, "pool_size": 4, **options}
    method = ChanceConstrained(loss or C2Loss(), None, 4, 3, **options)
    method.attach(pool or Pool(IMAGES, LABELS))
    return method.train()


def train(embedder, method, optimizer, steps, scores=()):
    """Full-batch steps, each followed by an evaluation with the next of `scores`."""
    losses = []
    scores = iter(scores)
    for _ in range(steps):
        loss, _ = method(embedder, IMAGES, LABELS)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        method.after_backward(embedder)
        optimizer.step()
        losses.append(loss.item())
        score = next(scores, None)
        if score is not None:
            method.on_evaluation(embedder, score)
    return losses


def weights(module):
    return {name: p.detach().clone() for name, p in module.named_parameters()}


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("loss", [C1Loss(), C2Loss(), TripletMarginLoss(0.2)])
def test_without_pull_weight_and_stages_it_is_plain_proxy_training(loss):
    torch.manual_seed(0)
    embedder = TinyEmbedder()
    twin = copy.deepcopy(embedder)
    method = method_with(loss=loss, lambda_pull=0.0, batch_pairs_weight=0.0, stages=1)
    optimizer = torch.optim.Adam([*embedder.parameters(), *method.parameters()], lr=0.05)
    losses = train(embedder, method, optimizer, 12, scores=[0.0] * 12)

    start = method_with(loss=loss)
    start(twin, IMAGES, LABELS)  # picks the same first proxies
    proxies = start.proxies.detach().clone().requires_grad_()
    plain = torch.optim.Adam([*twin.parameters(), proxies], lr=0.05)
    for expected in losses:
        value = method.loss(
            twin(IMAGES),
            LABELS,
            ref_emb=proxies if method.loss_clips else clip_to_ball(proxies),
            ref_labels=torch.arange(4).repeat_interleave(2),
        )
        assert value.item() == expected
        plain.zero_grad()
        value.backward()
        plain.step()
    assert losses[-1] < losses[0]
    assert equal(weights(embedder), weights(twin))
    assert torch.equal(method.proxies, proxies)


def test_pairs_of_the_batch_count_with_their_weight():
    embedder = TinyEmbedder()
    alone, with_pairs = method_with(batch_pairs_weight=0.0), method_with(batch_pairs_weight=0.3)
    without, _ = alone(embedder, IMAGES, LABELS)
    both, _ = with_pairs(embedder, IMAGES, LABELS)
    torch.testing.assert_close(both - without, 0.3 * C2Loss()(embedder(IMAGES), LABELS))


def in_stage_one(lambda_pull=2e-4, **options):
    """A method one step into stage 1, its network, and θ*."""
    torch.manual_seed(1)
    embedder = TinyEmbedder()
    method = method_with(lambda_pull=lambda_pull, stage_patience=1, **options)
    optimizer = torch.optim.SGD([*embedder.parameters(), *method.parameters()], lr=0.1)
    train(embedder, method, optimizer, 1, scores=[0.5])
    best = weights(embedder)
    train(embedder, method, optimizer, 2, scores=[0.4])  # worse: the second step begins stage 1
    return embedder, method, best


def test_pull_is_lambda_times_the_way_from_the_best_weights():
    embedder, method, best = in_stage_one(lambda_pull=0.7)
    embedder.head.bias.requires_grad_(False)
    loss, _ = method(embedder, IMAGES, LABELS)
    parameters = [*embedder.parameters(), method.proxies]
    for p in parameters:
        p.grad = None
    loss.backward()
    before = [None if p.grad is None else p.grad.clone() for p in parameters]
    method.after_backward(embedder)
    for (name, p), old in zip(embedder.named_parameters(), before[:-1], strict=True):
        if name == "head.bias":
            assert p.grad is None
        else:
            assert torch.equal(p.grad, torch.add(old, p.detach() - best[name], alpha=0.7))
            assert not torch.equal(p.grad, old)
    assert torch.equal(method.proxies.grad, before[-1])


def test_stages_start_from_the_last_weights_and_the_best_proxies():
    torch.manual_seed(2)
    embedder, starts = TinyEmbedder(), []
    pool = Pool(IMAGES, LABELS)
    method = method_with(pool, stage_patience=2)
    method.on_stage = starts.append
    optimizer = torch.optim.Adam([*embedder.parameters(), *method.parameters()], lr=0.05)
    train(embedder, method, optimizer, 2, scores=[0.3, 0.5])
    best_weights, best_proxies = weights(embedder), method.proxies.detach().clone()
    train(embedder, method, optimizer, 2, scores=[0.5, 0.4])
    last, moments = weights(embedder), copy.deepcopy(optimizer.state_dict()["state"])

    method(embedder, IMAGES, LABELS)  # begins stage 1
    assert pool.asked == [(4, 0), (4, 1)]
    assert [start.stage for start in starts] == [0, 1]
    assert not starts[0].converged.any()
    assert torch.equal(starts[1].converged.flatten(0, 1), best_proxies)
    assert torch.equal(starts[1].proxies.flatten(0, 1), method.proxies)
    assert not torch.equal(method.proxies, best_proxies)
    assert equal(method.get_extra_state()["anchor"], best_weights)
    assert equal(weights(embedder), last)
    for number, state in optimizer.state_dict()["state"].items():
        assert equal(state, moments[number])


def test_patience_of_a_stage_counts_from_its_start_and_ignores_tiny_gains():
    embedder, pool = TinyEmbedder(), Pool(IMAGES, LABELS)
    method = method_with(pool, stage_patience=2)
    optimizer = torch.optim.SGD([*embedder.parameters(), *method.parameters()], lr=0.01)
    scores = [0.5, 0.500009, 0.4, 0.1, 0.2, 0.3, 0.3, 0.3, 0.9]
    stages = []
    for score in scores:
        train(embedder, method, optimizer, 1)
        noted = method.on_evaluation(embedder, score)
        stages.append((noted["stage"], noted["stage_steps"]))
    assert stages == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (2, 1)]
    assert [number for _, number in pool.asked] == [0, 1, 2]


@pytest.mark.parametrize("stages", [1, 2, None])
def test_stages_end_at_their_number(stages):
    embedder = TinyEmbedder()
    method = method_with(stage_patience=1, stages=stages)
    optimizer = torch.optim.SGD([*embedder.parameters(), *method.parameters()], lr=0.01)
    train(embedder, method, optimizer, 1)
    numbers = []
    for score in (0.5, 0.4, 0.4, 0.3, 0.3, 0.2):
        numbers.append(method.on_evaluation(embedder, score)["stage"])
        train(embedder, method, optimizer, 1)
    assert numbers == [min(number, (stages or 9) - 1) for number in (0, 0, 1, 1, 2, 2)]


def test_radii_are_those_of_clipped_vectors():
    embedder = TinyEmbedder(scale=30.0)
    method = method_with(stage_patience=1)
    optimizer = torch.optim.SGD(embedder.parameters(), lr=0.0)
    train(embedder, method, optimizer, 1)
    noted = method.on_evaluation(embedder, 0.5)
    assert noted["radius_before"] == pytest.approx(1.0)  # from the origin
    assert 0 < noted["radius_after"] <= 2
    assert method.proxies.norm(dim=1).max() > 2  # while proxies are picked unclipped


def mean_radius(pool_CnD, centers_CmD):
    """The largest distance of a class's pool to its nearest center, averaged over classes."""
    pairs = zip(pool_CnD, centers_CmD, strict=True)
    return float(torch.stack([torch.cdist(*pair).amin(dim=1).amax() for pair in pairs]).mean())


def clipped(x_CnD):
    return x_CnD / x_CnD.norm(dim=2, keepdim=True).clamp(min=1)


def test_radii_are_those_of_old_proxies_and_of_old_and_new_ones():
    torch.manual_seed(0)
    embedder, expected, noted = TinyEmbedder(scale=3.0), [], []
    method = method_with(stage_patience=1, proxies_per_class=1)

    def note(start):
        pool = clipped(embed_pool(embedder, Pool(IMAGES, LABELS)(4, start.stage), 4))
        old, new = clipped(start.converged), clipped(start.proxies)
        both = torch.cat([old, new], dim=1) if start.stage else new
        expected.append((mean_radius(pool, old), mean_radius(pool, both)))

    method.on_stage = note
    optimizer = torch.optim.SGD([*embedder.parameters(), *method.parameters()], lr=0.1)
    for score in (0.5, 0.4, 0.6, 0.5):
        train(embedder, method, optimizer, 1)
        columns = method.on_evaluation(embedder, score)
        noted.append((columns["radius_before"], columns["radius_after"]))
    assert noted == [pytest.approx(expected[stage], rel=1e-5) for stage in (0, 0, 1, 1)]
    assert noted[2][1] < noted[2][0]


@pytest.mark.parametrize(("min_delta", "ends"), [(0.0, 5), (0.1, 3), (0.5, 2)])
def test_the_least_gain_of_a_stage_is_an_option(min_delta, ends):
    embedder = TinyEmbedder()
    method = method_with(stage_patience=1, min_delta=min_delta)
    optimizer = torch.optim.SGD(embedder.parameters(), lr=0.0)
    stages = []
    for score in (0.2, 0.5, 0.55, 0.56, 0.5, 0.0):
        train(embedder, method, optimizer, 1)
        stages.append(method.on_evaluation(embedder, score)["stage"])
    assert stages.index(1) == ends


def test_a_state_is_that_of_its_evaluations():
    """A continued method notes, ends and starts stages as the whole one; scoring is no step."""
    torch.manual_seed(3)
    embedder = TinyEmbedder(scale=3.0)
    method = method_with(stage_patience=2)
    optimizer = torch.optim.SGD([*embedder.parameters(), *method.parameters()], lr=0.1)
    train(embedder, method, optimizer, 5, scores=[0.5, 0.4, 0.3, 0.6, 0.2])  # one in stage 1
    continued = method_with(stage_patience=2)
    continued.load_state_dict(copy.deepcopy(method.state_dict()))
    noted = []
    for some in (method, continued):
        some.eval()(embedder, IMAGES, LABELS)
        noted.append([some.on_evaluation(embedder, score) for score in (0.1, 0.0)])
        noted[-1].append(some.get_extra_state()["stage_is_over"])
    assert noted[0] == noted[1]
    assert noted[0][0]["radius_before"] > noted[0][0]["radius_after"] > 0
    assert noted[0][0]["stage_steps"] == 2


# Whole runs


SMALL = (
    *("method=ccp", "method.stage_patience=1", "method.proxies_per_class=2"),
    *("method.pool_size=3", "method.lambda_pull=0.1", "data.batch_size=64"),
    *("protocol.steps_per_epoch=3", "protocol.epochs=8"),
)


@pytest.mark.parametrize("loss", ["c1", "c2", "ms", "triplet"])
def test_every_loss_of_the_paper_runs_through_stages(run_tiny, loss):
    summary, folder = run_tiny(*SMALL, "protocol.epochs=4", f"loss={loss}")
    assert summary["result_id"] == f"{loss}_ccp_l"
    untrained, first, *_ = rows(folder)
    assert (untrained["stage"], first["stage"]) == ("", "0")
    assert float(first["radius_after"]) < float(first["radius_before"])
    assert first["lr_loss"] == first["lr_backbone"]


def test_resuming_at_any_step_changes_nothing(run_tiny, tmp_path):
    words = (*SMALL, "loss=c2")
    _, folder = run_tiny(*words)
    stages = [int(row["stage"] or -1) for row in rows(folder)]
    assert max(stages) >= 2
    whole = results_of(RunFolder(folder))
    folder.rename(tmp_path / "whole")
    for _ in range(3 * stages.index(1) + 1):  # to the second step of the second stage
        with pytest.raises(RunStopped):
            run_tiny(*words, "max_minutes=1e-9")
    run_tiny(*words)
    assert results_of(RunFolder(folder)) == whole


@pytest.mark.parametrize("protocol", ["mlrc", "conventional"])
@pytest.mark.parametrize(
    ("data", "proxies", "pool", "memory"),
    [("cub", 8, 12, 25), ("cars", 8, 12, 25), ("inshop", 4, 7, 400), ("sop", 4, 7, 1400)],
)
def test_sizes_of_the_paper_belong_to_the_data_under_any_protocol(
    composed, protocol, data, proxies, pool, memory
):
    words = (f"protocol={protocol}", f"data={data}", "loss=c1")
    ccp, xbm = composed(*words, "method=ccp").method, composed(*words, "method=xbm").method
    assert [ccp.proxies_per_class, ccp.pool_size, xbm.memory_batches] == [proxies, pool, memory]
