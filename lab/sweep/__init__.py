"""Grids of dictionaries, replayed in parallel: the DictSpec paper's experiments.

In: a grid and texts. Out: one Parquet file.
"""
