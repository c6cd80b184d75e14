// Linked into tests whose ranks and daemon mostly wait for each other: waking a thread of another
// processor costs several times what waking one of the same processor does. Keeps the program, and
// those that it starts, on the processor that ctest has chosen for it (the property RESOURCE_GROUPS
// and --resource-spec-file). Without such a choice it does nothing.
#include <sched.h>

#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace geminid {
namespace {

// Before main, and so before any thread.
const bool kKept = [] {
  const char* const choice = std::getenv("CTEST_RESOURCE_GROUP_0_PROCESSORS");  // id:N,slots:1
  absl::string_view text = choice == nullptr ? "" : choice;
  int processor = 0;
  if (!absl::ConsumePrefix(&text, "id:") ||
      !absl::SimpleAtoi(text.substr(0, text.find(',')), &processor)) {
    return false;
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processor, &one);
  return sched_setaffinity(0, sizeof(one), &one) == 0;
}();

}  // namespace
}  // namespace geminid
