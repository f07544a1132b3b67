"""The papers' experiments and the speed targets. `python -m bench --help` says how to run them."""
