from .counted import CountedTranslator as CountedTranslator
from .counted import TranslationCounts as TranslationCounts
from .ngram_model import NgramModel as NgramModel
from .ngram_model import NgramSource as NgramSource
from .replay import replay as replay
from .strategies import StrategyRun as StrategyRun
from .strategies import anchored_steps as anchored_steps
from .strategies import compare_strategies as compare_strategies
