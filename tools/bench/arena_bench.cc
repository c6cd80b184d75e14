// The cost of an arena where no message is sent: holding a chunk, and finding a place for one.
// Neither depends on the size of the arena.
#include <benchmark/benchmark.h>

#include <atomic>
#include <cstdint>
#include <random>
#include <vector>

#include "daemon/core/chunks/extent_allocator.h"
#include "proto/shm/lease.h"

namespace geminid {
namespace {

// The words alone; client_bench measures what Session::TryLease and its release add.
void BM_LeaseWords(benchmark::State& state) {
  const std::atomic<uint64_t> published{
      shm::StateWord{.residency = shm::Residency::kResident, .generation = 7, .slot = 42}.Encode()};
  std::atomic<uint64_t> lease{0};
  shm::StateWord held;
  for (auto _ : state) {
    benchmark::DoNotOptimize(shm::TryAcquireLease(published, lease, &held));
    benchmark::DoNotOptimize(held.slot);
    shm::ReleaseLease(lease);
  }
}
BENCHMARK(BM_LeaseWords);

// One chunk leaves a full arena, and another of its size takes a place.
void BM_FreeAndPlace(benchmark::State& state) {
  constexpr uint64_t kExtents = 1024;
  const uint64_t bytes = static_cast<uint64_t>(state.range(0)) << 30;
  core::ExtentAllocator arena(bytes, shm::kSlotBytes);
  std::vector<uint64_t> offsets;
  for (uint64_t i = 0; i < kExtents; ++i) {
    offsets.push_back(arena.AllocateLowest(bytes / kExtents, shm::ChunkId{7}).value());
  }
  std::mt19937 random(1);
  for (auto _ : state) {
    const uint64_t offset = offsets[random() % kExtents];
    benchmark::DoNotOptimize(arena.Free(offset));
    benchmark::DoNotOptimize(arena.AllocateLowest(bytes / kExtents, shm::ChunkId{7}));
  }
}
BENCHMARK(BM_FreeAndPlace)->ArgName("GiB")->Arg(1)->Arg(64)->Arg(2048)->Arg(16384);

}  // namespace
}  // namespace geminid

BENCHMARK_MAIN();
