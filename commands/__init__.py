"""The commands: what talks to a person. One module for each command, and in `shared/` what several of them use.

In: arguments. Out: results on stdout, progress and notes on stderr, errors in one line.
"""
