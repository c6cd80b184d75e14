#include "training/ranks/ranks_place.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "training/data/batches.h"
#include "training/nn/parallel/tensor/tensor_grid.h"
#include "training/ranks/daemon_choice.h"
#include "training/ranks/measured_speed.h"
#include "training/settings/host_groups.h"

namespace geminid::trainer {
namespace {

// Of each rank: beyond what collectives send at once, and short enough not to be noticed.
constexpr size_t kMeasuredBytes = size_t{1} << 20;
constexpr double kLeastSeconds = 1e-9;

// Of the second of two calls, which all ranks begin together.
template <typename Call>
absl::StatusOr<double> SecondsOf(collectives::Communicator& ranks, const Call& call) {
  GEMINID_RETURN_IF_ERROR(call());
  GEMINID_RETURN_IF_ERROR(ranks.Barrier());
  const auto began = std::chrono::steady_clock::now();
  GEMINID_RETURN_IF_ERROR(call());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  return std::max(took.count(), kLeastSeconds);
}

struct ExchangeSpeed {
  double bytes_per_second = 0;  // received
  double message_seconds = 0;
};

absl::StatusOr<ExchangeSpeed> MeasureExchange(collectives::Communicator& ranks) {
  const auto count = static_cast<size_t>(ranks.WorldSize());
  if (count == 1) return ExchangeSpeed();
  const auto others = static_cast<double>(count - 1);
  const std::vector<uint8_t> mine(kMeasuredBytes);
  std::vector<uint8_t> all(count * kMeasuredBytes);
  std::vector<float> one(1);
  GEMINID_ASSIGN_OR_RETURN(const double gather,
                           SecondsOf(ranks, [&] { return ranks.AllGather(mine, all); }));
  GEMINID_ASSIGN_OR_RETURN(const double reduce, SecondsOf(ranks, [&] {
                             return ranks.AllReduce(one, one, collectives::ReduceOp::kSum);
                           }));
  return ExchangeSpeed{.bytes_per_second = others * static_cast<double>(kMeasuredBytes) / gather,
                       .message_seconds = reduce / others};
}

// `first`, `first + step`, ..., so many.
absl::StatusOr<ExchangeSpeed> MeasureAmong(collectives::Communicator& world,
                                           const std::string& name, int first, int step,
                                           int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) ranks[static_cast<size_t>(i)] = first + i * step;
  GEMINID_ASSIGN_OR_RETURN(const auto group, world.Subset(name, ranks));
  return MeasureExchange(*group);
}

// Ranks of a host, where all hosts have as many; else all ranks.
absl::StatusOr<int> RanksPerHost(const collectives::RankInfo& info,
                                 collectives::Communicator& communicator) {
  const int ranks = communicator.WorldSize();
  const int local = info.local_world_size;
  const bool numbered = local > 0 && ranks % local == 0 && info.rank % local == info.local_rank;
  const double mine = numbered ? local : 0;
  std::vector<double> ends = {mine, -mine};
  GEMINID_RETURN_IF_ERROR(communicator.AllReduce(ends, ends, collectives::ReduceOp::kMin));
  return ends[0] > 0 && ends[0] == -ends[1] ? local : ranks;
}

}  // namespace

absl::StatusOr<RanksPlace> FindRanksPlace(const TrainOptions& options, size_t threads,
                                          const collectives::RankInfo& info,
                                          collectives::Communicator& communicator) {
  GEMINID_ASSIGN_OR_RETURN(const int local, RanksPerHost(info, communicator));
  RanksPlace place = {.ranks = communicator.WorldSize(), .hosts = communicator.WorldSize() / local};
  const int host = info.rank / local;
  GEMINID_ASSIGN_OR_RETURN(const ExchangeSpeed near,
                           MeasureAmong(communicator, "ranks of a host", host * local, 1, local));
  GEMINID_ASSIGN_OR_RETURN(
      const ExchangeSpeed far,
      MeasureAmong(communicator, "ranks of one number", info.rank % local, local, place.hosts));
  GEMINID_RETURN_IF_ERROR(communicator.Barrier());
  GEMINID_ASSIGN_OR_RETURN(const MeasuredSpeed speed,
                           MeasureHostSpeed(options.model, options.zero.data_type, threads));
  // Half of what a daemon hands out is its device's.
  const uint64_t half = DefaultMemoryBytes() / 2;
  std::vector<double> least = {static_cast<double>(options.device_memory_bytes.value_or(
                                   half / static_cast<uint64_t>(local))),
                               static_cast<double>(options.host_memory_bytes.value_or(half)),
                               speed.operations_per_second,
                               speed.link_bytes_per_second,
                               near.bytes_per_second,
                               -near.message_seconds,
                               far.bytes_per_second,
                               -far.message_seconds};
  GEMINID_RETURN_IF_ERROR(communicator.AllReduce(least, least, collectives::ReduceOp::kMin));
  place.device_bytes = static_cast<uint64_t>(least[0]);
  place.host_bytes = static_cast<uint64_t>(least[1]);
  place.operations_per_second = least[2];
  place.copied_bytes_per_second = least[3];
  place.link_bytes_per_second = options.copy_bytes_per_second > 0
                                    ? static_cast<double>(options.copy_bytes_per_second)
                                    : place.copied_bytes_per_second;
  place.peer_bytes_per_second = least[4];
  place.peer_message_seconds = -least[5];
  place.network_bytes_per_second = least[6];
  place.network_message_seconds = -least[7];
  return place;
}

namespace {

// What rank 0 says.
absl::Status Share(collectives::Communicator& communicator, std::string* words) {
  std::vector<int64_t> size = {static_cast<int64_t>(words->size())};
  GEMINID_RETURN_IF_ERROR(communicator.Broadcast(size, 0));
  std::vector<uint8_t> bytes(words->begin(), words->end());
  bytes.resize(static_cast<size_t>(size[0]));
  GEMINID_RETURN_IF_ERROR(communicator.Broadcast(bytes, 0));
  words->assign(bytes.begin(), bytes.end());
  return absl::OkStatus();
}

absl::StatusOr<MeshChoice> DataAlone(const TrainOptions& options, int ranks,
                                     const std::string& why) {
  GEMINID_RETURN_IF_ERROR(CheckBatch(options.batch, static_cast<uint64_t>(ranks)));
  return MeshChoice{.batch = options.batch, .accumulate = options.zero.accumulate, .why = why};
}

// Rank 0's, of now; kept for the starts to come before anybody knows of it.
absl::StatusOr<MeshChoice> Choose(const TrainOptions& options, const RanksPlace& place,
                                  const RankContext& context) {
  GEMINID_ASSIGN_OR_RETURN(MeshChoice choice, ChooseMesh(options, place));
  if (context.run_memory.is_there()) {  // a start that follows may be at another host
    GEMINID_RETURN_IF_ERROR(context.run_memory.Keep(RunNote::kMesh, WordsOf(choice)));
  }
  return choice;
}

}  // namespace

absl::StatusOr<MeshChoice> FindMesh(const TrainOptions& options, size_t threads,
                                    const RankContext& context,
                                    collectives::Communicator& communicator) {
  const int ranks = communicator.WorldSize();
  if (options.wants_gpu)
    return DataAlone(options, ranks, "--parallel auto gives ranks on GPUs data parallelism alone");
  if (context.restarts.comes_back() && !context.run_memory.is_there()) {
    return DataAlone(
        options, ranks,
        "--parallel auto gives ranks that another launcher restarts data parallelism alone");
  }
  // What the ranks left in memory is of the mesh of an earlier start. Where it had not come so far,
  // they left nothing.
  std::string words;
  if (!context.restarts.is_first()) {
    if (context.info.rank == 0) words = context.run_memory.Kept(RunNote::kMesh);
    GEMINID_RETURN_IF_ERROR(Share(communicator, &words));
    if (!words.empty()) {
      GEMINID_ASSIGN_OR_RETURN(MeshChoice choice, ChoiceFrom(options, words));
      choice.why = absl::StrCat("as before: ", choice.why);
      return choice;
    }
  }
  GEMINID_ASSIGN_OR_RETURN(const RanksPlace place,
                           FindRanksPlace(options, threads, context.info, communicator));
  MeshChoice choice;
  if (context.info.rank == 0) {
    GEMINID_ASSIGN_OR_RETURN(choice, Choose(options, place, context));
    words = WordsOf(choice);
  }
  GEMINID_RETURN_IF_ERROR(Share(communicator, &words));
  return context.info.rank == 0 ? choice : ChoiceFrom(options, words);
}

namespace {

// How the launcher numbered the ranks, on all of them.
absl::StatusOr<std::vector<LocalPlace>> LocalPlaces(const collectives::RankInfo& info,
                                                    collectives::Communicator& communicator) {
  const auto ranks = static_cast<size_t>(communicator.WorldSize());
  const std::vector<int64_t> mine = {info.local_rank, info.local_world_size};
  std::vector<int64_t> all(ranks * mine.size());
  GEMINID_RETURN_IF_ERROR(communicator.AllGather(mine, all));
  std::vector<LocalPlace> places(ranks);
  for (size_t rank = 0; rank < ranks; ++rank) {
    places[rank] = {static_cast<int>(all[2 * rank]), static_cast<int>(all[2 * rank + 1])};
  }
  return places;
}

bool FitsWith(TrainOptions options, int size) {
  parallel::TensorAxis& tensor = options.parallel.tensor;
  if (tensor.size == 1) {
    options.parallel.expert = size;
  } else if (!collectives::TensorGrid::Make(tensor.mode, size, tensor.depth).ok()) {
    return false;
  } else {
    tensor.size = size;
  }
  return CheckParallel(options).ok();
}

}  // namespace

absl::StatusOr<RunMesh> FindRunMesh(TrainOptions options, size_t threads,
                                    const RankContext& context,
                                    collectives::Communicator& communicator) {
  RunMesh found{.mesh = {}, .choice = {}, .warning = {}};
  if (options.parallel.automatic) {
    GEMINID_ASSIGN_OR_RETURN(found.choice, FindMesh(options, threads, context, communicator));
    options = WithChoice(std::move(options), *found.choice);
  }
  GEMINID_ASSIGN_OR_RETURN(found.mesh, MakeMesh(options.parallel, context.info.world_size));
  if (options.parallel.tensor.size > 1 || options.parallel.expert > 1) {
    GEMINID_ASSIGN_OR_RETURN(const std::vector<LocalPlace> places,
                             LocalPlaces(context.info, communicator));
    if (const auto hosts = HostsOf(places)) {
      found.warning =
          WarnOfGroups(options.parallel, *hosts, [&](int size) { return FitsWith(options, size); });
    }
  }
  found.options = std::move(options);
  return found;
}

}  // namespace geminid::trainer
