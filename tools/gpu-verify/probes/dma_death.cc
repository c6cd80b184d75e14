// G20: after the end of a process is announced, do its copies still write to host memory?
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tools/gpu-verify/device.h"
#include "tools/gpu-verify/probe.h"

namespace geminid::gpu_verify {
namespace {

constexpr uint32_t kOurs = 0xA5A5A5A5;    // what we write once the victim is dead
constexpr uint32_t kTheirs = 0x10000000;  // plus the number of the copy; never ours
constexpr double kQuietSeconds = 0.02;    // how long late copies have to show themselves
constexpr double kMostEndSeconds = 20;

struct Tally {
  int kills = 0;
  int in_flight = 0;    // of the kills, those that interrupted a copy
  int overwritten = 0;  // of the kills, those after which the memory changed
};

// Queues copies down to the pool and waits to be killed. With `leave_child`, a forked child
// survives that holds all of the driver's descriptors and mappings, and does nothing.
Role StartVictim(const Context& context, HostPool& pool, bool leave_child) {
  return Role::Start("victim", [&context, &pool, leave_child](Channel& channel) {
    Gpu gpu(context.driver, context.device);
    gpu.MakeContext();
    const uint64_t bytes = pool.bytes();
    const Registration registration(gpu, pool.data(), bytes);
    const Buffer source(gpu, bytes);
    const Stream stream(gpu);
    const gpu::DriverApi& api = gpu.api();
    pid_t child = 0;
    if (leave_child) {
      child = fork();
      if (child < 0) throw ProbeError("fork failed");
      if (child == 0) {
        for (;;) pause();
      }
    }
    channel.Send(std::to_string(child));
    channel.Receive();  // all victims begin together
    for (int copy = 0; copy < context.effort.dma_queue; ++copy) {
      const uint32_t value = kTheirs + static_cast<uint32_t>(copy);
      gpu.Must(api.memset_d32_async(source.address(), value, bytes / 4, stream.get()),
               "cuMemsetD32Async");
      gpu.Must(api.memcpy_dtoh_async(pool.data(), source.address(), bytes, stream.get()),
               "cuMemcpyDtoHAsync");
    }
    channel.Receive();
  });
}

uint32_t FirstWord(const HostPool& pool) {
  return std::atomic_ref(*reinterpret_cast<uint32_t*>(pool.data())).load();
}

bool AllOurs(const HostPool& pool) {
  const auto* words = reinterpret_cast<const uint32_t*>(pool.data());
  for (uint64_t i = 0; i < pool.bytes() / 4; ++i) {
    if (words[i] != kOurs) return false;
  }
  return true;
}

// Waits until a copy of the victim has reached the pool.
void AwaitFirstCopy(const HostPool& pool, const Role& victim) {
  constexpr int kLookEvery = 1 << 16;
  for (int polls = 1; FirstWord(pool) < kTheirs; ++polls) {
    if (polls % kLookEvery == 0 && victim.WaitForEnd(0)) victim.channel().Receive();
    polls %= kLookEvery;
  }
}

// Starts a victim per pool, kills all of them in the middle of their copies, and checks the pools.
void KillTogether(const Context& context, std::vector<std::unique_ptr<HostPool>>& pools,
                  bool leave_child, double kill_after_seconds, Tally* tally) {
  std::vector<Role> victims;
  std::vector<pid_t> children;
  for (auto& pool : pools) {
    std::memset(pool->data(), 0, pool->bytes());
    victims.push_back(StartVictim(context, *pool, leave_child));
  }
  for (const Role& victim : victims) {
    children.push_back(std::stoi(victim.channel().Receive().text));
  }
  for (const Role& victim : victims) victim.channel().Send("begin");
  for (size_t i = 0; i < pools.size(); ++i) AwaitFirstCopy(*pools[i], victims[i]);
  Pause(kill_after_seconds);
  for (const Role& victim : victims) victim.Kill();
  const uint32_t last = kTheirs + static_cast<uint32_t>(context.effort.dma_queue) - 1;
  for (size_t i = 0; i < pools.size(); ++i) {
    if (!victims[i].WaitForEnd(kMostEndSeconds)) {
      throw ProbeError("a killed process did not end within 20 s");
    }
    // Its end is announced: from now on only we may write to the memory.
    tally->in_flight += FirstWord(*pools[i]) != last;
    auto* words = reinterpret_cast<uint32_t*>(pools[i]->data());
    std::fill(words, words + pools[i]->bytes() / 4, kOurs);
  }
  Pause(kQuietSeconds);
  for (const auto& pool : pools) tally->overwritten += !AllOurs(*pool);
  for (const pid_t child : children) {
    if (child > 0) KillOrphan(child, kMostEndSeconds);  // else its copies reach the next batch
  }
  tally->kills += static_cast<int>(pools.size());
}

void AddNumbers(const std::string& key, const Tally& tally, Outcome* outcome) {
  outcome->numbers.emplace_back(key + "_kills", tally.kills);
  outcome->numbers.emplace_back(key + "_in_flight", tally.in_flight);
  outcome->numbers.emplace_back(key + "_overwritten", tally.overwritten);
}

std::string Words(const Tally& tally) {
  return std::to_string(tally.overwritten) + " overwritten after " + std::to_string(tally.kills) +
         " kills, " + std::to_string(tally.in_flight) + " of them within a copy";
}

}  // namespace

Outcome ProbeDmaAfterDeath(const Context& context) {
  constexpr int kWithChildEvery = 4;       // batches
  constexpr double kStepSeconds = 0.0013;  // the kills walk through a copy's time
  constexpr int kSteps = 8;
  const Effort& effort = context.effort;
  const Observer keeper(context.driver, context.device);  // keeps the GPU initialised
  std::vector<std::unique_ptr<HostPool>> pools;
  for (int i = 0; i < effort.lanes; ++i) {
    pools.push_back(std::make_unique<HostPool>(effort.dma_bytes));
  }
  Tally alone;
  Tally with_child;
  for (int batch = 0; alone.kills + with_child.kills < effort.dma_kills; ++batch) {
    const bool both_seen = alone.kills > 0 && with_child.kills > 0;
    if (both_seen && Now() >= context.soft_deadline) break;
    const bool leave_child = batch % kWithChildEvery == kWithChildEvery - 1;
    KillTogether(context, pools, leave_child, batch % kSteps * kStepSeconds,
                 leave_child ? &with_child : &alone);
    context.progress(std::to_string(alone.kills + with_child.kills) + " killed");
  }
  const bool tried = alone.in_flight > 0 && with_child.in_flight > 0;
  const bool kept = alone.overwritten == 0 && with_child.overwritten == 0;
  Outcome outcome =
      Judge(tried && kept, Words(alone) + "; with a forked child left behind " + Words(with_child),
            !tried ? "no kill came within a copy, so nothing is proved"
            : alone.overwritten > 0
                ? "a dead process's copies wrote to memory that this process had again"
                : "copies go on while a forked child holds the driver's files");
  AddNumbers("alone", alone, &outcome);
  AddNumbers("with_child", with_child, &outcome);
  return outcome;
}

}  // namespace geminid::gpu_verify
