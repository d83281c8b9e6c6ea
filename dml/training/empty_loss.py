"""The loss of a method of one's own that answers a batch with 0 and no graph.

Methods of this package connect such a loss with the embeddings (`dml.methods.loss_values`), so that
only weights on their way have gradients; of other methods, only the parameters are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dml.core.errors import UserError
from dml.training.interfaces import EMPTY_STEPS


def connect_to_parameters(
    loss: Any, numbers: Mapping[str, Tensor | float], parameters: Iterable[nn.Parameter]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Returns loss and logs; a 0 without a graph gets gradients of zero, and is counted.

    Args:
        loss: a tensor or number.
        numbers: to log, of the step.
        parameters: of network and method.

    Raises:
        UserError: another number without a graph.
    """
    logs = {name: torch.as_tensor(number) for name, number in numbers.items()}
    if isinstance(loss, Tensor) and loss.grad_fn is not None:
        return loss, logs
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if float(loss) != 0 or not trained:
        raise UserError(
            f"method: its loss of {float(loss):.4g} has no gradient; is it detached, or is nothing "
            f"trained?"
        )
    zero = torch.stack([(0 * parameter).sum().float() for parameter in trained]).sum()
    return zero, {**logs, EMPTY_STEPS: torch.ones_like(zero).detach()}
