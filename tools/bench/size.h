// How much a benchmark does: as much as its figures need, or as little as shows that it runs and
// prints them, which is what the tests ask of it.
#ifndef GEMINID_TOOLS_BENCH_SIZE_H_
#define GEMINID_TOOLS_BENCH_SIZE_H_

#include <cstdlib>
#include <string_view>

namespace geminid::bench {

// `tools/benchmark --smallest` sets the variable. Figures of the smallest form say nothing about
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
