"""One thread at a time uses a prepared model. A second thread is refused, and the first thread's step is correct."""

import threading

import pytest
import torch

import twins
from geminid import errors
from models import batch, make
from steps import one_batch


def in_thread(function):
    """Runs the function in a thread and returns its exception."""
    raised = []

    def called():
        try:
            function()
        except BaseException as problem:
            raised.append(problem)

    thread = threading.Thread(target=called, name="the other")
    thread.start()
    thread.join()
    return raised[0] if raised else None


def refused(problem, doing):
    assert isinstance(problem, errors.Refused), problem
    assert f"is in a {doing} pass of this model, and thread 'the other' wants to use it" in str(problem)
    assert "share a lock" in str(problem)


@pytest.fixture
def both():
    pair = twins.pair(make("gpt"), device_memory="448KiB")
    twins.run(pair, one_batch, steps=1)
    yield pair
    twins.run(pair, one_batch, steps=2)
    twins.assert_same(pair)
    with twins.nothing_open(pair[1]):
        pass


def evaluate(model):
    with torch.no_grad():
        model(*batch(3))


USES = {"evaluates": evaluate, "trains": lambda model: model(*batch(3)),
        "calls a block": lambda model: model.blocks[0](torch.zeros(1, 2, 64))}


@pytest.mark.parametrize("use", USES)
def test_second_thread_in_a_forward_is_refused_and_the_first_is_right(both, use):
    problems = []
    for twin in both:
        def other(*_, model=twin.model):
            hook.remove()  # the hook must not see the other thread's call
            problems.append(in_thread(lambda: USES[use](model)))

        hook = twin.model.blocks[1].down.register_forward_hook(other)
        loss = twin.model(*batch(2))
        twin.losses.append(loss.item())
        loss.backward()
        twins.finish(twin)
    assert problems[0] is None
    refused(problems[1], "forward")


def test_second_thread_in_a_backward_is_refused_and_the_first_is_right(both):
    problems = []
    for twin in both:
        taken = []
        hook = twin.model.blocks[1].register_forward_hook(lambda _m, _a, result: taken.append(result))
        loss = twin.model(*batch(2))
        hook.remove()
        taken[0].register_hook(lambda _: problems.append(in_thread(lambda: evaluate(twin.model))))
        twin.losses.append(loss.item())
        loss.backward()
        twins.finish(twin)
    assert problems[0] is None
    refused(problems[1], "backward")


def test_step_and_backward_of_another_thread_in_a_forward_are_refused(both):
    ours = both[1]
    earlier = ours.model(*batch(2))
    problems = []

    def other(*_):
        hook.remove()
        problems.extend([in_thread(ours.optimizer.step), in_thread(earlier.backward)])

    hook = ours.model.blocks[1].down.register_forward_hook(other)
    ours.model(*batch(2))
    assert len(problems) == 2
    for problem in problems:
        refused(problem, "forward")
    ours.optimizer.zero_grad()


def test_threads_in_turns_are_right(both):
    for twin in both:
        assert in_thread(lambda: one_batch(twin, 5)) is None
        one_batch(twin, 6)
        assert in_thread(lambda: evaluate(twin.model)) is None


def test_interrupt_in_another_thread_that_lives_on_stops_nobody(both):
    ours = both[1]
    go_on, stopped = threading.Event(), threading.Event()

    def raising(*_):
        raise KeyboardInterrupt

    def interrupted():
        hook = ours.model.blocks[1].down.register_forward_pre_hook(raising)
        try:
            ours.model(*batch(2))
        except KeyboardInterrupt:
            hook.remove()
            stopped.set()
        go_on.wait()

    thread = threading.Thread(target=interrupted)
    thread.start()
    stopped.wait()
    for twin in both:
        one_batch(twin, 5)
    go_on.set()
    thread.join()


def test_many_threads_end_nothing(both):
    def evaluate_often():
        for _ in range(20):
            try:
                evaluate(both[1].model)
            except errors.Refused:
                pass

    threads = [threading.Thread(target=evaluate_often) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
