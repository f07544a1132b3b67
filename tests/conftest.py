"""Random tests are the same every time in `make test`, so that a red run means a change, and new every time in
`make test-all` (CEPHEID_EXPLORE=1), which is where new counterexamples are looked for."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile("explore" if os.environ.get("CEPHEID_EXPLORE") else "repeatable")
