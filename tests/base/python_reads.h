// Checks texts with parsers that are not ours.
#ifndef GEMINID_TESTS_BASE_PYTHON_READS_H_
#define GEMINID_TESTS_BASE_PYTHON_READS_H_

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace geminid::base {

// Whether python3 evaluates this expression of the file `f`; `json` and `xml` are imported.
inline bool PythonReads(const std::string& text, const std::string& expression) {
  const std::string path = ::testing::TempDir() + "/python_reads_" + std::to_string(::getpid());
  std::ofstream(path) << text;
  const std::string command =
      "python3 -c \"import sys, json, xml.etree.ElementTree as xml; f = open(sys.argv[1]); " +
      expression + "\" " + path + " 2>/dev/null";
  const bool reads = std::system(command.c_str()) == 0;
  std::remove(path.c_str());
  return reads;
}

}  // namespace geminid::base

#endif  // GEMINID_TESTS_BASE_PYTHON_READS_H_
