"""``python -m tilewright``: the same as the command ``tilewright``."""

import sys

from tilewright.cli import main

sys.exit(main())
