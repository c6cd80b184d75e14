// GEMINID_MAX_ISA: the newest x86 instruction sets that a process may use.
//
// kernels/runtime/simd applies it to Highway and oneDNN; proto/shm/crc32c.h obeys it. On other
// processors the variable is checked and has no effect.
#ifndef GEMINID_BASE_MAX_ISA_H_
#define GEMINID_BASE_MAX_ISA_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace geminid::base {

inline constexpr char kMaxIsaVariable[] = "GEMINID_MAX_ISA";

// Levels of instruction sets, lowest first. A level includes the levels before it.
enum class Isa : uint8_t {
  kSse2,        // on every x86-64 processor
  kAvx2,        // with FMA and F16C
  kAvx512,      // AVX-512 F, BW, CD, DQ and VL
  kAvx512Bf16,  // bf16 dot products
  kAmx,         // bf16 tiles
};

// As written in the variable: "avx512_bf16".
const char* Name(Isa isa);

// The level that the variable's value names; kAmx if it is unset (null) or empty. INVALID_ARGUMENT,
// with the valid names, for any other text.
absl::StatusOr<Isa> ParseMaxIsa(const char* value);

// The level in this process's environment at the first call. Programs end with its error, as with
// that of a flag. Code that cannot return an error continues without a limit.
const absl::StatusOr<Isa>& MaxIsa();

}  // namespace geminid::base

#endif  // GEMINID_BASE_MAX_ISA_H_
