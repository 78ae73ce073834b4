"""What verifying cost in a saved benchmark run."""

from pathlib import Path

import numpy as np

from spectool import ArtifactError
from spectool.advise.expect import Verification, fitted
from spectool.artifacts.benchmark import PLAIN, Benchmark

_FEW = 5  # passes of a size, below which their median says nothing


def verification_of(path: Path, target: str) -> Verification:
    """Return what a pass over drafts took, in plain steps of the same block, by medians over the cycles of a run.

    Args:
        path: Directory of the run.
        target: The model asked about; of a run with several models, the one at this path or of this name.

    Raises:
        ArtifactError: It is no whole run, has no such model, or too few passes to tell.
    """
    run = Benchmark(path)
    name = _model(run, target)
    generations = [row for row in run.generations.drop_columns(["output"]).to_pylist() if row["model"] == name]
    timed = [row for row in generations if row["drafter"] == PLAIN and row["passes"]]
    plain = {row["block"]: row["seconds"] / row["passes"] for row in timed}
    ours = {(row["block"], row["order"]) for row in generations if row["drafter"] != PLAIN and row["block"] in plain}
    passes: dict[int, list[float]] = {}
    loops = []
    for cycle in run.cycles.to_pylist():
        if (cycle["block"], cycle["order"]) in ours and cycle["cycle"]:  # the first one waits for the prompt
            step = plain[cycle["block"]]
            passes.setdefault(cycle["proposed"], []).append(cycle["pass_seconds"] / step)
            loops.append((cycle["seconds"] - cycle["draft_seconds"] - cycle["pass_seconds"]) / step)
    costs = {k: max(1.0, float(np.median(found))) for k, found in sorted(passes.items()) if k and len(found) >= _FEW}
    if not costs:
        raise ArtifactError(
            f"{path}: expected plain generations of {name} and at least {_FEW} passes over drafts of one length, got "
            f"{len(plain)} and {max(map(len, passes.values()), default=0)}. Measure a longer run: spectool bench"
        )
    return fitted(costs, f"medians of {path}", max(0.0, float(np.median(loops))))


def _model(run: Benchmark, target: str) -> str:
    models: dict[str, str] = {model["name"]: model["path"] for model in run.manifest.arguments["models"]}
    if len(models) == 1:
        return next(iter(models))
    for name, path in models.items():
        if target in (name, path) or Path(target).expanduser().resolve() == Path(path).expanduser().resolve():
            return name
    raise ArtifactError(f"{run.path}: expected a run of {target}, got one of {', '.join(models)}. Name another --run")
