"""The tables of the paper on cross-family speculative decoding for Polish, made from any benchmark run.

In: a run of `spectool bench`. Out: tables as text.
"""
