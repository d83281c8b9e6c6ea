"""`dml prepare for …`: what the runs of a command need, from a server that plays hub and hosts."""

import pytest
import timm
import torch
from safetensors.torch import save_file

from dml.core.timm_records import find_record
from dml.data.preparation.sources import SOURCES
from dml.models import timm_weights
from tests.commands import evaluate, prepare, train
from tests.conftest import TINY
from tests.core.servers import Behavior, serving
from tests.data.trees import class_folders

MODEL = "test_vit.r160_in1k"
NETWORK = ("backbone=timm", f"backbone.model={MODEL}", "backbone.input_size=32")
SMALL = tuple(word for word in TINY if not word.startswith("backbone"))
DEAD = "http://127.0.0.1:9"


@pytest.fixture
def use_hub(tmp_path, monkeypatch):
    """Makes an address that of the hub; all caches are empty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    timm_weights._say.cache_clear()
    find_record.cache_clear()

    def use(address):
        template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)

    yield use
    find_record.cache_clear()


@pytest.fixture
def models(tmp_path):
    folder = tmp_path / "models" / "timm" / MODEL
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    save_file(timm.create_model("test_vit").state_dict(), folder / "model.safetensors")
    return tmp_path / "models"


@pytest.mark.promise(
    "guides/without_internet.md",
    "everything was prepared: a training run makes no request",
)
def test_after_the_preparation_a_training_makes_no_request(models, use_hub, capsys):
    behavior = Behavior(hub=True)
    words = ["data=digits", *NETWORK]
    with serving(models, behavior) as address:
        use_hub(address)
        size = (models / "timm" / MODEL / "model.safetensors").stat().st_size
        assert prepare(["for", *words]) == 0
        assert capsys.readouterr().out.splitlines() == [
            "runs: 1, datasets: 1, networks: 1",
            f"weights of {MODEL}: timm/{MODEL}/model.safetensors, {size:,} bytes",
            f"to download: {size:,} bytes",
            f"weights of {MODEL}: ready",
            "digits: 1,797 images",
        ]
        asked = len(behavior.requests), len(behavior.questions)
        assert asked[0] == 1
        assert prepare(["for", *words, "--check"]) == 0
        assert prepare(["for", *words]) == 0
        assert "to download: 0 bytes" in capsys.readouterr().out
        assert train([*SMALL, *NETWORK, "protocol.epochs=1", "transform.size=32"]) == 0
        assert (len(behavior.requests), len(behavior.questions)) == asked
    use_hub(DEAD)
    assert prepare(["for", *words, "--check"]) == 0


def test_an_experiment_with_further_options_needs_each_thing_once(use_hub, capsys):
    use_hub(DEAD)
    words = ["experiment=mft_table1", "data=cub,sop", "backbone=bn_inception,resnet50", "loss=ms"]
    assert prepare(["for", *words, "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(", datasets: 2, networks: 2")
    for name in ("weights of bn_inception:", "weights of resnet50:", "cub:", "sop:"):
        assert lines.count(name) == 1
    text = "\n".join(lines)
    for name in ("cub", "sop"):
        for file in SOURCES[name].files:
            assert all(f"    {address}\n" in f"{text}\n" for address in file.addresses)
    assert "bn_inception-52deb4733.pth" in text
    assert (
        "timm/resnet50.tv_in1k of the hub (HF_HOME, HF_ENDPOINT), compared with the sha256 that"
        in text
    )
    assert "0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a" in text


def test_each_weights_of_a_network_are_prepared(tmp_path, use_hub, capsys):
    use_hub(DEAD)
    torch.save(timm.create_model("test_vit").state_dict(), tmp_path / "a.pth")
    words = ["data=digits", *NETWORK, "backbone.weights=a.pth,b.pth", "loss=ms,nca"]
    assert prepare(["for", *words, "--check"]) == 1
    text, error = capsys.readouterr()
    assert text.startswith("runs: 4, datasets: 1, networks: 2\n")
    assert "backbone.weights=b.pth is not a file" in error


@pytest.mark.parametrize("mode", [[], ["--check"]])
@pytest.mark.parametrize(
    ("content", "message"),
    [(b"x" * 100, "cannot be read"), ({"a": torch.zeros(2)}, "cannot be made from mine.pth")],
)
def test_a_file_of_the_user_is_loaded_into_its_network(
    mode, content, message, tmp_path, use_hub, capsys
):
    use_hub(DEAD)
    file = tmp_path / "mine.pth"
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        torch.save(content, file)
    words = ["data=digits", *NETWORK, "backbone.weights=mine.pth"]
    assert prepare(["for", *words, *mode]) == 1
    printed, error = capsys.readouterr()
    assert f"weights of {MODEL}" not in printed
    assert message in error
    torch.save(timm.create_model("test_vit").state_dict(), file)
    assert prepare(["for", *words, *mode]) == 0
    assert f"weights of {MODEL}: " in capsys.readouterr().out


def test_a_network_without_a_file_is_said_to_need_none(use_hub, capsys):
    use_hub(DEAD)
    assert prepare(["for", "data=digits", "backbone=small_cnn"]) == 0
    assert "weights of small_cnn: no file to download\n" in capsys.readouterr().out
    assert prepare(["weights", "--backbone", "small_cnn"]) == 0
    assert capsys.readouterr().out == "weights of small_cnn: no file to download\n"
    assert prepare(["weights", "--backbone", "timm"]) == 2
    assert "--backbone timm: name the network, --backbone timm:<model>" in capsys.readouterr().err


def test_weights_of_a_network_end_with_ready(models, use_hub, capsys):
    with serving(models, Behavior(hub=True)) as address:
        use_hub(address)
        assert prepare(["weights", "--backbone", f"timm:{MODEL}"]) == 0
    assert capsys.readouterr().out.endswith(f"weights of timm:{MODEL}: ready\n")


def test_what_is_not_there_is_listed_and_nothing_is_asked(models, use_hub, capsys):
    behavior = Behavior(hub=True)
    with serving(models, behavior) as address:
        use_hub(address)
        assert prepare(["for", "data=cub", *NETWORK, "--check"]) == 1
    error = capsys.readouterr().err
    assert error.splitlines()[-1] == f"error: not there: weights of {MODEL}, cub"
    assert "dml prepare cub" in error
    assert (behavior.requests, behavior.questions) == ([], [])


def test_one_thing_that_fails_does_not_stop_the_others(models, use_hub, monkeypatch, capsys):
    made = []
    monkeypatch.setattr(
        "dml.data.preparation.prepare.prepare", lambda source, root: made.append(source.name)
    )
    use_hub(DEAD)
    assert prepare(["for", "data=cub,cars", *NETWORK]) == 1
    text, error = capsys.readouterr()
    assert "cub: CUB_200_2011.tgz, 1,150,585,339 bytes" in text
    assert "cars: cars_annos.mat, 394,471 bytes\ncars: car_ims.tgz, 1,956,628,579 bytes" in text
    assert "to download: 3,107,608,389 bytes\nfiles of unknown size: 1" in text
    assert made == ["cub", "cars"]
    assert error.splitlines()[-1] == f"error: not ready: weights of {MODEL}"


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ([], 2, "for: name the runs"),
        (["experiment=mft_tabel1"], 2, "experiment: no 'mft_tabel1'; did you mean 'mft_table1'?"),
        (["experiment=nope"], 2, "experiment: no 'nope'; one of mft_table1 | "),
        (
            ["experiment=mft_table1,mft_table2"],
            2,
            "experiment: mft_table1,mft_table2 are several; name one at a time",
        ),
        (
            ["experiment=pfml_figure2"],
            2,
            "experiment: pfml_figure2 trains nothing and needs no preparation: run python studies/",
        ),
        (["data=cup"], 2, "data: 'cup' does not exist; did you mean 'cub'?"),
        (["data=cub", "data=sop"], 2, "data"),
        (["data=cub", "--root", "x"], 2, "--root: prepare for takes data.root=<folder>"),
        (["data=cub", "--list", "--check"], 2, "--list: is not combined"),
        (["data=cub", "--no-weights"], 2, "--backbone and --no-weights are for"),
        (["data=cub", "--url", "http://x"], 2, "--archive and --url are for"),
        (["data=cub", "backbone.widht=3"], 2, "backbone.widht"),
    ],
)
def test_wrong_words_are_explained(use_hub, capsys, words, status, message):
    use_hub(DEAD)
    assert prepare(["for", *words]) == status
    assert message in capsys.readouterr().err


def test_words_of_train_are_for_this_alone(capsys):
    assert prepare(["cub", "data=cub"]) == 2
    assert capsys.readouterr().err.startswith("error: data=cub: options of train are for")


@pytest.mark.promise(
    "guides/without_internet.md",
    "weights are missing: a run ends before it decodes an image",
)
def test_weights_fail_before_an_image_is_decoded(tmp_path, use_hub, monkeypatch, capsys):
    use_hub(DEAD)
    class_folders(tmp_path / "images")
    events = []
    monkeypatch.setattr(
        "dml.data.preparation.image_check.inspect_images", lambda *more: events.append("decode")
    )
    monkeypatch.setattr("dml.runs.build.exclude_undecodable", lambda *more: events.append("decode"))
    folder = ["data=folder", f"data.root={tmp_path}/images", "device=cpu"]
    assert train([*folder, *NETWORK]) == 1
    assert "backbone.weights=imagenet" in capsys.readouterr().err
    for weights in ("absent.pth", f"{DEAD}/net.pth"):
        for network in (NETWORK, ("backbone=bn_inception",), ("backbone=small_cnn",)):
            words = [*folder, *network, "transform.size=32", f"backbone.weights={weights}"]
            assert train(words) == 1
            assert "backbone.weights" in capsys.readouterr().err
    assert events == []
    assert not (tmp_path / "outputs").exists()
    assert not (tmp_path / "images" / ".cache").exists()


def test_an_evaluation_fails_before_an_image_is_decoded(tmp_path, use_hub, monkeypatch, capsys):
    use_hub(DEAD)
    class_folders(tmp_path / "images")
    decoded = []
    monkeypatch.setattr("dml.runs.build.exclude_undecodable", lambda *more: decoded.append(1))
    folder = ["data=folder", f"data.root={tmp_path}/images", "device=cpu"]
    assert evaluate([*folder, *NETWORK]) == 1
    assert "backbone.weights=imagenet" in capsys.readouterr().err
    assert decoded == []


def test_a_run_has_its_weights_before_it_reads_images(tmp_path, use_hub, models, monkeypatch):
    from dml.runs import build

    class_folders(tmp_path / "images")
    events = []
    fetch, check = build.Builder.fetch_weights, build.exclude_undecodable

    def fetch_weights(builder):
        events.append("weights")
        return fetch(builder)

    def exclude(*more):
        events.append("images")
        return check(*more)

    monkeypatch.setattr(build.Builder, "fetch_weights", fetch_weights)
    monkeypatch.setattr(build, "exclude_undecodable", exclude)
    with serving(models, Behavior(hub=True)) as address:
        use_hub(address)
        folder = ["data=folder", f"data.root={tmp_path}/images", "device=cpu", *NETWORK]
        train([*folder, "protocol.epochs=0"])
    assert events[:2] == ["weights", "images"]
