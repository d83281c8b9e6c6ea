import pytest
import yaml
from omegaconf import OmegaConf

from dml.config.stored_config import read_stored_config


def test_the_same_values_as_pyyaml_reads(composed, tmp_path):
    path = tmp_path / "config.yaml"
    odd = "a: {b: [1e-5, 1.0e-05, .inf, yes, null, '1', 0x1F, 1_000, 2020-01-01], c: {}, d: []}"
    texts = [
        OmegaConf.to_yaml(composed("loss=ms", "protocol=mlrc"), resolve=True),
        odd,
        "&x {a: 1}",
    ]
    for text in texts:
        path.write_text(text)
        assert read_stored_config(path) == yaml.safe_load(text)


@pytest.mark.parametrize("content", [b"a: [", b"\xff", b"- 1", b"", b"a: &x [*x]", b"? [1]\n: 2"])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"\w"):
        read_stored_config(path)
    with pytest.raises(FileNotFoundError):
        read_stored_config(tmp_path / "none")
