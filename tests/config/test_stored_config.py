import pytest
import yaml
from omegaconf import OmegaConf

from dml.config.stored_config import read_stored_config


def test_the_values_of_a_config(composed, tmp_path):
    path = tmp_path / "config.yaml"
    text = OmegaConf.to_yaml(composed("loss=ms", "protocol=mlrc"), resolve=True)
    path.write_text(text)
    assert read_stored_config(path) == yaml.safe_load(text)


@pytest.mark.parametrize("content", [b"a: [", b"\xff", b"- 1", b"", b"? [1]\n: 2"])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"\w"):
        read_stored_config(path)
    with pytest.raises(FileNotFoundError):
        read_stored_config(tmp_path / "none")
