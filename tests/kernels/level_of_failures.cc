// Linked into programs whose numbers depend on the processor. After a failure they print the level
// of instruction sets, and the command that runs just that test again.
#include <gtest/gtest.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <string>

#include "base/max_isa.h"
#include "kernels/runtime/simd/isa.h"

namespace geminid::kernels {
namespace {

std::string PathOfThisProgram() {
  char path[PATH_MAX] = {};
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  return length > 0 ? std::string(path, static_cast<size_t>(length)) : "PROGRAM";
}

class LevelOfFailures final : public testing::EmptyTestEventListener {
 public:
  void OnTestEnd(const testing::TestInfo& test) override {
    if (!test.result()->Failed()) return;
    const char* const level = base::Name(IsaInUse());
    std::printf("That was with instruction sets up to %s. Again: %s=%s %s --gtest_filter=%s.%s\n",
                level, base::kMaxIsaVariable, level, PathOfThisProgram().c_str(),
                test.test_suite_name(), test.name());
    std::fflush(stdout);
  }
};

// Runs before main, which belongs to GoogleTest.
const bool kListens = [] {
  // UnitTest owns the listener.
  testing::UnitTest::GetInstance()->listeners().Append(new LevelOfFailures);
  return true;
}();

}  // namespace
}  // namespace geminid::kernels
