"""Prints the processors that this process may use, in the form of ctest's --resource-spec-file.

tools/test runs one and a half entries for each processor, so each takes two of them.
"""

import json
import os

ENTRIES_OF_A_PROCESSOR = 2

processors = [{"id": str(processor), "slots": ENTRIES_OF_A_PROCESSOR}
              for processor in sorted(os.sched_getaffinity(0))]
print(json.dumps({"version": {"major": 1, "minor": 0}, "local": [{"processors": processors}]}))
