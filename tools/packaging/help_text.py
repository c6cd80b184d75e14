"""Reads a program's --help, the only definition of its command line."""

import dataclasses
import re
import subprocess

PATIENCE_SECONDS = 60

# "  -h,--help      Print this", "  --limit TEXT=1000   At most", "  --a on|off" with the rest below.
ENTRY = re.compile(r"^  (\S.*?)(?:\s{2,}(\S.*))?$")
CONTINUED = re.compile(r"^ {10,}(\S.*)$")
HEADING = re.compile(r"^(\S.*):$")
FLAG = re.compile(r"^(-\w|--[a-z][\w-]*)(?:,(--[a-z][\w-]*))?(?: (.*))?$")
WORD = re.compile(r"^[a-z][a-z-]*$")


@dataclasses.dataclass
class Option:
    names: list  # "-h", "--help"
    value: str   # "TEXT=1000", or empty if it takes no value
    text: str

    @property
    def flag(self):
        return self.names[-1]

    @property
    def takes_file(self):
        return bool(re.match(r"(PATH|FILE|DIR)\b", self.value))


@dataclasses.dataclass
class Help:
    command: tuple       # ("geminictl", "ls")
    summary: str
    usage: str
    options: list        # of Option
    positionals: list    # of (name, text)
    subcommands: list    # of Help
    notes: list          # (heading, lines) of everything else, in order

    @property
    def name(self):
        return self.command[-1]


def _join(entries):
    """Yields entries as (head, text), joined with their continued lines."""
    joined = []
    for line in entries:
        more = CONTINUED.match(line)
        if more and joined:
            head, text = joined[-1]
            joined[-1] = (head, (text + " " + more.group(1)).strip())
            continue
        match = ENTRY.match(line)
        if match:
            joined.append((match.group(1), match.group(2) or ""))
    return joined


def _sections(text):
    """Returns the lines before the first heading, and (heading, lines) for each heading. A list follows a heading."""
    lead, sections = [], []
    lines = text.splitlines()
    for at, line in enumerate(lines):
        heading = HEADING.match(line)
        following = next((later for later in lines[at + 1:] if later.strip()), "")
        if heading and following.startswith("  ") and not line.lower().startswith("usage"):
            sections.append((heading.group(1), []))
        elif sections:
            sections[-1][1].append(line)
        else:
            lead.append(line)
    return lead, sections


def _paragraphs(lines):
    paragraphs = [[]]
    for line in lines:
        if line and not line.startswith("  "):
            paragraphs[-1].append(line)
        elif paragraphs[-1]:
            paragraphs.append([])
    return [" ".join(paragraph) for paragraph in paragraphs if paragraph]


def _split_notes(lines):
    """Splits off the lines after an empty line behind a list: they belong to no heading."""
    for i, line in enumerate(lines):
        if not line.strip() and any(rest.strip() for rest in lines[i + 1:]):
            return lines[:i], lines[i + 1:]
    return lines, []


def parse(command, text, read_subcommand):
    """Parses a --help text. read_subcommand(command): returns the Help of a subcommand."""
    lead, sections = _sections(text)
    usage = next(line for line in lead if line.lower().startswith("usage:"))
    prose = _paragraphs(["" if line is usage else line for line in lead])
    shown = Help(command, prose[0], usage.split(":", 1)[1].strip(), [], [], [], [])
    bare = [line for line in lead if line.startswith("  ")]
    for heading, lines in [("Options", bare), *sections]:
        entries, rest = _split_notes(lines) if heading == "Subcommands" else (lines, [])
        joined = _join(entries)
        if heading == "Subcommands":
            shown.subcommands = [read_subcommand(command + (head,)) for head, _ in joined
                                 if WORD.match(head)]
        elif heading == "Positionals":
            shown.positionals = [(head.split()[0], text) for head, text in joined]
        elif joined and all(FLAG.match(head) for head, _ in joined):
            for head, words in joined:
                short, long, value = FLAG.match(head).groups()
                shown.options.append(Option([name for name in (short, long) if name], value or "",
                                            words))
        elif any(line.strip() for line in lines):
            shown.notes.append((heading, [line for line in lines if line.strip()]))
        if any(line.strip() for line in rest):
            shown.notes.append(("", [line for line in rest if line.strip()]))
    if len(prose) > 1:
        shown.notes.insert(0, ("", prose[1:]))
    return shown


def read(program, command=None):
    """Returns the Help of a program and of all its subcommands."""
    command = command or (program.name,)
    done = subprocess.run([str(program), *command[1:], "--help"], capture_output=True, text=True,
                          check=True, timeout=PATIENCE_SECONDS)
    return parse(command, done.stdout, lambda subcommand: read(program, subcommand))


def everything(shown):
    """Yields a Help and those of its subcommands at any depth."""
    yield shown
    for subcommand in shown.subcommands:
        yield from everything(subcommand)
