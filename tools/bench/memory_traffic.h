#ifndef GEMINID_TOOLS_BENCH_MEMORY_TRAFFIC_H_
#define GEMINID_TOOLS_BENCH_MEMORY_TRAFFIC_H_

#include <cstddef>
#include <cstdint>
#include <span>

// The baseline for a kernel: its loads and stores alone.
namespace geminid {

// One array that is read, written or both, with the same number of bytes for every element.
struct Traffic {
  const uint8_t* read;  // null: the array is only written
  uint8_t* write;       // null: the array is only read; equal to `read`: in place
  size_t bytes_per_element;
};

// Reads and writes elements [begin, end) of all arrays, in groups of 64 elements, like a kernel
// that visits each element once. Both ends are multiples of 64; arrays start cache lines. Writes
// the values of `read`, or zeros. Streaming stores bypass the cache. Returns a checksum, so that
// the compiler keeps the loads.
uint64_t MoveTraffic(std::span<const Traffic> arrays, size_t begin, size_t end, bool streaming);

// Arithmetic on whole arrays, one vectorised pass over memory each, as in an optimizer that is
// written with an array library. `out` may be `a` or `b`.
void MultiplyPass(const float* a, float factor, float* out, size_t count);
void MultiplyPass(const float* a, const float* b, float* out, size_t count);
void AddPass(const float* a, const float* b, float* out, size_t count);
void AddPass(const float* a, float term, float* out, size_t count);
void SubtractPass(const float* a, const float* b, float* out, size_t count);
void DividePass(const float* a, const float* b, float* out, size_t count);
void RootPass(const float* a, float* out, size_t count);

}  // namespace geminid

#endif  // GEMINID_TOOLS_BENCH_MEMORY_TRAFFIC_H_
