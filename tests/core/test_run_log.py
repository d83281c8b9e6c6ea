import logging
import warnings

from dml.core.run_log import run_logger, write_log


def messages(folder):
    """The log without time and process."""
    return [line.split("] ", 1)[-1] for line in (folder / "train.log").read_text().splitlines()]


def test_lines_warnings_and_the_end_are_logged(tmp_path, capfd):
    with write_log(tmp_path, "run"):
        run_logger.info("note: of a run")
        warnings.warn("of python", stacklevel=1)
        logging.getLogger("another.library").warning("of a library")
    note, warning, *_, other, end = messages(tmp_path)
    assert note == "note: of a run"
    assert "UserWarning: of python" in warning
    assert other == "of a library"
    assert end == "run finished after 0:00:00"
    assert not capfd.readouterr().out
