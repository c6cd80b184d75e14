// Runs geminictl in the test's process, and returns its output and exit code.
#ifndef GEMINID_TESTS_TOOLS_GEMINICTL_OUTCOME_H_
#define GEMINID_TESTS_TOOLS_GEMINICTL_OUTCOME_H_

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/base/json_values.h"
#include "tools/geminictl/program/run.h"

namespace geminid::ctl {

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

inline Outcome RunWith(const std::vector<std::string>& arguments,
                       std::map<std::string, std::string> variables = {}) {
  std::ostringstream out;
  std::ostringstream err;
  Environment environment;
  environment.out = &out;
  environment.err = &err;
  environment.variables = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  Outcome outcome;
  outcome.code = RunGeminictl(arguments, environment);
  outcome.out = out.str();
  outcome.err = err.str();
  return outcome;
}

inline base::JsonValue Parse(const Outcome& outcome) {
  base::JsonValue value = base::MustParse(outcome.out);
  EXPECT_EQ(base::At(value, "schema_version").text, "1") << outcome.err;
  return value;
}

// Runs "geminictl plan", which needs no daemon.
inline Outcome RunPlan(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "plan");
  return RunWith(arguments);
}

}  // namespace geminid::ctl

#endif  // GEMINID_TESTS_TOOLS_GEMINICTL_OUTCOME_H_
