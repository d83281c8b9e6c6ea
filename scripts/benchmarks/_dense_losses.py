"""Reference forms of the losses: dense matrices, as the equations of the papers are printed.

Shapes: B images, D embedding dimensions, C classes, N charges.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize


def mfcwms(
    x_BD: Tensor, labels_B: Tensor, m_CD: Tensor, alpha: float, beta: float, delta: float
) -> Tensor:
    """Returns mft Eq. 10 at λ_MF = 0, with its sum over all C×C pairs of classes."""
    d_BC = 1 - normalize(x_BD) @ normalize(m_CD).T
    classes = torch.arange(len(m_CD), device=labels_B.device)
    member_CB = (classes[:, None] == labels_B).to(d_BC.dtype)
    count_C = member_CB.sum(dim=1)
    mean_CB = member_CB / count_C.clamp_min(1)[:, None]
    present = (count_C > 0).sum()

    p_C = (mean_CB @ (alpha * (d_BC + delta - 1)).exp()).diagonal()
    q_CC = mean_CB @ (-beta * (d_BC + delta - 1)).exp()
    off_diagonal = 1 - torch.eye(len(m_CD), dtype=d_BC.dtype, device=d_BC.device)
    positive = (torch.log1p(p_C) * (count_C > 0)).sum() / alpha
    negative = (torch.log1p(q_CC + q_CC.T) * off_diagonal).sum() / (2 * beta)
    return (positive + negative) / present


def pfml(
    x_BD: Tensor, labels_B: Tensor, proxies: Tensor, per_class: int, alpha: float, delta: float
) -> Tensor:
    """Returns pfml Eq. 6, the potential energy of all N×N pairs of charges."""
    classes = torch.arange(len(proxies) // per_class, device=labels_B.device)
    labels_N = torch.cat([labels_B, classes.repeat_interleave(per_class)])
    z_ND = normalize(torch.cat([x_BD, proxies]))
    r_NN = (2 - 2 * z_ND @ z_ND.T).clamp_min(1e-4).sqrt()
    attraction_NN = -(r_NN.clamp_min(delta) ** -alpha)
    repulsion_NN = r_NN.clamp_max(delta) ** -alpha
    energy_NN = torch.where(labels_N[:, None] == labels_N, attraction_NN, repulsion_NN)
    itself_NN = torch.eye(len(z_ND), dtype=torch.bool, device=z_ND.device)
    return energy_NN.masked_fill(itself_NN, 0).sum()
