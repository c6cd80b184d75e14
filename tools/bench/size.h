// The amount of work of a benchmark: enough for its figures, or just enough to show that it runs
// and prints them, as tests want it.
#ifndef GEMINID_TOOLS_BENCH_SIZE_H_
#define GEMINID_TOOLS_BENCH_SIZE_H_

#include <cstdlib>
#include <string_view>

namespace geminid::bench {

// `tools/benchmark --smallest` sets the variable. Figures of the smallest form are no measure of
// speed.
inline bool Smallest() {
  const char* const value = std::getenv("GEMINID_BENCHMARK_SMALLEST");
  return value != nullptr && std::string_view(value) == "1";
}

template <typename T>
T Size(T usual, T smallest) {
  return Smallest() ? smallest : usual;
}

}  // namespace geminid::bench

#endif  // GEMINID_TOOLS_BENCH_SIZE_H_
