"""The laboratory: what reproduces the papers' experiments, beside the product and not in its way.

In: the product. Out: tables and pages. Nothing outside this folder imports it.
"""
