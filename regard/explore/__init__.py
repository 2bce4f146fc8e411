"""The explorer: what a model did with a line, as values in Python and as views of one page.

The page is one for two doors: a file that needs nothing else (`regard look --out`), and the server at /explore. It is a
frame with views, each a tab. To add a view:

1. A module in `web/` that imports `register`, `speaks` and what else it needs from "./frame.js", and calls
   `register({name, order, say, fits, open})`; `web/frame.js` says what each is. Import it in `web/main.js`.
2. What it shows comes from a run: `frame.runs`, each what one model did with one line, as `page.run_of` makes it of
   `Exploration` (and as `POST /v1/explore` answers it). A view that needs more adds a key there. One that asks the
   server while it is used calls `ask(path, body)` of "./ask.js", which sends the key, where `frame.server` is true.

Modules are served as they are, and put into the single file by `page.inlined`: so they import by whole lines,
`import { a, b } from "./frame.js";`, from modules that do not import them, and export by `export const` and
`export function` alone, whose values never change. There is no build step.
"""

from __future__ import annotations
