// What a thread takes of the heap, apart from aligned memory: a program that has this has the
// operators new and delete of watched_heap.cc.
#ifndef GEMINID_TESTS_TRAINING_NN_PARALLEL_WATCHED_HEAP_H_
#define GEMINID_TESTS_TRAINING_NN_PARALLEL_WATCHED_HEAP_H_

#include <cstddef>

namespace geminid::collectives {

// From now on, on this thread.
void WatchHeap();
// The largest piece that it took since; it is not watched any more.
size_t LargestPieceOfHeap();

}  // namespace geminid::collectives

#endif  // GEMINID_TESTS_TRAINING_NN_PARALLEL_WATCHED_HEAP_H_
