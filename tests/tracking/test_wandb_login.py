"""Refusals of W&B are one line, said before data are read."""


def refused(command_line, tmp_path, *words):
    outputs = tmp_path / "o"
    status, _, err = command_line("tracking=wandb", f"outputs={outputs}", "data=cub", *words)
    assert status != 0
    assert not outputs.exists()
    (line,) = err.strip().splitlines()
    return line


def test_no_key(command_line, service, tmp_path):
    service.key = False
    line = refused(command_line, tmp_path)
    assert line.startswith("error: tracking.mode: online needs a key")
    assert "WANDB_API_KEY" in line
    assert "tracking.mode=offline" in line


def test_a_refused_key(command_line, service, tmp_path, monkeypatch):
    def login(**options):
        raise ValueError("API key must have 40+ characters\nlong story")

    monkeypatch.setattr(service, "login", login)
    line = refused(command_line, tmp_path)
    assert line.startswith("error: tracking: W&B refuses the key: API key must have 40+ ")
