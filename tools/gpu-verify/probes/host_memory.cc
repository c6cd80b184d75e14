// Host memory that the driver pins: the cost of registering it, and how long dead processes hold
// it: G11 to G13.
#include <poll.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tools/gpu-verify/device.h"
#include "tools/gpu-verify/kernels.h"
#include "tools/gpu-verify/probe.h"
#include "tools/gpu-verify/window.h"

namespace geminid::gpu_verify {
namespace {

double Gibibytes(uint64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(kGib); }

// `bytes`, but at most half of the host's available memory, in whole granules.
uint64_t Affordable(uint64_t bytes, uint64_t granule) {
  const uint64_t affordable = std::min(bytes, AvailableHostBytes() / 2);
  if (affordable < granule) throw ProbeError("the host has too little free memory");
  return affordable / granule * granule;
}

// Registers the pool on request and answers with the seconds that this took.
Role StartRegistrar(const Context& context, const HostPool& pool) {
  return Role::Start("registrar", [&context, &pool](Channel& channel) {
    Gpu gpu(context.driver, context.device);
    gpu.MakeContext();
    channel.Send("ready");
    channel.Receive();
    const double begin = Now();
    const Registration registration(gpu, pool.data(), pool.bytes());
    channel.Send(std::to_string(Now() - begin));
    channel.Receive();
  });
}

struct Registered {
  double seconds = 0;       // until the last of the processes had registered
  double device_bytes = 0;  // that all of them then take on the device
};

// Registers one pool in several processes at once.
Registered RegisterTogether(const Context& context, const HostPool& pool, int processes,
                            const Observer& observer) {
  std::vector<Role> roles;
  for (int i = 0; i < processes; ++i) roles.push_back(StartRegistrar(context, pool));
  for (const Role& role : roles) role.channel().Receive();
  const auto before = static_cast<double>(observer.FreeBytes());
  const double begin = Now();
  for (const Role& role : roles) role.channel().Send("register");
  for (const Role& role : roles) role.channel().Receive();
  Registered result;
  result.seconds = Now() - begin;
  result.device_bytes = before - static_cast<double>(observer.FreeBytes());
  return result;
}

// Bytes per second of copies of `pool`'s memory up and down, one direction at a time.
struct CopyRates {
  double up = 0;
  double down = 0;
};

CopyRates MeasureCopies(const Gpu& gpu, char* host, uint64_t bytes, double seconds) {
  const Buffer device(gpu, bytes);
  const Stream stream(gpu);
  const auto rate = [&](bool up) {
    const auto enqueue = [&] {
      gpu.Must(up ? gpu.api().memcpy_htod_async(device.address(), host, bytes, stream.get())
                  : gpu.api().memcpy_dtoh_async(host, device.address(), bytes, stream.get()),
               "cuMemcpyAsync");
    };
    enqueue();
    stream.Synchronize();
    const double begin = Now();
    int copies = 0;
    do {
      enqueue();
      stream.Synchronize();
      ++copies;
    } while (Now() < begin + seconds);
    return static_cast<double>(bytes) * copies / (Now() - begin);
  };
  const double up = rate(true);
  return {up, rate(false)};
}

// The rates from registered memory over those from the driver's own.
struct Comparison {
  CopyRates registered;
  CopyRates own;
};

Comparison CompareCopies(const Context& context, HostPool& pool) {
  const uint64_t bytes = std::min(context.effort.link_bytes, pool.bytes());
  const Role role = Role::Start("copier", [&](Channel& channel) {
    Gpu gpu(context.driver, context.device);
    gpu.MakeContext();
    const double seconds = context.effort.window_seconds / 2;
    const Registration registration(gpu, pool.data(), pool.bytes());
    const CopyRates registered = MeasureCopies(gpu, pool.data(), bytes, seconds);
    void* memory = nullptr;
    gpu.Must(gpu.api().mem_host_alloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
    const CopyRates own = MeasureCopies(gpu, static_cast<char*>(memory), bytes, seconds);
    gpu.Must(gpu.api().mem_free_host(memory), "cuMemFreeHost");
    channel.Send(std::to_string(registered.up) + " " + std::to_string(registered.down) + " " +
                 std::to_string(own.up) + " " + std::to_string(own.down));
    channel.Receive();
  });
  const std::vector<double> rates = ParseNumbers(role.channel().Receive().text);
  if (rates.size() != 4) throw ProbeError("the copier's answer is not four numbers");
  return {{rates[0], rates[1]}, {rates[2], rates[3]}};
}

// The longest time between the ends of two short kernels of one process, alone and while another
// process registers.
struct Stall {
  double alone_seconds = 0;
  double registering_seconds = 0;
};

Stall MeasureStall(const Context& context, const HostPool& pool) {
  const Role worker = Role::Start("worker", [&context](Channel& channel) {
    Gpu gpu(context.driver, context.device);
    gpu.MakeContext();
    const Kernels kernels(gpu);
    const Stream stream(gpu);
    const Buffer out(gpu, sizeof(float));
    constexpr uint32_t kIterations = 20'000;  // some tens of microseconds
    channel.Send("ready");
    while (true) {
      channel.Receive();
      double longest = 0;
      double last = Now();
      pollfd asked{channel.socket(), POLLIN, 0};
      do {
        kernels.Spin(stream, out.address(), kIterations);
        stream.Synchronize();
        const double now = Now();
        longest = std::max(longest, now - last);
        last = now;
      } while (poll(&asked, 1, 0) == 0);
      channel.Receive();
      channel.Send(Number(longest, 9));
    }
  });
  worker.channel().Receive();
  const Role registrar = StartRegistrar(context, pool);
  registrar.channel().Receive();
  const auto longest_during = [&](const auto& action) {
    worker.channel().Send("begin");
    action();
    worker.channel().Send("end");
    return std::stod(worker.channel().Receive().text);
  };
  Stall stall;
  longest_during([&] { Pause(context.effort.window_seconds / 4); });  // the first kernels are slow
  stall.alone_seconds = longest_during([&] { Pause(context.effort.window_seconds); });
  stall.registering_seconds = longest_during([&] {
    registrar.channel().Send("register");
    registrar.channel().Receive();
  });
  return stall;
}

void AddNumbers(const std::string& pages, double gib, const Registered& one, const Registered& four,
                Outcome* outcome) {
  outcome->numbers.emplace_back(pages + "_seconds_per_gib", one.seconds / gib);
  outcome->numbers.emplace_back(pages + "_four_processes_seconds_per_gib", four.seconds / gib);
  outcome->numbers.emplace_back(pages + "_device_bytes_per_gib", one.device_bytes / gib);
}

// Judges one kind of pages and adds its figures.
void MeasurePages(const Context& context, HostPool& pool, const std::string& pages,
                  const Observer& observer, Outcome* outcome) {
  constexpr double kMostSecondsPerGib = 0.3;  // reported elsewhere: 0.1
  constexpr double kLeastRatio = 0.95;        // of the driver's own pinned memory
  constexpr int kProcesses = 4;
  const double gib = Gibibytes(pool.bytes());
  const Registered one = RegisterTogether(context, pool, 1, observer);
  const Registered four = RegisterTogether(context, pool, kProcesses, observer);
  context.progress(pages + " pages registered");
  const Comparison copies = CompareCopies(context, pool);
  const Stall stall = MeasureStall(context, pool);
  const double ratio =
      std::min(copies.registered.up / copies.own.up, copies.registered.down / copies.own.down);
  outcome->figure +=
      (outcome->figure.empty() ? "" : "; ") + pages + " pages: " + Number(one.seconds / gib, 3) +
      " s/GiB, in 4 processes " + Number(four.seconds / gib, 3) + ", " +
      Bytes(one.device_bytes / gib) + " of device memory per GiB, copies up " +
      Number(copies.registered.up / 1e9, 1) + " down " + Number(copies.registered.down / 1e9, 1) +
      " GB/s (the driver's own " + Number(copies.own.up / 1e9, 1) + " and " +
      Number(copies.own.down / 1e9, 1) + "), longest stall of a kernel loop " +
      Seconds(stall.registering_seconds) + " (alone " + Seconds(stall.alone_seconds) + ")";
  AddNumbers(pages, gib, one, four, outcome);
  outcome->numbers.emplace_back(pages + "_copy_ratio", ratio);
  outcome->numbers.emplace_back(pages + "_up_bytes_per_second", copies.registered.up);
  outcome->numbers.emplace_back(pages + "_down_bytes_per_second", copies.registered.down);
  outcome->numbers.emplace_back(pages + "_stall_seconds", stall.registering_seconds);
  outcome->numbers.emplace_back(pages + "_stall_alone_seconds", stall.alone_seconds);
  if (one.seconds / gib > kMostSecondsPerGib || ratio < kLeastRatio) {
    outcome->verdict = Verdict::kFail;
    outcome->reason = pages + " pages: more than " + Number(kMostSecondsPerGib, 1) +
                      " s/GiB or less than " + Number(kLeastRatio * 100, 0) +
                      " % of the driver's own memory";
  }
}

}  // namespace

Outcome ProbeRegistration(const Context& context) {
  const Observer observer(context.driver, context.device);
  Outcome outcome = Pass("");
  {
    HostPool pool(Affordable(context.effort.pinned_bytes, kMib));
    MeasurePages(context, pool, "4 KiB", observer, &outcome);
  }
  constexpr uint64_t kHugeBytes = 2 * kMib;
  const uint64_t huge_bytes =
      std::min(context.effort.pinned_bytes, HostPool::FreeHugeBytes()) / kHugeBytes * kHugeBytes;
  if (huge_bytes < std::min(context.effort.pinned_bytes, kGib)) {
    outcome.figure += "; huge pages not measured (reserve them: vm.nr_hugepages)";
    return outcome;
  }
  HostPool pool(huge_bytes, HostPool::Pages::kHuge);
  MeasurePages(context, pool, "2 MiB", observer, &outcome);
  return outcome;
}

Outcome ProbeRegistrationPieces(const Context& context) {
  constexpr uint64_t kPieces = 4;
  constexpr double kMostRatio = 1.5;  // cost of pieces over one call
  const uint64_t bytes = Affordable(context.effort.pinned_bytes, kPieces * kMib);
  HostPool pool(bytes);
  Gpu gpu(context.driver, context.device);
  gpu.MakeContext();
  { const Registration warm_up(gpu, pool.data(), bytes); }
  double begin = Now();
  { const Registration whole(gpu, pool.data(), bytes); }
  const double whole_seconds = Now() - begin;
  begin = Now();
  double longest_seconds = 0;
  {
    std::vector<Registration> pieces;
    for (uint64_t i = 0; i < kPieces; ++i) {
      const double piece_begin = Now();
      pieces.emplace_back(gpu, pool.data() + i * (bytes / kPieces), bytes / kPieces);
      longest_seconds = std::max(longest_seconds, Now() - piece_begin);
    }
  }
  const double pieces_seconds = Now() - begin;
  const double gib = Gibibytes(bytes);
  Outcome outcome = Judge(pieces_seconds <= kMostRatio * whole_seconds,
                          "registered and released: at once " + Number(whole_seconds / gib, 3) +
                              " s/GiB, in 4 pieces " + Number(pieces_seconds / gib, 3) +
                              " s/GiB, longest registering call " + Seconds(longest_seconds) +
                              " (" + Bytes(static_cast<double>(bytes) / kPieces) + ")",
                          "pieces cost more than " + Number(kMostRatio, 1) + " times as much");
  outcome.numbers = {{"whole_seconds_per_gib", whole_seconds / gib},
                     {"pieces_seconds_per_gib", pieces_seconds / gib},
                     {"longest_call_seconds", longest_seconds}};
  return outcome;
}

Outcome ProbeRegisteredDeath(const Context& context) {
  constexpr double kMostEndSeconds = 5;
  const double most_return_seconds = context.effort.return_seconds;
  const uint64_t bytes = Affordable(context.effort.dying_bytes, kMib);
  const uint64_t slab_bytes = context.effort.slab_bytes;
  const Observer observer(context.driver, context.device);
  const auto device_before = static_cast<double>(observer.FreeBytes());
  const Role victim = Role::Start("victim", [&context, bytes, slab_bytes](Channel& channel) {
    Gpu gpu(context.driver, context.device);
    gpu.MakeContext();
    const HostPool pool(bytes);
    const Registration registration(gpu, pool.data(), bytes);
    Slab slab = Slab::Create(gpu, slab_bytes);
    slab.Map();
    channel.Send("ready");
    channel.Receive();
  });
  victim.channel().Receive();
  const auto host_before = static_cast<double>(AvailableHostBytes());
  const double begin = Now();
  victim.Kill();
  double end_of_file = -1;
  double end = -1;
  double host_back = -1;
  double device_back = -1;
  const auto all_back = [&] {
    return end_of_file >= 0 && end >= 0 && host_back >= 0 && device_back >= 0;
  };
  constexpr double kMostLostShare = 0.1;  // of what shall come back; others use memory as well
  while (!all_back() && Now() < begin + most_return_seconds) {
    const double now = Now() - begin;
    pollfd entry{victim.channel().socket(), POLLIN, 0};
    if (end_of_file < 0 && poll(&entry, 1, 0) == 1) end_of_file = now;
    if (end < 0 && victim.WaitForEnd(0)) end = now;
    const double host = static_cast<double>(AvailableHostBytes()) - host_before;
    if (host_back < 0 && host >= (1 - kMostLostShare) * static_cast<double>(bytes)) host_back = now;
    const double missing = device_before - static_cast<double>(observer.FreeBytes());
    if (device_back < 0 && missing <= kMostLostShare * static_cast<double>(slab_bytes)) {
      device_back = now;
    }
    Pause(0.0005);
  }
  const auto words = [](double seconds) { return seconds < 0 ? "never" : Seconds(seconds); };
  Outcome outcome = Judge(all_back() && end <= kMostEndSeconds && end_of_file <= kMostEndSeconds,
                          Bytes(static_cast<double>(bytes)) + " registered: end of file after " +
                              words(end_of_file) + ", end of process after " + words(end) +
                              ", device memory back after " + words(device_back) +
                              ", host memory after " + words(host_back),
                          "more than " + Number(kMostEndSeconds, 0) + " s to the end or " +
                              Number(most_return_seconds, 0) + " s until all memory is back");
  outcome.numbers = {{"registered_bytes", static_cast<double>(bytes)},
                     {"end_of_file_seconds", end_of_file},
                     {"end_seconds", end},
                     {"device_back_seconds", device_back},
                     {"host_back_seconds", host_back}};
  return outcome;
}

}  // namespace geminid::gpu_verify
