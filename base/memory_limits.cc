#include "base/memory_limits.h"

#include <sys/resource.h>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"

namespace geminid::base {
namespace {

struct Limit {
  __rlimit_resource resource;
  const char* what;
  const char* option;
};
constexpr Limit kLimits[] = {
    {RLIMIT_AS, "the address space of a process", "-v"},
    {RLIMIT_FSIZE, "the size of a file, and so of memory that processes share,", "-f"},
    {RLIMIT_DATA, "the private memory of a process", "-d"}};

}  // namespace

std::string DescribeMemoryLimits() {
  std::string words;
  for (const Limit& limit : kLimits) {
    rlimit value = {};
    if (getrlimit(limit.resource, &value) != 0 || value.rlim_cur == RLIM_INFINITY) continue;
    absl::StrAppend(&words, words.empty() ? "" : "; ", limit.what, " is limited to ",
                    FormatBytes(value.rlim_cur), ": raise it, or lift it with ulimit ",
                    limit.option, " unlimited");
  }
  return words;
}

}  // namespace geminid::base
