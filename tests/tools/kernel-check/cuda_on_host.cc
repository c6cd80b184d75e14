#include "tests/tools/kernel-check/cuda_on_host.h"

#include <ucontext.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace geminid::cuda_on_host {
namespace {

constexpr size_t kStackBytes = size_t{64} << 10;
constexpr size_t kSlotBytes = 8;

struct Fiber {
  ucontext_t context = {};
  std::unique_ptr<std::byte[]> stack = std::make_unique<std::byte[]>(kStackBytes);
  bool ended = false;
};

// Of the block that runs. One thread of the process runs kernels at a time.
ucontext_t scheduler;
std::vector<Fiber> fibers;
std::vector<std::byte> slots;
const std::function<void()>* running = nullptr;

void Enter() {
  (*running)();
  fibers[thread_index.x].ended = true;  // uc_link goes back to the scheduler
}

void StartBlock(unsigned threads) {
  for (unsigned t = 0; t < threads; ++t) {
    Fiber& fiber = fibers[t];
    fiber.ended = false;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = &scheduler;
    makecontext(&fiber.context, Enter, 0);
  }
}

// Runs every living thread to its next wait. False if none lives.
bool RunToNextWait(unsigned threads) {
  bool lives = false;
  for (unsigned t = 0; t < threads; ++t) {
    if (fibers[t].ended) continue;
    lives = true;
    thread_index.x = t;
    swapcontext(&scheduler, &fibers[t].context);
  }
  return lives;
}

}  // namespace

void Run(unsigned blocks, unsigned threads, const std::function<void()>& kernel) {
  if (fibers.size() < threads) fibers.resize(threads);
  slots.resize(threads * kSlotBytes);
  running = &kernel;
  for (block_index.x = 0; block_index.x < blocks; ++block_index.x) {
    StartBlock(threads);
    while (RunToNextWait(threads)) {
    }
  }
}

void Wait() {
  const unsigned me = thread_index.x;
  swapcontext(&fibers[me].context, &scheduler);
}

std::byte* Slot(unsigned thread) { return slots.data() + thread * kSlotBytes; }

}  // namespace geminid::cuda_on_host
