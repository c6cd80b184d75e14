// Runs the lease protocol with client and evictor at full speed on one chunk. The evictor
// overwrites each chunk that it finds unheld at once, so a false hold is seen. The real protocol
// must show no violation. Each of the two mutants must be caught, otherwise this test could catch
// nothing.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "base/processors.h"
#include "proto/shm/lease.h"

namespace geminid::shm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

struct NoClientFence : SoundLeaseProtocol {
  static constexpr bool kClientFence = false;
};
// Each word is on a cache line of its own for the two processes.
struct Arena {
  alignas(64) std::atomic<uint64_t> state;
  alignas(64) std::atomic<uint64_t> lease;
  std::atomic<uint64_t> neighbour;            // another chunk's lease, on the same cache line
  alignas(64) std::atomic<uint64_t> payload;  // the generation it holds, or poison
  alignas(64) std::atomic<bool> stop;
  alignas(64) std::atomic<uint64_t> acquires;
  std::atomic<uint64_t> violations;
  alignas(64) std::atomic<uint64_t> evictions;
  std::atomic<uint64_t> cancelled;
};
constexpr uint64_t kPoison = ~uint64_t{0};

constexpr seconds kSoundRun{2};
// A mutant is caught in about a second if two processors are free.
constexpr seconds kLongest{100};

// The place of the chunk in one generation. It is anywhere in the widest arena, so a word mixed
// from two generations is noticed.
constexpr uint32_t SlotIn(uint32_t generation) { return generation * 2654435761u; }

// Best effort: on a busy machine the two sides seldom run at the same moment.
void RaisePriority() { (void)setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), -15); }

// Evicts the chunk again and again, as the daemon does.
void EvictForEver(Arena* arena) {
  RaisePriority();
  StateWord word{Residency::kResident, 1, SlotIn(1)};
  arena->payload.store(word.generation);
  arena->state.store(word.Encode());
  const auto publish = [&](Residency residency) {
    word.residency = residency;
    arena->state.store(word.Encode(), std::memory_order_seq_cst);
  };
  while (!arena->stop.load(std::memory_order_relaxed)) {
    publish(Residency::kEvictPending);
    if (IsHeld(arena->lease.load(std::memory_order_seq_cst), word.generation)) {
      publish(Residency::kResident);
      arena->cancelled.fetch_add(1, std::memory_order_relaxed);
      __builtin_ia32_pause();
      continue;
    }
    publish(Residency::kEvicting);
    arena->payload.store(kPoison, std::memory_order_relaxed);
    word.generation = (word.generation + 1) & kGenerationMask;
    word.slot = SlotIn(word.generation);
    publish(Residency::kAbsent);
    arena->payload.store(word.generation, std::memory_order_relaxed);
    publish(Residency::kResident);
    arena->evictions.fetch_add(1, std::memory_order_relaxed);
  }
}

template <typename Protocol>
void LeaseForEver(Arena* arena) {
  RaisePriority();
  constexpr int kLooks = 16;
  while (!arena->stop.load(std::memory_order_relaxed)) {
    StateWord held;
    if (!TryAcquireLease<Protocol>(arena->state, arena->lease, &held)) continue;
    for (int look = 0; look < kLooks; ++look) {
      if (arena->payload.load(std::memory_order_relaxed) == held.generation &&
          held.slot == SlotIn(held.generation)) {
        continue;
      }
      arena->violations.fetch_add(1, std::memory_order_relaxed);
      break;
    }
    ReleaseLease(arena->lease);
    arena->acquires.fetch_add(1, std::memory_order_relaxed);
  }
}

// Whether the two sides have met often enough for a meaningful run.
bool IsBusy(const Arena& arena) {
  constexpr uint64_t kOften = 1000;
  return arena.acquires.load() > kOften && arena.evictions.load() > kOften &&
         arena.cancelled.load() > 0;
}

// Waits until a violation, or for `time`; longer if the two sides seldom meet.
void WaitFor(Arena* arena, steady_clock::duration time) {
  const auto begin = steady_clock::now();
  const auto is_over = [&] {
    const auto passed = steady_clock::now() - begin;
    return passed >= kLongest || (passed >= time && IsBusy(*arena));
  };
  while (arena->violations.load() == 0 && !is_over()) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  arena->stop.store(true);
}

template <typename Protocol>
void RunThreads(Arena* arena, int clients, steady_clock::duration time) {
  std::vector<std::thread> threads;
  threads.emplace_back(EvictForEver, arena);
  for (int i = 0; i < clients; ++i) threads.emplace_back(LeaseForEver<Protocol>, arena);
  WaitFor(arena, time);
  for (std::thread& thread : threads) thread.join();
}

void ExpectSoundAndBusy(const Arena& arena) {
  EXPECT_EQ(arena.violations.load(), 0u);
  EXPECT_TRUE(IsBusy(arena)) << arena.acquires << " acquires, " << arena.evictions << " evictions, "
                             << arena.cancelled << " cancelled";
}

TEST(LeaseStress, SoundProtocolBetweenThreads_HasNoViolation) {
  Arena arena = {};
  RunThreads<SoundLeaseProtocol>(&arena, 1, kSoundRun);
  ExpectSoundAndBusy(arena);
}

TEST(LeaseStress, ThreadsOfOneClient_ShareTheWordSoundly) {
  Arena arena = {};
  RunThreads<SoundLeaseProtocol>(&arena, 3, kSoundRun);
  ExpectSoundAndBusy(arena);
  EXPECT_EQ(arena.lease.load(), 0u);
}

Arena* MapShared() {
  void* memory =
      mmap(nullptr, sizeof(Arena), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return new (memory) Arena{};
}

TEST(LeaseStress, SoundProtocolBetweenProcesses_HasNoViolation) {
  Arena* const arena = MapShared();
  const pid_t client = fork();
  if (client == 0) {
    LeaseForEver<SoundLeaseProtocol>(arena);
    _exit(0);
  }
  std::thread evictor(EvictForEver, arena);
  WaitFor(arena, kSoundRun);
  evictor.join();
  waitpid(client, nullptr, 0);
  ExpectSoundAndBusy(*arena);
  munmap(arena, sizeof(Arena));
}

TEST(LeaseStress, ClientKilledAtAnyInstruction_LeavesAnIntactWord) {
  Arena* const arena = MapShared();
  std::mt19937 random(20240607);
  std::thread evictor(EvictForEver, arena);
  int held = 0;
  for (int round = 0; round < 100; ++round) {
    const pid_t client = fork();
    if (client == 0) {
      LeaseForEver<SoundLeaseProtocol>(arena);
      _exit(0);
    }
    const uint64_t enough = arena->acquires.load() + 1 + random() % 2000;
    while (arena->acquires.load() < enough) std::this_thread::yield();
    kill(client, SIGKILL);
    waitpid(client, nullptr, 0);
    const uint64_t word = arena->lease.load();
    EXPECT_TRUE(LeaseWord::IsIntact(word)) << std::hex << word;
    EXPECT_LE(LeaseWord::Decode(word).count, 1);
    held += word != 0 ? 1 : 0;
    arena->lease.store(0);  // as the daemon does for a dead session
  }
  arena->stop.store(true);
  evictor.join();
  EXPECT_EQ(arena->violations.load(), 0u);
  EXPECT_GT(held, 0) << "no client was killed while it held the chunk";
  munmap(arena, sizeof(Arena));
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
// Only real concurrency and real store buffers break the mutant. A sanitizer's bookkeeping around
// every access would hide them.

TEST(LeaseStress, MutantWithoutTheClientsFence_IsCaught) {
  // One processor always sees its own stores, so the threads need two.
  if (base::AllowedProcessors().size() < 2) GTEST_SKIP() << "needs two processors";
  Arena arena = {};
  RunThreads<NoClientFence>(&arena, 1, kLongest);
  EXPECT_GT(arena.violations.load(), 0u)
      << arena.acquires << " acquires, " << arena.evictions << " evictions";
}

#endif

}  // namespace
}  // namespace geminid::shm
