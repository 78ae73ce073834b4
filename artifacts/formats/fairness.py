"""The fairness format: how a target and its drafts serve each task, such as a language.

    fairness.json              all figures
    report.html  report.md     the same for people, and plots as *.svg where matplotlib was installed
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

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from spectool import ArtifactError
from spectool.artifacts.manifest import Manifest, expect_format, read_manifest, verify_file, verify_files

FORMAT = "spectool-fairness"
VERSION = 1
FIGURES = "fairness.json"
_PARTS = ("gamma", "target", "tasks", "drafts", "dictionaries", "fertility", "verdict")


class Fairness:
    """What was measured, read when asked for.

    Attributes:
        path: Its directory.
        manifest: Its manifest.
    """

    def __init__(self, path: Path) -> None:
        """Open what lies at ``path``.

        Raises:
            ArtifactError: Not a whole artifact of this version.
        """
        self.path = path
        self.manifest: Manifest = read_manifest(path)
        expect_format(path, self.manifest, FORMAT, VERSION, ("target",))

    @cached_property
    def figures(self) -> dict[str, Any]:
        """All figures, as in the module's description.

        Raises:
            ArtifactError: They are damaged, or a part is missing.
        """
        if FIGURES not in self.manifest.files:
            raise ArtifactError(f"{self.path}: has no {FIGURES}. Measure again: spectool fairness …")
        verify_file(self.path, self.manifest, FIGURES)
        found = json.loads((self.path / FIGURES).read_text(encoding="utf-8"))
        missing = [part for part in _PARTS if not isinstance(found, dict) or part not in found]
        if missing:
            raise ArtifactError(
                f"{self.path / FIGURES}: lacks {', '.join(missing)}. Measure again: spectool fairness …"
            )
        figures: dict[str, Any] = found
        return figures

    def verify(self) -> None:
        """Check every file.

        Raises:
            ArtifactError: One is damaged or strange.
        """
        verify_files(self.path, self.manifest)
        _ = self.figures
