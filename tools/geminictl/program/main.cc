// geminictl: looks at the daemon.
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "base/standard_streams.h"
#include "tools/geminictl/program/run.h"

namespace {

// Only the foreground job gets a person's input. A background job that takes over the terminal
// would be stopped.
bool HasPersonsInput() {
  return ::isatty(STDIN_FILENO) == 1 && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
}

}  // namespace

int main(int argc, char** argv) {
  geminid::base::PrepareStandardStreams();
  geminid::ctl::Environment environment;
  environment.out = &std::cout;
  environment.err = &std::cerr;
  environment.in_is_terminal = HasPersonsInput();
  environment.out_is_terminal = ::isatty(STDOUT_FILENO) == 1;
  environment.variables = [](const std::string& name) -> std::optional<std::string> {
    const char* const value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
  return geminid::ctl::RunGeminictl({argv + 1, argv + argc}, environment);
}
