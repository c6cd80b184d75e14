// Words in shared host memory, written and awaited by streams: G16, G17, G18.
#include <atomic>
#include <string>
#include <vector>

#include "tools/gpu-verify/device.h"
#include "tools/gpu-verify/probe.h"

namespace geminid::gpu_verify {
namespace {

constexpr uint64_t kLineBytes = 64;

uint64_t Load(const uint64_t* word) {
  return std::atomic_ref(*const_cast<uint64_t*>(word)).load(std::memory_order_acquire);
}
void Store(uint64_t* word, uint64_t value) {
  std::atomic_ref(*word).store(value, std::memory_order_release);
}

// Slots of data, with a word per slot that a stream writes after the data, and the reader's count.
// The word of slot s is the number of completed copies; its data is that of copy word - 1.
class Slots {
 public:
  Slots(char* memory, uint64_t slot_bytes) : memory_(memory), slot_bytes_(slot_bytes) {}
  static constexpr uint64_t kCount = 64;
  static uint64_t Bytes(uint64_t slot_bytes) { return kHeadBytes + kCount * slot_bytes; }
  uint64_t* read() const { return reinterpret_cast<uint64_t*>(memory_); }
  uint64_t* word(uint64_t copy) const {
    return reinterpret_cast<uint64_t*>(memory_ + (1 + copy % kCount) * kLineBytes);
  }
  uint32_t* data(uint64_t copy) const {
    return reinterpret_cast<uint32_t*>(memory_ + kHeadBytes + (copy % kCount) * slot_bytes_);
  }
  uint64_t slot_bytes() const { return slot_bytes_; }

 private:
  static constexpr uint64_t kHeadBytes = 8192;  // the counts, to a page
  char* memory_;
  uint64_t slot_bytes_;
};

uint32_t CopyPattern(uint64_t copy) { return static_cast<uint32_t>(copy) * 2654435761u + 1; }

// Copies 0, 1, 2 ...: sets device memory, copies it down, writes the word. Waits for free slots.
Role StartWriter(const Context& context, HostPool& pool, uint64_t slot_bytes, uint64_t copies) {
  return Role::Start("writer", [&context, &pool, slot_bytes, copies](Channel& channel) {
    Gpu gpu(context.driver, context.device);
    gpu.MakeContext();
    const Slots slots(pool.data(), slot_bytes);
    const Registration registration(gpu, pool.data(), pool.bytes());
    const Buffer source(gpu, slot_bytes);
    const Stream stream(gpu);
    const gpu::DriverApi& api = gpu.api();
    std::vector<CUdeviceptr> words;
    for (uint64_t slot = 0; slot < Slots::kCount; ++slot) {
      words.push_back(registration.DeviceAddress(slots.word(slot)));
    }
    channel.Send("ready");
    channel.Receive();
    for (uint64_t copy = 0; copy < copies; ++copy) {
      while (copy >= Load(slots.read()) + Slots::kCount) {
      }
      gpu.Must(
          api.memset_d32_async(source.address(), CopyPattern(copy), slot_bytes / 4, stream.get()),
          "cuMemsetD32Async");
      gpu.Must(api.memcpy_dtoh_async(slots.data(copy), source.address(), slot_bytes, stream.get()),
               "cuMemcpyDtoHAsync");
      gpu.Must(api.stream_write_value64(stream.get(), words[copy % Slots::kCount], copy + 1,
                                        CU_STREAM_WRITE_VALUE_DEFAULT),
               "cuStreamWriteValue64");
    }
    // The last word must arrive although nobody waits for the stream.
    channel.Receive();
  });
}

struct Checked {
  uint64_t copies = 0;
  uint64_t early = 0;  // words that were there before all of their data
};

// Reads in this process, which has no CUDA, until all copies are seen or the deadline passes.
Checked Check(const Slots& slots, uint64_t copies, double deadline, const Role& writer) {
  constexpr uint64_t kLookEvery = 1 << 16;  // polls between looks at the clock and the writer
  Checked checked;
  uint64_t polls = 0;
  while (checked.copies < copies) {
    const uint64_t copy = checked.copies;
    if (Load(slots.word(copy)) < copy + 1) {
      if (++polls % kLookEvery == 0) {
        if (Now() >= deadline) break;
        if (writer.WaitForEnd(0)) writer.channel().Receive();  // rethrows the writer's error
      }
      continue;
    }
    const uint32_t expected = CopyPattern(copy);
    const uint32_t* data = slots.data(copy);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < slots.slot_bytes() / 4; ++i) wrong += data[i] != expected;
    checked.early += wrong != 0;
    Store(slots.read(), ++checked.copies);
  }
  return checked;
}

Checked RunWords(const Context& context, uint64_t slot_bytes, uint64_t copies, double deadline) {
  HostPool pool((Slots::Bytes(slot_bytes) + 4095) / 4096 * 4096);
  const Role writer = StartWriter(context, pool, slot_bytes, copies);
  writer.channel().Receive();
  writer.channel().Send("begin");
  return Check(Slots(pool.data(), slot_bytes), copies, deadline, writer);
}

// Waits on words[0] in one stream, then sets words[1]; copies in another stream meanwhile.
void WaitForWord(const Context& context, HostPool& pool, Channel& channel) {
  Gpu gpu(context.driver, context.device);
  gpu.MakeContext();
  auto* words = reinterpret_cast<uint64_t*>(pool.data());
  const Registration registration(gpu, pool.data(), pool.bytes());
  const Stream waiting(gpu);
  const Stream other(gpu);
  const Buffer buffer(gpu, kMib);
  const gpu::DriverApi& api = gpu.api();
  // Loading a kernel may wait for all streams, so it must happen before one is stuck.
  gpu.Must(api.memset_d32_async(buffer.address(), 0, kMib / 4, other.get()), "cuMemsetD32Async");
  other.Synchronize();
  gpu.Must(api.stream_wait_value64(waiting.get(), registration.DeviceAddress(words), 1,
                                   CU_STREAM_WAIT_VALUE_GEQ),
           "cuStreamWaitValue64");
  gpu.Must(api.stream_write_value64(waiting.get(), registration.DeviceAddress(words + 8), 1,
                                    CU_STREAM_WRITE_VALUE_DEFAULT),
           "cuStreamWriteValue64");
  channel.Send("waiting");
  channel.Receive();  // the writer is dead now
  const bool stuck = !waiting.Idle();
  gpu.Must(api.memset_d32_async(buffer.address(), 1, kMib / 4, other.get()), "cuMemsetD32Async");
  const double deadline = Now() + context.effort.stuck_seconds;
  while (!other.Idle() && Now() < deadline) {
  }
  channel.Send(std::string(stuck ? "stuck" : "free") + (other.Idle() ? " works" : " blocked"));
  channel.Receive();  // another process has written the word
  waiting.Synchronize();
  channel.Send("freed");
  channel.Receive();
}

Role StartWaiter(const Context& context, HostPool& pool) {
  return Role::Start("waiter",
                     [&context, &pool](Channel& channel) { WaitForWord(context, pool, channel); });
}

}  // namespace

Outcome ProbeCompletionWords(const Context& context) {
  constexpr uint64_t kSmall = 4096;
  constexpr uint64_t kLarge = kMib;
  constexpr uint64_t kLargeShare = 100;  // one large copy for so many small ones
  const double half = (context.soft_deadline - Now()) / 2;
  const double begin = Now();
  const Checked small = RunWords(context, kSmall, context.effort.words, begin + half);
  const double seconds = Now() - begin;
  context.progress("4 KiB done");
  const uint64_t large_copies = context.effort.words / kLargeShare + 1;
  const Checked large = RunWords(context, kLarge, large_copies, Now() + half);
  const uint64_t early = small.early + large.early;
  const bool enough = small.copies > 0 && large.copies > 0;
  Outcome outcome =
      Judge(early == 0 && enough,
            std::to_string(early) + " early words in " + std::to_string(small.copies) +
                " of 4 KiB and " + std::to_string(large.copies) + " of 1 MiB; " +
                Seconds(seconds / static_cast<double>(small.copies == 0 ? 1 : small.copies)) +
                " per copy of 4 KiB",
            enough ? "a word was there before its data" : "no word arrived");
  outcome.numbers = {{"early_words", static_cast<double>(early)},
                     {"small_copies", static_cast<double>(small.copies)},
                     {"large_copies", static_cast<double>(large.copies)}};
  return outcome;
}

Outcome ProbeDeadWriter(const Context& context) {
  constexpr double kMostEndSeconds = 5;
  HostPool pool(4096);
  auto* words = reinterpret_cast<uint64_t*>(pool.data());
  const auto begin_waiting = [&] {
    Store(words, 0);
    Role waiter = StartWaiter(context, pool);
    waiter.channel().Receive();
    Role writer = Role::Start("writer", [](Channel& channel) { channel.Receive(); });
    writer.End();  // dies before it writes
    return waiter;
  };
  Role first = begin_waiting();
  Pause(context.effort.stuck_seconds);
  first.channel().Send("look");
  const std::string state = first.channel().Receive().text;
  const double write = Now();
  Store(words, 1);
  first.channel().Send("synchronize");
  first.channel().Receive();
  const double freed_seconds = Now() - write;
  first.End();

  Role second = begin_waiting();
  const double kill = Now();
  second.Kill();
  const bool ended = second.WaitForEnd(kMostEndSeconds);
  const double end_seconds = Now() - kill;
  // The GPU must still work afterwards.
  const Role user = Role::Start("next user", [&context](Channel& channel) {
    Gpu gpu(context.driver, context.device);
    gpu.MakeContext();
    const Buffer buffer(gpu, kMib);
    Fill(gpu, buffer.address(), kMib, 1);
    channel.Send(CountMismatches(gpu, buffer.address(), kMib, 1) == 0 ? "works" : "broken");
  });
  const bool works = user.channel().Receive().text == "works";
  Outcome outcome =
      Judge(state == "stuck works" && ended && works,
            "stream " + state.substr(0, state.find(' ')) + ", other stream of the process " +
                state.substr(state.find(' ') + 1) + ", freed " + Seconds(freed_seconds) +
                " after another process wrote the word; a killed waiter ends after " +
                Seconds(end_seconds),
            "the waiting stream does not wait, blocks others, or outlives its process");
  outcome.numbers = {{"freed_seconds", freed_seconds}, {"end_seconds", end_seconds}};
  return outcome;
}

Outcome ProbeHostFunction(const Context& context) {
  const int calls = context.effort.calls;
  Gpu gpu(context.driver, context.device);
  gpu.MakeContext();
  HostPool pool(4096);
  const Registration registration(gpu, pool.data(), pool.bytes());
  const Stream stream(gpu);
  const gpu::DriverApi& api = gpu.api();
  auto* word = reinterpret_cast<uint64_t*>(pool.data());
  const CUdeviceptr address = registration.DeviceAddress(word);
  const auto add_one = [](void* count) { ++*static_cast<uint64_t*>(count); };
  uint64_t count = 0;
  const auto host_function = [&](int) {
    gpu.Must(api.launch_host_func(stream.get(), add_one, &count), "cuLaunchHostFunc");
  };
  const auto write_word = [&](int call) {
    gpu.Must(api.stream_write_value64(stream.get(), address, static_cast<cuuint64_t>(call) + 1,
                                      CU_STREAM_WRITE_VALUE_DEFAULT),
             "cuStreamWriteValue64");
  };
  const auto seconds_per_call = [&](const auto& enqueue) {
    enqueue(0);
    stream.Synchronize();
    const double begin = Now();
    for (int call = 0; call < calls; ++call) {
      enqueue(call);
      stream.Synchronize();
    }
    return (Now() - begin) / calls;
  };
  const double host_seconds = seconds_per_call(host_function);
  const double word_seconds = seconds_per_call(write_word);
  if (count != static_cast<uint64_t>(calls) + 1 || Load(word) != static_cast<uint64_t>(calls))
    throw ProbeError("calls were lost");
  Outcome outcome = Judge(word_seconds <= host_seconds,
                          "enqueued and awaited: host function " + Seconds(host_seconds) +
                              ", completion word " + Seconds(word_seconds),
                          "the host function is cheaper");
  outcome.numbers = {{"host_function_seconds", host_seconds}, {"word_seconds", word_seconds}};
  return outcome;
}

}  // namespace geminid::gpu_verify
