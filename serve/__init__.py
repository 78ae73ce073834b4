"""The HTTP server.

In: a target model and its drafters. Out: answers to OpenAI-style requests, with figures of what drafting saved.
"""
