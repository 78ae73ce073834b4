"""The page for people, a conversation with the model: `page.html`, which asks for a key if the server does.

What the model writes is put into the page as text, never as HTML, and the page's own policy lets no other script run.
"""

import re
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

PAGE = files("spectool.serve").joinpath("page.html").read_text(encoding="utf-8")
_HASHES = [
    b64encode(sha256(re.findall(f"<{tag}>(.*?)</{tag}>", PAGE, flags=re.DOTALL)[0].encode()).digest()).decode()
    for tag in ("script", "style")
]
POLICY = (
    "default-src 'none'; connect-src 'self'; img-src data:; script-src 'sha256-{}'; style-src 'sha256-{}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
).format(*_HASHES)
"""The Content-Security-Policy of the page."""
