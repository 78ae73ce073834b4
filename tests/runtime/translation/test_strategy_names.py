"""The former name of the default strategy still works."""

from spectool.runtime.translation.factory import STRATEGIES, current_name
from spectool.tests.running import run


def test_former_name_is_understood_and_not_shown() -> None:
    assert current_name("anchored") in STRATEGIES and "anchored" not in STRATEGIES
    refused = run("generate", "--model", "nowhere", "--strategy", "magic", "-p", "a")
    assert "'byte-aligned'" in refused.output and "anchored" not in refused.output
    assert "nowhere" in run("generate", "--model", "nowhere", "--strategy", "anchored", "-p", "a").output
