// geminid-kernel-check: compares every CUDA kernel with its twin on the host, bit for bit if the
// twin's header promises that, and reports its share of the device's copy bandwidth.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/exit_code.h"
#include "base/max_isa.h"
#include "tools/kernel-check/attention_timing.h"
#include "tools/kernel-check/device.h"
#include "tools/kernel-check/norm_check.h"
#include "tools/kernel-check/product_timing.h"
#include "tools/kernel-check/step_check.h"
#include "tools/kernel-check/timed_products.h"
#include "tools/kernel-check/trial.h"

namespace geminid::kernel_check {
namespace {

constexpr size_t kTimedCount = size_t{64} << 20;  // parameters: far more than any cache holds
constexpr size_t kCopyBytes = size_t{1} << 30;
constexpr int kCopies = 10;
constexpr std::array kNorms = {"sum of squares, fp32", "sum of squares, bf16",
                               "sum of squares, fp16"};

constexpr const char* kHelp =
    "geminid-kernel-check [--json] [--no-timing] [--product-edge N] [--only TEXT] [--list]\n"
    "\n"
    "Runs every CUDA kernel beside its twin on the host, compares what they compute, and prints\n"
    "the bandwidth over that of a copy on the device, or the operations a second. Products by\n"
    "cuBLASLt are timed beside a bare loop around the library's call, of which they must reach\n"
    "0.95, and beside the kernel of our own. Attention by cuDNN is tested as training tests it,\n"
    "and timed beside the kernel of our own; where it is refused, that is said and no failure.\n"
    "\n"
    "  --json            one JSON object instead of the table\n"
    "  --no-timing       compare only\n"
    "  --product-edge N  cut the timed products to N x 3/4 N x 1/2 N, and attention to N tokens,\n"
    "                    and judge no rate; such small ones are run with --no-timing, too\n"
    "  --only TEXT       the checks whose names have TEXT in them\n"
    "  --list            name the checks and exit\n"
    "  --version         print the version and exit\n"
    "\n"
    "Exit status: 0 all agree, 8 some differ or are too slow, 2 usage, 3 there is no CUDA "
    "device.\n";

struct Flags {
  bool json = false;
  bool timing = true;
  bool list = false;
  std::string only;         // empty: all
  size_t product_edge = 0;  // 0: whole

  bool TimesProducts() const { return timing || product_edge > 0; }
  bool Wants(const std::string& name) const { return name.find(only) != std::string::npos; }
};

// Bytes read and written per second by a copy; 0 if it failed.
double CopyBandwidth() {
  CudaBuffer from(kCopyBytes);
  CudaBuffer to(kCopyBytes);
  if (!from || !to || !CudaCopy(from, &to, kCopyBytes)) return 0;
  CudaTimer timer;
  timer.Start();
  for (int i = 0; i < kCopies; ++i) {
    if (!CudaCopy(from, &to, kCopyBytes)) return 0;
  }
  return 2.0 * kCopyBytes * kCopies / timer.StopSeconds();
}

void PrintLine(const Finding& f, double copy) {
  std::printf("%-32s %-4s", f.name.c_str(), f.passed ? "pass" : "FAIL");
  if (f.passed) std::printf("  %10zu values", f.compared);
  if (f.bytes_per_second > 0) {
    std::printf("  %8.0f GB/s  %5.2f of copy", f.bytes_per_second / 1e9,
                copy > 0 ? f.bytes_per_second / copy : 0);
  }
  if (f.operations_per_second > 0) {
    std::printf("  %8.2f TFLOP/s", f.operations_per_second / 1e12);
  }
  if (!f.passed) std::printf("  %s", f.detail.c_str());
  std::printf("\n");
  std::fflush(stdout);  // a person waits for the next line
}

// The results of the products, and the library: its name, or why there is none.
struct Products {
  std::string library;
  std::vector<ProductTiming> timings;
};

void PrintJson(const CudaDeviceInfo& info, const std::vector<Finding>& findings,
               const Products& products, const AttentionTimings& attention, double copy) {
  std::printf("{\"device\": %s, \"driver\": %s, \"copy_bytes_per_second\": %.6g, \"checks\": [",
              JsonString(info.name).c_str(), JsonString(info.driver).c_str(), copy);
  for (size_t i = 0; i < findings.size(); ++i) {
    const Finding& f = findings[i];
    std::printf(
        "%s{\"name\": %s, \"passed\": %s, \"detail\": %s, \"values\": %zu, "
        "\"bytes_per_second\": %.6g, \"operations_per_second\": %.6g}",
        i == 0 ? "" : ", ", JsonString(f.name).c_str(), f.passed ? "true" : "false",
        JsonString(f.detail).c_str(), f.compared, f.bytes_per_second, f.operations_per_second);
  }
  std::printf("], \"products_by\": %s, \"products\": [", JsonString(products.library).c_str());
  for (size_t i = 0; i < products.timings.size(); ++i) {
    std::printf("%s%s", i == 0 ? "" : ", ", ProductJson(products.timings[i]).c_str());
  }
  std::printf("], \"attention_by\": %s, \"attention\": [", JsonString(attention.library).c_str());
  for (size_t i = 0; i < attention.timings.size(); ++i) {
    std::printf("%s%s", i == 0 ? "" : ", ", AttentionJson(attention.timings[i]).c_str());
  }
  std::printf("]}\n");
}

bool ParseEdge(const char* text, size_t* edge) {
  const char* const end = text + std::strlen(text);
  const auto [stop, code] = std::from_chars(text, end, *edge);
  return code == std::errc() && stop == end && *edge > 0;
}

bool ParseFlags(int argc, char** argv, Flags* flags, int* exit_code) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      flags->json = true;
    } else if (std::strcmp(argv[i], "--no-timing") == 0) {
      flags->timing = false;
    } else if (std::strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
      flags->only = argv[++i];
    } else if (std::strcmp(argv[i], "--product-edge") == 0 && i + 1 < argc &&
               ParseEdge(argv[i + 1], &flags->product_edge)) {
      ++i;
    } else if (std::strcmp(argv[i], "--list") == 0) {
      flags->list = true;
    } else if (std::strcmp(argv[i], "--help") == 0 || std::strcmp(argv[i], "--version") == 0) {
      const bool help = std::strcmp(argv[i], "--help") == 0;
      std::fputs(help ? kHelp : "geminid-kernel-check " GEMINID_VERSION "\n", stdout);
      *exit_code = base::kExitOk;
      return false;
    } else {
      std::fprintf(stderr, "geminid-kernel-check: unknown argument '%s'; --help lists all\n",
                   argv[i]);
      *exit_code = base::kExitUsage;
      return false;
    }
  }
  return true;
}

// The checks that the flags choose.
struct ChosenChecks {
  explicit ChosenChecks(const Flags& flags) {
    // The norms are one check of three parts.
    norms = std::any_of(kNorms.begin(), kNorms.end(),
                        [&](const char* name) { return flags.Wants(name); });
    for (StepCase& one : AllStepCases()) {
      if (flags.Wants(one.name)) steps.push_back(std::move(one));
    }
    for (KernelCase& one : AllKernelCases()) {
      if (flags.Wants(one.name)) kernels.push_back(std::move(one));
    }
    for (TimedProduct& one : TimedProducts(flags.product_edge)) {
      if (flags.Wants(one.name)) products.push_back(std::move(one));
    }
    for (TimedAttention& one : TimedAttentions(flags.product_edge)) {
      if (flags.Wants(one.name)) attentions.push_back(std::move(one));
    }
  }
  bool empty() const {
    return !norms && steps.empty() && kernels.empty() && products.empty() && attentions.empty();
  }

  bool norms = false;
  std::vector<StepCase> steps;
  std::vector<KernelCase> kernels;
  std::vector<TimedProduct> products;
  std::vector<TimedAttention> attentions;
};

int List(const ChosenChecks& chosen) {
  if (chosen.norms) {
    for (const char* name : kNorms) std::printf("%s\n", name);
  }
  for (const StepCase& one : chosen.steps) std::printf("%s\n", one.name.c_str());
  for (const KernelCase& one : chosen.kernels) std::printf("%s\n", one.name.c_str());
  for (const TimedProduct& one : chosen.products) std::printf("%s\n", one.name.c_str());
  for (const TimedAttention& one : chosen.attentions) std::printf("%s\n", one.name.c_str());
  return base::kExitOk;
}

Products TimeProducts(const Flags& flags, const ChosenChecks& chosen) {
  Products products;
  if (chosen.products.empty() || !flags.TimesProducts()) return products;
  const std::unique_ptr<ProductTimer> timer = ProductTimer::Create(&products.library);
  if (timer != nullptr) products.library = timer->LibraryName();
  if (!flags.json) {
    std::printf("products by %s%s\n", timer == nullptr ? "our kernel alone: " : "",
                products.library.c_str());
  }
  for (const TimedProduct& one : chosen.products) {
    if (timer == nullptr) break;
    products.timings.push_back(timer->Time(one, /*judged=*/flags.product_edge == 0));
    if (flags.json) continue;
    std::printf("%s\n", ProductLine(products.timings.back()).c_str());
    std::fflush(stdout);
  }
  return products;
}

AttentionTimings TimeChosenAttention(const Flags& flags, const ChosenChecks& chosen) {
  if (chosen.attentions.empty() || !flags.TimesProducts()) return {};
  AttentionTimings attention = TimeAttention(chosen.attentions);
  if (flags.json) return attention;
  std::printf("attention by %s%s\n", attention.timings.empty() ? "our kernel alone: " : "",
              attention.library.c_str());
  for (const AttentionTiming& timing : attention.timings) {
    std::printf("%s\n", AttentionLine(timing).c_str());
  }
  return attention;
}

int Run(const Flags& flags, const ChosenChecks& chosen) {
  CudaDeviceInfo info;
  std::string reason;
  if (!FindCudaDevice(&info, &reason)) {
    std::fprintf(stderr,
                 "geminid-kernel-check: there is no CUDA device here: %s. Run it on a machine with "
                 "a GPU and its driver.\n",
                 reason.c_str());
    return base::kExitUnavailable;
  }
  const double copy = flags.timing ? CopyBandwidth() : 0;
  if (!flags.json) {
    std::printf("%s, driver for CUDA %s, sm_%d, copies at %.0f GB/s (read and written)\n",
                info.name.c_str(), info.driver.c_str(), info.compute_capability, copy / 1e9);
  }
  const size_t timed_count = flags.timing ? kTimedCount : 0;
  std::vector<Finding> findings;
  if (chosen.norms) findings = CheckNorms(timed_count);
  if (!flags.json) {
    for (const Finding& finding : findings) PrintLine(finding, copy);
  }
  for (const StepCase& one : chosen.steps) {
    findings.push_back(CheckStep(one, timed_count));
    if (!flags.json) PrintLine(findings.back(), copy);
  }
  for (const KernelCase& one : chosen.kernels) {
    findings.push_back(CheckKernel(one, flags.timing));
    if (!flags.json) PrintLine(findings.back(), copy);
  }
  const Products products = TimeProducts(flags, chosen);
  const AttentionTimings attention = TimeChosenAttention(flags, chosen);
  if (flags.json) PrintJson(info, findings, products, attention, copy);
  const auto passed = [](const auto& one) { return one.passed; };
  const bool all = std::all_of(findings.begin(), findings.end(), passed) &&
                   std::all_of(products.timings.begin(), products.timings.end(), passed) &&
                   std::all_of(attention.timings.begin(), attention.timings.end(), passed);
  return all ? base::kExitOk : base::kExitUnhealthy;
}

// A GPU's kernels have the bits of processors with fused multiply-add. Below that level
// differences would be no errors. The level is fixed before main begins, so the program restarts
// itself.
absl::Status RaiseLimitToFusedMultiplyAdd(char** argv) {
  const absl::StatusOr<base::Isa>& limit = base::MaxIsa();
  if (!limit.ok() || *limit >= base::Isa::kAvx2) return limit.status();
  std::fprintf(stderr, "geminid-kernel-check: %s=%s is raised to %s, whose bits a GPU computes\n",
               base::kMaxIsaVariable, base::Name(*limit), base::Name(base::Isa::kAvx2));
  setenv(base::kMaxIsaVariable, base::Name(base::Isa::kAvx2), /*overwrite=*/1);
  execv("/proc/self/exe", argv);
  return absl::ErrnoToStatus(errno, "/proc/self/exe");
}

int RunOrList(const Flags& flags, char** argv) {
  if (const absl::Status isa = RaiseLimitToFusedMultiplyAdd(argv); !isa.ok()) {
    std::fprintf(stderr, "geminid-kernel-check: %s\n", std::string(isa.message()).c_str());
    return base::kExitUsage;
  }
  const ChosenChecks chosen(flags);
  if (chosen.empty()) {
    std::fprintf(stderr, "geminid-kernel-check: no check has '%s' in its name; --list names all\n",
                 flags.only.c_str());
    return base::kExitUsage;
  }
  return flags.list ? List(chosen) : Run(flags, chosen);
}

int Main(int argc, char** argv) {
  Flags flags;
  int exit_code = base::kExitOk;
  const bool parsed = ParseFlags(argc, argv, &flags, &exit_code);
  if (parsed) exit_code = RunOrList(flags, argv);
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  const int error = errno;
  std::fprintf(stderr, "geminid-kernel-check: standard output: a part of the output was lost\n");
  return error == ENOSPC ? base::kExitResourceExhausted : base::kExitFailed;
}

}  // namespace
}  // namespace geminid::kernel_check

int main(int argc, char** argv) { return geminid::kernel_check::Main(argc, argv); }
