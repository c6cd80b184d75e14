// Whether copies overlap with kernels, and how small copies may be: G14 and G15.
#include "tools/gpu-verify/overlap.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <string>
#include <vector>

#include "tools/gpu-verify/device.h"
#include "tools/gpu-verify/kernels.h"
#include "tools/gpu-verify/probe.h"
#include "tools/gpu-verify/window.h"

namespace geminid::gpu_verify {
namespace {

enum class Work { kNone = 0, kArithmetic = 1, kMemory = 2 };

constexpr uint32_t kSpinIterations = 100'000;  // a few hundred microseconds
constexpr double kStartSeconds = 0.1;          // between the order and the window

std::string Percent(double ratio) { return Number(100 * ratio, 0) + " %"; }

// Everything a process needs to run kernels and copies, in one place.
class Worker {
 public:
  Worker(const Gpu& gpu, HostPool& pool, uint64_t memory_bytes)
      : gpu_(gpu),
        kernels_(gpu),
        registration_(gpu, pool.data(), pool.bytes()),
        host_(pool.data()),
        device_(gpu, pool.bytes()),
        memory_(gpu, memory_bytes),
        kernel_stream_(gpu),
        up_stream_(gpu),
        down_stream_(gpu) {}

  OverlapRates Run(Work work, bool copy, Window window) {
    std::vector<std::future<double>> copies;
    std::future<double> kernels;
    if (work != Work::kNone) {
      kernels = InThread(kernel_stream_, window, [this, work] { EnqueueKernel(work); });
    }
    if (copy) {
      copies.push_back(InThread(up_stream_, window, [this] { EnqueueCopy(true); }));
      copies.push_back(InThread(down_stream_, window, [this] { EnqueueCopy(false); }));
    }
    OverlapRates rates;
    if (kernels.valid()) rates.kernels = kernels.get();
    for (auto& direction : copies) rates.copies += direction.get();
    return rates;
  }

 private:
  std::future<double> InThread(const Stream& stream, Window window,
                               std::function<void()> enqueue) const {
    return std::async(std::launch::async, [this, &stream, window, enqueue = std::move(enqueue)] {
      gpu_.UseContext();
      return RateWithin(gpu_, stream, window, enqueue);
    });
  }
  void EnqueueKernel(Work work) const {
    if (work == Work::kArithmetic) {
      kernels_.Spin(kernel_stream_, memory_.address(), kSpinIterations);
    } else {
      kernels_.Copy(kernel_stream_, memory_.address() + memory_.bytes() / 2, memory_.address(),
                    memory_.bytes() / 2);
    }
  }
  void EnqueueCopy(bool up) const {
    const uint64_t half = device_.bytes() / 2;  // each direction has its own half
    const gpu::DriverApi& api = gpu_.api();
    gpu_.Must(up ? api.memcpy_htod_async(device_.address(), host_, half, up_stream_.get())
                 : api.memcpy_dtoh_async(host_ + half, device_.address() + half, half,
                                         down_stream_.get()),
              "cuMemcpyAsync");
  }

  const Gpu& gpu_;
  Kernels kernels_;
  Registration registration_;
  char* host_;
  Buffer device_;
  Buffer memory_;
  Stream kernel_stream_;
  Stream up_stream_;
  Stream down_stream_;
};

// Answers "work copy begin end" with "kernels copies".
Role StartWorker(const Context& context, HostPool& pool) {
  return Role::Start("worker", [&context, &pool](Channel& channel) {
    Gpu gpu(context.driver, context.device);
    gpu.MakeContext();
    Worker worker(gpu, pool, context.effort.slab_bytes);
    // Runs everything once, because first calls are slow.
    const double now = Now();
    worker.Run(Work::kArithmetic, true, {now, now + 0.01});
    worker.Run(Work::kMemory, false, {now, now + 0.02});
    channel.Send("ready");
    while (true) {
      const std::vector<double> order = ParseNumbers(channel.Receive().text);
      if (order.size() != 4) throw ProbeError("an order is not four numbers");
      const OverlapRates rates = worker.Run(static_cast<Work>(static_cast<int>(order[0])),
                                            order[1] != 0, {order[2], order[3]});
      channel.Send(std::to_string(rates.kernels) + " " + std::to_string(rates.copies));
    }
  });
}

void Order(const Role& worker, Work work, bool copy, Window window) {
  worker.channel().Send(std::to_string(static_cast<int>(work)) + (copy ? " 1 " : " 0 ") +
                        std::to_string(window.begin) + " " + std::to_string(window.end));
}

OverlapRates Answer(const Role& worker) {
  const std::vector<double> rates = ParseNumbers(worker.channel().Receive().text);
  if (rates.size() != 2) throw ProbeError("a worker's answer is not two numbers");
  return {rates[0], rates[1]};
}

// Work of `first` beside copies of `second`, or beside its own copies.
OverlapRates Together(const Role& first, const Role& second, Work work, bool copy, double seconds) {
  const double begin = Now() + kStartSeconds;
  const Window window{begin, begin + seconds};
  const bool own = first.pid() == second.pid();
  Order(first, work, copy && own, window);
  if (!own) Order(second, Work::kNone, copy, window);
  OverlapRates rates = Answer(first);
  if (!own) rates.copies = Answer(second).copies;
  return rates;
}

OverlapCase MeasureCase(const Role& first, const Role& second, Work work, double seconds) {
  OverlapCase result;
  result.kernels_alone = Together(first, first, work, false, seconds).kernels;
  result.own = Together(first, first, work, true, seconds);
  result.other = Together(first, second, work, true, seconds);
  return result;
}

// One direction of ProbePieces: one ticket after the other, two in flight. The stream ends each by
// writing a word, which the processor polls, as clients execute the daemon's tickets.
class TicketLane {
 public:
  TicketLane(const Gpu& gpu, const Registration& words, uint64_t* word, char* host,
             CUdeviceptr device, bool up)
      : gpu_(gpu),
        word_(word),
        word_address_(words.DeviceAddress(word)),
        host_(host),
        device_(device),
        up_(up),
        stream_(gpu) {
    *word_ = 0;
  }

  // Copies `count` pieces. Returns whether there is more to do; call again until there is not.
  bool Advance(uint64_t piece_bytes, uint64_t count) {
    constexpr uint64_t kInFlight = 2;
    const uint64_t done = std::atomic_ref(*word_).load(std::memory_order_acquire) - base_;
    while (issued_ < count && issued_ < done + kInFlight) {
      Enqueue(issued_ * piece_bytes, piece_bytes);
      ++issued_;
      gpu_.Must(gpu_.api().stream_write_value64(stream_.get(), word_address_, base_ + issued_,
                                                CU_STREAM_WRITE_VALUE_DEFAULT),
                "cuStreamWriteValue64");
    }
    return done < count;
  }
  void Reset() {
    base_ += issued_;
    issued_ = 0;
  }

 private:
  void Enqueue(uint64_t at, uint64_t bytes) {
    const gpu::DriverApi& api = gpu_.api();
    gpu_.Must(up_ ? api.memcpy_htod_async(device_ + at, host_ + at, bytes, stream_.get())
                  : api.memcpy_dtoh_async(host_ + at, device_ + at, bytes, stream_.get()),
              "cuMemcpyAsync");
  }

  const Gpu& gpu_;
  uint64_t* word_;
  CUdeviceptr word_address_;
  char* host_;
  CUdeviceptr device_;
  bool up_;
  uint64_t base_ = 0;  // of the words of this round
  uint64_t issued_ = 0;
  Stream stream_;
};

// Best of three rounds, in bytes per second.
double TicketRate(const std::vector<TicketLane*>& lanes, uint64_t piece_bytes,
                  uint64_t total_bytes) {
  constexpr int kRounds = 3;
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const double begin = Now();
    bool busy = true;
    while (busy) {
      busy = false;
      for (TicketLane* lane : lanes) busy |= lane->Advance(piece_bytes, total_bytes / piece_bytes);
    }
    const double bytes = static_cast<double>(total_bytes) * static_cast<double>(lanes.size());
    best = std::max(best, bytes / (Now() - begin));
    for (TicketLane* lane : lanes) lane->Reset();
  }
  return best;
}

}  // namespace

Outcome JudgeOverlap(double copies_alone, const OverlapCase& arithmetic,
                     const OverlapCase& memory) {
  constexpr double kLeastKept = 0.85;
  const auto tell = [&](const char* name, const OverlapCase& rates, Outcome* outcome) {
    const double values[] = {
        rates.own.kernels / rates.kernels_alone, rates.own.copies / copies_alone,
        rates.other.kernels / rates.kernels_alone, rates.other.copies / copies_alone};
    outcome->figure += (outcome->figure.empty() ? "" : "; ") + std::string(name) +
                       " kernels keep " + Percent(values[0]) + " and copies " + Percent(values[1]) +
                       " of their rate on own streams, " + Percent(values[2]) + " and " +
                       Percent(values[3]) + " when another process copies";
    const char* const keys[] = {"_own_kernels_kept", "_own_copies_kept", "_other_kernels_kept",
                                "_other_copies_kept"};
    for (int i = 0; i < 4; ++i)
      outcome->numbers.emplace_back(std::string(name) + keys[i], values[i]);
  };
  const bool holds = arithmetic.own.kernels >= kLeastKept * arithmetic.kernels_alone &&
                     arithmetic.own.copies >= kLeastKept * copies_alone;
  Outcome outcome = Judge(
      holds, "", "on own streams arithmetic or copies lose more than " + Percent(1 - kLeastKept));
  tell("arithmetic", arithmetic, &outcome);
  tell("memory-bound", memory, &outcome);
  return outcome;
}

Outcome ProbeOverlap(const Context& context) {
  HostPool first_pool(2 * context.effort.chunk_bytes);
  HostPool second_pool(2 * context.effort.chunk_bytes);
  const Role first = StartWorker(context, first_pool);
  const Role second = StartWorker(context, second_pool);
  first.channel().Receive();
  second.channel().Receive();
  const double seconds = context.effort.window_seconds;
  const double copies_alone = Together(first, first, Work::kNone, true, seconds).copies;
  const OverlapCase arithmetic = MeasureCase(first, second, Work::kArithmetic, seconds);
  context.progress("arithmetic measured");
  const OverlapCase memory = MeasureCase(first, second, Work::kMemory, seconds);
  Outcome outcome = JudgeOverlap(copies_alone, arithmetic, memory);
  outcome.numbers.emplace_back("copies_alone_bytes_per_second",
                               copies_alone * static_cast<double>(context.effort.chunk_bytes));
  return outcome;
}

Outcome ProbePieces(const Context& context) {
  constexpr double kLeastShare = 0.95;  // of one large copy, for a chunk
  const uint64_t bytes = context.effort.link_bytes;
  Gpu gpu(context.driver, context.device);
  gpu.MakeContext();
  HostPool pool(2 * bytes);
  HostPool word_pool(4096);
  const Registration memory(gpu, pool.data(), pool.bytes());
  const Registration words(gpu, word_pool.data(), word_pool.bytes());
  const Buffer in(gpu, bytes);
  const Buffer out(gpu, bytes);
  auto* word = reinterpret_cast<uint64_t*>(word_pool.data());
  constexpr int kLineWords = 8;  // a cache line apart
  TicketLane up(gpu, words, word, pool.data(), in.address(), true);
  TicketLane down(gpu, words, word + kLineWords, pool.data() + bytes, out.address(), false);

  struct Direction {
    const char* name;
    std::vector<TicketLane*> lanes;
  };
  Outcome outcome = Pass("");
  for (const Direction& direction :
       {Direction{"up", {&up}}, Direction{"down", {&down}}, Direction{"both", {&up, &down}}}) {
    const double whole = TicketRate(direction.lanes, bytes, bytes);
    outcome.numbers.emplace_back(std::string(direction.name) + "_whole_bytes_per_second", whole);
    outcome.figure += (outcome.figure.empty() ? "" : "; ") + std::string(direction.name) + " " +
                      Number(whole / 1e9, 1) + " GB/s, of that in pieces of";
    for (uint64_t piece = kMib; piece <= std::min(64 * kMib, bytes); piece *= 2) {
      const double share = TicketRate(direction.lanes, piece, bytes) / whole;
      const std::string mib = std::to_string(piece / kMib);
      outcome.figure += " " + mib + " MiB " + Percent(share);
      outcome.numbers.emplace_back(std::string(direction.name) + "_share_" + mib + "_mib", share);
      if (piece == context.effort.chunk_bytes && share < kLeastShare) {
        outcome.verdict = Verdict::kFail;
        outcome.reason = "a chunk of " + mib + " MiB reaches less than " + Percent(kLeastShare) +
                         " " + direction.name;
      }
    }
  }
  return outcome;
}

}  // namespace geminid::gpu_verify
