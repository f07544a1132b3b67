"""The papers' experiments and the speed targets. See `python -m bench --help`."""
