"""What is said of a controller, against the simulated machine that it has measured."""

from itertools import product

import pytest

from spectool.tests.runtime.draft_length.test_controller import CURVES, DRAFTERS, Machine


def test_what_was_learnt_is_what_was_measured() -> None:
    machine = Machine(CURVES["between"], DRAFTERS["small model"], lambda at: 0.9, 3)
    controller, _ = machine.run(2000)
    learnt = controller.state()
    assert learnt is not None and learnt.speedup is not None
    assert machine.speed(learnt.draft_length, 0.9) >= 0.9 * machine.best(0.9)
    assert learnt.speedup == pytest.approx(machine.best(0.9), rel=0.25)
    assert (learnt.draft_ms, learnt.draft_token_ms) == (pytest.approx(20), pytest.approx(70))
    assert learnt.pass_ms[1] == pytest.approx(1000)
    assert repr(controller).startswith(f"<Controller: draft length {learnt.draft_length} after ")


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("acceptance", [0.0, 0.1, 0.5])
def test_what_is_said_of_the_speed_is_never_far_above_what_the_machine_gives(curve: str, acceptance: float) -> None:
    for seed, tokens in product((1, 2), (20, 60, 200)):
        machine = Machine(CURVES[curve], DRAFTERS["lookup"], lambda at: acceptance, seed)
        controller, steps = machine.run(tokens)
        verified = sum(min(step.length, machine.longest_proposal) for step in steps)
        learnt = controller.state()
        assert controller.verified == verified
        assert (learnt is None) == (verified < 16)
        if learnt is not None and learnt.speedup is not None:
            assert learnt.draft_length + 1 in learnt.pass_ms
            assert learnt.speedup <= 1.6 * max(1.0, machine.best(acceptance)), (tokens, learnt)
