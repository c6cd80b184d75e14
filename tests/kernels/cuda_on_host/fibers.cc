// The threads of a block as fibers. They have the host thread that runs the kernel to themselves.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/runtime/cuda/words.h"
#include "tests/kernels/cuda_on_host/registry.h"

#ifndef __x86_64__
#error "switching between stacks is written for x86-64"
#endif

// Saves the registers that a function must preserve, stores this stack in *from, and continues on
// `to`. swapcontext does the same with a system call, ten times slower.
extern "C" void geminid_switch_stack(void** from, void* to);
asm(R"(
.text
.type geminid_switch_stack, @function
geminid_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size geminid_switch_stack, . - geminid_switch_stack
)");

namespace geminid::cuda_on_host {

Index thread_index = {0};
Index block_index = {0};

namespace {

// Not a power of two: stacks at such distances would share a few sets of the cache.
constexpr size_t kStackBytes = (size_t{64} << 10) + 512;
constexpr size_t kSavedWords = 6;  // registers below the return address
constexpr size_t kSlotBytes = 8;

struct Fiber {
  std::unique_ptr<std::byte[]> memory = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
  void* stack = nullptr;  // where the fiber waits
  bool ended = false;
};

// The running kernel. Not thread_local, because kernels read their indices all the time, and each
// access to a thread_local in a shared object costs a call.
struct Runner {
  std::mutex mutex;  // held by the one host thread that runs a kernel
  std::vector<Fiber> fibers;
  std::vector<std::byte> slots[2];  // of two alternating shuffles, so that each needs only one wait
  std::vector<uint8_t> parity;      // of each thread's last shuffle
  void* scheduler = nullptr;
  const HostKernel* kernel = nullptr;
  const void* argument = nullptr;
};
Runner runner;

// A fiber outlives its block and runs the next one.
void RunFiber() {
  for (;;) {
    const unsigned me = thread_index.x;
    runner.kernel->thread(runner.argument);
    runner.fibers[me].ended = true;
    geminid_switch_stack(&runner.fibers[me].stack, runner.scheduler);
  }
}

// Prepares the first switch to the fiber: it enters RunFiber, on a stack aligned as at a call.
void Prepare(Fiber* fiber) {
  auto top = reinterpret_cast<uintptr_t>(fiber->memory.get()) + kStackBytes;
  top -= top % 16;
  auto* words = reinterpret_cast<void**>(top) - 2;
  *words = reinterpret_cast<void*>(&RunFiber);
  words -= kSavedWords;
  std::fill_n(words, kSavedWords, nullptr);
  fiber->stack = static_cast<void*>(words);
}

void Resize(unsigned threads) {
  while (runner.fibers.size() < threads) Prepare(&runner.fibers.emplace_back());
  for (auto& slots : runner.slots) slots.resize(threads * kSlotBytes);
}

// Runs every live fiber to its next wait. False if none is alive.
bool RunToNextWait(unsigned threads) {
  bool lives = false;
  for (unsigned t = 0; t < threads; ++t) {
    if (runner.fibers[t].ended) continue;
    lives = true;
    thread_index.x = t;
    geminid_switch_stack(&runner.scheduler, runner.fibers[t].stack);
  }
  return lives;
}

}  // namespace

void RunHostKernel(const HostKernel& kernel, unsigned blocks, unsigned threads,
                   const void* argument, BlockOrder order) {
  const std::lock_guard lock(runner.mutex);
  Resize(threads);
  runner.kernel = &kernel;
  runner.argument = argument;
  for (unsigned b = 0; b < blocks; ++b) {
    block_index.x = order == BlockOrder::kForward ? b : blocks - 1 - b;
    runner.parity.assign(threads, 0);
    for (unsigned t = 0; t < threads; ++t) runner.fibers[t].ended = false;
    while (RunToNextWait(threads)) {
    }
  }
}

void Wait() {
  const unsigned me = thread_index.x;
  geminid_switch_stack(&runner.fibers[me].stack, runner.scheduler);
}

void Show(const void* value, size_t bytes) {
  const unsigned me = thread_index.x;
  runner.parity[me] ^= 1;
  std::memcpy(runner.slots[runner.parity[me]].data() + me * kSlotBytes, value, bytes);
  Wait();
}

void Shown(unsigned thread, void* value, size_t bytes) {
  const auto& slots = runner.slots[runner.parity[thread_index.x]];
  std::memcpy(value, slots.data() + thread * kSlotBytes, bytes);
}

}  // namespace geminid::cuda_on_host
