from dml.reporting.option_texts import differing_options, format_option, short_names


def test_names_and_values():
    assert differing_options([{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 1}]) == ["b"]
    assert short_names(["optim.lr", "a.scale", "b.scale"]) == {
        "optim.lr": "lr",
        "a.scale": "a.scale",
        "b.scale": "b.scale",
    }
    found = short_names(["optim.lr", "data.size", "transform.size"])
    assert list(found.values()) == ["lr", "data.size", "transform.size"]
    words = [format_option(v) for v in (None, True, 1e-4, 3, [0.5, None], "x")]
    assert words == ["null", "true", "0.0001", "3", "[0.5,null]", "x"]
