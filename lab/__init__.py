"""The laboratory: what reproduces the papers' experiments, kept apart from the product.

In: the product. Out: tables, pages, Parquet files and draft models. Nothing outside this folder imports it.
"""
