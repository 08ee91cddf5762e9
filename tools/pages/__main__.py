"""Write the pages of the site: ``python -m tools.pages [FOLDER]``; the folder is `build/pages` by default."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.pages.site import PAGES, write

if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else PAGES)
