"""Words in another order, and options without dashes: one line says what to write."""

import pytest

from dml.cli.program import main
from dml.config.command_line import refuse_root_without_data
from dml.core.errors import ConfigError

EMBED = "dml embed <network> <images> <output file>"
EXPORT = "dml export <run> <folder>"
SEARCH = "dml search <file> <queries>"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a run, photos and their embeddings by name only."""
    monkeypatch.chdir(tmp_path)
    for name in ("run", "photos"):
        (tmp_path / name).mkdir()
    for name in ("run/config.yaml", "photos/a.png", "photos.npz"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("embed run data=emoji data.root=x x.npz",
         f"data.root=x: options stand after the output file: {EMBED} data.root=x"),
        ("embed run photos data.background=red x.npz",
         f"data.background=red: options stand after the output file: {EMBED} data.background=red"),
        ("embed precision=bf16 timm:x photos x.npz",
         f"precision=bf16: options stand after the output file: {EMBED} precision=bf16"),
        ("embed run photos data=emoji",
         f"data=emoji: options stand after the output file: {EMBED} data=emoji"),
        ("embed photos run x.npz", f"run: the run is the first word: {EMBED}"),
        ("embed run x.npz photos", f"x.npz: the output file is the third word: {EMBED}"),
        ("embed run=run photos x.npz", "run=run: write run, without run="),
        ("embed network=run photos x.npz", "network=run: write run, without network="),
        ("embed run photos output=x.npz", "output=x.npz: write x.npz, without output="),
        ("embed run photos x.npz features", "features: write --features"),
        ("embed run photos x.npz batch_size=3", "batch_size=3: write --batch-size 3"),
        ("embed run photos x.npz Float16=true", "Float16=true: write --float16"),
        ("export net run", f"run: the run is the first word: {EXPORT}"),
        ("export run=run net", "run=run: write run, without run="),
        ("export run folder=net", "folder=net: write net, without folder="),
        ("export run folder=", "folder=: write <folder>, without folder="),
        ("export run net onnx", "'onnx' is one word too many; write --onnx"),
        ("search photos/a.png photos.npz",
         f"photos.npz: the file of embeddings is the first word: {SEARCH}"),
        ("search 17 photos.npz", f"photos.npz: the file of embeddings is the first word: {SEARCH}"),
        ("search embeddings=photos.npz 1",
         "embeddings=photos.npz: write photos.npz, without embeddings="),
        ("search photos.npz query=1", "query=1: write 1, without query="),
        ("search photos.npz 1 k=3", "k=3: write -k 3"),
        ("search photos.npz 1 k", "k: write -k <value>"),
        ("search photos.npz 1 --K 3", "--K: no such option; did you mean '-k'?"),
        ("search photos.npz 1 picture", "picture: write --picture <file>.png"),
        ("search photos.npz 1 index", "index: write --index=FACTORY"),
        ("search photos.npz 1 --index HNSW32", "HNSW32: write --index=HNSW32"),
        ("evaluate photos.npz",
         "photos.npz: not of the form option=value; write embeddings=photos.npz"),
        ("evaluate embeddings=photos",
         "embeddings: photos cannot be read (a folder, not a regular file); dml embed makes a file "
         "of embeddings of a folder"),
        ("prepare data=cub", "'data=cub' is not a dataset; write dml prepare cub"),
        ("prepare data=cub for", "'data=cub' is not a dataset; write dml prepare for data=cub"),
        ("prepare experiment=mft_table2",
         "'experiment=mft_table2' is not a dataset; write dml prepare for experiment=mft_table2"),
        ("prepare dataset=cub", "dataset=cub: write cub, without dataset="),
        ("prepare cub,sop", "'cub,sop' is not a dataset; one dataset at a time, or all"),
        ("prepare folder photos", "photos: write --root photos"),
        ("prepare folder data.root=x", "data.root=x: write --root x"),
        ("prepare for data=digits backbone=small_cnn list", "list: write --list"),
        ("prepare folder --root fotos", "--root: fotos does not exist; did you mean 'photos'?"),
        ("prepare folder --check",
         "--root: data does not exist; give the folder or CSV file of your images"),
        ("prepare folder root=x", "root=x: write --root x"),
        ("prepare folder check", "check: write --check"),
        ("prepare cub loss=ms", "loss=ms: options of train are for prepare for"),
        ("plan data=cub mft_table2",
         "data=cub: options stand after the experiment: dml plan <experiment> data=cub"),
        ("plan experiment=mft_table2",
         "experiment=mft_table2: write mft_table2, without experiment="),
        ("plan mft_table2 runs=photos", "runs=photos: write --runs photos"),
        ("report experiment=single", "experiment=single: write single, without experiment="),
        ("report single latex", "latex: write --latex"),
        ("runs data=cub best",
         "best: an action stands before the conditions: dml runs best <conditions>"),
        ("runs json", "json: write --json"),
        ("check /shared", "/shared: no such option; write outputs=/shared"),
    ],
)  # fmt: skip
def test_a_line_says_what_to_write(words, line, folder, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["dml", *words.split()])
    assert main(words.split()) in (1, 2)
    err = capsys.readouterr().err.replace("python -m dml", "dml")
    assert err == f"error: {line}\n"
    assert sorted(path.name for path in folder.iterdir()) == ["photos", "photos.npz", "run"]


def test_all_options_without_dashes_have_a_line(folder, capsys):
    assert main(["search", "photos.npz", "1", "k=3", "csv", "photos/a.png"]) == 2
    assert capsys.readouterr().err == "error: k=3: write -k 3\nerror: csv: write --csv\n"


def test_files_with_such_names_are_words_like_others(folder, capsys):
    """The word is the path of an image, which is missing in the empty file of embeddings."""
    (folder / "k=3").touch()
    assert main(["search", "photos.npz", "k=3"]) == 1
    assert "photos.npz" in capsys.readouterr().err
    (folder / "data.root=x").mkdir()
    assert main(["embed", "nowhere", "data.root=x", "x.npz"]) == 2
    assert capsys.readouterr().err.startswith("error: run: nowhere is not a run folder")


def test_glyphs_are_drawn_into_their_own_folder_or_where_they_are_asked_for(folder):
    with pytest.raises(ConfigError, match="add data=folder"):
        refuse_root_without_data(["data.root=photos"])
    with pytest.raises(ConfigError, match="add data=folder"):
        refuse_root_without_data(["data.root=photos.npz"])
    (folder / "empty").mkdir()
    for root in ("empty", "misspelled"):
        with pytest.raises(ConfigError, match="data=glyphs to draw them there"):
            refuse_root_without_data([f"data.root={root}"])
    for words in (["data=cub"], ["data=folder"], ["data=glyphs"], ["experiment=mft_table2"]):
        refuse_root_without_data([*words, "data.root=photos"])
    (folder / "photos" / "glyphs").mkdir()
    refuse_root_without_data(["data.root=photos"])
