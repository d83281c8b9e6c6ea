from dml.config.check import check
from dml.config.schema import Config
from dml.runs.folder.run_folder import RunFolder


def test_own_images_name_the_folder_unless_an_older_run_is_there(composed, tmp_path):
    (tmp_path / "birds").mkdir()
    places = (f"outputs={tmp_path}/outputs", f"data.root={tmp_path}/birds")
    cfg = composed("data=folder", "backbone=small_cnn", "transform.size=8", *places)
    config = check(cfg, Config)
    path = RunFolder.of(cfg, config).path
    assert path.parent.name == "birds-validation-mfcwms-plain-small_cnn"
    older = path.parent.with_name("folder-validation-mfcwms-plain-small_cnn") / path.name
    older.mkdir(parents=True)
    assert RunFolder.of(cfg, config).path == older
