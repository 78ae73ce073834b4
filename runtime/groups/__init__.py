"""Models that are spread over the processes of a group, as ``mlx.launch`` starts them: the ranks.

Rank 0 runs the product as it is. The other ranks repeat what it does to the model and its caches, and nothing else:
they make no choice, so ranks cannot choose differently.

    rank 0     rewind cache 3 to 41 tokens, mark 5 more      operations, done at once and recorded
               pass over 5 tokens with cache 3               tells what was recorded, then computes
    others     receive, do the same, compute the same pass, and sleep until the next message

`mirrored` operations take numbers, and objects that have a number of their own. Ranks meet in `forward`: one message,
then the pass, and nothing of MLX is under way before or after. They also meet in `run_on_all_ranks`, for work
that makes passes of its own. So collectives come in one order on all ranks. Messages go over connections of their own
(`watch`). Without a group, all of these do what they say and nothing more. The product calls `rank_0`, and `others`
repeats it.
"""
