"""python -m geminid doctor [--json]: whether this machine can train, and the fix for what it lacks.
python -m geminid tokens [--help]: text into tokens for geminid-train, by a model's own tokenizer.
python -m geminid COMMAND ...: as geminictl, such as status, top and ls sessions.
"""

import sys

from geminid import _programs, doctor, tokens
from geminid.errors import NotFound

_USAGE, _NOT_FOUND = 2, 4  # docs/exit_codes.md


def main(arguments: list[str]) -> int:
    if not arguments:
        print(__doc__, end="", file=sys.stderr)
        return _USAGE
    if arguments[0] == "doctor":
        return doctor.main(arguments[1:])
    if arguments[0] == "tokens":
        return tokens.main(arguments[1:])
    try:
        return _programs.become("geminictl", arguments)
    except NotFound as problem:
        print(f"geminid: {problem}", file=sys.stderr)
        return _NOT_FOUND


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
