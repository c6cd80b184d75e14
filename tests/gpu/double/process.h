// What the double knows of its process: initialised or not, its devices, the contexts of its
// threads; and what every call must pass first.
#ifndef GEMINID_TESTS_GPU_DOUBLE_PROCESS_H_
#define GEMINID_TESTS_GPU_DOUBLE_PROCESS_H_

#include <vector>

#include "gpu/driver_api.h"
#include "tests/gpu/double/engine.h"

namespace geminid::gpu_double {

// What a function demands of its caller.
enum class Needs {
  kNothing,
  kInit,     // cuInit, in this process
  kContext,  // and a current context, without an error
};

// Counts the call, and does what a fault says. Other than CUDA_SUCCESS: the call is over.
CUresult Gate(int function, Needs needs);

CUresult InitialiseProcess();

// Numbers within the node of what CUDA_VISIBLE_DEVICES leaves; a CUdevice is a place in it.
const std::vector<int>& VisibleDevices();
bool IsDevice(CUdevice device);

// Of the visible device. Made when first asked for.
Context* PrimaryContext(CUdevice device);
// One that PrimaryContext gave and is retained; or null.
Context* ContextOf(CUcontext handle);
std::vector<Context*>& ContextStack();  // of this thread
Context* CurrentContext();              // null: there is none

CUresult ErrorName(CUresult result, const char** name);
CUresult ErrorText(CUresult result, const char** text);

}  // namespace geminid::gpu_double

#endif  // GEMINID_TESTS_GPU_DOUBLE_PROCESS_H_
