"""Makes a manual page in the macros of man(7)."""

# Programs for administrators.
SECTION_8 = ("geminid", "geminid-agent")
EXIT_CODES = {"8": ("The codes of sysexits.h: 0 it was told to end, 64 the command line, 69 another daemon has the "
                          "socket, 70 internal, 71 no memory or descriptors, 77 not allowed, 78 the configuration."),
              "1": ("0 all is well, 1 failed, 2 wrong arguments, 3 no daemon, 4 not found, 5 not allowed, 6 too late, 7 it "
                   "does not fit, 8 something is wrong with what was looked at, 9 another rank failed, 10 versions that do "
                   "not go together.")}
SEE_ALSO = ("geminictl(1)", "geminid(8)", "geminid-agent(8)", "geminid-sim(1)", "geminid-train(1)", "geminid-gpu-verify(1)")


def section_of(program):
    return "8" if program in SECTION_8 else "1"


def escaped(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return "\n".join("\\&" + line if line.startswith(".") else line for line in text.splitlines())


def sentence(text):
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", ")", "]", ":")) else text + "."


def _options(shown):
    for option in shown.options:
        names = ", ".join(f"\\fB{escaped(name)}\\fR" for name in option.names)
        value = f" \\fI{escaped(option.value)}\\fR" if option.value else ""
        yield f".TP\n{names}{value}\n{escaped(sentence(option.text))}"


def _subcommand(shown):
    yield f".SS {escaped(' '.join(shown.command[1:]))}"
    yield escaped(sentence(shown.summary))
    yield f".PP\n.B {escaped(shown.usage)}"
    for name, text in shown.positionals:
        yield f".TP\n\\fI{escaped(name)}\\fR\n{escaped(sentence(text))}"
    yield from (part for option, part in zip(shown.options, _options(shown))
                if option.flag != "--help")
    for subcommand in shown.subcommands:
        yield from _subcommand(subcommand)


def _notes(shown):
    for heading, lines in shown.notes:
        if heading:
            body = "\n".join(escaped(line) for line in lines)
            yield f".SH {escaped(heading.upper())}\n.nf\n{body}\n.fi"
        else:
            yield ".PP\n" + "\n".join(escaped(line.strip()) for line in lines)


def render(shown, version):
    name = shown.command[0]
    section = section_of(name)
    summary = shown.summary.removeprefix(f"{name}: ").split(". ")[0].rstrip(".")
    parts = [f'.TH {name.upper()} {section} "" "Geminid {version}" "Geminid"',
             ".SH NAME", f"{escaped(name)} \\- {escaped(summary[:1].lower() + summary[1:])}",
             ".SH SYNOPSIS", f".B {escaped(shown.usage)}",
             ".SH DESCRIPTION", escaped(sentence(shown.summary))]
    for text in (part for part in _notes(shown) if part.startswith(".PP")):
        parts.append(text)
    parts += [".SH OPTIONS", *_options(shown)]
    if shown.subcommands:
        parts.append(".SH SUBCOMMANDS")
        for subcommand in shown.subcommands:
            parts += _subcommand(subcommand)
    parts += [part for part in _notes(shown) if part.startswith(".SH")]
    parts += [".SH EXIT STATUS", escaped(EXIT_CODES[section])]
    others = ", ".join(f"\\fB{escaped(other[:-3])}\\fR{other[-3:]}" for other in SEE_ALSO
                       if not other.startswith(name + "("))
    parts += [".SH SEE ALSO", others]
    return "\n".join(parts) + "\n"
