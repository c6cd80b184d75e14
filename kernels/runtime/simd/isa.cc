#include "kernels/runtime/simd/isa.h"

#include <dnnl.hpp>

namespace geminid::kernels {
namespace {

using base::Isa;

// SSE4.1 is the lowest limit that oneDNN accepts.
dnnl::cpu_isa OneDnnIsa(Isa isa) {
  switch (isa) {
    case Isa::kSse2:
      return dnnl::cpu_isa::sse41;
    case Isa::kAvx2:
      return dnnl::cpu_isa::avx2;
    case Isa::kAvx512:
      return dnnl::cpu_isa::avx512_core;
    case Isa::kAvx512Bf16:
      return dnnl::cpu_isa::avx512_core_bf16;
    case Isa::kAmx:
      break;
  }
  return dnnl::cpu_isa::all;
}

}  // namespace

// Without a limit of ours, DNNL_MAX_CPU_ISA stays in force.
void LimitOneDnn() {
  static const dnnl::status limited = [] {
    const Isa isa = base::MaxIsa().value_or(Isa::kAmx);
    return isa == Isa::kAmx ? dnnl::status::success : dnnl::set_max_cpu_isa(OneDnnIsa(isa));
  }();
  (void)limited;
}

Isa IsaInUse() {
  LimitOneDnn();
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::avx2:
    case dnnl::cpu_isa::avx2_vnni:
    case dnnl::cpu_isa::avx512_mic:
    case dnnl::cpu_isa::avx512_mic_4ops:
      return Isa::kAvx2;
    case dnnl::cpu_isa::avx512_core:
    case dnnl::cpu_isa::avx512_core_vnni:
      return Isa::kAvx512;
    case dnnl::cpu_isa::avx512_core_bf16:
      return Isa::kAvx512Bf16;
    case dnnl::cpu_isa::avx512_core_amx:
      return Isa::kAmx;
    default:
      return Isa::kSse2;
  }
}

}  // namespace geminid::kernels
