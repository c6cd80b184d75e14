#include "base/max_isa.h"

#include <array>
#include <cstdlib>
#include <utility>

#include "base/flag_values.h"

namespace geminid::base {
namespace {

constexpr std::array<std::pair<const char*, Isa>, 5> kNames = {{{"sse2", Isa::kSse2},
                                                                {"avx2", Isa::kAvx2},
                                                                {"avx512", Isa::kAvx512},
                                                                {"avx512_bf16", Isa::kAvx512Bf16},
                                                                {"amx", Isa::kAmx}}};

}  // namespace

const char* Name(Isa isa) { return kNames[static_cast<size_t>(isa)].first; }

absl::StatusOr<Isa> ParseMaxIsa(const char* value) {
  if (value == nullptr || *value == '\0') return Isa::kAmx;
  return ParseWord(kMaxIsaVariable, value, kNames);
}

const absl::StatusOr<Isa>& MaxIsa() {
  static const absl::StatusOr<Isa> isa = ParseMaxIsa(std::getenv(kMaxIsaVariable));
  return isa;
}

}  // namespace geminid::base
