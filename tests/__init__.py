"""Tests, in one folder for each package of `src/replitree`; `tests/project` holds the project itself to its rules."""
