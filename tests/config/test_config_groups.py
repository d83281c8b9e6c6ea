from dml.config.command_line import choices_for_help, list_groups


def test_help_lists_groups_and_choices():
    listed = [line.partition(":")[0] for line in choices_for_help().splitlines()]
    assert {"loss", "data", "protocol", "params", "search"} <= set(listed)
    assert not {"space", "recipe"} & set(listed)
    assert set(list_groups(optional=True)) >= {"search"}
    assert "loss" not in list_groups(optional=True)
    assert set(list_groups("evaluate")) == set(list_groups())
