// The driver's functions in the double, by the names of the project's table. library.cc checks what
// each function requires of its caller; the functions here rely on it.
#ifndef GEMINID_TESTS_GPU_DOUBLE_CALLS_H_
#define GEMINID_TESTS_GPU_DOUBLE_CALLS_H_

#include "gpu/driver_api.h"

namespace geminid::gpu_double::calls {

#define GEMINID_DECLARE(member, name, parameters) CUresult member parameters;
GEMINID_DRIVER_FUNCTIONS(GEMINID_DECLARE)
GEMINID_NEWER_DRIVER_FUNCTIONS(GEMINID_DECLARE)
#undef GEMINID_DECLARE

}  // namespace geminid::gpu_double::calls

#endif  // GEMINID_TESTS_GPU_DOUBLE_CALLS_H_
