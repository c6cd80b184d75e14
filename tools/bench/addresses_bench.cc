// The cost of zero::Options::stable_addresses for an operator, with parameters that are on the
// device and with parameters that are loaded for it and leave after it. The second case also reads
// what was loaded, so that the first touch of a page counts. The daemon is a private one.
#include <benchmark/benchmark.h>

#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "collectives/local/local_communicator.h"
#include "geminid/private_daemon.h"
#include "geminid/session.h"
#include "geminid/zero.h"
#include "tools/bench/must.h"

namespace geminid::zero {
namespace {

using base::kKiB;
using bench::Must;
constexpr uint32_t kParameters = 4;

std::unique_ptr<PrivateDaemon> StartDaemon() {
  PrivateDaemonOptions options;
  options.arguments = {"--host-memory", "2GiB", "--device-memory", "1GiB"};
  options.timeout = absl::Seconds(30);
  return Must(PrivateDaemon::Start(options));
}

const std::string& Socket() {
  static const std::unique_ptr<PrivateDaemon> daemon = StartDaemon();
  return daemon->socket();
}

// A few parameters, each a chunk of `bytes`, frozen: nothing but the weights moves.
struct Model {
  Model(uint64_t bytes, Placement placement, bool stable) {
    ConnectOptions connect;
    connect.socket = Socket();
    connect.device_memory_bytes = 2 * kParameters * bytes;
    session = Must(Session::Connect(connect));
    const uint64_t elements = bytes / SizeOf(DataType::kFloat32);
    std::vector<Parameter> parameters;
    for (uint32_t p = 0; p < kParameters; ++p) {
      parameters.push_back({.name = std::to_string(p),
                            .shape = {static_cast<int64_t>(elements)},
                            .trainable = false});
    }
    Options options;
    options.data_type = DataType::kFloat32;
    options.placement = placement;
    options.state_placement = StatePlacement::kHost;
    options.chunk_elements = elements;
    options.stable_addresses = stable;
    engine = Must(Engine::Create(session.get(), communicator.get(), parameters, options));
  }

  std::unique_ptr<collectives::Communicator> communicator = collectives::MakeSelfCommunicator();
  std::unique_ptr<Session> session;
  std::unique_ptr<Engine> engine;
};

void BM_UseOfWhatIsThere(benchmark::State& state) {
  const Model model(64 * kKiB, Placement::kAuto, state.range(0) != 0);
  const std::vector<ParameterId> one = {ParameterId{0}};
  // The first one stays open, so that its parameter stays on the device.
  const Operation held = Must(model.engine->Use(Pass::kEvaluate, one));
  for (auto _ : state) {
    const Operation operation = Must(model.engine->Use(Pass::kEvaluate, one));
    benchmark::DoNotOptimize(operation.Weight(one[0]));
  }
}
BENCHMARK(BM_UseOfWhatIsThere)->ArgName("stable")->Arg(0)->Arg(1);

void BM_UseOfWhatComes(benchmark::State& state) {
  const uint64_t bytes = static_cast<uint64_t>(state.range(1)) * kKiB;
  const Model model(bytes, Placement::kCpu, state.range(0) != 0);
  uint32_t next = 0;
  uint64_t sum = 0;
  for (auto _ : state) {
    const std::vector<ParameterId> one = {ParameterId{next++ % kParameters}};
    const Operation operation = Must(model.engine->Use(Pass::kEvaluate, one));
    const std::span words(reinterpret_cast<const uint64_t*>(operation.Weight(one[0])),
                          bytes / sizeof(uint64_t));
    sum = std::accumulate(words.begin(), words.end(), sum);
    benchmark::DoNotOptimize(sum);
  }
}
BENCHMARK(BM_UseOfWhatComes)
    ->ArgNames({"stable", "KiB"})
    ->ArgsProduct({{0, 1}, {64, 1024, 16 * 1024}})
    ->UseRealTime();

}  // namespace
}  // namespace geminid::zero

BENCHMARK_MAIN();
