"""The forms in which answers go to clients: OpenAI's chats and texts, its responses, and Anthropic's messages."""
