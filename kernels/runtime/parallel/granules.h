#ifndef GEMINID_KERNELS_RUNTIME_PARALLEL_GRANULES_H_
#define GEMINID_KERNELS_RUNTIME_PARALLEL_GRANULES_H_

#include <algorithm>
#include <cstddef>

// How an array is divided among threads: into granules of a fixed number of elements (the last may
// be shorter), independent of the number of threads. Each thread gets one run of consecutive
// granules. Pure arithmetic.
namespace geminid::kernels {

struct Granule {
  size_t index;
  size_t begin;  // elements [begin, end)
  size_t end;

  constexpr size_t size() const { return end - begin; }
};

struct GranuleRun {
  size_t first;
  size_t last;  // granules [first, last)
};

constexpr size_t GranuleCount(size_t count, size_t granule_elements) {
  return count / granule_elements + (count % granule_elements != 0);
}

constexpr Granule GranuleAt(size_t index, size_t count, size_t granule_elements) {
  const size_t begin = index * granule_elements;
  return {index, begin, begin + std::min(granule_elements, count - begin)};
}

// The run of `part` < `parts`: lengths differ by at most one, longer ones first, in order.
constexpr GranuleRun RunOfPart(size_t granules, size_t part, size_t parts) {
  const size_t least = granules / parts, longer = granules % parts;
  const size_t first = part * least + std::min(part, longer);
  return {first, first + least + (part < longer ? 1 : 0)};
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_RUNTIME_PARALLEL_GRANULES_H_
