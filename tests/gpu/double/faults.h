// The first step of every call of the double, in the driver and in its libraries.
#ifndef GEMINID_TESTS_GPU_DOUBLE_FAULTS_H_
#define GEMINID_TESTS_GPU_DOUBLE_FAULTS_H_

namespace geminid::gpu_double {

// Counts a call (numbers: tests/gpu/double/functions.h), hangs if a fault says so, and returns the
// fault's error in the numbers of its library; 0: the call continues.
int CountCall(int function);

}  // namespace geminid::gpu_double

#endif  // GEMINID_TESTS_GPU_DOUBLE_FAULTS_H_
