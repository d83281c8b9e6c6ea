import pytest
import torch

from dml.core.errors import UserError
from dml.models.embedder import Embedder
from dml.models.small_cnn import SmallCNN
from dml.models.state_dict import read_state_dict


def test_safetensors_and_wrapped_states_are_read(tmp_path):
    from safetensors.torch import save_file

    state = SmallCNN(width=2).state_dict()
    save_file(state, tmp_path / "a.safetensors")
    torch.save({"state_dict": {f"module.{n}": v for n, v in state.items()}}, tmp_path / "b.pth")
    torch.save({"model": state, "epoch": 3}, tmp_path / "c.pth")
    for name in ("a.safetensors", "b.pth", "c.pth"):
        result = read_state_dict(tmp_path / name)
        assert set(result) == set(state)
        assert all(torch.equal(result[n], v) for n, v in state.items())


def test_the_backbone_of_a_whole_embedder_is_read(tmp_path):
    embedder = Embedder(SmallCNN(width=2), 5)
    torch.save(embedder.state_dict(), tmp_path / "embedder.pth")
    result = read_state_dict(tmp_path / "embedder.pth")
    assert set(result) == set(embedder.backbone.state_dict())


def test_files_that_hold_no_weights_are_refused_in_one_line(tmp_path):
    (tmp_path / "text.pth").write_text("<html>\nnot found\n</html>")
    (tmp_path / "text.safetensors").write_text("<html>\nnot found\n</html>")
    torch.save([1, 2], tmp_path / "list.pth")
    torch.save(SmallCNN(), tmp_path / "module.pth")  # pickled code is never run
    for name in ("text.pth", "text.safetensors", "list.pth", "module.pth"):
        with pytest.raises(UserError, match=f"{name} (cannot be read|contains no)") as error:
            read_state_dict(tmp_path / name)
        assert "\n" not in str(error.value)
