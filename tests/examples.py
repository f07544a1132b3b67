"""How many examples property tests draw: all of them in `make test-all`, a third in `make test`.

`make test` draws the same examples every time, so it repeats what is known to hold; `make test-all` draws new ones.
"""

from __future__ import annotations

import os

EXPLORES = bool(os.environ.get("CEPHEID_EXPLORE"))


def examples(count: int) -> int:
    return count if EXPLORES else max(count // 3, 1)
