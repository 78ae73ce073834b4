"""The thin layer at generation time: drafters, the loop, the emulator."""

from typing import TYPE_CHECKING

from spectool import lazy_exports

if TYPE_CHECKING:
    from spectool.runtime.anchored_translator import AnchoredTranslator
    from spectool.runtime.controller import Controller
    from spectool.runtime.drafter import Cycle, Drafter, Proposal
    from spectool.runtime.emulator import replay
    from spectool.runtime.generation import generate_step
    from spectool.runtime.hybrid import HybridDrafter
    from spectool.runtime.intersection_translator import IntersectionTranslator
    from spectool.runtime.loading import load_drafter
    from spectool.runtime.lookup_drafter import LookupDrafter
    from spectool.runtime.model_drafter import ModelDrafter
    from spectool.runtime.model_source import ModelSource
    from spectool.runtime.ngram_model import NgramModel
    from spectool.runtime.ngram_source import NgramSource
    from spectool.runtime.prompt_cache import load_prompt_cache, save_prompt_cache
    from spectool.runtime.sampling import Sampling
    from spectool.runtime.statistics import DraftStatistics
    from spectool.runtime.strategies import (
        STRATEGIES,
        StrategyRun,
        anchored_steps,
        compare_strategies,
        make_translator,
    )
    from spectool.runtime.streaming import GenerationResponse, generate, stream_generate
    from spectool.runtime.string_translators import ContextTranslator, NaiveTranslator, PassThrough
    from spectool.runtime.translated_drafter import TranslatedDrafter, TranslationCounts
    from spectool.runtime.translation import Constraint, DraftContext, DraftSource, Translator

__all__ = [
    "STRATEGIES",
    "AnchoredTranslator",
    "Constraint",
    "ContextTranslator",
    "Controller",
    "Cycle",
    "DraftContext",
    "DraftSource",
    "DraftStatistics",
    "Drafter",
    "GenerationResponse",
    "HybridDrafter",
    "IntersectionTranslator",
    "LookupDrafter",
    "ModelDrafter",
    "ModelSource",
    "NaiveTranslator",
    "NgramModel",
    "NgramSource",
    "PassThrough",
    "Proposal",
    "Sampling",
    "StrategyRun",
    "TranslatedDrafter",
    "TranslationCounts",
    "Translator",
    "anchored_steps",
    "compare_strategies",
    "generate",
    "generate_step",
    "load_drafter",
    "load_prompt_cache",
    "make_translator",
    "replay",
    "save_prompt_cache",
    "stream_generate",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "STRATEGIES": "strategies",
        "AnchoredTranslator": "anchored_translator",
        "Constraint": "translation",
        "ContextTranslator": "string_translators",
        "Controller": "controller",
        "Cycle": "drafter",
        "DraftContext": "translation",
        "DraftSource": "translation",
        "DraftStatistics": "statistics",
        "Drafter": "drafter",
        "GenerationResponse": "streaming",
        "HybridDrafter": "hybrid",
        "IntersectionTranslator": "intersection_translator",
        "LookupDrafter": "lookup_drafter",
        "ModelDrafter": "model_drafter",
        "ModelSource": "model_source",
        "NaiveTranslator": "string_translators",
        "NgramModel": "ngram_model",
        "NgramSource": "ngram_source",
        "PassThrough": "string_translators",
        "Proposal": "drafter",
        "Sampling": "sampling",
        "StrategyRun": "strategies",
        "TranslatedDrafter": "translated_drafter",
        "TranslationCounts": "translated_drafter",
        "Translator": "translation",
        "anchored_steps": "strategies",
        "compare_strategies": "strategies",
        "generate": "streaming",
        "generate_step": "generation",
        "load_drafter": "loading",
        "load_prompt_cache": "prompt_cache",
        "make_translator": "strategies",
        "replay": "emulator",
        "save_prompt_cache": "prompt_cache",
        "stream_generate": "streaming",
    },
)
