"""`python -m pate`, which is the command `pate`."""

import sys

from pate.cli import main

if __name__ == "__main__":
    sys.exit(main())
