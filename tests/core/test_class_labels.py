"""Labels of two arrays are compared exactly, whatever their types; what cannot be is refused."""

from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from dml.core.class_labels import check_class_labels, check_names, number_classes
from dml.core.errors import UserError
from dml.data.readers.folder import read_folder
from dml.retrieval import mean_average_precision, retrieval_metrics

ODD = 2**53 + 1  # as float64, it is 2**53


def numbers(first, second):
    return [found.tolist() for found in number_classes({"labels": first, "gallery_labels": second})]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (np.array([ODD - 1, ODD]), np.array([ODD, ODD - 1], "u8"), ([0, 1], [1, 0])),
        (np.array([-1, 3]), np.array([2**64 - 1, 3], "u8"), ([0, 1], [2, 1])),
        (np.array([ODD]), np.array([2.0**52, 3.0]), ([2], [1, 0])),
        (np.array([1, -128], "i1"), np.array([1, -128]), ([1, 0], [1, 0])),
        (np.array([1, 200], "u1"), np.array([-56, 1], "i1"), ([1, 2], [0, 1])),
        (np.array([1, 200], ">u2"), np.array([200, 1], "<i4"), ([0, 1], [1, 0])),
        (np.array([True, False]), np.array([0, 1, 2]), ([1, 0], [0, 1, 2])),
        (np.array([1.0, 2.0], "f2"), np.array([2, 1]), ([0, 1], [1, 0])),
        (np.array(["b", "a"]), np.array([b"a", b"bb"]), ([1, 0], [0, 2])),
        (np.array(["é"]), np.array(["é".encode()]), ([0], [0])),
        (np.array(["x", "y"], object), np.array(["y"]), ([0, 1], [1])),
        (np.array([b"x"], object), np.array(["x"]), ([0], [0])),
        (np.array(["x"], np.dtypes.StringDType()), np.array([np.str_("x")], object), ([0], [0])),
        (np.array(["1", "01"]), np.array(["1"]), ([1, 0], [1])),
    ],
)
@pytest.mark.promise(
    "guides/evaluate_embeddings.md",
    "labels of queries and gallery have two types: they are compared exactly, or refused",
)
def test_classes_of_two_types(first, second, expected):
    assert numbers(first, second) == [*map(list, expected)]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([1.0, np.nan, np.nan]), "2 of 3 are NaN"),
        (np.array([1.0, np.inf], "f4"), "1 of 2 are NaN or infinite"),
        (np.array([1, 0.5]), "0.5 is not a whole number"),
        (np.array([2.0**53]), "float64 holds whole numbers exactly below 9007199254740992"),
        (np.array([2.0**24], "f4"), "float32 holds"),
        (np.array([-(2.0**11)], "f2"), "float16 holds"),
        (np.array(["a", None], object), "1 of 2 are missing"),
        (np.array(["a", np.nan], object), "1 of 2 are missing"),
        (np.array(["a", pd.NA], object), "1 of 2 are missing"),
        (np.array(["a", 3], object), "objects of type int, str"),
        (np.array([b"\xff"]), "not UTF-8"),
        (np.array([1 + 2j]), "complex128 cannot name classes"),
        (np.array(["2020-01-01"], "M8[D]"), "cannot name classes"),
    ],
)
@pytest.mark.promise(
    "guides/evaluate_embeddings.md",
    "a label is NaN or missing: the file is refused in one line",
)
def test_labels_that_name_no_class_are_refused(labels, message):
    with pytest.raises(ValueError, match=message) as refused:
        check_class_labels(labels, "gallery_labels")
    assert str(refused.value).startswith("gallery_labels: ")


@pytest.mark.parametrize("text", [np.array(["1"]), np.array([b"1"]), np.array(["1"], object)])
def test_numbers_and_texts_are_not_compared(text):
    with pytest.raises(ValueError, match="labels are numbers, gallery_labels are texts"):
        numbers(np.array([1]), text)


def test_a_missing_number_in_a_table_is_no_name():
    check_names(["nan", "roti"])
    check_names(["NaN"])
    check_names(["1", "2"])
    with pytest.raises(ValueError, match="'NaN' where all others are numbers"):
        check_names(["1", "NaN", "2.5"])


SCORES = pytest.mark.parametrize("score", [retrieval_metrics, mean_average_precision])


@SCORES
def test_unsigned_labels_in_programs(score):
    points = np.eye(3), np.eye(3) + 0.1
    signed, unsigned = np.array([ODD - 1, ODD, 5]), np.array([ODD - 1, ODD, 5], "u8")
    expected = score(points[0], signed, points[1], signed)
    assert score(points[0], signed, points[1], unsigned) == expected
    assert score(torch.eye(3), torch.tensor([0, 0, 1], dtype=torch.uint64)) is not None
    with pytest.raises(ValueError, match="gallery_labels must be below"):
        score(points[0], np.array([-1, 2, 3]), points[1], np.array([2**64 - 1, 2, 3], "u8"))


@SCORES
@pytest.mark.parametrize(
    "labels",
    [
        np.array([0.0, np.nan, 0.0]),
        np.array([0, 0, None], object),
        [0, None, 0],
        ["a", float("nan"), "a"],
        ["a", 1, "a"],
        [0, 2**64, 0],
        [0.5, 1, 0.5],
        pd.Series([1, None, 1], dtype="Int64"),
        pd.Series(["a", None, "a"]),
        pd.Series(["a", None, "a"], dtype="category"),
        torch.tensor([0.5, 1, 0.5]),
        torch.tensor([0, 1, 0], dtype=torch.bfloat16),
        [[0], [1], [0]],
        [[0], [1, 2], [0]],
    ],
)
def test_other_labels_in_programs_are_refused_in_a_line(score, labels):
    with pytest.raises(ValueError, match=r"^labels(:| must have| cannot be read)") as refused:
        score(np.eye(3), labels)
    assert "\n" not in str(refused.value)


@SCORES
def test_a_query_is_no_item_of_another_class(score):
    with pytest.raises(ValueError, match="self_index: query 1 has another class than item 0"):
        score(np.eye(2), [0, 1], np.eye(2), [0, 1], self_index=[0, 0])


@pytest.mark.parametrize(("labels", "refused"), [("1 2 nan nan", True), ("a b nan nan", False)])
def test_a_missing_number_in_a_csv_file(tmp_path, labels, refused):
    lines = ["path,label"]
    for number, label in enumerate(labels.split() * 2):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{number}.png")
        lines.append(f"{number}.png,{label}")
    (tmp_path / "x.csv").write_text("\n".join(lines))
    expected = pytest.raises(UserError, match=r"x.csv: a label is 'nan'")
    with expected if refused else nullcontext():
        assert len(read_folder(tmp_path / "x.csv").labels) == 8
