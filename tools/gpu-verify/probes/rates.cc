// The maximum rates of the device, and the cost of a context: G19, R1, R2, R3.
#include <dlfcn.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tools/gpu-verify/device.h"
#include "tools/gpu-verify/kernels.h"
#include "tools/gpu-verify/link_rates.h"
#include "tools/gpu-verify/probe.h"

namespace geminid::gpu_verify {
namespace {

// The parts of cuBLAS in use, loaded at run time. Values of cublas_api.h and library_types.h.
using Blas = struct BlasTag*;
using BlasCreate = int (*)(Blas*);
using BlasSetStream = int (*)(Blas, CUstream);
using BlasGemmEx = int (*)(Blas, int, int, int, int, int, const void*, const void*, int, int,
                           const void*, int, int, const void*, void*, int, int, int, int);
constexpr int kNoTranspose = 0;    // CUBLAS_OP_N
constexpr int kBf16 = 14;          // CUDA_R_16BF
constexpr int kComputeFp32 = 68;   // CUBLAS_COMPUTE_32F
constexpr int kAnyAlgorithm = -1;  // CUBLAS_GEMM_DEFAULT

void* OpenBlas() {
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublas.so",
                           "/usr/local/cuda/lib64/libcublas.so"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

float FromBf16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

// Random signs and fractions, magnitudes from 0.5 to 2: bits that toggle as in real data.
std::vector<uint16_t> RandomMatrix(uint64_t n, uint64_t seed) {
  std::vector<uint16_t> matrix(n * n);
  uint64_t state = seed;
  for (uint16_t& value : matrix) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;  // Knuth's MMIX generator
    value = static_cast<uint16_t>(0x3F00 | ((state >> 48) & 0x80FF));
  }
  return matrix;
}

// Runs `enqueue` until the time is over; returns calls per second. Two calls stay in flight.
template <typename Enqueue>
double Rate(const Gpu& gpu, const Stream& stream, double seconds, const Enqueue& enqueue) {
  enqueue();
  stream.Synchronize();  // the first call pays for lazy loading
  const Event events[] = {Event(gpu), Event(gpu)};
  const double begin = Now();
  int calls = 0;
  do {
    if (calls >= 2) events[calls % 2].Wait();
    enqueue();
    events[calls % 2].Record(stream);
    ++calls;
  } while (Now() < begin + seconds);
  stream.Synchronize();
  return calls / (Now() - begin);
}

void Upload(const Gpu& gpu, const Stream& stream, CUdeviceptr to,
            const std::vector<uint16_t>& from) {
  gpu.Must(gpu.api().memcpy_htod_async(to, from.data(), from.size() * 2, stream.get()),
           "cuMemcpyHtoDAsync");
  stream.Synchronize();
}

// Floating-point operations per second of cuBLAS; throws if its result is wrong.
double BlasRate(const Gpu& gpu, void* library, Blas blas, uint64_t n, double seconds) {
  const auto set_stream = reinterpret_cast<BlasSetStream>(dlsym(library, "cublasSetStream_v2"));
  const auto gemm = reinterpret_cast<BlasGemmEx>(dlsym(library, "cublasGemmEx"));
  if (!set_stream || !gemm) throw ProbeError("cuBLAS lacks cublasGemmEx");
  const Stream stream(gpu);
  set_stream(blas, stream.get());
  const std::vector<uint16_t> a = RandomMatrix(n, 1);
  const std::vector<uint16_t> b = RandomMatrix(n, 2);
  const Buffer device_a(gpu, 2 * n * n);
  const Buffer device_b(gpu, 2 * n * n);
  const Buffer device_c(gpu, 2 * n * n);
  Upload(gpu, stream, device_a.address(), a);
  Upload(gpu, stream, device_b.address(), b);
  const float one = 1;
  const float zero = 0;
  const int size = static_cast<int>(n);
  const auto pointer = [](const Buffer& buffer) {
    return reinterpret_cast<void*>(static_cast<uintptr_t>(buffer.address()));
  };
  const double rate = Rate(gpu, stream, seconds, [&] {
    if (gemm(blas, kNoTranspose, kNoTranspose, size, size, size, &one, pointer(device_a), kBf16,
             size, pointer(device_b), kBf16, size, &zero, pointer(device_c), kBf16, size,
             kComputeFp32, kAnyAlgorithm) != 0) {
      throw ProbeError("cublasGemmEx failed");
    }
  });
  uint16_t corner = 0;  // row 0, column 0; the matrices are stored by columns
  gpu.Must(gpu.api().memcpy_dtoh_async(&corner, device_c.address(), 2, stream.get()),
           "cuMemcpyDtoHAsync");
  stream.Synchronize();
  double expected = 0;
  double magnitude = 0;
  for (uint64_t k = 0; k < n; ++k) {
    const double product = static_cast<double>(FromBf16(a[k * n])) * FromBf16(b[k]);
    expected += product;
    magnitude += std::fabs(product);
  }
  // Allows one bf16 rounding of the result and fp32 roundings of the sum.
  const double tolerance = std::fabs(expected) / 256 + magnitude * 1e-5;
  if (std::fabs(FromBf16(corner) - expected) > tolerance) {
    throw ProbeError("cublasGemmEx returned a wrong number");
  }
  const auto edge = static_cast<double>(n);
  return rate * 2 * edge * edge * edge;
}

double OwnKernelRate(const Gpu& gpu, double seconds) {
  const Kernels kernels(gpu);
  const Stream stream(gpu);
  const Buffer out(gpu, sizeof(float));
  constexpr uint32_t kIterations = 20'000;
  const double warps = kernels.grid() * (kBlockThreads / 32.0);
  return warps * kIterations * kMultiplyFlops *
         Rate(gpu, stream, seconds, [&] { kernels.Multiply(stream, out.address(), kIterations); });
}

}  // namespace

Outcome ProbeContextSize(const Context& context) {
  const Observer observer(context.driver, context.device);
  const auto start = static_cast<double>(observer.FreeBytes());
  const Role role = Role::Start("context maker", [&context](Channel& channel) {
    Gpu gpu(context.driver, context.device);
    channel.Send("initialised");
    channel.Receive();
    gpu.MakeContext();
    channel.Send("context");
    channel.Receive();
    const Kernels kernels(gpu);
    const Stream stream(gpu);
    const Buffer out(gpu, sizeof(float));
    kernels.Spin(stream, out.address(), 4);
    stream.Synchronize();
    channel.Send("used");
    channel.Receive();
  });
  const auto step = [&] {
    role.channel().Receive();
    return start - static_cast<double>(observer.FreeBytes());
  };
  const double init_bytes = step();
  role.channel().Send("context");
  const double context_bytes = step();
  role.channel().Send("use");
  const double used_bytes = step();
  constexpr double kMostInitBytes = 16.0 * kMib;
  constexpr double kMostContextBytes = 1024.0 * kMib;
  Outcome outcome = Judge(init_bytes <= kMostInitBytes && used_bytes <= kMostContextBytes,
                          "cuInit " + Bytes(init_bytes) + ", context " + Bytes(context_bytes) +
                              ", with a kernel loaded and run " + Bytes(used_bytes),
                          "more than " + Bytes(kMostInitBytes) + " or " + Bytes(kMostContextBytes));
  outcome.numbers = {
      {"init_bytes", init_bytes}, {"context_bytes", context_bytes}, {"used_bytes", used_bytes}};
  return outcome;
}

Outcome ProbeDeviceCopy(const Context& context) {
  Gpu gpu(context.driver, context.device);
  gpu.MakeContext();
  const uint64_t bytes = context.effort.link_bytes;
  const Buffer from(gpu, bytes);
  const Buffer to(gpu, bytes);
  const Stream stream(gpu);
  const double copies = Rate(gpu, stream, context.effort.window_seconds, [&] {
    gpu.Must(gpu.api().memcpy_dtod_async(to.address(), from.address(), bytes, stream.get()),
             "cuMemcpyDtoDAsync");
  });
  const double rate = 2.0 * static_cast<double>(bytes) * copies;
  Outcome outcome = Pass(Number(rate / 1e9, 0) + " GB/s read and written");
  outcome.numbers = {{"bytes_per_second", rate}};
  return outcome;
}

Outcome ProbeMatrixRate(const Context& context) {
  Gpu gpu(context.driver, context.device);
  gpu.MakeContext();
  const double seconds = context.effort.window_seconds;
  const double own = OwnKernelRate(gpu, seconds);
  const std::string figure =
      "warp-level products of registers " + Number(own / 1e12, 0) + " TFLOP/s";
  Outcome outcome = Pass(figure);
  outcome.numbers = {{"own_kernel_flops", own}};
  void* library = OpenBlas();
  Blas blas = nullptr;
  const auto create = library == nullptr
                          ? nullptr
                          : reinterpret_cast<BlasCreate>(dlsym(library, "cublasCreate_v2"));
  if (create == nullptr || create(&blas) != 0) {
    outcome.figure += "; no cuBLAS that starts";
    return outcome;
  }
  const uint64_t n = context.effort.matrix;
  const double rate = BlasRate(gpu, library, blas, n, seconds);
  outcome.figure = "cuBLAS, " + std::to_string(n) + " cubed, random data " +
                   Number(rate / 1e12, 0) + " TFLOP/s; " + figure;
  outcome.numbers.emplace_back("cublas_flops", rate);
  return outcome;
}

Outcome JudgeLink(const LinkRates& rates) {
  const double ratio = rates.both / (rates.up + rates.down);
  constexpr double kLeastRatio = 0.75;  // the planner schedules the directions independently
  Outcome outcome =
      Judge(ratio >= kLeastRatio,
            "up " + Number(rates.up / 1e9, 1) + ", down " + Number(rates.down / 1e9, 1) +
                ", both at once " + Number(rates.both / 1e9, 1) + " GB/s together",
            "both at once reach less than " + Number(kLeastRatio * 100, 0) + " % of their sum");
  outcome.numbers = {{"up_bytes_per_second", rates.up},
                     {"down_bytes_per_second", rates.down},
                     {"both_bytes_per_second", rates.both}};
  return outcome;
}

Outcome ProbeLink(const Context& context) {
  Gpu gpu(context.driver, context.device);
  gpu.MakeContext();
  const uint64_t bytes = context.effort.link_bytes;
  HostPool pool(2 * bytes);
  const Registration registration(gpu, pool.data(), pool.bytes());
  const Buffer in(gpu, bytes);
  const Buffer out(gpu, bytes);
  const Stream up(gpu);
  const Stream down(gpu);
  const auto load = [&] {
    gpu.Must(gpu.api().memcpy_htod_async(in.address(), pool.data(), bytes, up.get()),
             "cuMemcpyHtoDAsync");
  };
  const auto store = [&] {
    gpu.Must(gpu.api().memcpy_dtoh_async(pool.data() + bytes, out.address(), bytes, down.get()),
             "cuMemcpyDtoHAsync");
  };
  const double seconds = context.effort.window_seconds;
  const double size = static_cast<double>(bytes);
  const double up_rate = size * Rate(gpu, up, seconds, load);
  const double down_rate = size * Rate(gpu, down, seconds, store);
  // Pairs of copies: the rate is that of the slower direction.
  const double both_rate = 2 * size * Rate(gpu, up, seconds, [&] {
                             down.Synchronize();
                             store();
                             load();
                           });
  down.Synchronize();
  return JudgeLink({.up = up_rate, .down = down_rate, .both = both_rate});
}

}  // namespace geminid::gpu_verify
