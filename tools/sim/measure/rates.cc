#include "tools/sim/measure/rates.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/shm/shm_communicator.h"
#include "kernels/numeric/norm/norm.h"
#include "kernels/optimizers/adamw/adamw.h"

namespace geminid::sim {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 5;
// Far more than a last-level cache, per thread.
constexpr uint64_t kBytes = uint64_t{128} << 20;
constexpr uint64_t kParameters = uint64_t{8} << 20;
constexpr uint64_t kGranule = uint64_t{1} << 16;  // parameters updated at a time, as an engine does

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// The median time of `work`, done by all threads at once, kRounds times after one that warms up.
// `prepare` makes each thread's work.
double MedianSeconds(int ranks, const std::function<std::function<void()>(int)>& prepare) {
  std::barrier together(ranks);
  std::mutex mutex;
  std::vector<double> seconds;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const std::function<void()> work = prepare(rank);
      for (int round = 0; round <= kRounds; ++round) {
        together.arrive_and_wait();
        const auto start = Clock::now();
        work();
        const double taken = SecondsSince(start);
        const std::lock_guard lock(mutex);
        if (round > 0) seconds.push_back(taken);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return Median(seconds);
}

// Threads that compute and do nothing else, one per rank, for as long as this lives.
class Load {
 public:
  explicit Load(int threads) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] {
        volatile double value = 1;
        while (!stop_.load(std::memory_order_relaxed)) value = value * 1.0000001 + 1e-9;
      });
    }
  }
  ~Load() {
    stop_.store(true);
    for (std::thread& thread : threads_) thread.join();
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace

double CopyBytesPerSecond(int ranks, uint64_t piece_bytes) {
  const uint64_t pieces = std::max<uint64_t>(1, kBytes / piece_bytes);
  const double seconds = MedianSeconds(ranks, [&](int) {
    const auto from = std::make_shared<std::vector<std::byte>>(pieces * piece_bytes, std::byte{1});
    const auto to = std::make_shared<std::vector<std::byte>>(pieces * piece_bytes);
    return [=] {
      for (uint64_t p = 0; p < pieces; ++p) {
        std::memcpy(to->data() + p * piece_bytes, from->data() + p * piece_bytes, piece_bytes);
      }
    };
  });
  return static_cast<double>(pieces * piece_bytes) / seconds;
}

double UpdateParametersPerSecond(int ranks) {
  using Half = std::vector<kernels::BFloat16>;
  struct State {
    Half weight = Half(kParameters, kernels::BFloat16{0x3f80});    // 1.0
    Half gradient = Half(kParameters, kernels::BFloat16{0x3c00});  // 2^-7
    std::vector<int16_t> remainder = std::vector<int16_t>(kParameters);
    std::vector<float> first = std::vector<float>(kParameters, 0.5F);
    std::vector<float> second = std::vector<float>(kParameters, 0.5F);
    Half new_weight = Half(kGranule);
    std::vector<int16_t> new_remainder = std::vector<int16_t>(kGranule);
    std::vector<float> new_first = std::vector<float>(kGranule);
    std::vector<float> new_second = std::vector<float>(kGranule);
  };
  const double seconds = MedianSeconds(ranks, [](int) {
    const auto s = std::make_shared<State>();
    return [s] {
      for (uint64_t at = 0; at < kParameters; at += kGranule) {
        // Valid arguments cannot be refused; what is timed is the work.
        (void)kernels::AdamWSplitOutOfPlace(
            {}, {&s->weight[at], &s->remainder[at], &s->first[at], &s->second[at]},
            &s->gradient[at], kGranule,
            {s->new_weight.data(), s->new_remainder.data(), s->new_first.data(),
             s->new_second.data()});
      }
    };
  });
  return static_cast<double>(kParameters) / seconds;
}

double NormBytesPerSecond(int ranks) {
  const uint64_t count = kBytes / sizeof(kernels::BFloat16);
  const double seconds = MedianSeconds(ranks, [&](int) {
    const auto values =
        std::make_shared<std::vector<kernels::BFloat16>>(count, kernels::BFloat16{0x3c00});
    return [=] {
      kernels::SquareSum sum;
      (void)kernels::AddSquares(values->data(), values->size(), &sum);
    };
  });
  return static_cast<double>(kBytes) / seconds;
}

namespace {

// Mean seconds of one collective of a group, called `calls` times with a pause before each, as
// between the gathers of a step.
absl::StatusOr<double> CollectiveSeconds(int ranks, uint64_t bytes, int calls,
                                         double pause_seconds) {
  static std::atomic<int> groups{0};
  const std::string name = absl::StrCat("measure/", ::getpid(), "/", groups.fetch_add(1));
  const uint64_t shard = bytes / sizeof(kernels::BFloat16) / static_cast<uint64_t>(ranks);
  std::mutex mutex;
  absl::Status status;
  double sum = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      constexpr collectives::DType kType = collectives::DType::kBFloat16;
      std::vector<kernels::BFloat16> whole(shard * static_cast<uint64_t>(ranks));
      kernels::BFloat16* const own = whole.data() + shard * static_cast<uint64_t>(rank);
      auto communicator = collectives::ConnectShm(name, rank, ranks);
      absl::Status done = communicator.status();
      double taken = 0;
      for (int call = 0; done.ok() && call < calls; ++call) {
        std::this_thread::sleep_for(std::chrono::duration<double>(pause_seconds));
        done = (*communicator)->Barrier();
        const auto start = Clock::now();
        if (done.ok()) {
          done =
              (*communicator)->AllGather({own, shard, kType}, {whole.data(), whole.size(), kType});
        }
        if (done.ok()) {
          done = (*communicator)
                     ->ReduceScatter({whole.data(), whole.size(), kType}, {own, shard, kType},
                                     collectives::ReduceOp::kSum, {0.5});
        }
        taken += SecondsSince(start);
      }
      const std::lock_guard lock(mutex);
      status.Update(done);
      sum += taken;
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!status.ok()) return status;
  return sum / (2.0 * calls * ranks);  // a gather and a scatter per call
}

}  // namespace

absl::StatusOr<CollectiveModel> MeasureCollectives(int ranks, uint64_t chunk_bytes) {
  constexpr int kCalls = 100;
  constexpr double kPauseSeconds = 2e-3;
  CollectiveModel model;
  if (ranks == 1) return model;
  const uint64_t least_bytes = 64 * static_cast<uint64_t>(ranks);
  const auto empty = CollectiveSeconds(ranks, least_bytes, kCalls, 0);
  const auto full = CollectiveSeconds(ranks, chunk_bytes, kCalls, 0);
  const Load load(ranks);
  const auto loaded = CollectiveSeconds(ranks, least_bytes, kCalls, kPauseSeconds);
  for (const auto& result : {empty, full, loaded}) {
    if (!result.ok()) return result.status();
  }
  const double rounds = ranks - 1;
  model.latency_seconds = *loaded / rounds;
  const double moving = *full - *empty;
  model.bytes_per_second =
      moving > 0 ? static_cast<double>(chunk_bytes) * rounds / ranks / moving : 0;
  return model;
}

double WakeSeconds(int ranks) {
  constexpr int kWakes = 200;
  constexpr auto kPause = std::chrono::milliseconds(2);
  std::mutex mutex;
  std::condition_variable changed;
  int called = 0;
  Clock::time_point at;
  double sum = 0;
  const Load load(ranks);
  std::thread sleeper([&] {
    for (int wake = 1; wake <= kWakes; ++wake) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return called >= wake; });
      sum += SecondsSince(at);
    }
  });
  for (int wake = 1; wake <= kWakes; ++wake) {
    std::this_thread::sleep_for(kPause);
    {
      const std::lock_guard lock(mutex);
      at = Clock::now();
      called = wake;
    }
    changed.notify_one();
  }
  sleeper.join();
  return sum / kWakes;
}

namespace {

// Lets the calling thread run on one of the allowed processors only: on the n-th, or the last.
void StayOn(int n) {
  cpu_set_t allowed, one;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  CPU_ZERO(&one);
  int chosen = 0;
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE && seen <= n; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    chosen = cpu;
    ++seen;
  }
  CPU_SET(chosen, &one);
  (void)::sched_setaffinity(0, sizeof(one), &one);
}

struct Disturbed {
  double seconds = 0;
  int wakes = 0;
};

// A fixed piece of computation on one processor, while a thread that sleeps there is woken from
// another one, or not.
Disturbed ComputeDisturbed(bool wakes) {
  constexpr int kSteps = 20'000'000;
  constexpr auto kPeriod = std::chrono::microseconds(200);
  std::atomic<bool> stop{false};
  std::atomic<uint32_t> word{0};
  Disturbed result;
  std::thread sleeper([&] {
    StayOn(0);
    for (uint32_t seen = 0; !stop.load(); seen = word.load()) {
      ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
    }
  });
  const auto wake = [&] {
    word.fetch_add(1);
    ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  };
  std::thread waker([&] {
    StayOn(1);
    for (auto last = Clock::now(); !stop.load();) {
      if (!wakes || Clock::now() - last < kPeriod) continue;
      last = Clock::now();
      ++result.wakes;
      wake();
    }
  });
  std::thread computer([&] {
    StayOn(0);
    const auto start = Clock::now();
    volatile double value = 1;
    for (int step = 0; step < kSteps; ++step) value = value * 1.0000001 + 1e-9;
    result.seconds = SecondsSince(start);
  });
  computer.join();
  stop.store(true);
  waker.join();
  wake();
  sleeper.join();
  return result;
}

}  // namespace

double SwitchSeconds() {
  constexpr int kPairs = 7;
  if (std::thread::hardware_concurrency() < 2) return 0;
  std::vector<double> seconds;
  for (int pair = 0; pair < kPairs; ++pair) {
    const double alone = ComputeDisturbed(false).seconds;
    const Disturbed disturbed = ComputeDisturbed(true);
    // To the woken thread and back.
    seconds.push_back((disturbed.seconds - alone) / (2.0 * std::max(1, disturbed.wakes)));
  }
  return std::max(0.0, Median(seconds));
}

}  // namespace geminid::sim
