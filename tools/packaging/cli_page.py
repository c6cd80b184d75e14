"""Makes docs/cli.md, every command line, from the programs' --help."""

from tools.packaging import help_text

LEAD = """# Command lines

{made}

What every program takes, in the words of its `--help`. A value follows its flag after a space or `=`; `TEXT=2` means that it
takes a value and that it is 2 otherwise. Flags of `geminictl` itself stand before the subcommand. What each program tells the shell
is in [exit_codes.md](exit_codes.md).
"""
HEADS = "| flag | takes | |\n|---|---|---|"


def cell(text):
    return text.replace("|", "\\|").replace("<", "\\<")


def code(text):
    return f"`{text}`".replace("|", "\\|") if text else ""


def sentence(text):
    return text[:1].upper() + text[1:]


def _options(shown):
    # --help is left out, because each command has it.
    options = [option for option in shown.options if option.flag != "--help"]
    if not options:
        return
    yield HEADS
    for option in options:
        names = ", ".join(code(name) for name in option.names)
        yield f"| {names} | {code(option.value)} | {cell(option.text)} |"
    yield ""


def _notes(shown):
    for heading, lines in shown.notes:
        if heading:
            yield "\n".join([f"{heading}:", "", "```text", *lines, "```", ""])
        else:
            yield "\n".join([*(cell(line.strip()) for line in lines), ""])


def section(shown):
    yield f"{'##' if len(shown.command) == 1 else '###'} {' '.join(shown.command)}\n"
    yield sentence(shown.summary.removeprefix(f"{shown.name}: ")).rstrip(".") + ".\n"
    yield f"```text\n{shown.usage}\n```\n"
    for name, text in shown.positionals:
        yield f"- {code(name)}: {cell(text)}"
    if shown.positionals:
        yield ""
    yield from _options(shown)
    yield from _notes(shown)


def render(programs, made):
    """Returns the page. programs: the Help of each program."""
    lines = [LEAD.format(made=made)]
    for program in programs:
        for shown in help_text.everything(program):
            lines += section(shown)
    return "\n".join(lines).rstrip("\n") + "\n"
