#ifndef GEMINID_KERNELS_RUNTIME_COMMON_HOST_DEVICE_H_
#define GEMINID_KERNELS_RUNTIME_COMMON_HOST_DEVICE_H_

// For rules of single elements that host and device kernels share.
#ifdef __CUDACC__
#define GEMINID_HOST_DEVICE __host__ __device__
#else
#define GEMINID_HOST_DEVICE
#endif

#endif  // GEMINID_KERNELS_RUNTIME_COMMON_HOST_DEVICE_H_
