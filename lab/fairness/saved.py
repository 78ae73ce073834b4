"""The fairness format: how a target and its drafts serve each task, such as a language.

    fairness.json              all figures
    report.html  report.md     the same for people, and plots as *.svg
    manifest.json              arguments: what was asked for; inputs: text by task; statistics: the verdict

fairness.json, all names being those given on the command line, lengths in tokens, divergences in nats:

    gamma           draft tokens a pass
    target          name, bytes (of weights)
    tasks           by task: documents, words, rows, tokens (of the rows), left_out (passages that some tokenizer does
                    not spell), bits_per_byte and nats_per_token of the target on the rows
    drafts          by draft: path, bytes, cost (of a pass, in passes of the target), cost_stated (or from bytes),
                    compared ("one vocabulary", "shared ids" or "text"), shared_ids, unfairness, unfairness_kl,
                    spearman (of fitness and acceptance over the rows of all tasks), sure_gaps (pairs of tasks, the
                    first with the larger acceptance by Corollary 2), and by task what `fairness.places` measures
                    and `fairness.formulas` makes of it, with by_temperature (acceptance) and examples (fitness and
                    acceptance of each row); what needs both distributions is null for "text"
    dictionaries    by dictionary: path, and by task tokens_per_pass with its standard error, coverage, acceptance, and
                    whether it was built_from_it: from the text that was replayed
    fertility       reference, parallel, and by tokenizer and task: tokens, fertility, tax
    verdict         sentence, and what it rests on
"""

from collections.abc import Iterable
from functools import cached_property
from typing import Any

from spectool import ArtifactError
from spectool.artifacts.manifest import Artifact, read_bounded_json

FORMAT = "spectool-fairness"
VERSION = 1
FIGURES = "fairness.json"
_MOST_BYTES = 64 << 20  # it has the acceptance of every row that was measured
_PARTS = ("gamma", "target", "tasks", "drafts", "dictionaries", "fertility", "verdict")


class Fairness(Artifact):
    """What was measured, read when asked for."""

    format, versions, roles = FORMAT, (VERSION,), ("target",)
    again = "Measure again: spectool fairness …"

    @cached_property
    def figures(self) -> dict[str, Any]:
        """All figures, as in the module's description.

        Raises:
            ArtifactError: They are damaged, or a part is missing.
        """
        file = self._file(FIGURES, hashed=True)
        try:
            figures: dict[str, Any] = read_bounded_json(file, _MOST_BYTES)
        except (ValueError, RecursionError) as error:
            raise ArtifactError(f"{file}: not readable ({error}). {self.again}") from error
        missing = [part for part in _PARTS if not isinstance(figures, dict) or part not in figures]
        self._expect(not missing, f"lacks {', '.join(missing)}", FIGURES)
        return figures

    def _problems(self) -> Iterable[tuple[str, str]]:
        """Read the figures, which says what is wrong with them."""
        _ = self.figures
        return ()
