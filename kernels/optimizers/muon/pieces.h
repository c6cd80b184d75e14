#ifndef GEMINID_KERNELS_OPTIMIZERS_MUON_PIECES_H_
#define GEMINID_KERNELS_OPTIMIZERS_MUON_PIECES_H_

#include <cstddef>

#include "kernels/runtime/parallel/thread_pool.h"

// Passes over elements, on a pool's threads.
namespace geminid::kernels {

// What threads take in turn: large beside the cost of a call, small beside a matrix.
inline constexpr size_t kMuonPieceElements = 16384;

// body(begin, end) for all of [0, count), on the pool's threads if there are several.
template <typename Body>
void RunInPieces(ThreadPool* pool, size_t count, const Body& body) {
  if (pool == nullptr || pool->threads() == 1) {
    body(size_t{0}, count);
    return;
  }
  pool->Run(count, kMuonPieceElements, [&](const Granule& piece) { body(piece.begin, piece.end); });
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_MUON_PIECES_H_
