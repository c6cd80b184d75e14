// The thread time that the engine's calls cost a trainer whose model fits the device: a unit of
// nine parameters is used and finished, and gradients of small tensors are added one by one. The
// parameters of a unit share a chunk, or have one each. The daemon is a private one.
#include <benchmark/benchmark.h>
#include <time.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "collectives/local/local_communicator.h"
#include "geminid/private_daemon.h"
#include "geminid/session.h"
#include "geminid/zero.h"
#include "tools/bench/must.h"
#include "tools/bench/size.h"

namespace geminid::zero {
namespace {

using base::kMiB;
using bench::Must;

const int64_t kMostUnits = bench::Size(64, 8);
constexpr uint32_t kParametersOfUnit = 9;  // as a block of LLaMA has
constexpr int64_t kElements = 64;
constexpr int kPlanned = 3;  // micro-batches after which a plan is certainly in force

double ThreadSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Adds the time of a call to a total.
class Meter {
 public:
  template <typename Call>
  auto operator()(const Call& call) {
    const double began = ThreadSeconds();
    auto result = call();
    seconds_ += ThreadSeconds() - began;
    ++calls_;
    return result;
  }
  double MicrosecondsPerCall() const { return 1e6 * seconds_ / static_cast<double>(calls_); }

 private:
  double seconds_ = 0;
  uint64_t calls_ = 0;
};

class Trainer {
 public:
  Trainer(uint32_t units, bool share_chunks) : units_(units) {
    PrivateDaemonOptions daemon;
    daemon.arguments = {"--host-memory", "1GiB", "--device-memory", "256MiB"};
    daemon.timeout = absl::Seconds(30);
    daemon_ = Must(PrivateDaemon::Start(daemon));
    ConnectOptions connect;
    connect.socket = daemon_->socket();
    connect.device_memory_bytes = 64 * kMiB;
    session_ = Must(Session::Connect(connect));
    std::vector<Parameter> parameters;
    for (uint32_t unit = 0; unit < units_; ++unit) {
      for (uint32_t p = 0; p < kParametersOfUnit; ++p) {
        parameters.push_back({.name = std::to_string(unit) + "." + std::to_string(p),
                              .shape = {kElements},
                              .unit = unit,
                              .separate_gradient = true});
      }
    }
    Options options;
    options.data_type = DataType::kFloat32;
    if (!share_chunks) options.chunk_elements = kElements;
    engine_ = Must(Engine::Create(session_.get(), communicator_.get(), parameters, options));
    for (int i = 0; i < kPlanned; ++i) Step();
    use_ = finish_ = add_ = {};
  }

  void Step() {
    Must(engine_->BeginMicroBatch());
    for (uint32_t unit = 0; unit < units_; ++unit) {
      Operation operation = Use(unit);
      Must(finish_([&] { return operation.Finish(); }));
    }
    const std::vector<float> gradient(kElements, 1);
    const auto bytes = std::as_bytes(std::span(gradient));
    for (uint32_t unit = units_; unit-- > 0;) {
      Operation operation = Use(unit);
      for (const ParameterId id : IdsOf(unit)) {
        Must(add_([&] { return engine_->AddGradient(id, bytes, DataType::kFloat32); }));
      }
      Must(finish_([&] { return operation.Finish(); }));
    }
    Must(engine_->Step({.learning_rate = 1e-3}));
  }

  const Meter& use() const { return use_; }
  const Meter& finish() const { return finish_; }
  const Meter& add() const { return add_; }

 private:
  static std::vector<ParameterId> IdsOf(uint32_t unit) {
    std::vector<ParameterId> ids;
    for (uint32_t p = 0; p < kParametersOfUnit; ++p) {
      ids.push_back(ParameterId{unit * kParametersOfUnit + p});
    }
    return ids;
  }
  Operation Use(uint32_t unit) {
    const std::vector<ParameterId> ids = IdsOf(unit);
    return Must(use_([&] { return engine_->Use(Pass::kForward, ids); }));
  }

  const uint32_t units_;
  std::unique_ptr<PrivateDaemon> daemon_;
  std::unique_ptr<collectives::Communicator> communicator_ = collectives::MakeSelfCommunicator();
  std::unique_ptr<Session> session_;
  std::unique_ptr<Engine> engine_;
  Meter use_, finish_, add_;
};

void BM_StepOfSmallUnits(benchmark::State& state) {
  Trainer trainer(static_cast<uint32_t>(state.range(0)), state.range(1) != 0);
  for (auto _ : state) trainer.Step();
  state.counters["use_us"] = trainer.use().MicrosecondsPerCall();
  state.counters["finish_us"] = trainer.finish().MicrosecondsPerCall();
  state.counters["add_gradient_us"] = trainer.add().MicrosecondsPerCall();
}
BENCHMARK(BM_StepOfSmallUnits)
    ->ArgNames({"units", "shared"})
    ->ArgsProduct({{8, kMostUnits}, {1, 0}})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace geminid::zero

BENCHMARK_MAIN();
