"""The same work done by this library and by others, side by side (`./run-benchmarks`). Not part of the tests."""
