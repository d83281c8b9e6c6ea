from dml.runs.folder.run_folder import RunFolder


def test_a_run_keeps_its_name(tmp_path):
    assert RunFolder(tmp_path).run_id() == RunFolder(tmp_path).run_id()
