#ifndef GEMINID_KERNELS_RUNTIME_PARALLEL_PIECES_H_
#define GEMINID_KERNELS_RUNTIME_PARALLEL_PIECES_H_

#include <cstddef>

#include "kernels/runtime/parallel/tasks.h"
#include "kernels/runtime/parallel/thread_pool.h"

// Passes over elements whose results do not depend on how the array is divided.
namespace geminid::kernels {

// Elements that a thread takes at a time: long enough to pay for a call, shorter than a granule.
inline constexpr size_t kPieceElements = 16384;

// Calls body(begin, end) for pieces of [0, count) on the pool's threads; once if there is one.
template <typename Body>
void RunInPieces(ThreadPool* pool, size_t count, const Body& body) {
  if (ThreadsOf(pool) == 1) {
    body(size_t{0}, count);
    return;
  }
  pool->Run(count, kPieceElements, [&](const Granule& piece) { body(piece.begin, piece.end); });
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_RUNTIME_PARALLEL_PIECES_H_
