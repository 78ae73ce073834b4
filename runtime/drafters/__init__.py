"""Who guesses: a dictionary, the request's own history, a draft model, or several of them.

In: committed tokens. Out: a proposal of draft tokens.
"""
