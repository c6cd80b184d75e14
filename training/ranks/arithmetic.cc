#include "training/ranks/arithmetic.h"

#include "absl/strings/str_cat.h"
#include "base/max_isa.h"
#include "kernels/model/matmul/matmul.h"
#include "kernels/runtime/simd/isa.h"
#include "training/settings/options.h"

namespace geminid::trainer {

bool IsNative(zero::DataType type, bool on_gpu) {
  return type == zero::DataType::kFloat32 || (!on_gpu && kernels::HasNativeBFloat16());
}

std::string Arithmetic(zero::DataType type, bool native) {
  if (type == zero::DataType::kFloat32) return Name(type);
  return absl::StrCat(Name(type), native ? " native" : " emulated");
}

std::string InstructionSet() { return base::Name(kernels::IsaInUse()); }

bool InstructionSetIsLimited() {
  return base::MaxIsa().value_or(base::Isa::kAmx) != base::Isa::kAmx;
}

std::string LimitOfInstructionSets() {
  return absl::StrCat("instruction sets: ", InstructionSet(), ", limited by ",
                      base::kMaxIsaVariable);
}

}  // namespace geminid::trainer
