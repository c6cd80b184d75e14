#include "tools/sim/simulation.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/sim/trainer.h"

namespace geminid::sim {
namespace {

using core::ChunkKind;
using planner::ChunkIndex;

// The host memory of a daemon if the machine sets no limit.
constexpr uint64_t kUnlimitedBytes = uint64_t{1} << 60;

struct Node {
  std::unique_ptr<Resources> resources;
  std::unique_ptr<Daemon> daemon;
  std::vector<ResourceDemand> host, disk_read, disk_write;
};

struct Rank {
  int node = 0;
  RankResources shared;
  core::SessionId session{};
  RankChunks chunks;
  RankRecord record;
  std::unique_ptr<Process> process;
  std::unique_ptr<Port> port;
  std::unique_ptr<Trainer> trainer;
};

class Job {
 public:
  Job(const Machine& machine, const Workload& workload, const Schedule& schedule,
      const SimulationOptions& options)
      : machine_(machine),
        workload_(workload),
        schedule_(schedule),
        options_(options),
        observer_(&events_, machine.world_size(), workload.trace.moments.size(),
                  options.keeps_events),
        rendezvous_(&events_, machine.world_size()) {}

  absl::StatusOr<SimulationResult> Run();

 private:
  absl::Status MakeNode();
  absl::Status MakeRank(int rank);
  absl::Status AllocateChunks(Rank* rank);
  core::SessionSpec SpecOf(int rank) const;
  void StartProcesses(uint64_t first_step);
  void EndProcess(size_t number);
  void Committed(int rank, uint64_t step);
  void Fail(const Failure& failure);
  void KillRank(const Failure& failure);
  void Restart(size_t recovery);
  absl::StatusOr<SimulationResult> Finish();
  void Note(const absl::Status& status) {
    if (status_.ok()) status_ = status;
  }

  const Machine& machine_;
  const Workload& workload_;
  const Schedule& schedule_;
  const SimulationOptions& options_;
  EventQueue events_;
  Observer observer_;
  Rendezvous rendezvous_;
  std::vector<Node> nodes_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::optional<size_t> recovering_;  // into result_.recoveries
  uint64_t committed_ = 0;            // by any rank
  int finished_ranks_ = 0;
  core::Time last_commit_;
  absl::Status status_;
  SimulationResult result_;
};

absl::Status Job::MakeNode() {
  Node& node = nodes_.emplace_back();
  node.resources = std::make_unique<Resources>(&events_);
  const auto add = [&](double units_per_second, std::vector<ResourceDemand>* demands) {
    if (units_per_second == 0) return;
    demands->push_back({node.resources->Add(units_per_second), 1});
  };
  add(machine_.host_bytes_per_second, &node.host);
  add(machine_.disk_read_bytes_per_second, &node.disk_read);
  add(machine_.disk_write_bytes_per_second, &node.disk_write);
  uint64_t granules = 0;
  for (const planner::Chunk& chunk : workload_.trace.chunks) {
    granules += 4 + (chunk.transfer_bytes + chunk.gradient_bytes) / workload_.granule_bytes;
  }
  DaemonOptions options;
  options.host_bytes = machine_.host_bytes > 0 ? machine_.host_bytes : kUnlimitedBytes;
  options.device_bytes = kUnlimitedBytes;
  options.sessions = static_cast<uint32_t>(machine_.ranks_per_node);
  options.chunk_records = static_cast<uint32_t>(granules) * options.sessions;
  options.request_seconds = machine_.request_seconds;
  options.transfers = machine_.transfers;
  absl::StatusOr<std::unique_ptr<Daemon>> daemon = Daemon::Create(&events_, options);
  if (!daemon.ok()) return daemon.status();
  node.daemon = *std::move(daemon);
  return absl::OkStatus();
}

core::SessionSpec Job::SpecOf(int rank) const {
  core::SessionSpec spec;
  spec.tenant = "uid:0";
  spec.job = "simulated";
  spec.rank = rank;
  spec.world_size = machine_.world_size();
  spec.local_rank = rank % machine_.ranks_per_node;
  spec.death_policy = shm::DeathPolicy::kKeep;
  return spec;
}

absl::Status Job::MakeRank(int number) {
  Rank& rank = *ranks_.emplace_back(std::make_unique<Rank>());
  rank.node = number / machine_.ranks_per_node;
  Node& node = nodes_[static_cast<size_t>(rank.node)];
  rank.shared.host = node.host;
  rank.shared.disk_read = node.disk_read;
  rank.shared.disk_write = node.disk_write;
  const int local = number % machine_.ranks_per_node;
  rank.shared.up.push_back({node.resources->Add(machine_.up_bytes_per_second), 1});
  rank.shared.down.push_back({node.resources->Add(machine_.down_bytes_per_second), 1});
  if (machine_.both_bytes_per_second > 0) {
    const ResourceDemand both{node.resources->Add(machine_.both_bytes_per_second), 1};
    rank.shared.up.push_back(both);
    rank.shared.down.push_back(both);
  }
  if (machine_.ranks_per_root > 0 && machine_.root_bytes_per_second > 0) {
    if (local % machine_.ranks_per_root == 0) {
      rank.shared.up.push_back({node.resources->Add(machine_.root_bytes_per_second), 1});
      rank.shared.down.push_back({node.resources->Add(machine_.root_bytes_per_second), 1});
    } else {
      const RankResources& neighbour = ranks_[static_cast<size_t>(number) - 1]->shared;
      rank.shared.up.push_back(neighbour.up.back());
      rank.shared.down.push_back(neighbour.down.back());
    }
  }
  const uint64_t arena = ExtentBytes(schedule_.counts_bytes_only ? schedule_.address_space_bytes
                                                                 : workload_.trace.arena_bytes);
  absl::StatusOr<core::SessionId> session =
      node.daemon->Open(SpecOf(number), arena,
                        [&rank](const core::Outgoing& outgoing) { rank.port->Receive(outgoing); });
  if (!session.ok()) return session.status();
  rank.session = *session;
  return AllocateChunks(&rank);
}

absl::Status Job::AllocateChunks(Rank* rank) {
  std::vector<core::ChunkSpec> specs;
  const auto add = [&](ChunkKind kind, uint64_t bytes, ChunkIndex chunk) {
    specs.push_back(
        {absl::StrCat("chunk.", chunk), kind, bytes, kind != ChunkKind::kGatheredWeight});
  };
  const auto add_granules = [&](ChunkKind kind, uint64_t bytes, ChunkIndex chunk) {
    for (uint64_t at = 0; at < bytes; at += workload_.granule_bytes) {
      add(kind, std::min(workload_.granule_bytes, bytes - at), chunk);
    }
  };
  const auto& chunks = workload_.trace.chunks;
  for (ChunkIndex c = 0; c < chunks.size(); ++c) {
    add(ChunkKind::kGatheredWeight, chunks[c].size_bytes, c);
    add_granules(ChunkKind::kWeight, chunks[c].transfer_bytes, c);
    add_granules(ChunkKind::kGradient, chunks[c].gradient_bytes, c);
    const ChunkUpdate& update = workload_.updates[c];
    if (!update.on_device && update.host_bytes > 0) add(ChunkKind::kGeneric, update.host_bytes, c);
  }
  absl::StatusOr<core::Allocation> allocation =
      nodes_[static_cast<size_t>(rank->node)].daemon->Allocate(rank->session, specs);
  if (!allocation.ok()) return allocation.status();
  rank->chunks.weights.resize(chunks.size());
  rank->chunks.gradients.resize(chunks.size());
  for (size_t i = 0, c = 0; i < specs.size(); ++i) {
    if (specs[i].kind == ChunkKind::kGatheredWeight) {
      c = rank->chunks.gathered.size();
      rank->chunks.gathered.push_back(allocation->chunks[i]);
    } else if (specs[i].kind == ChunkKind::kWeight) {
      rank->chunks.weights[c].push_back(allocation->chunks[i]);
    } else if (specs[i].kind == ChunkKind::kGradient) {
      rank->chunks.gradients[c].push_back(allocation->chunks[i]);
    }
  }
  return absl::OkStatus();
}

// --- processes -----------------------------------------------------------------------------------

void Job::StartProcesses(uint64_t first_step) {
  for (size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = *ranks_[r];
    Node& node = nodes_[static_cast<size_t>(rank.node)];
    const int number = static_cast<int>(r);
    rank.process = std::make_unique<Process>(
        ProcessContext{.events = &events_,
                       .resources = node.resources.get(),
                       .observer = &observer_,
                       .machine = &machine_,
                       .workload = &workload_,
                       .shared = rank.shared,
                       .rank = number,
                       .seed = options_.seed,
                       .fail = [this](const absl::Status& status) { Note(status); }});
    rank.port = std::make_unique<Port>(rank.process.get(), node.daemon.get());
    rank.port->SetSession(rank.session);
    rank.trainer = std::make_unique<Trainer>(
        TrainerContext{.process = rank.process.get(),
                       .port = rank.port.get(),
                       .rendezvous = &rendezvous_,
                       .chunks = &rank.chunks,
                       .schedule = &schedule_,
                       .record = &rank.record,
                       .steps = options_.warmup_steps + options_.steps,
                       .committed = [this, number](uint64_t step) { Committed(number, step); }});
  }
  for (const std::unique_ptr<Rank>& rank : ranks_) rank->trainer->Start(first_step);
}

// The process's pending callbacks no longer run, and the contents of its device are lost. Its
// daemon sees the socket close at once.
void Job::EndProcess(size_t number) {
  Rank& rank = *ranks_[number];
  if (rank.process == nullptr) return;
  rank.process.reset();
  rank.trainer.reset();
  rank.port.reset();
  Note(nodes_[static_cast<size_t>(rank.node)].daemon->Kill(rank.session));
  for (int owner = 0; owner < kOwners; ++owner) {
    observer_.SetMemory(static_cast<int>(number), static_cast<Owner>(owner), 0);
  }
}

void Job::Committed(int rank, uint64_t step) {
  committed_ = std::max(committed_, step);
  if (step == options_.warmup_steps + options_.steps) ++finished_ranks_;
  if (rank != 0) return;
  const double seconds = (events_.now() - last_commit_).seconds();
  last_commit_ = events_.now();
  if (step == 1) result_.first_step_seconds = seconds;
  if (step > options_.warmup_steps) result_.step_seconds.push_back(seconds);
  if (step == options_.warmup_steps) {
    observer_.Reset();
    result_.reported_from_seconds = events_.seconds();
  }
}

// --- failures ------------------------------------------------------------------------------------

void Job::Fail(const Failure& failure) {
  if (failure.kind == FailureKind::kRank) return KillRank(failure);
  Daemon* daemon = nodes_[static_cast<size_t>(failure.index)].daemon.get();
  daemon->Stop();
  events_.After(FromSeconds(failure.outage_seconds), [this, daemon, failure] {
    daemon->Start();
    result_.recoveries.push_back({failure, events_.seconds(), 0});
  });
}

// Until the death is detected, the other ranks continue as far as they can without the dead one.
// None of that is committed, because the barrier lacks a rank.
void Job::KillRank(const Failure& failure) {
  if (recovering_.has_value() || finished_ranks_ > 0) return;
  recovering_ = result_.recoveries.size();
  result_.recoveries.push_back({failure, 0, (events_.now() - last_commit_).seconds()});
  EndProcess(static_cast<size_t>(failure.index));
  events_.After(FromSeconds(options_.recovery.detect_seconds), [this] {
    for (size_t r = 0; r < ranks_.size(); ++r) EndProcess(r);
    rendezvous_.Reset();
    events_.After(FromSeconds(options_.recovery.restart_seconds),
                  [this] { Restart(*recovering_); });
  });
}

void Job::Restart(size_t recovery) {
  for (size_t r = 0; r < ranks_.size(); ++r) {
    Rank* rank = ranks_[r].get();
    Note(nodes_[static_cast<size_t>(rank->node)].daemon->Reopen(
        rank->session, SpecOf(static_cast<int>(r)),
        [rank](const core::Outgoing& outgoing) { rank->port->Receive(outgoing); }));
    const double outage = options_.recovery.detect_seconds + options_.recovery.restart_seconds;
    observer_.AddWait(static_cast<int>(r), WaitCause::kOutage,
                      core::Time() + FromSeconds(events_.seconds() - outage));
  }
  result_.recoveries[recovery].resumed_at_seconds = events_.seconds();
  recovering_.reset();
  StartProcesses(committed_);
}

// --- the run -------------------------------------------------------------------------------------

absl::StatusOr<SimulationResult> Job::Run() {
  for (int n = 0; n < machine_.nodes; ++n) {
    if (absl::Status status = MakeNode(); !status.ok()) return status;
  }
  for (int r = 0; r < machine_.world_size(); ++r) {
    if (absl::Status status = MakeRank(r); !status.ok()) return status;
  }
  for (const Failure& failure : options_.failures) {
    events_.At(core::Time() + FromSeconds(failure.at_seconds), [this, failure] { Fail(failure); });
  }
  StartProcesses(0);
  while (status_.ok() && finished_ranks_ < machine_.world_size()) {
    if (!events_.RunNext()) {
      return absl::InternalError(absl::StrCat("the job stands still at ", events_.seconds(),
                                              " s, after ", committed_, " steps"));
    }
  }
  if (!status_.ok()) return status_;
  return Finish();
}

absl::StatusOr<SimulationResult> Job::Finish() {
  for (const Node& node : nodes_) {
    const core::Engine& engine = node.daemon->engine();
    if (absl::Status status = engine.Check(); !status.ok()) return status;
    result_.requests += engine.counters().requests;
    uint64_t bytes = 0;
    for (const core::PoolSnapshot& pool : engine.Pools()) {
      if (pool.account.tier == core::Tier::kHost) bytes += pool.bytes;
    }
    result_.host_bytes.push_back(bytes);
  }
  for (int r = 0; r < machine_.world_size(); ++r) result_.ranks.push_back(observer_.rank(r));
  result_.arena_bytes = workload_.trace.arena_bytes;
  result_.moments = observer_.moments(0);
  result_.spans = observer_.spans();
  result_.samples = observer_.samples();
  result_.events = events_.events();
  return std::move(result_);
}

absl::Status CheckFailures(const Machine& machine, const SimulationOptions& options) {
  for (const Failure& failure : options.failures) {
    const bool is_rank = failure.kind == FailureKind::kRank;
    const int limit = is_rank ? machine.world_size() : machine.nodes;
    if (failure.index < 0 || failure.index >= limit) {
      return absl::InvalidArgumentError(absl::StrCat("there is no ", is_rank ? "rank " : "node ",
                                                     failure.index, "; there are ", limit));
    }
  }
  if (options.steps == 0 || options.warmup_steps == 0) {
    return absl::InvalidArgumentError("at least one step must warm up and one be reported");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SimulationResult> Simulate(const Machine& machine, const Workload& workload,
                                          const Schedule& schedule,
                                          const SimulationOptions& options) {
  if (absl::Status status = Validate(machine); !status.ok()) return status;
  if (absl::Status status = Validate(workload); !status.ok()) return status;
  if (absl::Status status = CheckSchedule(workload.trace, schedule); !status.ok()) return status;
  if (absl::Status status = CheckFailures(machine, options); !status.ok()) return status;
  return Job(machine, workload, schedule, options).Run();
}

}  // namespace geminid::sim
