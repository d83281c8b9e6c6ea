"""st-tech/mft-in-dml: losses, BN-Inception, image pipeline."""

import torch
from dataset.utils import make_transform
from exchange import Arrays, answer, fill_network, record
from net.bn_inception import bn_inception
from PIL import Image
from torch_losses import compute_losses


def compute(inputs: Arrays) -> Arrays:
    """Returns the outputs of all rows."""
    outputs = compute_losses(inputs)
    network = fill_network(bn_inception(16, False), lambda name: name.removeprefix("model."))
    y = network(torch.from_numpy(inputs["images"]))
    weights = (network.model.conv1_7x7_s2.weight, network.model.embedding.weight)
    outputs |= {"network/output": y.detach().numpy(), **record("network", y.sin().sum(), *weights)}
    torch.set_default_dtype(torch.float32)  # other crops would be drawn
    for i, photo in enumerate(inputs["photos"]):
        for training in (True, False):
            torch.manual_seed(i)
            transform = make_transform(is_train=training, is_inception=True)
            outputs[f"pixels/{i} {training}"] = transform(Image.fromarray(photo)).numpy()
    return outputs


answer(compute)
