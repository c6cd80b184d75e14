#ifndef GEMINID_TOOLS_BENCH_MEMORY_TRAFFIC_H_
#define GEMINID_TOOLS_BENCH_MEMORY_TRAFFIC_H_

#include <cstddef>
#include <cstdint>
#include <span>

// What a kernel is measured against: loads and stores alone.
namespace geminid {

// One array that is read, written or both, with the same number of bytes for every element.
struct Traffic {
  const uint8_t* read;  // null: only written
  uint8_t* write;       // null: only read; equal to `read`: in place
  size_t bytes_per_element;
};

// Reads and writes elements [begin, end) of all arrays, in groups of 64 elements as a kernel does
// that goes through them once; both ends are multiples of 64, arrays start cache lines. Values
// written are those of `read`, or zero. Streaming stores bypass the cache. Returns a checksum, for
// the loads' sake.
uint64_t MoveTraffic(std::span<const Traffic> arrays, size_t begin, size_t end, bool streaming);

// Arithmetic on whole arrays, one pass over memory each, vectorised: what an optimizer written with
// an array library does. `out` may be `a` or `b`.
void MultiplyPass(const float* a, float factor, float* out, size_t count);
void MultiplyPass(const float* a, const float* b, float* out, size_t count);
void AddPass(const float* a, const float* b, float* out, size_t count);
void AddPass(const float* a, float term, float* out, size_t count);
void SubtractPass(const float* a, const float* b, float* out, size_t count);
void DividePass(const float* a, const float* b, float* out, size_t count);
void RootPass(const float* a, float* out, size_t count);

}  // namespace geminid

#endif  // GEMINID_TOOLS_BENCH_MEMORY_TRAFFIC_H_
