#ifndef GEMINID_KERNELS_RUNTIME_CUDA_STREAM_H_
#define GEMINID_KERNELS_RUNTIME_CUDA_STREAM_H_

struct CUstream_st;

namespace geminid::kernels {

// A CUDA stream: what CUDA's headers call cudaStream_t and CUstream. Null is the default stream.
//
// Every function that takes a stream queues work on it and returns without waiting. Pointers are to
// device memory (or host memory mapped there) that stays valid until the stream has run the work.
// The stream's CUDA device must be the calling thread's current one. kUnsupported from such a
// function means that the launch was refused: no driver, no device, or an earlier error of the
// context; nothing was queued.
using CudaStream = CUstream_st*;

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_RUNTIME_CUDA_STREAM_H_
