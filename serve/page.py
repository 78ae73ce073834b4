"""The page for people: a conversation with the model, and the figures of `Metrics`.

What the model writes is put into the page as text, never as HTML, and the page's own policy lets no other script run.
"""

import html
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256

_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:1.5rem auto;padding:0 1rem}
h1{font-size:1.4rem;margin:0}
#log p{white-space:pre-wrap;overflow-wrap:anywhere;margin:.75rem 0;padding:.5rem .75rem;border-radius:.5rem}
#log .user{background:#8883;margin-left:15%}
#log .error{border:1px solid #c33}
#log i,#log .note{opacity:.7}
form{display:flex;gap:.5rem;position:sticky;bottom:0;padding:.5rem 0;background:Canvas}
textarea{flex:1;min-width:0;font:inherit;padding:.4rem}
button{font:inherit;padding:.4rem .9rem}
table{margin:.5rem 0}
td{padding:.1rem 1rem .1rem 0;overflow-wrap:anywhere}
td+td{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
"""
_SCRIPT = """
const [log, form, field, button] = ['log', 'form', 'field', 'button'].map(id => document.getElementById(id));
let messages = [], running = null;

function add(kind) {
  const place = document.createElement('p');
  place.className = kind;
  return log.appendChild(place);
}

async function ask(text) {
  add('user').textContent = text;
  const place = add('assistant'), sent = [...messages, {role: 'user', content: text}];
  const thoughts = place.appendChild(document.createElement('i'));
  const answer = place.appendChild(document.createElement('span'));
  const fail = problem => { add('error').textContent = problem; };
  running = new AbortController();
  button.textContent = 'Stop';
  try {
    const response = await fetch('/v1/chat/completions', {
      method: 'POST', signal: running.signal, headers: {'content-type': 'application/json'},
      body: JSON.stringify({messages: sent, stream: true}),
    });
    if (!response.ok) throw new Error((await response.json()).error.message);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let held = '';
    for (let part; !(part = await reader.read()).done;) {
      const events = (held + part.value).split('\\n\\n');
      held = events.pop();
      for (const event of events) {
        if (!event.startsWith('data: {')) continue;
        const data = JSON.parse(event.slice(6));
        if (data.error) throw new Error(data.error.message);
        const atEnd = innerHeight + scrollY > document.body.scrollHeight - 40;
        const {delta, finish_reason} = data.choices[0];
        thoughts.append(delta.reasoning || '');
        answer.append(delta.content || '');
        if (finish_reason === 'length') add('note').textContent = 'The answer has reached its maximum length.';
        if (atEnd) scrollTo(0, document.body.scrollHeight);
      }
    }
  } catch (error) {
    if (error.name !== 'AbortError') fail(error.message);
  }
  if (answer.textContent) messages = [...sent, {role: 'assistant', content: answer.textContent}];
  else if (!thoughts.textContent) place.remove();
  running = null;
  button.textContent = 'Send';
}

form.addEventListener('submit', event => {
  event.preventDefault();
  if (running) return running.abort();
  const text = field.value;
  if (text.trim()) { field.value = ''; ask(text); }
});
field.addEventListener('keydown', event => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  if (!running) form.requestSubmit();
});
"""
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>spectool serve</title><link rel="icon" href="data:,"><style>{style}</style></head>
<body><h1>spectool serve</h1>
<div id="log" role="log"></div>
<form id="form"><textarea id="field" rows="2" placeholder="Message" aria-label="Message" autofocus></textarea>
<button id="button">Send</button></form>
<p>Models: {models}. Addresses: {addresses}. For Prometheus: <a href="/metrics">/metrics</a>.</p>
<details><summary>Figures</summary><table>
{rows}
</table></details><script>{script}</script></body></html>
"""


def _hashed(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


POLICY = (
    f"default-src 'none'; connect-src 'self'; img-src data:; script-src {_hashed(_SCRIPT)}; "
    f"style-src {_hashed(_STYLE)}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of the page."""


def page(models: str, addresses: Iterable[str], facts: Iterable[tuple[str, str]]) -> str:
    """The page as HTML, with the names of ``models``, the ``addresses`` of the protocols and a table of ``facts``."""
    listed = ", ".join(f"<code>{address}</code>" for address in addresses)
    rows = "\n".join(f"<tr><td>{html.escape(key)}</td><td>{html.escape(value)}</td></tr>" for key, value in facts)
    return _PAGE.format(style=_STYLE, script=_SCRIPT, models=html.escape(models), addresses=listed, rows=rows)
