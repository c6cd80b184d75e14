// The cases of benchmarks of memory-bound kernels. A case carves its arrays from an arena and says
// how many bytes it moves.
#ifndef GEMINID_TOOLS_BENCH_CASE_MAKER_H_
#define GEMINID_TOOLS_BENCH_CASE_MAKER_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/runtime/common/status.h"
#include "kernels/runtime/parallel/thread_pool.h"
#include "tools/bench/memory_traffic.h"
#include "tools/bench/size.h"

namespace geminid {

inline const size_t kParameters = bench::Size<size_t>(64, 1) << 20;
inline const size_t kGranule = kParameters / 64;
inline constexpr size_t kBytesPerParameter = 28;  // the most that a case has: fp32 out of place

[[noreturn]] inline void Fail(const char* what) {
  std::fprintf(stderr, "optimizer_bench: %s\n", what);
  std::exit(1);
}

inline void Require(kernels::Status status) {
  if (status != kernels::Status::kOk) Fail(kernels::StatusName(status));
}

// The memory of a case, filled anew; the case carves its arrays from its start. There are two
// arenas, one for each of the two compared cases; whoever makes a case sets `side`.
class Arena {
 public:
  static inline int side = 0;

  Arena() : base_(Base(side)) { std::memset(base_, kFill, Bytes()); }
  template <typename T>
  T* Take(size_t count) {
    T* const array = reinterpret_cast<T*>(base_ + used_);
    used_ += count * sizeof(T) + kStagger;
    if (used_ > Bytes()) Fail("a case needs more memory than the arena has");
    return array;
  }

 private:
  static size_t Bytes() { return kBytesPerParameter * kParameters + (size_t{16} << 20); }
  // The gap between arrays: whole cache lines, and no power of two. Arrays at a distance of a power
  // of two share cache sets and banks of memory and run at half the speed.
  static constexpr size_t kStagger = 64 * 1237;
  // A byte that makes values near 0.01, as bf16 and as fp32: ordinary for whatever type reads them.
  static constexpr int kFill = 0x3C;

  static uint8_t* Base(int side) {
    static uint8_t* const bases[] = {Map(), Map()};
    return bases[side];
  }
  static uint8_t* Map() {
    void* const at =
        mmap(nullptr, Bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) Fail("no memory");
    madvise(at, Bytes(), MADV_HUGEPAGE);
    return static_cast<uint8_t*>(at);
  }
  uint8_t* const base_;
  size_t used_ = 0;
};

// Work over [0, kParameters), in parts.
struct Work {
  std::function<void(kernels::ThreadPool&)> run;
  double bytes_per_parameter = 0;
};

// A case: makes its arrays in an arena, and says what it moves.
struct Case {
  Work work;
  Work in_cache;  // repeated on the same few elements: the arithmetic alone
  std::vector<Traffic> traffic;
  bool streaming = false;
};

template <typename Body>
Work Granules(Body body) {
  return {[body](kernels::ThreadPool& pool) { pool.Run(kParameters, kGranule, body); }};
}

class CaseMaker {
 public:
  // An array that is read and, with `writes`, written: in place, or to a second array.
  template <typename T>
  std::pair<T*, T*> Both(bool in_place) {
    T* const from = arena_.Take<T>(kParameters);
    T* const to = in_place ? from : arena_.Take<T>(kParameters);
    Add(from, to, sizeof(T));
    return {from, to};
  }
  template <typename T>
  T* Input() {
    T* const from = arena_.Take<T>(kParameters);
    Add(from, nullptr, sizeof(T));
    return from;
  }
  float* Scratch() { return arena_.Take<float>(kParameters); }

  template <typename Body>
  Case Make(bool streaming, Body body) {
    constexpr size_t kFew = 4096;  // at most 112 kB
    Case c;
    c.work = Granules(body);
    c.in_cache.run = [body](kernels::ThreadPool&) {
      for (size_t i = 0; i < kParameters; i += kFew) body({0, 0, kFew});
    };
    c.traffic = traffic_;
    c.streaming = streaming;
    for (const Traffic& t : traffic_) {
      const int accesses = (t.read != nullptr) + (t.write != nullptr);
      c.work.bytes_per_parameter += static_cast<double>(t.bytes_per_element) * accesses;
    }
    c.in_cache.bytes_per_parameter = c.work.bytes_per_parameter;
    return c;
  }

 private:
  void Add(const void* read, void* write, size_t bytes) {
    traffic_.push_back({static_cast<const uint8_t*>(read), static_cast<uint8_t*>(write), bytes});
  }
  Arena arena_;
  std::vector<Traffic> traffic_;
};

}  // namespace geminid

#endif  // GEMINID_TOOLS_BENCH_CASE_MAKER_H_
