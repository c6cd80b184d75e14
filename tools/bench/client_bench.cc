// The costs of the client library: leases, transfers compared with plain memcpy, and the time until
// a process has its first chunk. The daemon is a private one.
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
#include "geminid/private_daemon.h"
#include "geminid/session.h"
#include "tools/bench/must.h"

namespace geminid {
namespace {

using base::kMiB;
using bench::Must;

std::unique_ptr<PrivateDaemon> StartDaemon() {
  PrivateDaemonOptions options;
  options.arguments = {"--host-memory", "1GiB", "--device-memory", "1GiB"};
  options.timeout = absl::Seconds(30);
  return Must(PrivateDaemon::Start(options));
}

const std::string& Socket() {
  static const std::unique_ptr<PrivateDaemon> daemon = StartDaemon();
  return daemon->socket();
}

std::unique_ptr<Session> Connect(uint64_t device_memory_bytes) {
  ConnectOptions options;
  options.socket = Socket();
  options.device_memory_bytes = device_memory_bytes;
  return Must(Session::Connect(options));
}

ChunkHandle AllocateOne(Session& session, uint64_t bytes) {
  return Must(session.Allocate({{"bench", ChunkKind::kGeneric, bytes, true}})).front();
}

TransferSpec LoadOf(const ChunkHandle& chunk) {
  TransferSpec spec;
  spec.source = spec.destination = chunk.id;
  spec.bytes = chunk.bytes;
  spec.allocate_destination = true;
  spec.publish_when_done = true;
  return spec;
}

void BM_LeaseAndRelease(benchmark::State& state) {
  const std::unique_ptr<Session> session = Connect(kMiB);
  const ChunkHandle chunk = AllocateOne(*session, 4096);
  { Must(session->Use(chunk.id)); }
  for (auto _ : state) {
    std::optional<Lease> lease = session->TryLease(chunk.id);
    benchmark::DoNotOptimize(lease);
  }
}
BENCHMARK(BM_LeaseAndRelease);

// A request to the daemon and its answer; the calling thread sleeps meanwhile.
void BM_RequestAndAnswer(benchmark::State& state) {
  const std::unique_ptr<Session> session = Connect(kMiB);
  for (auto _ : state) Must(session->ReserveWorkspace(4096, false).Wait());
}
BENCHMARK(BM_RequestAndAnswer)->UseRealTime();

void BM_Memcpy(benchmark::State& state) {
  const auto bytes = static_cast<uint64_t>(state.range(0)) * kMiB;
  const std::unique_ptr<Session> session = Connect(bytes);
  const ChunkHandle chunk = AllocateOne(*session, bytes);
  for (auto _ : state) {
    std::memcpy(session->arena(), chunk.home, bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes));
}
BENCHMARK(BM_Memcpy)->Arg(1)->Arg(4)->Arg(16)->Arg(64)->UseRealTime();

// The same bytes between the same places under tickets: extent, copy, publication; then the drop.
void BM_TransferUnderTicket(benchmark::State& state) {
  const auto bytes = static_cast<uint64_t>(state.range(0)) * kMiB;
  const std::unique_ptr<Session> session = Connect(bytes);
  const ChunkHandle chunk = AllocateOne(*session, bytes);
  for (auto _ : state) {
    Must(session->Transfer(LoadOf(chunk)).Wait());
    Must(session->Drop(chunk.id).Wait());
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes));
}
BENCHMARK(BM_TransferUnderTicket)->Arg(1)->Arg(4)->Arg(16)->Arg(64)->UseRealTime();

// As in training: several transfers in flight.
void BM_TransfersInParallel(benchmark::State& state) {
  constexpr size_t kChunks = 8;
  const auto bytes = static_cast<uint64_t>(state.range(0)) * kMiB;
  const std::unique_ptr<Session> session = Connect(kChunks * bytes);
  std::vector<ChunkHandle> chunks;
  for (size_t i = 0; i < kChunks; ++i) chunks.push_back(AllocateOne(*session, bytes));
  for (auto _ : state) {
    std::vector<Pending> loads;
    for (const ChunkHandle& chunk : chunks) loads.push_back(session->Transfer(LoadOf(chunk)));
    for (const Pending& load : loads) Must(load.Wait());
    std::vector<Pending> drops;
    for (const ChunkHandle& chunk : chunks) drops.push_back(session->Drop(chunk.id));
    for (const Pending& drop : drops) Must(drop.Wait());
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * kChunks * bytes));
}
BENCHMARK(BM_TransfersInParallel)->Arg(1)->Arg(4)->Arg(16)->UseRealTime();

// From Connect to a lease on a 1 MiB chunk; then the session ends.
void BM_AttachToFirstChunk(benchmark::State& state) {
  Socket();
  for (auto _ : state) {
    const std::unique_ptr<Session> session = Connect(16 * kMiB);
    const ChunkHandle chunk = AllocateOne(*session, kMiB);
    Must(session->Use(chunk.id));
  }
}
BENCHMARK(BM_AttachToFirstChunk)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace geminid

BENCHMARK_MAIN();
