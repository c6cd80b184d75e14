"""Makes completions for bash, zsh and fish from the parsed --help."""

from tools.packaging import help_text


def _function(shown):
    return "_" + shown.command[0].replace("-", "_")


def _paths(shown):
    """Yields each command as a text ("" for the program itself) with its Help and its valid options."""
    def walk(node, inherited):
        options = inherited + [option for option in node.options
                               if option.flag not in {known.flag for known in inherited}]
        yield " ".join(node.command[1:]), node, options
        # The options of the program are valid after its subcommands' names, too.
        for subcommand in node.subcommands:
            yield from walk(subcommand, options)
    yield from walk(shown, [])


def bash(shown):
    function = _function(shown)
    subcommands = sorted({node.name for node in help_text.everything(shown)} - {shown.name})
    cases, files, values = [], set(), set()
    for path, node, options in _paths(shown):
        words = [name for option in options for name in option.names]
        words += [subcommand.name for subcommand in node.subcommands]
        cases.append(f"    '{path}') words='{' '.join(words)}' ;;")
        files |= {option.flag for option in options if option.takes_file}
        values |= {option.flag for option in options if option.value}
    return f"""# Completion of {shown.name}. Made from its --help.
{function}() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} path='' words='' i
  case $previous in
    {'|'.join(sorted(files)) or "''"}) COMPREPLY=($(compgen -f -- "$current")); return ;;
    {'|'.join(sorted(values - files)) or "''"}) COMPREPLY=(); return ;;
  esac
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${{COMP_WORDS[i]}} in
      {'|'.join(subcommands) or "''"}) path=${{path:+$path }}${{COMP_WORDS[i]}} ;;
    esac
  done
  case $path in
{chr(10).join(cases)}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -F {function} {shown.name}
"""


def _quoted(text):
    return text.replace("\\", "\\\\").replace("'", "'\\''").replace(":", "\\:")


def zsh(shown):
    function = _function(shown)
    subcommands = sorted({node.name for node in help_text.everything(shown)} - {shown.name})
    files = {option.flag for node in help_text.everything(shown) for option in node.options
             if option.takes_file}
    values = {option.flag for node in help_text.everything(shown) for option in node.options
              if option.value} - files
    cases = []
    for path, node, options in _paths(shown):
        described = [f"'{_quoted(option.flag)}:{_quoted(option.text)}'" for option in options]
        commands = [f"'{_quoted(sub.name)}:{_quoted(sub.summary)}'" for sub in node.subcommands]
        cases.append(f"    '{path}')\n      options=({' '.join(described)})\n"
                     f"      commands=({' '.join(commands)}) ;;")
    return f"""#compdef {shown.name}
# Completion of {shown.name}. Made from its --help.
{function}() {{
  local path_of_command='' word
  local -a options commands
  case ${{words[CURRENT - 1]}} in
    {'|'.join(sorted(files)) or "''"}) _files; return ;;
    {'|'.join(sorted(values)) or "''"}) return ;;
  esac
  for word in ${{words[2,CURRENT - 1]}}; do
    case $word in
      {'|'.join(subcommands) or "''"}) path_of_command=${{path_of_command:+$path_of_command }}$word ;;
    esac
  done
  case $path_of_command in
{chr(10).join(cases)}
  esac
  _describe -t commands command commands
  _describe -o -t options option options
}}
{function} "$@"
"""


def fish(shown):
    function = "_" + _function(shown) + "_at"
    subcommands = sorted({node.name for node in help_text.everything(shown)} - {shown.name})
    lines = [f"# Completion of {shown.name}. Made from its --help.",
             f"function {function}",
             "  set -l path",
             "  for word in (commandline -opc)[2..-1]",
             f"    contains -- $word {' '.join(subcommands)}; and set -a path $word",
             "  end",
             '  test "$path" = "$argv[1]"',
             "end",
             f"complete -c {shown.name} -f"]

    def quoted(text):
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    for path, node, options in _paths(shown):
        where = f"complete -c {shown.name} -n {quoted(f'{function} {quoted(path)}')}"
        for subcommand in node.subcommands:
            lines.append(f"{where} -a {subcommand.name} -d {quoted(subcommand.summary)}")
        for option in options:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                             for name in option.names)
            takes = " -r -F" if option.takes_file else " -x" if option.value else ""
            lines.append(f"{where} {names}{takes} -d {quoted(option.text)}")
    return "\n".join(lines) + "\n"
