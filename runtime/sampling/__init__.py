"""How the target chooses its tokens.

In: logits, and what drafts were drawn from. Out: a token for each position, of the ids that the model has.
"""
