"""Whether to draft, with what, and how far ahead: what can be said before a benchmark, and how surely."""
