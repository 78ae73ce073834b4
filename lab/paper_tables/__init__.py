"""The tables of the paper on cross-family speculative decoding for Polish, made from any benchmark run.

In: a benchmark artifact. Out: tables as text.
"""
