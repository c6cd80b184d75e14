"""python -m geminid doctor: what this machine lacks, and the fix; further arguments as of geminictl."""

import sys

from geminid import _programs

if __name__ == "__main__":
    _programs.geminictl() if len(sys.argv) > 1 else sys.exit(__doc__)
