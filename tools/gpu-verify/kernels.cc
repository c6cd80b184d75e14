#include "tools/gpu-verify/kernels.h"

namespace geminid::gpu_verify {
namespace {

constexpr char kHead[] = R"(.version 7.0
.target sm_80
.address_size 64
)";

// %rd9 = index of the thread in the grid, %rd10 = threads of the grid.
constexpr char kIndex[] = R"(
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mov.u32 %r4, %nctaid.x;
  cvt.u64.u32 %rd9, %r3;
  mad.wide.u32 %rd9, %r1, %r2, %rd9;
  mul.wide.u32 %rd10, %r4, %r2;
)";

constexpr char kSpin[] = R"(
.visible .entry spin(.param .u64 out, .param .u32 n) {
  .reg .pred %p<2>; .reg .f32 %f<3>; .reg .b32 %r<3>; .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x;
  cvt.rn.f32.u32 %f1, %r2;
SPIN:
  fma.rn.f32 %f1, %f1, 0f3F7FFFFE, 0f3F000000;
  fma.rn.f32 %f1, %f1, 0f3F7FFFFE, 0f3F000000;
  fma.rn.f32 %f1, %f1, 0f3F7FFFFE, 0f3F000000;
  fma.rn.f32 %f1, %f1, 0f3F7FFFFE, 0f3F000000;
  sub.u32 %r1, %r1, 4;
  setp.gt.s32 %p1, %r1, 0;
  @%p1 bra SPIN;
  setp.eq.f32 %p1, %f1, 0fFF800000;
  @%p1 st.global.f32 [%rd1], %f1;
  ret;
}
)";

constexpr char kCopyHead[] = R"(
.visible .entry copy(.param .u64 to, .param .u64 from, .param .u64 n) {
  .reg .pred %p<2>; .reg .b32 %r<9>; .reg .b64 %rd<16>;
  ld.param.u64 %rd1, [to];
  ld.param.u64 %rd2, [from];
  ld.param.u64 %rd3, [n];
)";
constexpr char kCopyBody[] = R"(
COPY:
  setp.ge.u64 %p1, %rd9, %rd3;
  @%p1 bra COPIED;
  shl.b64 %rd11, %rd9, 4;
  add.u64 %rd12, %rd2, %rd11;
  add.u64 %rd13, %rd1, %rd11;
  ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd12];
  st.global.v4.u32 [%rd13], {%r5, %r6, %r7, %r8};
  add.u64 %rd9, %rd9, %rd10;
  bra COPY;
COPIED:
  ret;
}
)";

constexpr char kCountHead[] = R"(
.visible .entry count(.param .u64 from, .param .u64 n, .param .u32 value, .param .u64 out) {
  .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<16>;
  ld.param.u64 %rd1, [from];
  ld.param.u64 %rd2, [n];
  ld.param.u32 %r5, [value];
  ld.param.u64 %rd3, [out];
  mov.u64 %rd4, 0;
)";
constexpr char kCountBody[] = R"(
COUNT:
  setp.ge.u64 %p1, %rd9, %rd2;
  @%p1 bra COUNTED;
  shl.b64 %rd11, %rd9, 2;
  add.u64 %rd12, %rd1, %rd11;
  ld.global.u32 %r6, [%rd12];
  setp.ne.u32 %p2, %r6, %r5;
  selp.u64 %rd13, 1, 0, %p2;
  add.u64 %rd4, %rd4, %rd13;
  add.u64 %rd9, %rd9, %rd10;
  bra COUNT;
COUNTED:
  setp.eq.u64 %p1, %rd4, 0;
  @%p1 bra COUNT_END;
  red.global.add.u64 [%rd3], %rd4;
COUNT_END:
  ret;
}
)";

// Eight accumulators of four registers, so that a warp's products do not wait for each other.
std::string MultiplyText() {
  std::string text = R"(
.visible .entry multiply(.param .u64 out, .param .u32 n) {
  .reg .pred %p<2>; .reg .f32 %f<33>; .reg .b32 %r<9>; .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, 0x3F803F81;
  mov.u32 %r3, 0x3F813F80;
)";
  for (int i = 0; i < 32; ++i) text += "  mov.f32 %f" + std::to_string(i) + ", 0f00000000;\n";
  text += "MULTIPLY:\n";
  for (int i = 0; i < 8; ++i) {
    std::string registers = "{";
    for (int j = 0; j < 4; ++j) {
      registers += (j > 0 ? ", %f" : "%f") + std::to_string(4 * i + j);
    }
    registers += '}';
    text += "  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 ";
    text += registers;
    text += ", {%r2, %r3, %r2, %r3}, {%r3, %r2}, ";
    text += registers;
    text += ";\n";
  }
  text += R"(  sub.u32 %r1, %r1, 1;
  setp.gt.s32 %p1, %r1, 0;
  @%p1 bra MULTIPLY;
)";
  for (int i = 1; i < 32; ++i) text += "  add.f32 %f0, %f0, %f" + std::to_string(i) + ";\n";
  return text + R"(  setp.eq.f32 %p1, %f0, 0fFF800000;
  @%p1 st.global.f32 [%rd1], %f0;
  ret;
}
)";
}

}  // namespace

std::string KernelText() {
  return std::string(kHead) + kSpin + kCopyHead + kIndex + kCopyBody + kCountHead + kIndex +
         kCountBody + MultiplyText();
}

Kernels::Kernels(const Gpu& gpu) : gpu_(gpu) {
  if (gpu.Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) < 8) {
    throw ProbeError("the kernels need compute capability 8.0 (Ampere) or newer");
  }
  constexpr unsigned kBlocksPerMultiprocessor = 4;  // 1,024 threads: enough to hide latencies
  grid_ = static_cast<unsigned>(gpu.Attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)) *
          kBlocksPerMultiprocessor;
  CUmodule module = nullptr;
  gpu.Must(gpu.api().module_load_data(&module, KernelText().c_str()), "cuModuleLoadData");
  spin_ = Find(module, "spin");
  copy_ = Find(module, "copy");
  count_ = Find(module, "count");
  multiply_ = Find(module, "multiply");
}

CUfunction Kernels::Find(CUmodule module, const char* name) const {
  CUfunction function = nullptr;
  gpu_.Must(gpu_.api().module_get_function(&function, module, name), "cuModuleGetFunction");
  return function;
}

void Kernels::Launch(CUfunction function, const Stream& stream, void** arguments) const {
  gpu_.Must(gpu_.api().launch_kernel(function, grid_, 1, 1, kBlockThreads, 1, 1, 0, stream.get(),
                                     arguments, nullptr),
            "cuLaunchKernel");
}

void Kernels::Spin(const Stream& stream, CUdeviceptr out, uint32_t n) const {
  void* arguments[] = {&out, &n};
  Launch(spin_, stream, arguments);
}

void Kernels::Copy(const Stream& stream, CUdeviceptr to, CUdeviceptr from, uint64_t bytes) const {
  uint64_t words = bytes / 16;
  void* arguments[] = {&to, &from, &words};
  Launch(copy_, stream, arguments);
}

void Kernels::Count(const Stream& stream, CUdeviceptr from, uint64_t bytes, uint32_t value,
                    CUdeviceptr out) const {
  uint64_t words = bytes / sizeof(uint32_t);
  void* arguments[] = {&from, &words, &value, &out};
  Launch(count_, stream, arguments);
}

void Kernels::Multiply(const Stream& stream, CUdeviceptr out, uint32_t n) const {
  void* arguments[] = {&out, &n};
  Launch(multiply_, stream, arguments);
}

}  // namespace geminid::gpu_verify
