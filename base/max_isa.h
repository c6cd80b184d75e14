// GEMINID_MAX_ISA: the newest instruction sets of x86 processors that a process may use.
//
// kernels/runtime/simd holds Highway and oneDNN to it, proto/shm/crc32c.h itself. On other
// processors the variable is checked and changes nothing.
#ifndef GEMINID_BASE_MAX_ISA_H_
#define GEMINID_BASE_MAX_ISA_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace geminid::base {

inline constexpr char kMaxIsaVariable[] = "GEMINID_MAX_ISA";

// Levels of instruction sets, lowest first. A level includes those before it.
enum class Isa : uint8_t {
  kSse2,        // what every x86-64 processor has
  kAvx2,        // with FMA and F16C
  kAvx512,      // AVX-512 F, BW, CD, DQ and VL
  kAvx512Bf16,  // products of bf16
  kAmx,         // tiles of bf16
};

// As people write them: "avx512_bf16".
const char* Name(Isa isa);

// The level that the value of the variable names; kAmx where it is unset (null) or empty.
// INVALID_ARGUMENT for any other text, with the names there are.
absl::StatusOr<Isa> ParseMaxIsa(const char* value);

// That of the environment of this process, as it was when this was first called. Programs end with
// the error as with that of a flag. Code that cannot fail goes on without a limit.
const absl::StatusOr<Isa>& MaxIsa();

}  // namespace geminid::base

#endif  // GEMINID_BASE_MAX_ISA_H_
