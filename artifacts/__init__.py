"""File formats on disk: a container with a manifest, atomic writes, and one module for each kind.

In: files. Out: checked objects that stages and the runtime share.
"""
