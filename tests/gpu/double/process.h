// The double's state of its process: whether it is initialised, its devices, and its threads'
// contexts; and the first step of every call.
#ifndef GEMINID_TESTS_GPU_DOUBLE_PROCESS_H_
#define GEMINID_TESTS_GPU_DOUBLE_PROCESS_H_

#include <vector>

#include "gpu/driver_api.h"
#include "tests/gpu/double/engine.h"

namespace geminid::gpu_double {

// What a function requires of its caller.
enum class Needs {
  kNothing,
  kInit,     // cuInit, in this process
  kContext,  // and a current context, without an error
};

// Counts the call, and applies its fault. Other than CUDA_SUCCESS: the call returns that.
CUresult Gate(int function, Needs needs);

CUresult InitialiseProcess();

// The numbers in the node of devices that CUDA_VISIBLE_DEVICES leaves; a CUdevice indexes them.
const std::vector<int>& VisibleDevices();
bool IsDevice(CUdevice device);

// The primary context of a visible device, made on first use.
Context* PrimaryContext(CUdevice device);
// The context that PrimaryContext returned and that is retained; or null.
Context* ContextOf(CUcontext handle);
std::vector<Context*>& ContextStack();  // of this thread
Context* CurrentContext();              // null: there is no current context

CUresult ErrorName(CUresult result, const char** name);
CUresult ErrorText(CUresult result, const char** text);

}  // namespace geminid::gpu_double

#endif  // GEMINID_TESTS_GPU_DOUBLE_PROCESS_H_
