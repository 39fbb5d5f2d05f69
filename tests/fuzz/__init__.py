"""Noise into whatever reads what a remote sends. `python -m tests.fuzz --help` runs for as long as one likes."""
