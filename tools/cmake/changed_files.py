"""Lists the files of a change by git."""

import subprocess
import sys


def _git(root, *arguments):
    """Returns git's output, or None."""
    done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def _default_base(root):
    """Returns the commit where this branch left main; on main, the previous commit."""
    base = (_git(root, "merge-base", "HEAD", "main") or "").strip()
    if base and base != _git(root, "rev-parse", "HEAD").strip():
        return base
    return "HEAD~" if _git(root, "rev-parse", "--verify", "HEAD~") else "HEAD"


def changed_files(root, base=None, deleted=False):
    """Returns paths relative to the root: committed since the base, changed since, and new files that git does not know."""
    if _git(root, "rev-parse", "HEAD") is None:
        sys.exit(f"{root} has no git history to compare with")
    base = base or _default_base(root)
    changed = _git(root, "diff", "--name-only", *([] if deleted else ["--diff-filter=d"]), base)
    if changed is None:
        sys.exit(f"git knows no '{base}' to compare with")
    unknown = _git(root, "ls-files", "--others", "--exclude-standard")
    return sorted(set(changed.split("\n") + unknown.split("\n")) - {""})
