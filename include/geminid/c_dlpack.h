// DLPack for the interface in C: weights and gradients as tensors of NumPy, PyTorch and others.
//
//   struct DLManagedTensorVersioned* tensor;
//   geminid_engine_use(engine, GEMINID_FORWARD, &parameter, 1, 0, &operation, error);
//   geminid_engine_export_weight(engine, operation, parameter, &tensor, error);
//   ...                          // in Python, a capsule "dltensor_versioned"
//   tensor->deleter(tensor);     // called by its last reader
//   geminid_engine_finish(engine, operation, 0, error);
//
// The struct is that of dlpack/dlpack.h from DLPack 1.0 on; include that header to read its fields.
// A tensor shares the operation's memory without a copy: row-major, on the host device, in the
// parameter's type. Rules:
//
//  1. An exported tensor keeps its operation open. Meanwhile geminid_engine_finish is refused with
//     FAILED_PRECONDITION, and geminid_engine_finish_all leaves that operation open.
//  2. It also keeps the engine alive with its session and ranks, whose handles may be freed before.
//  3. Its deleter may be called on any thread, exactly once.
//  4. The reader must order its work, so that it has finished before the operation does.
#ifndef GEMINID_C_DLPACK_H_
#define GEMINID_C_DLPACK_H_

#include "geminid/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)
// NOLINTBEGIN(readability-identifier-naming): the names of C.

struct DLManagedTensorVersioned;

// The tensor of geminid_engine_weight, DLPACK_FLAG_BITMASK_READ_ONLY. UNIMPLEMENTED on a GPU.
geminid_code geminid_engine_export_weight(geminid_engine* engine, uint64_t operation,
                                          uint32_t parameter,
                                          struct DLManagedTensorVersioned** tensor,
                                          geminid_error* error);
// The tensor of geminid_engine_gradient, to be written. The caller must still call
// geminid_engine_gradient_written.
geminid_code geminid_engine_export_gradient(geminid_engine* engine, uint64_t operation,
                                            uint32_t parameter,
                                            struct DLManagedTensorVersioned** tensor,
                                            int* accumulates, geminid_error* error);

// NOLINTEND(readability-identifier-naming)
#pragma GCC visibility pop
#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // GEMINID_C_DLPACK_H_
