#include "tests/training/nn/parallel/watched_heap.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace {

thread_local bool heap_is_watched = false;
thread_local size_t largest_piece_of_heap = 0;

}  // namespace

// Not inlined, because the compiler would report a mismatched pair of operators.
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (heap_is_watched) largest_piece_of_heap = std::max(largest_piece_of_heap, bytes);
  void* const data = std::malloc(std::max<size_t>(bytes, 1));
  if (data == nullptr) throw std::bad_alloc();
  return data;
}
[[gnu::noinline]] void operator delete(void* data) noexcept { std::free(data); }
[[gnu::noinline]] void operator delete(void* data, size_t /*bytes*/) noexcept { std::free(data); }

namespace geminid::collectives {

void WatchHeap() {
  largest_piece_of_heap = 0;
  heap_is_watched = true;
}

size_t LargestPieceOfHeap() {
  heap_is_watched = false;
  return largest_piece_of_heap;
}

}  // namespace geminid::collectives
