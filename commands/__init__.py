"""The commands: what talks to a person.

There is a module for each command or large part of one, and `shared/` has what several of them use.
In: arguments. Out: results on stdout, progress and notes on stderr, errors in one line.
"""
