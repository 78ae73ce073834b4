"""File formats on disk: a container with a manifest, atomic writes, resumable work, and one module for each kind.

In: files. Out: checked, memory-mapped objects that stages and the runtime share.
"""
