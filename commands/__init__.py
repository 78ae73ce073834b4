"""The commands: what talks to a person. One module for each command, and the options that several of them share.

In: arguments. Out: results on stdout, progress and notes on stderr, errors in one line.
"""
