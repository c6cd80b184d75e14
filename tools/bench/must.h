// A benchmark that cannot run prints why and exits without figures.
#ifndef GEMINID_TOOLS_BENCH_MUST_H_
#define GEMINID_TOOLS_BENCH_MUST_H_

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace geminid::bench {

// Any thread. Ends the program by exit(), so that a private daemon ends with it.
inline void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

template <typename T>
T Must(absl::StatusOr<T> result) {
  Must(result.status());
  return *std::move(result);
}

}  // namespace geminid::bench

#endif  // GEMINID_TOOLS_BENCH_MUST_H_
