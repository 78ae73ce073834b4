from .replay import replay as replay
from .strategies import CountedTranslator as CountedTranslator
from .strategies import StrategyRun as StrategyRun
from .strategies import TranslationCounts as TranslationCounts
from .strategies import anchored_steps as anchored_steps
from .strategies import compare_strategies as compare_strategies
