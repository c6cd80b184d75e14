#!/usr/bin/env python3
"""The reference pages are made of headers and --help texts. A page that is not current is reported."""

import importlib.machinery
import importlib.util
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from tools.packaging import api_page, cli_page, help_text, python_page  # noqa: E402

LOADER = importlib.machinery.SourceFileLoader("reference", str(ROOT / "tools/reference"))
reference = importlib.util.module_from_spec(importlib.util.spec_from_loader("reference", LOADER))
LOADER.exec_module(reference)

HEADER = """// Things, and how to have them.
//
//   auto thing = Make();
//
//  * One at a time, in
//    any order.
#ifndef A_H_
#define A_H_

#include <vector>

namespace a {
class Elsewhere;
namespace b {
class C;
}  // namespace b
}  // namespace a

namespace a::things {

class Impl;  // of the library

// Stands alone.

// A number less than <n>.
enum class Id : int {};
inline constexpr Id kNone{-1};

struct Options {
  int size = 0;  // in bytes
};

// Makes one.
GEMINID_EXPORT absl::StatusOr<Thing> Make(const Options& options = {},
                                          std::function<int(int)> f = nullptr);

class GEMINID_EXPORT Thing {
 public:
  class Part {
   public:
    int size() const { return size_; }

   private:
    int size_ = 0;
  };

  // How large it is.
  int size() const;

 protected:
  int inner_;

 private:
  friend class Impl;
  int hidden_ = 0;
};

template <class T>
struct Trait;
template <>
struct Trait<int> {};

}  // namespace a::things

#endif  // A_H_
"""
HELP = """prog: does something
Usage: prog [OPTIONS]

Options:
  --mode on|off=on            On or off
  --help                      Print this
"""


def text_of(entry):
    return "\n".join(entry.code)


class Headers(unittest.TestCase):
    def setUp(self):
        self.header = api_page.parse("a.h", HEADER)
        self.entries = {entry.names[0]: entry for entry in self.header.entries}

    def test_declarations_have_names_and_the_namespace_that_they_are_in(self):
        self.assertEqual(self.header.namespace, "a::things")
        self.assertEqual(list(self.entries), ["Id", "Options", "Make", "Thing", "Trait"])
        self.assertEqual(self.entries["Id"].names, ["Id", "kNone"])

    def test_contract_is_the_comment_right_above(self):
        self.assertEqual(self.entries["Id"].contract, ["A number less than <n>."])
        self.assertEqual(self.entries["Options"].contract, [])

    def test_what_is_not_public_is_left_out_at_any_depth(self):
        shown = text_of(self.entries["Thing"])
        for hidden in ("size_ = 0", "inner_", "hidden_", "friend", "private:", "protected:", "GEMINID_EXPORT"):
            self.assertNotIn(hidden, shown)
        for public in ("class Part {", "int size() const { return size_; }\n  };", "  // How large it is."):
            self.assertIn(public, shown)
        self.assertTrue(shown.endswith("int size() const;\n};"), shown)

    def test_a_declaration_over_several_lines_is_whole(self):
        self.assertIn("std::function<int(int)> f = nullptr);", text_of(self.entries["Make"]))

    def test_page_has_prose_code_and_lists(self):
        page = api_page.render([self.header], "made")
        self.assertIn("```text\nauto thing = Make();\n```", page)
        self.assertIn("- One at a time, in\n  any order.", page)
        self.assertIn("A number less than \\<n>.", page)
        self.assertIn("[`Id, kNone`](#athingsid-athingsknone)", page)

    def test_a_header_in_c_is_read_too(self):
        header = api_page.parse("a.h", '// Top.\n#ifdef __cplusplus\nextern "C" {\n#endif\n#pragma GCC visibility push(default)\n'
                                '\n// A thing.\ntypedef struct thing {\n  int size;  // in bytes (all)\n} thing;\n'
                                '\nint make(thing* made);\n\n#pragma GCC visibility pop\n#ifdef __cplusplus\n'
                                '}  // extern "C"\n#endif\n')
        self.assertEqual([entry.names for entry in header.entries], [["thing"], ["make"]])
        self.assertNotIn("extern", text_of(header.entries[1]))

    def test_every_declaration_of_the_real_headers_is_shown(self):
        for header in reference.headers_of(ROOT):
            page = api_page.render([header], "")
            for line in (ROOT / "include" / header.path).read_text().splitlines():
                if line.startswith(("struct ", "class ", "enum ", "GEMINID_EXPORT ")) and not (
                        api_page.FORWARD.match(line) or "DTypeOfElement" in line):
                    self.assertIn(line.replace("GEMINID_EXPORT ", ""), page, header.path)


class Helps(unittest.TestCase):
    def test_page_has_usage_and_options(self):
        shown = help_text.parse(("prog",), HELP, None)
        page = cli_page.render([shown], "made")
        self.assertIn("## prog\n\nDoes something.\n", page)
        self.assertIn("```text\nprog [OPTIONS]\n```", page)
        self.assertIn("| `--mode` | `on\\|off=on` | On or off |", page)
        self.assertNotIn("| `--help` |", page)


PACKAGE = '''"""Things.

    import a
    a.make(1)

Done.
"""
from geminid.b import Thing
from geminid import errors

__all__ = ["Thing", "errors", "make"]


def make(size: int, *, where: str | None = None) -> "Thing":
    """Makes one.

    size: of it,
        in bytes.
    where: <none>.
    """


def _hidden(): ...
'''
MODULE = '''"""B."""
from dataclasses import dataclass


@dataclass
class Thing:
    """It."""
    size: int = 0
    _own: int = 1

    def half(self) -> float:
        """Of ``size``."""

    @property
    def whole(self) -> int:
        """All of it."""

    def _inner(self): ...
'''


class Python(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def read(self, package=PACKAGE, module=MODULE):
        folder = self.root / "python/geminid"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").write_text(package)
        (folder / "b.py").write_text(module)
        return python_page.read(self.root, "geminid")

    def test_public_names_are_those_of_all_wherever_they_are_defined(self):
        module = self.read()
        self.assertEqual([entry.name for entry in module.entries], ["Thing", "make"])
        thing, make = module.entries
        self.assertEqual(thing.signature, "class Thing\n    size: int = 0")
        self.assertEqual(thing.methods, [("half", "() -> float", "Of ``size``."), ("whole", " -> int", "All of it.")])
        self.assertEqual(make.signature, "make(size: int, *, where: str | None=None) -> 'Thing'")

    def test_page_has_prose_code_and_lists(self):
        page = python_page.render([self.read()], "made")
        self.assertIn("Things.\n\n```python\nimport a\na.make(1)\n```\n\nDone.\n", page)
        self.assertIn("Makes one.\n\n- size: of it,\n  in bytes.\n- where: \\<none>.\n", page)
        self.assertIn("[`make`](#geminidmake)", page)

    def test_what_has_no_annotation_or_no_docstring_is_found(self):
        for bad, words in ((PACKAGE.replace("size: int", "size"), "make has no annotation of size"),
                           (PACKAGE.replace(' -> "Thing"', ""), "make has no annotation of what it returns"),
                           (PACKAGE.replace('"""Makes one.', 'x = """Makes one.'), "make has no docstring"),
                           (PACKAGE.replace('"""Things.', 'x = """Things.'), "geminid has no docstring")):
            with self.assertRaisesRegex(python_page.Unfit, words):
                self.read(package=bad)
        with self.assertRaisesRegex(python_page.Unfit, "Thing.half has no docstring"):
            self.read(module=MODULE.replace('"""Of ``size``."""', "return 0.5"))
        with self.assertRaisesRegex(python_page.Unfit, "Thing has no docstring"):
            self.read(module=MODULE.replace('"""It."""', ""))

    def test_no_two_headings_of_the_real_page_have_one_anchor(self):
        anchors = [python_page.anchor(module, entry) for module in python_page.modules_of(ROOT) for entry in module.entries]
        self.assertEqual(len(anchors), len(set(anchors)))


class Stale(unittest.TestCase):
    def found(self, there, wanted):
        with tempfile.TemporaryDirectory() as folder:
            if there is not None:
                (pathlib.Path(folder) / "page.md").write_text(there)
            return list(reference.stale(pathlib.Path(folder), {"page.md": wanted}))

    def test_a_current_page_is_allowed(self):
        self.assertEqual(self.found("one\ntwo\n", "one\ntwo\n"), [])

    def test_a_stale_page_is_found_with_what_differs(self):
        found = self.found("one\ntwo\n", "one\nthree\n")
        self.assertEqual(len(found), 1)
        self.assertIn("-two", found[0])
        self.assertIn("+three", found[0])

    def test_a_missing_page_is_found(self):
        self.assertEqual(len(self.found(None, "one\n")), 1)


if __name__ == "__main__":
    unittest.main()
