"""``spectool predict``, its figures, and the one line of an error."""

from functools import partial

from spectool.runtime.demo_models import demo_path
from spectool.tests import running as commands
from spectool.tests.running import error_of

__all__ = ["TARGET", "error_of", "figures", "run"]

TARGET = str(demo_path("target"))

run = partial(commands.run, "predict")
figures = partial(commands.figures, "predict")
