"""mlx-lm's OpenAI-compatible server with our loop inside.

In: HTTP requests. Out: answers, metrics, logs.
"""
