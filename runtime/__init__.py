"""The thin layer at generation time: drafters, the loop, the emulator."""

from typing import TYPE_CHECKING

from spectool import lazy_exports

if TYPE_CHECKING:
    from spectool.runtime.dictionary_drafter import DictionaryDrafter
    from spectool.runtime.drafter import Cycle, Drafter, Proposal
    from spectool.runtime.emulator import replay
    from spectool.runtime.generation import generate_step
    from spectool.runtime.hybrid import HybridDrafter
    from spectool.runtime.model_drafter import ModelDrafter
    from spectool.runtime.prompt_lookup import PromptLookupDrafter
    from spectool.runtime.statistics import DraftStatistics
    from spectool.runtime.streaming import GenerationResponse, stream_generate

__all__ = [
    "Cycle",
    "DictionaryDrafter",
    "DraftStatistics",
    "Drafter",
    "GenerationResponse",
    "HybridDrafter",
    "ModelDrafter",
    "PromptLookupDrafter",
    "Proposal",
    "generate_step",
    "replay",
    "stream_generate",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "Cycle": "drafter",
        "DictionaryDrafter": "dictionary_drafter",
        "DraftStatistics": "statistics",
        "Drafter": "drafter",
        "GenerationResponse": "streaming",
        "HybridDrafter": "hybrid",
        "ModelDrafter": "model_drafter",
        "PromptLookupDrafter": "prompt_lookup",
        "Proposal": "drafter",
        "generate_step": "generation",
        "replay": "emulator",
        "stream_generate": "streaming",
    },
)
