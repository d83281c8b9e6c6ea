"""The thread that writes beside training, and the copy of the state that it writes."""

import io
from threading import Event

import pytest
import torch
from torch import nn

from dml.training.background_writer import BackgroundWriter, copy_state


@pytest.fixture
def writer():
    return BackgroundWriter()


def fail():
    raise ValueError("no room")


def test_one_function_at_a_time_and_all_are_done_after_waiting(writer):
    may_end, done = Event(), []
    writer.start(lambda: (may_end.wait(30), done.append("first")))
    writer.check()  # does not wait
    assert not done
    may_end.set()
    writer.start(lambda: done.append(f"second after {done}"))
    writer.wait()
    assert done == ["first", "second after ['first']"]
    writer.wait()


@pytest.mark.parametrize("ask", ["check", "wait", "start"])
def test_an_error_is_raised_once_where_the_caller_asks(writer, ask):
    done = []
    writer.start(fail)
    writer._join()
    with pytest.raises(ValueError, match="no room"):
        getattr(writer, ask)(*[lambda: done.append(1)] * (ask == "start"))
    writer.check()
    writer.wait()
    assert not done


def saved(state):
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


@pytest.fixture
def trained():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten())
    network.to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(network.parameters(), amsgrad=True)

    def step():
        network(torch.randn(2, 3, 5, 5)).square().sum().backward()
        optimizer.step()

    step()
    anchor = {"weight": network[0].weight.detach().clone()}
    extra = {"anchor": anchor, "best": anchor, "radii": [0.5, None], "pair": (1, anchor["weight"])}
    return step, {"network": network.state_dict(), "optimizer": optimizer.state_dict(), **extra}


def test_a_copy_gives_the_same_file(trained):
    _, state = trained
    assert saved(copy_state(state)) == saved(state)
