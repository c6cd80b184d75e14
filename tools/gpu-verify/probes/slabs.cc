// Slabs: the cost of handling them, who may write to them, and what they hold when new: G5, G6, G7,
// G21.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "tools/gpu-verify/device.h"
#include "tools/gpu-verify/kernels.h"
#include "tools/gpu-verify/probe.h"

namespace geminid::gpu_verify {
namespace {

constexpr int kRepetitions = 5;
constexpr const char* kSteps[] = {"create", "export", "import", "reserve",
                                  "map",    "access", "unmap",  "release"};
constexpr size_t kStepCount = std::size(kSteps);
constexpr size_t kSetUpSteps = 6;  // up to the access: what attaching to a slab waits for

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The seconds of each step in the life of one slab.
std::vector<double> TimeSlab(const Gpu& gpu, uint64_t bytes) {
  std::vector<double> seconds;
  double last = Now();
  const auto lap = [&] {
    const double now = Now();
    seconds.push_back(now - last);
    last = Now();
  };
  Slab slab = Slab::Create(gpu, bytes);
  lap();
  const base::UniqueFd fd = slab.Export();
  lap();
  Slab imported = Slab::Import(gpu, fd.get(), bytes);
  lap();
  imported.Reserve();
  lap();
  imported.MapReserved();
  lap();
  imported.SetAccess(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  lap();
  imported.Unmap();
  lap();
  imported.Release();
  slab.Release();
  lap();
  return seconds;
}

// Imports twice, checks the pattern through one mapping, then tries to write through a read-only
// one.
void ShareReadOnly(const Context& context, uint64_t bytes, Channel& channel) {
  Gpu gpu(context.driver, context.device);
  gpu.MakeContext();
  const Channel::Message message = channel.Receive();
  Slab first = Slab::Import(gpu, message.fd.get(), bytes);
  Slab second = Slab::Import(gpu, message.fd.get(), bytes);
  first.Map(CU_MEM_ACCESS_FLAGS_PROT_READ);
  second.Map(CU_MEM_ACCESS_FLAGS_PROT_READ);
  const uint64_t mismatches = CountMismatches(gpu, first.address(), bytes, 1) +
                              CountMismatches(gpu, second.address(), bytes, 1);
  channel.Send(std::to_string(mismatches));
  channel.Receive();
  // Either call may report the fault; after it this context cannot be used any more.
  const gpu::DriverApi& api = gpu.api();
  CUresult result = api.memset_d32_async(first.address(), 0xDEAD, bytes / 4, nullptr);
  if (result == CUDA_SUCCESS) result = api.ctx_synchronize();
  channel.Send(result == CUDA_SUCCESS ? "written" : gpu.ErrorName(result));
  channel.Receive();
}

// Checks the pattern on request.
void ShareAndCheck(const Context& context, uint64_t bytes, Channel& channel) {
  Gpu gpu(context.driver, context.device);
  gpu.MakeContext();
  const Channel::Message message = channel.Receive();
  Slab slab = Slab::Import(gpu, message.fd.get(), bytes);
  slab.Map();
  while (true) {
    channel.Send(std::to_string(CountMismatches(gpu, slab.address(), bytes, 1)));
    channel.Receive();
  }
}

// Allocates a share of the free memory in pieces, and fills it or counts its nonzero
// words.
class Filler {
 public:
  Filler(const Gpu& gpu, const Context& context) : gpu_(gpu), kernels_(gpu) {
    const uint64_t piece_bytes = std::max(gpu.Granularity(), context.effort.slab_bytes);
    const auto wanted =
        static_cast<uint64_t>(static_cast<double>(gpu.FreeBytes()) * context.effort.filled_share);
    for (uint64_t bytes = piece_bytes; bytes <= wanted; bytes += piece_bytes) {
      try {
        slabs_.push_back(Slab::Create(gpu, piece_bytes));
      } catch (const ProbeError&) {
        if (slabs_.empty()) throw;
        break;  // the rest of the free memory is in smaller holes
      }
      slabs_.back().Map();
    }
  }
  uint64_t bytes() const { return slabs_.empty() ? 0 : slabs_.size() * slabs_[0].bytes(); }

  // Returns the rate in bytes per second.
  double Fill() const {
    const Stream stream(gpu_);
    const double begin = Now();
    for (const Slab& slab : slabs_) {
      gpu_.Must(
          gpu_.api().memset_d32_async(slab.address(), 0xC0FFEE, slab.bytes() / 4, stream.get()),
          "cuMemsetD32Async");
    }
    stream.Synchronize();
    return static_cast<double>(bytes()) / (Now() - begin);
  }

  uint64_t CountNonZero() const {
    const Stream stream(gpu_);
    Buffer counter(gpu_, sizeof(uint64_t));
    gpu_.Must(gpu_.api().memset_d32_async(counter.address(), 0, 2, stream.get()),
              "cuMemsetD32Async");
    for (const Slab& slab : slabs_) {
      kernels_.Count(stream, slab.address(), slab.bytes(), 0, counter.address());
    }
    uint64_t count = 0;
    gpu_.Must(gpu_.api().memcpy_dtoh_async(&count, counter.address(), sizeof(count), stream.get()),
              "cuMemcpyDtoHAsync");
    stream.Synchronize();
    return count;
  }

 private:
  const Gpu& gpu_;
  Kernels kernels_;
  std::vector<Slab> slabs_;
};

}  // namespace

Outcome ProbeSlabLatency(const Context& context) {
  constexpr double kMostSetUpSeconds = 0.1;  // attaching to a slab, as a client may wait for it
  Gpu gpu(context.driver, context.device);
  gpu.MakeContext();
  TimeSlab(gpu, context.effort.slab_sizes.front());  // the first one pays for lazy loading
  Outcome outcome = Pass("");
  for (const uint64_t bytes : context.effort.slab_sizes) {
    std::vector<std::vector<double>> runs;
    for (int i = 0; i < kRepetitions; ++i) runs.push_back(TimeSlab(gpu, bytes));
    const std::string size = Bytes(static_cast<double>(bytes));
    double set_up_seconds = 0;
    std::string steps;
    for (size_t step = 0; step < kStepCount; ++step) {
      std::vector<double> values;
      for (const auto& run : runs) values.push_back(run[step]);
      const double seconds = Median(values);
      if (step < kSetUpSteps) set_up_seconds += seconds;
      steps += step == 0 ? "" : ", ";
      steps.append(kSteps[step]).append(" ").append(Seconds(seconds));
      outcome.numbers.emplace_back(
          std::string(kSteps[step]) + "_seconds_" + std::to_string(bytes / kMib) + "_mib", seconds);
    }
    outcome.figure += outcome.figure.empty() ? "" : "; ";
    outcome.figure.append(size).append(": ").append(steps);
    if (set_up_seconds > kMostSetUpSeconds) {
      outcome.verdict = Verdict::kFail;
      outcome.reason = size + " take " + Seconds(set_up_seconds) + " to set up, more than " +
                       Seconds(kMostSetUpSeconds);
    }
  }
  return outcome;
}

Outcome ProbeSharing(const Context& context) {
  const uint64_t bytes = context.effort.pattern_bytes;
  const Role owner = Role::Start("owner", [&context, bytes](Channel& channel) {
    Gpu gpu(context.driver, context.device);
    gpu.MakeContext();
    Slab slab = Slab::Create(gpu, bytes);
    slab.Map();
    Fill(gpu, slab.address(), bytes, 1);
    const base::UniqueFd fd = slab.Export();
    channel.Send("exported", fd.get());
    channel.Receive();
  });
  const base::UniqueFd fd = owner.channel().Receive().fd;
  constexpr int kCheckers = 3;
  std::vector<Role> checkers;
  for (int i = 0; i < kCheckers; ++i) {
    checkers.push_back(Role::Start("checker", [&context, bytes](Channel& channel) {
      ShareAndCheck(context, bytes, channel);
    }));
    checkers.back().channel().Send("import", fd.get());
  }
  const Role trespasser = Role::Start("read-only importer", [&context, bytes](Channel& channel) {
    ShareReadOnly(context, bytes, channel);
  });
  trespasser.channel().Send("import", fd.get());
  uint64_t before = std::stoull(trespasser.channel().Receive().text);
  for (const Role& checker : checkers) before += std::stoull(checker.channel().Receive().text);
  trespasser.channel().Send("write");
  const std::string write = trespasser.channel().Receive().text;
  uint64_t after = 0;
  for (const Role& checker : checkers) {
    checker.channel().Send("check again");
    after += std::stoull(checker.channel().Receive().text);
  }
  const bool refused = write != "written";
  return Judge(
      before == 0 && after == 0 && refused,
      "4 processes, one with two imports, read " + std::to_string(before) +
          " wrong words; a write through a read-only mapping: " + write +
          "; the others then read " + std::to_string(after) + " wrong words",
      refused ? "sharers do not see what the owner wrote" : "a read-only mapping can be written");
}

Outcome ProbeMapOffset(const Context& context) {
  Gpu gpu(context.driver, context.device);
  gpu.MakeContext();
  const uint64_t granularity = gpu.Granularity();
  const Slab slab = Slab::Create(gpu, 2 * granularity);
  CUdeviceptr address = 0;
  gpu.Must(gpu.api().mem_address_reserve(&address, granularity, 0, 0, 0), "cuMemAddressReserve");
  const CUresult result = gpu.api().mem_map(address, granularity, granularity, slab.handle(), 0);
  if (result == CUDA_SUCCESS) {
    gpu.Must(gpu.api().mem_unmap(address, granularity), "cuMemUnmap");
  }
  gpu.Must(gpu.api().mem_address_free(address, granularity), "cuMemAddressFree");
  return Judge(result != CUDA_SUCCESS,
               "cuMemMap at offset " + Bytes(static_cast<double>(granularity)) + ": " +
                   gpu.ErrorName(result),
               "it can: slabs may be shared in parts");
}

Outcome ProbeFreshMemory(const Context& context) {
  Role filler = Role::Start("filler", [&context](Channel& channel) {
    Gpu gpu(context.driver, context.device);
    gpu.MakeContext();
    auto memory = std::make_unique<Filler>(gpu, context);
    const double rate = memory->Fill();
    const uint64_t filled_bytes = memory->bytes();
    memory.reset();
    const uint64_t left = Filler(gpu, context).CountNonZero();  // freed by this very process
    // Leaves the pattern behind by ending, too.
    Filler again(gpu, context);
    again.Fill();
    channel.Send(std::to_string(filled_bytes) + " " + std::to_string(rate) + " " +
                 std::to_string(left));
    channel.Receive();
  });
  const std::string answer = filler.channel().Receive().text;
  size_t at = 0;
  const auto filled = static_cast<double>(std::stoull(answer, &at));
  size_t rate_end = 0;
  const double rate = std::stod(answer.substr(at), &rate_end);
  const uint64_t within = std::stoull(answer.substr(at + rate_end));
  filler.End();

  const double begin = Now();
  const Role heir = Role::Start("heir", [&context](Channel& channel) {
    Gpu gpu(context.driver, context.device);
    gpu.MakeContext();
    const Filler memory(gpu, context);
    channel.Send(std::to_string(memory.CountNonZero()));
  });
  const uint64_t between = std::stoull(heir.channel().Receive().text);
  const double seconds = Now() - begin;
  Outcome outcome = Judge(between == 0,
                          std::to_string(between) + " words of another process's " + Bytes(filled) +
                              " are not zero, " + std::to_string(within) +
                              " of the same process's; next owner ready in " + Seconds(seconds) +
                              "; scrubbing by ourselves: " + Number(rate / 1e9, 0) + " GB/s",
                          "memory of another process is visible");
  outcome.numbers = {{"nonzero_words_between", static_cast<double>(between)},
                     {"nonzero_words_within", static_cast<double>(within)},
                     {"filled_bytes", filled},
                     {"scrub_bytes_per_second", rate},
                     {"next_owner_seconds", seconds}};
  return outcome;
}

}  // namespace geminid::gpu_verify
