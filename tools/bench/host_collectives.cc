// One rank of a job on several hosts: how long collectives take over hosts and ranks, and over TCP
// alone. tools/bench/collectives-over-hosts starts it on hosts that it simulates on this one.
//
//   host_collectives OPERATION DTYPE MEGABYTES ROUNDS
//
// OPERATION is all-reduce, reduce-scatter or all-gather, DTYPE float32 or bfloat16. The two kinds
// take turns. Rank 0 prints a line of JSON: the seconds of each round, from the last rank's start
// to the last one's end; the bytes that this rank received over TCP in one round; how many
// reductions went from host to host; and the measured costs that decided this.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "geminid/connect.h"

namespace geminid::collectives {
namespace {

template <class T>
T Check(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
  std::exit(1);
}

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

struct Job {
  std::string operation;
  DType dtype = DType::kFloat32;
  size_t count = 0;  // of the whole buffer
  int rounds = 0;
};

class Measured {
 public:
  Measured(const RankInfo& info, BackendChoice backend, const Job& job)
      : job_(job),
        communicator_(Check(Connect(info, {.backend = backend, .interface_address = {}}))),
        whole_(job.count * SizeOf(job.dtype)) {}

  void Round() {
    Check(communicator_->Barrier());
    const uint64_t before = Received();
    const auto begin = std::chrono::steady_clock::now();
    Collective();
    Check(communicator_->Barrier());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    seconds_.push_back(took.count());
    received_ = Received() - before;
  }

  std::string Json() const {
    const CommunicatorStats stats = communicator_->Stats();
    uint64_t chained = 0;
    for (const uint64_t count : stats.chained) chained += count;
    std::string costs = "null";
    if (stats.link_costs.has_value()) {
      costs = absl::StrCat("{\"meeting_seconds\": ", stats.link_costs->meeting_seconds,
                           ", \"exchange_seconds\": ", stats.link_costs->exchange_seconds,
                           ", \"flat_exchange_seconds\": ", stats.link_costs->flat_exchange_seconds,
                           ", \"seconds_per_byte\": ", stats.link_costs->seconds_per_byte, "}");
    }
    return absl::StrCat("{\"backend\": \"", communicator_->BackendName(), "\", \"seconds\": [",
                        absl::StrJoin(seconds_, ", "), "], \"received_bytes\": ", received_,
                        ", \"chained\": ", chained, ", \"link_costs\": ", costs, "}");
  }

 private:
  void Collective() {
    const auto ranks = static_cast<size_t>(communicator_->WorldSize());
    const size_t slice = job_.count / ranks;
    const Buffer whole(whole_.data(), job_.count, job_.dtype);
    const Buffer own(
        whole_.data() + static_cast<size_t>(communicator_->Rank()) * slice * SizeOf(job_.dtype),
        slice, job_.dtype);
    if (job_.operation == "all-reduce") return Check(communicator_->AllReduce(whole, whole));
    if (job_.operation == "reduce-scatter") return Check(communicator_->ReduceScatter(whole, own));
    Check(communicator_->AllGather(own, whole));
  }

  uint64_t Received() const {
    uint64_t bytes = 0;
    for (const PeerTraffic& peer : communicator_->Stats().network) bytes += peer.bytes_received;
    return bytes;
  }

  const Job job_;
  const std::unique_ptr<Communicator> communicator_;
  std::vector<std::byte> whole_;
  std::vector<double> seconds_;
  uint64_t received_ = 0;  // in the last round
};

int Run(int argc, char** argv) {
  size_t megabytes = 0;
  Job job;
  if (argc != 5 || !absl::SimpleAtoi(argv[3], &megabytes) ||
      !absl::SimpleAtoi(argv[4], &job.rounds)) {
    std::fprintf(stderr, "usage: host_collectives OPERATION DTYPE MEGABYTES ROUNDS\n");
    return 64;
  }
  job.operation = argv[1];
  job.dtype = std::strcmp(argv[2], "bfloat16") == 0 ? DType::kBFloat16 : DType::kFloat32;
  RankInfo info = Check(FromEnvironment());
  const auto ranks = static_cast<size_t>(info.world_size);
  job.count = (megabytes << 20) / SizeOf(job.dtype) / ranks * ranks;
  Measured hosts(info, BackendChoice::kAuto, job);
  ++info.master_port;
  Measured flat(info, BackendChoice::kTcp, job);
  for (int round = 0; round < job.rounds; ++round) {
    hosts.Round();
    flat.Round();
  }
  if (info.rank == 0) std::printf("[%s, %s]\n", hosts.Json().c_str(), flat.Json().c_str());
  return 0;
}

}  // namespace
}  // namespace geminid::collectives

int main(int argc, char** argv) { return geminid::collectives::Run(argc, argv); }
