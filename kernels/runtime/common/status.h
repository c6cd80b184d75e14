#ifndef GEMINID_KERNELS_RUNTIME_COMMON_STATUS_H_
#define GEMINID_KERNELS_RUNTIME_COMMON_STATUS_H_

namespace geminid::kernels {

// A kernel's verdict on its arguments. Every status but kOk is decided before the first byte is
// written: outputs are then untouched.
enum class [[nodiscard]] Status{
    kOk = 0,
    kNullPointer,       // a buffer is null while its element count is not 0
    kMisaligned,        // a buffer is not aligned to its element type
    kOverlap,           // buffers that must be disjoint share bytes
    kSizeOverflow,      // count x element size does not fit in the address space
    kInvalidParameter,  // a hyperparameter is not finite or is out of its documented range
    kInvalidShape,      // dimensions contradict each other or are 0 where they may not be
    kUnsupported,       // valid, but this build or machine has no implementation of it
    kCallbackFailed,    // a function given by the caller failed
};

// The name without the k, e.g. "NullPointer"; "Unknown" for a value outside the enumeration.
constexpr const char* StatusName(Status status) {
  switch (status) {
    case Status::kOk:
      return "Ok";
    case Status::kNullPointer:
      return "NullPointer";
    case Status::kMisaligned:
      return "Misaligned";
    case Status::kOverlap:
      return "Overlap";
    case Status::kSizeOverflow:
      return "SizeOverflow";
    case Status::kInvalidParameter:
      return "InvalidParameter";
    case Status::kInvalidShape:
      return "InvalidShape";
    case Status::kUnsupported:
      return "Unsupported";
    case Status::kCallbackFailed:
      return "CallbackFailed";
  }
  return "Unknown";
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_RUNTIME_COMMON_STATUS_H_
