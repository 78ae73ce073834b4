"""`generate` and `chat`, and the options that commands with a model share.

In: arguments. Out: text on the terminal.
"""
