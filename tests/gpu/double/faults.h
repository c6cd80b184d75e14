// What every call of the double passes first, in the driver and in its libraries.
#ifndef GEMINID_TESTS_GPU_DOUBLE_FAULTS_H_
#define GEMINID_TESTS_GPU_DOUBLE_FAULTS_H_

namespace geminid::gpu_double {

// Counts a call (tests/gpu/double/functions.h has the numbers), waits where it is to hang, and
// returns what it is to fail with, in the numbers of its library; 0: it goes on.
int CountCall(int function);

}  // namespace geminid::gpu_double

#endif  // GEMINID_TESTS_GPU_DOUBLE_FAULTS_H_
