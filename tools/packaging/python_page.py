"""Makes docs/python.md, the interface in Python, from the names, annotations and docstrings in python/geminid.

The public names of a package are those of its ``__all__``. For a module without one they are the classes and functions that do
not begin with an underscore. The script imports nothing, so torch is not needed.
"""

import ast
import dataclasses
import pathlib
import re

LEAD = """# The interface in Python

{made}

What `import geminid.torch` and its neighbours give a trainer, in the words of their docstrings: shapes, types, and the errors that are
raised. [pytorch.md](pytorch.md) shows how to use them.
"""

#: The modules for users, in the order of the page.
MODULES = ("geminid", "geminid.torch", "geminid.session", "geminid.engine", "geminid.errors", "geminid.doctor",
           "geminid.tokens")
# Methods that need no docstring.
_UNSHOWN_METHODS = ("__init__", "__str__")


@dataclasses.dataclass
class Entry:
    """A class or a function: its name, its signature, its docstring, and its public methods."""
    name: str
    signature: str
    contract: str
    methods: list


@dataclasses.dataclass
class Module:
    name: str
    contract: str
    entries: list


class Unfit(Exception):
    """A public name that is not documented or not annotated."""


def _arguments(function, method):
    arguments = function.args
    if method:
        arguments = ast.arguments(**{**{name: getattr(arguments, name) for name in arguments._fields},
                                     "args": arguments.args[1:]})
    return ast.unparse(arguments)


def _is_static(function):
    return any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list)


def _check(where, function, method):
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    arguments += [a for a in (function.args.vararg, function.args.kwarg) if a]
    bare = [a.arg for a in (arguments[1:] if method else arguments) if a.annotation is None]
    if bare or function.returns is None:
        raise Unfit(f"{where} has no annotation of {', '.join(bare) or 'what it returns'}")


def _function(where, function, method=False):
    method = method and not _is_static(function)
    _check(where, function, method)
    contract = ast.get_docstring(function)
    if not contract and function.name not in _UNSHOWN_METHODS:
        raise Unfit(f"{where} has no docstring")
    return f"({_arguments(function, method)}) -> {ast.unparse(function.returns)}", contract or ""


def _is_property(function):
    return any(isinstance(d, ast.Name) and d.id == "property" for d in function.decorator_list)


def _fields(cls):
    return [f"{ast.unparse(node.target)}: {ast.unparse(node.annotation)}" + (f" = {ast.unparse(node.value)}" if node.value else "")
            for node in cls.body if isinstance(node, ast.AnnAssign) and not ast.unparse(node.target).startswith("_")]


def _class(where, cls):
    contract = ast.get_docstring(cls)
    if not contract:
        raise Unfit(f"{where} has no docstring")
    bases = f"({', '.join(map(ast.unparse, cls.bases))})" if cls.bases else ""
    signature, methods = f"class {cls.name}{bases}", []
    for node in cls.body:
        if not isinstance(node, ast.FunctionDef):
            continue
        if node.name == "__init__":
            made, _ = _function(f"{where}.__init__", node, method=True)
            signature += f"\n{cls.name}{made.removesuffix(' -> None')}"
        elif not node.name.startswith("_"):
            called, said = _function(f"{where}.{node.name}", node, method=True)
            methods.append((node.name, called.removeprefix("()") if _is_property(node) else called, said))
    dataclass = any("dataclass" in ast.unparse(d) for d in cls.decorator_list) or "TypedDict" in bases
    fields = _fields(cls) if dataclass else []
    return Entry(cls.name, "\n".join([signature, *(f"    {field}" for field in fields)]), contract, methods)


def _entry(module, node):
    where = f"{module}.{node.name}"
    if isinstance(node, ast.ClassDef):
        return _class(where, node)
    called, contract = _function(where, node)
    manager = any("contextmanager" in ast.unparse(d) for d in node.decorator_list)
    return Entry(node.name, ("with " if manager else "") + node.name + called, contract, [])


def path_of(root, module):
    path = root / "python" / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _definitions(tree):
    return {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def _public(tree):
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    return [name for name in _definitions(tree) if not name.startswith("_")]


def read(root, name):
    """Returns a module's documentation. Raises Unfit for an undocumented public name."""
    tree = ast.parse(path_of(root, name).read_text())
    here, imported = _definitions(tree), {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            imported.update((alias.asname or alias.name, node.module) for alias in node.names)
    entries = []
    for public in _public(tree):
        source = here.get(public)
        if source is None and imported.get(public) in (None, "geminid"):
            continue  # a module
        if source is None:
            source = _definitions(ast.parse(path_of(root, imported[public]).read_text()))[public]
        entries.append(_entry(name, source))
    contract = ast.get_docstring(tree)
    if not contract:
        raise Unfit(f"{name} has no docstring")
    return Module(name, contract, entries)


ARGUMENT = re.compile(r"[a-z_]+(, [a-z_]+)*: ")


def _kind(line, before):
    """Returns the kind of a docstring's line after a line of the kind `before`."""
    if not line.strip():
        return "code" if before == "code" else ""
    if line.startswith("    "):
        return "list" if before == "list" else "code"
    return "list" if ARGUMENT.match(line) else "text"


def prose(text):
    """Returns a docstring as Markdown. A line indented by four is code, or continues an argument, which is a list item."""
    made, before = [], ""
    for line in text.splitlines():
        kind = _kind(line, before)
        if not kind:
            made += [""] * bool(made and made[-1])
            before = kind
            continue
        if before == "code" and kind != "code":
            while not made[-1]:
                made.pop()
            made.append("```")
        if kind != before and made and made[-1]:
            made.append("")
        if kind == "code":
            made += ["```python"] * (before != "code") + [line[4:]]
        else:
            shown = line.strip().replace("``", "`").replace("<", "\\<")
            made.append(("  " if line.startswith("    ") else "- ") + shown if kind == "list" else shown)
        before = kind
    if before == "code":
        made.append("```")
    return made


def anchor(module, entry):
    return f"{module.name}.{entry.name}".lower().replace(".", "")


def render(modules, made):
    lines = [LEAD.format(made=made), "| module | what it has |", "|---|---|"]
    for module in modules:
        links = ", ".join(f"[`{entry.name}`](#{anchor(module, entry)})" for entry in module.entries)
        lines.append(f"| `{module.name}` | {links} |")
    lines.append("")
    for module in modules:
        lines += [f"## {module.name}", "", *prose(module.contract), ""]
        for entry in module.entries:
            lines += [f"### `{module.name}.{entry.name}`", "", "```python", *entry.signature.splitlines(), "```", "",
                      *prose(entry.contract), ""]
            for name, called, contract in entry.methods:
                lines += [f"`{name}{called}`", "", *prose(contract), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def modules_of(root):
    return [read(pathlib.Path(root), name) for name in MODULES]
