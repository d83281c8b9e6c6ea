import pytest

from dml.core.errors import UserError
from dml.runs.jobs.resource_errors import translate_resource_errors


def test_exceptions_that_refer_to_each_other_are_passed_on():
    first, second = ValueError("a"), UserError("b")
    first.__context__, second.__cause__ = second, first
    with pytest.raises(UserError) as raised, translate_resource_errors():
        raise second
    assert raised.value is second


def test_frames_of_causes_and_contexts_are_freed():
    class Held:
        alive = 0

        def __init__(self):
            type(self).alive += 1

        def __del__(self):
            type(self).alive -= 1

    def fail():
        held = Held()
        raise ValueError(f"{held.alive}")

    @translate_resource_errors()
    def work():
        try:
            fail()
        except ValueError as cause:
            raise RuntimeError("translated") from cause

    with pytest.raises(RuntimeError) as raised:
        work()
    assert raised.value.__cause__ is not None
    assert Held.alive == 0
