"""The HTTP server: OpenAI's and Anthropic's protocols in front of one engine that owns the models.

HTTP        app, protocols                                    Starlette, on the main thread
  |  requests, prompts: checked, rendered and tokenized       pydantic, on threads of their own
Answer                                                        one answer to a request
  |  engine, prompt_caches, splitter                          MLX, on the engine's thread
Delta                                                         what was written, back to HTTP
"""
