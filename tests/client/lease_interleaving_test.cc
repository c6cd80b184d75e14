// Checks the lease protocol at every interleaving. The client runs one instruction at a time, and
// after each of them the evictor may take its steps. The test is exhaustive, so its outcome does
// not depend on timing. It cannot show store buffers; lease_stress_test.cc does.
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "proto/shm/lease.h"

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)

namespace geminid::shm {
namespace {

struct PendingCountsAsHeld : SoundLeaseProtocol {
  static constexpr bool kPendingCountsAsHeld = true;
};

constexpr uint32_t kGeneration = 5;
// The slots at 0, 64 GiB, 1 TiB and the last of 16 TiB. The slot's number fills half of the word.
constexpr std::array<uint32_t, 4> kSlots = {0, uint32_t{1} << 24, uint32_t{1} << 28, ~uint32_t{0}};
constexpr int kNever = 1 << 30;

// The evictor takes each of its two steps after the client's `..._after`-th instruction.
struct Scene {
  std::atomic<uint64_t> state;
  std::atomic<uint64_t> lease;
  uint32_t slot = 0;
  int publish_after = kNever;
  int decide_after = kNever;
  bool comes_back = false;  // at once, in the next generation, if it was evicted
  bool saw_lease = false;
  bool published = false;
  bool decided = false;
  bool evicted = false;
  int instructions = 0;

  void Set(Residency residency) {
    state.store(StateWord{residency, kGeneration, slot}.Encode(), std::memory_order_seq_cst);
  }
  // Announces an eviction, then looks for a lease.
  void Publish() {
    published = true;
    Set(Residency::kEvictPending);
    saw_lease = IsHeld(lease.load(std::memory_order_seq_cst), kGeneration);
  }
  // Acts on the result of Publish.
  void Decide() {
    decided = true;
    evicted = !saw_lease;
    Set(saw_lease ? Residency::kResident : Residency::kEvicting);
    if (evicted && comes_back) {
      state.store(StateWord{Residency::kResident, kGeneration + 1, slot}.Encode());
    }
  }
};

Scene* current_scene = nullptr;

void AfterInstruction(int) {
  Scene& scene = *current_scene;
  scene.instructions += 1;
  if (scene.instructions == scene.publish_after) scene.Publish();
  if (scene.instructions == scene.decide_after) scene.Decide();
}

// Sets the processor's trap flag. The stack pointer first moves below the red zone.
inline __attribute__((always_inline)) void BeginStepping() {
  asm volatile("subq $128, %%rsp\n pushfq\n orq $0x100, (%%rsp)\n popfq\n addq $128, %%rsp\n" ::
                   : "memory", "cc");
}
inline __attribute__((always_inline)) void EndStepping() {
  asm volatile("subq $128, %%rsp\n pushfq\n andq $~0x100, (%%rsp)\n popfq\n addq $128, %%rsp\n" ::
                   : "memory", "cc");
}

// Runs one acquire with one placement of the evictor's steps, and counts the instructions. True if
// the client believes that it holds a chunk which the evictor has taken away.
template <typename Protocol>
bool IsViolation(uint32_t slot, bool comes_back, int publish_after, int decide_after,
                 int* instructions) {
  Scene scene;
  scene.slot = slot;
  scene.comes_back = comes_back;
  scene.Set(Residency::kResident);
  scene.lease.store(0);
  scene.publish_after = publish_after;
  scene.decide_after = decide_after;
  current_scene = &scene;
  StateWord seen;
  BeginStepping();
  const bool held = TryAcquireLease<Protocol>(scene.state, scene.lease, &seen);
  EndStepping();
  current_scene = nullptr;
  *instructions = scene.instructions;
  if (!scene.published) scene.Publish();
  if (!scene.decided) scene.Decide();
  EXPECT_TRUE(held || scene.lease.load() == 0) << "a failed attempt left a lease behind";
  EXPECT_TRUE(!held || seen.slot == slot) << "held at " << seen.slot << ", not at " << slot;
  const bool holds_the_next = comes_back && IsHeld(scene.lease.load(), kGeneration + 1);
  return held && scene.evicted && !holds_the_next;
}

struct Outcome {
  int violations = 0;
  int instructions = 0;
};

template <typename Protocol>
Outcome TryEveryInterleaving(uint32_t slot, bool comes_back = false) {
  struct sigaction trap = {};
  struct sigaction before = {};
  trap.sa_handler = AfterInstruction;
  sigaction(SIGTRAP, &trap, &before);
  Outcome outcome;
  IsViolation<Protocol>(slot, comes_back, kNever, kNever, &outcome.instructions);
  const int end = outcome.instructions + 16;  // withdrawing takes some instructions more
  for (int publish = 1; publish <= end; ++publish) {
    // If the chunk comes back, it does so within one step.
    const int last_decide = comes_back ? publish : end;
    for (int decide = publish; decide <= last_decide; ++decide) {
      int ignored;
      outcome.violations +=
          IsViolation<Protocol>(slot, comes_back, publish, decide, &ignored) ? 1 : 0;
    }
  }
  sigaction(SIGTRAP, &before, nullptr);
  return outcome;
}

TEST(LeaseInterleaving, SoundProtocol_HoldsAtEveryOne) {
  for (const uint32_t slot : kSlots) {
    const Outcome outcome = TryEveryInterleaving<SoundLeaseProtocol>(slot);
    EXPECT_GT(outcome.instructions, 5);
    RecordProperty("instructions", outcome.instructions);
    EXPECT_EQ(outcome.violations, 0) << slot;
  }
}

TEST(LeaseInterleaving, ChunkThatComesBack_IsNotHeldByItsOldGeneration) {
  EXPECT_EQ(TryEveryInterleaving<SoundLeaseProtocol>(kSlots[0], true).violations, 0);
}

TEST(LeaseInterleaving, MutantThatTakesPendingForHeld_IsCaught) {
  for (const uint32_t slot : kSlots) {
    const Outcome outcome = TryEveryInterleaving<PendingCountsAsHeld>(slot);
    EXPECT_GT(outcome.instructions, 5);
    RecordProperty("instructions", outcome.instructions);
    EXPECT_GT(outcome.violations, 0) << slot;
  }
}

}  // namespace
}  // namespace geminid::shm

#else

TEST(LeaseInterleaving, NeedsSingleSteps) { GTEST_SKIP() << "x86-64 without sanitizers only"; }

#endif
