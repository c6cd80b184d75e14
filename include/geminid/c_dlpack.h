// DLPack for the interface in C: weights and gradients as tensors of NumPy, PyTorch and others.
//
//   struct DLManagedTensorVersioned* tensor;
//   geminid_engine_use(engine, GEMINID_FORWARD, &parameter, 1, 0, &operation, error);
//   geminid_engine_export_weight(engine, operation, parameter, &tensor, error);
//   ...                          // in Python, a capsule "dltensor_versioned"
//   tensor->deleter(tensor);     // whoever reads it last does this
//   geminid_engine_finish(engine, operation, 0, error);
//
// The struct is that of dlpack/dlpack.h from DLPack 1.0 on, which a caller includes to look inside.
// A tensor shows the memory of the operation without copying it: row-major, on the host device,
// and of the parameter's type. Rules:
//
//  1. An exported tensor keeps its operation open. geminid_engine_finish is refused with
//     FAILED_PRECONDITION while there is one, and geminid_engine_finish_all finishes the others.
//  2. It also keeps the engine alive with its session and ranks, whose handles may be freed before.
//  3. Its deleter may be called on any thread, and once.
//  4. The reader orders its work: it has finished before the operation does.
#ifndef GEMINID_C_DLPACK_H_
#define GEMINID_C_DLPACK_H_

#include "geminid/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)
// NOLINTBEGIN(readability-identifier-naming): the names of C.

struct DLManagedTensorVersioned;

// What geminid_engine_weight gives, with DLPACK_FLAG_BITMASK_READ_ONLY. UNIMPLEMENTED on a GPU.
geminid_code geminid_engine_export_weight(geminid_engine* engine, uint64_t operation,
                                          uint32_t parameter,
                                          struct DLManagedTensorVersioned** tensor,
                                          geminid_error* error);
// What geminid_engine_gradient gives, to be written. The caller still calls
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
