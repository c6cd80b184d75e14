// geminid_ranks: the communicator of a job.
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "client/c_api/arguments.h"
#include "client/c_api/errors.h"
#include "client/c_api/objects.h"
#include "geminid/c_api.h"
#include "geminid/communicator.h"
#include "geminid/connect.h"
#include "geminid/rank_info.h"

namespace geminid::c_api {
namespace {

absl::StatusOr<collectives::RankInfo> ToRankInfo(const geminid_ranks_options& given) {
  if (given.from_environment != 0) return collectives::FromEnvironment();
  collectives::RankInfo info;
  GEMINID_RETURN_IF_ERROR(CheckNumber(given.world_size, 1, INT32_MAX, "world_size"));
  GEMINID_RETURN_IF_ERROR(CheckNumber(given.rank, 0, given.world_size - 1, "rank"));
  info.rank = given.rank;
  info.world_size = given.world_size;
  info.local_rank = given.local_rank;
  info.local_world_size = given.local_world_size;
  info.master_port = given.master_port;
  GEMINID_ASSIGN_OR_RETURN(info.master_address, Text(given.master_address, "master_address"));
  GEMINID_ASSIGN_OR_RETURN(info.job, Text(given.job, "job"));
  return info;
}

absl::StatusOr<collectives::ConnectOptions> ToConnect(const geminid_ranks_options& given) {
  collectives::ConnectOptions options;
  GEMINID_RETURN_IF_ERROR(
      CheckNumber(given.backend, GEMINID_BACKEND_AUTO, GEMINID_BACKEND_TCP, "backend"));
  options.backend = static_cast<collectives::BackendChoice>(given.backend);
  GEMINID_ASSIGN_OR_RETURN(const std::string name, Text(given.name, "name"));
  if (!name.empty()) options.name = name;
  GEMINID_ASSIGN_OR_RETURN(options.interface_address,
                           Text(given.interface_address, "interface_address"));
  GEMINID_ASSIGN_OR_RETURN(options.timeout, SecondsOf(given.timeout_seconds, "timeout_seconds"));
  GEMINID_ASSIGN_OR_RETURN(options.connect_timeout,
                           SecondsOf(given.connect_timeout_seconds, "connect_timeout_seconds"));
  return options;
}

}  // namespace
}  // namespace geminid::c_api

using namespace geminid::c_api;  // below is the interface, outside of any namespace

void geminid_ranks_options_init(geminid_ranks_options* options, size_t struct_size) {
  const geminid::collectives::RankInfo alone;
  const geminid::collectives::ConnectOptions defaults;
  geminid_ranks_options filled = {};
  filled.world_size = alone.world_size;
  filled.master_port = alone.master_port;
  filled.timeout_seconds = absl::ToDoubleSeconds(defaults.timeout);
  filled.connect_timeout_seconds = absl::ToDoubleSeconds(defaults.connect_timeout);
  Init(options, struct_size, filled);
}

geminid_code geminid_ranks_connect(const geminid_ranks_options* options, geminid_ranks** ranks,
                                   geminid_error* error) {
  return Guarded(error, [&]() -> absl::Status {
    GEMINID_RETURN_IF_ERROR(CheckGiven(ranks, "ranks"));
    GEMINID_ASSIGN_OR_RETURN(const geminid_ranks_options given, Read(options, "options"));
    GEMINID_ASSIGN_OR_RETURN(geminid::collectives::RankInfo info, ToRankInfo(given));
    GEMINID_ASSIGN_OR_RETURN(const auto connect, ToConnect(given));
    GEMINID_ASSIGN_OR_RETURN(auto connected, geminid::collectives::Connect(info, connect));
    *ranks = AllRanks().Add(std::make_shared<RanksObject>(std::move(info), std::move(connected)));
    return absl::OkStatus();
  });
}

void geminid_ranks_free(geminid_ranks** ranks) { AllRanks().Free(ranks); }

void geminid_place_init(geminid_place* place, size_t struct_size) {
  Init(place, struct_size, geminid_place{});
}

geminid_code geminid_ranks_place(geminid_ranks* ranks, geminid_place* place, geminid_error* error) {
  return Guarded(error, [&]() -> absl::Status {
    GEMINID_RETURN_IF_ERROR(CheckGiven(place, "place"));
    GEMINID_RETURN_IF_ERROR(CheckResult(place, "place"));
    GEMINID_ASSIGN_OR_RETURN(const auto object, AllRanks().Find(ranks));
    const geminid::collectives::RankInfo& info = object->info();
    Write(place, {0, info.rank, info.world_size, info.local_rank, info.local_world_size});
    return absl::OkStatus();
  });
}

geminid_code geminid_ranks_sum(geminid_ranks* ranks, double* values, size_t count,
                               geminid_error* error) {
  return Guarded(error, [&]() -> absl::Status {
    GEMINID_ASSIGN_OR_RETURN(const auto object, AllRanks().Find(ranks));
    if (count == 0) return absl::OkStatus();
    GEMINID_RETURN_IF_ERROR(CheckGiven(values, "values"));
    const std::span<double> all(values, count);
    return object->Take().ranks->AllReduce(all, all);
  });
}

geminid_code geminid_ranks_barrier(geminid_ranks* ranks, geminid_error* error) {
  return Guarded(error, [&]() -> absl::Status {
    GEMINID_ASSIGN_OR_RETURN(const auto object, AllRanks().Find(ranks));
    return object->Take().ranks->Barrier();
  });
}

geminid_code geminid_ranks_broadcast(geminid_ranks* ranks, void* bytes, size_t count, int32_t from,
                                     geminid_error* error) {
  return Guarded(error, [&]() -> absl::Status {
    GEMINID_ASSIGN_OR_RETURN(const auto object, AllRanks().Find(ranks));
    GEMINID_RETURN_IF_ERROR(CheckNumber(from, 0, object->info().world_size - 1, "from"));
    if (count == 0) return absl::OkStatus();
    GEMINID_RETURN_IF_ERROR(CheckGiven(bytes, "bytes"));
    return object->Take().ranks->Broadcast({bytes, count, geminid::collectives::DType::kUint8},
                                           from);
  });
}
