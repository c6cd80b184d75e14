// A libcuda.so.1 without a GPU that accepts all calls. With it cuDNN makes plans for a GPU that is
// only described. This driver loads kernels and runs none. For tests only.
#define GEMINID_EXPORT extern "C" __attribute__((visibility("default")))
#define GEMINID_TAKES(name) \
  GEMINID_EXPORT int name() { return 0; }
#define GEMINID_MAKES(name)              \
  GEMINID_EXPORT int name(void** made) { \
    static int object = 0;               \
    *made = &object;                     \
    return 0;                            \
  }
#define GEMINID_SAYS(name, number)      \
  GEMINID_EXPORT int name(int* value) { \
    *value = number;                    \
    return 0;                           \
  }

// The driver defines these names.
// NOLINTBEGIN(readability-identifier-naming)
GEMINID_EXPORT int cuGetErrorName(int /*error*/, const char** text) {
  *text = "an error";
  return 0;
}
GEMINID_EXPORT int cuGetErrorString(int /*error*/, const char** text) {
  *text = "an error";
  return 0;
}
GEMINID_EXPORT int cuCtxGetCurrent(void** context) {
  *context = nullptr;
  return 0;
}
GEMINID_SAYS(cuDriverGetVersion, 13000)
GEMINID_SAYS(cuKernelGetAttribute, 1)
GEMINID_MAKES(cuLibraryLoadData)
GEMINID_MAKES(cuLibraryGetKernel)
GEMINID_TAKES(cuCtxGetLimit)
GEMINID_TAKES(cuCtxPopCurrent)
GEMINID_TAKES(cuCtxPushCurrent)
GEMINID_TAKES(cuDeviceGet)
GEMINID_TAKES(cuDeviceGetCount)
GEMINID_TAKES(cuKernelSetAttribute)
GEMINID_TAKES(cuLaunchCooperativeKernel)
GEMINID_TAKES(cuLaunchKernel)
GEMINID_TAKES(cuLaunchKernelEx)
GEMINID_TAKES(cuLibraryLoadFromFile)
GEMINID_TAKES(cuLibraryUnload)
GEMINID_TAKES(cuLinkAddData)
GEMINID_TAKES(cuLinkComplete)
GEMINID_TAKES(cuLinkCreate)
GEMINID_TAKES(cuLinkDestroy)
GEMINID_TAKES(cuOccupancyMaxPotentialClusterSize)
GEMINID_TAKES(cuStreamGetCtx)
// NOLINTEND(readability-identifier-naming)
