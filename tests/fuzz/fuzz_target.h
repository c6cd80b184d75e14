// What a fuzzer calls with bytes of its choice: libFuzzer's entry, and that of our own replay.
//
// A target ends the process (abort) when what it tests breaks a promise; crashes and reports of
// sanitizers do so by themselves.
#ifndef GEMINID_TESTS_FUZZ_FUZZ_TARGET_H_
#define GEMINID_TESTS_FUZZ_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace geminid::fuzz {

inline void Require(bool kept, const char* promise) {
  if (kept) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

}  // namespace geminid::fuzz

#endif  // GEMINID_TESTS_FUZZ_FUZZ_TARGET_H_
