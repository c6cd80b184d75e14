// Watches a thread's heap allocations, except for aligned memory. A program with this header uses
// the operators new and delete of watched_heap.cc.
#ifndef GEMINID_TESTS_TRAINING_NN_PARALLEL_WATCHED_HEAP_H_
#define GEMINID_TESTS_TRAINING_NN_PARALLEL_WATCHED_HEAP_H_

#include <cstddef>

namespace geminid::collectives {

// Starts watching this thread.
void WatchHeap();
// Stops watching; returns the largest block that this thread allocated since WatchHeap.
size_t LargestPieceOfHeap();

}  // namespace geminid::collectives

#endif  // GEMINID_TESTS_TRAINING_NN_PARALLEL_WATCHED_HEAP_H_
