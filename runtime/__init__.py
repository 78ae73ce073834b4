"""The thin layer at generation time: drafters, the loop, the emulator.

What runs models is imported on first use, so that ``import spectool.runtime`` alone imports no mlx.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from spectool.runtime.dictionary_drafter import DictionaryDrafter
from spectool.runtime.drafter import Cycle, Drafter, Proposal
from spectool.runtime.emulator import replay
from spectool.runtime.hybrid import HybridDrafter
from spectool.runtime.prompt_lookup import PromptLookupDrafter
from spectool.runtime.statistics import DraftStatistics

if TYPE_CHECKING:
    from spectool.runtime.generation import generate_step
    from spectool.runtime.model_drafter import ModelDrafter
    from spectool.runtime.streaming import GenerationResponse, stream_generate

_NEEDS_MLX = {
    "GenerationResponse": "streaming",
    "ModelDrafter": "model_drafter",
    "generate_step": "generation",
    "stream_generate": "streaming",
}

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


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_MLX:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"spectool.runtime.{_NEEDS_MLX[name]}"), name)
