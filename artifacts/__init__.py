"""File formats on disk: manifests, atomic writes, resumable work, and one module for each kind of file.

In: directories. Out: checked, memory-mapped objects that stages and the runtime share.
"""
