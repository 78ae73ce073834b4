"""Measuring: prompts generated in every way, timed cycle by cycle, saved as a run."""
