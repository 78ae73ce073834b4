"""The laboratory: what reproduces the papers' experiments, kept apart from the product.

In: the product. Out: tables and pages. Nothing outside this folder imports it.
"""
