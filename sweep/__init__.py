"""A grid of drafters, built and replayed: text, tokenizers, stages and the emulator brought together."""
