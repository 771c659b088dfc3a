"""Puts this folder on the import path, so that tests share their doubles, and registers the doubles' environments."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import doubles

doubles.register_all()
