"""Makes docs/api.md, the interface in C++, from the contracts in include/geminid.

The headers must have the form of clang-format: a comment directly above a declaration is its contract. An empty line ends a
group of declarations that share a contract.
"""

import dataclasses
import re

LEAD = """# The interface in C++

{made}

What `#include "geminid/..."` gives a trainer, header by header, in the words of the headers: what something does, in which unit, who owns
it, which thread may call it, and which errors it gives. What is private is left out. The forms of failure are those of
[Abseil's status](https://abseil.io/docs/cpp/guides/status); [errors.md](errors.md) has the usual messages.
"""

GUARD = re.compile(r"^#(ifndef|ifdef|define|endif|pragma)|^extern \"C\" \{|^\}  // extern")
NAMESPACE = re.compile(r"^namespace (\S+) \{$")
FORWARD = re.compile(r"^(class|struct) \w+;")
SPECIALISATION = re.compile(r"^template <>|^struct DTypeOfElement")
ACCESS = re.compile(r"^ *(public|protected|private):$")
NAME = (re.compile(r"^(?:template <.*> )?(?:typedef )?(?:class|struct|enum class|enum|concept|using) (\w+)"),
        re.compile(r"\b(\w+)\((?!\))[^()]*\)? *(?:const)? *[;{(,]|\b(\w+)\(\)"),
        re.compile(r"\b(k\w+)\b"))


@dataclasses.dataclass
class Entry:
    """A declaration, or several in a row, and their contract."""
    names: list
    contract: list  # lines without slashes
    code: list      # lines


@dataclasses.dataclass
class Header:
    path: str
    contract: list
    namespace: str
    entries: list


def uncommented(line):
    return line.strip().removeprefix("//").removeprefix(" ")


def name_of(declaration):
    text = " ".join(line.strip() for line in declaration)
    text = re.sub(r"^template <[^>]*> *", "", text)
    kind = NAME[0].match(text)
    if kind:
        return kind.group(1)
    if "(" in text and " = " not in text.split("(")[0]:
        return re.search(r"(\w+)\(", text).group(1)
    return re.search(r"(\w+) *(=|\{|;)", text).group(1)


def public_of(lines):
    """Returns the lines of a class without its private parts, at any depth."""
    kept, hidden = [], None  # the column of the access specifier that hides the following lines
    for line in lines:
        column = len(line) - len(line.lstrip())
        access = ACCESS.match(line)
        if hidden is not None and line.strip() and column < hidden:
            hidden = None
        if access and (hidden is None or column <= hidden):
            hidden = None if access.group(1) == "public" else column
            if hidden is not None:
                while kept and not kept[-1].strip():
                    kept.pop()
                continue
        if hidden is None:
            kept.append(line)
    return kept


def _depth(line):
    code = line.split("//")[0]
    return sum(code.count(c) for c in "{(") - sum(code.count(c) for c in "})")


def declarations(lines):
    """Yields (contract, code) of each declaration of the namespace. code is empty for a comment without a declaration."""
    contract, code, depth = [], [], 0
    for line in lines:
        bare = line.split("//")[0].rstrip()
        if not code and line.startswith("//"):
            contract.append(uncommented(line))
            continue
        if not code and not line.strip():
            yield contract, []
            contract = []
            continue
        code.append(line)
        depth += _depth(line)
        if depth == 0 and (bare.endswith(";") or bare == "}" or bare.endswith(" }")):
            yield contract, code
            contract, code = [], []


def entries_of(lines):
    entries, open_group = [], False
    for contract, code in declarations(lines):
        if not code:
            open_group = False
            continue
        if FORWARD.match(code[0]) or SPECIALISATION.match(code[0]):
            continue
        if code[0].startswith("template") and len(code) > 1 and SPECIALISATION.match(code[1]):
            continue
        code = [line.replace("GEMINID_EXPORT ", "") for line in public_of(code)]
        if open_group and not contract:
            entries[-1].code += code
            entries[-1].names.append(name_of(code))
        else:
            entries.append(Entry([name_of(code)], contract, code))
        open_group = True
    return entries


def parse(path, text):
    """Parses a header. Its contract is the comment at its top."""
    lines = text.splitlines()
    top = next(i for i, line in enumerate(lines) if not line.startswith("//"))
    contract = [uncommented(line) for line in lines[:top]]
    body, namespaces = [], []
    for line in lines[top:]:
        opened = NAMESPACE.match(line)
        if opened:
            namespaces.append(opened.group(1))
        elif not (GUARD.match(line) or line.startswith("#include") or line.startswith("}  // namespace")):
            body.append(line)
    return Header(path, contract, namespaces[-1] if namespaces else "", entries_of(body))


def prose(lines):
    """Returns comments as Markdown: text indented by two or more is a picture or code, " * " is a list."""
    made, block, in_list = [], [], False

    def close():
        while block and not block[-1].strip():
            block.pop()
        if block:
            made.extend(["", "```text", *block, "```", ""])
            block.clear()

    for line in lines:
        if line.startswith(" * "):
            close()
            in_list = True
            made.append("-" + line[2:].replace("<", "\\<"))
        elif in_list and line.startswith("   "):
            made.append("  " + line.strip().replace("<", "\\<"))
        elif line.startswith("  ") or (block and not line):
            block.append(line[2:])
        else:
            in_list = in_list and bool(line.startswith(" "))
            close()
            made.append(line.replace("<", "\\<"))
    close()
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(made)).strip("\n")
    return [*text.splitlines(), ""] if text else []


def full_name(header, name):
    return f"{header.namespace}::{name}" if header.namespace else name


def anchor(header, entry):
    return re.sub(r"[^\w\- ]", "", ", ".join(headings(header, entry)).lower()).strip().replace(" ", "-")


def headings(header, entry):
    return [full_name(header, name) for name in dict.fromkeys(entry.names)]


def render(headers, made):
    lines = [LEAD.format(made=made), "| header | what it has |", "|---|---|"]
    for header in headers:
        links = ", ".join(f"[`{', '.join(dict.fromkeys(entry.names))}`](#{anchor(header, entry)})"
                          for entry in header.entries)
        lines.append(f"| `{header.path}` | {links} |")
    lines.append("")
    for header in headers:
        lines += [f"## {header.path}", "", *prose(header.contract)]
        for entry in header.entries:
            names = ", ".join(f"`{name}`" for name in headings(header, entry))
            lines += [f"### {names}", "", *prose(entry.contract), "```cpp", *entry.code, "```", ""]
    return "\n".join(lines).rstrip("\n") + "\n"
