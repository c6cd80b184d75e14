// The daemon's sessions of a run whose ranks are other processes.
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/json_writer.h"
#include "base/status_macros.h"
#include "client/c_api/arguments.h"
#include "client/c_api/errors.h"
#include "client/src/job_scaling.h"
#include "geminid/c_api.h"
#include "geminid/session.h"

namespace geminid::c_api {
namespace {

std::string ToJson(const std::vector<JobScaling::Rank>& ranks) {
  base::JsonWriter json;
  json.BeginArray();
  for (const JobScaling::Rank& rank : ranks) {
    json.BeginObject();
    json.Key("rank").Value(static_cast<uint64_t>(rank.rank));
    json.Key("world_size").Value(static_cast<uint64_t>(rank.world_size));
    json.Key("step").Value(rank.step);
    json.Key("device").Value(uint64_t{rank.device});
    json.Key("device_bytes").Value(rank.device_bytes);
    json.Key("host_bytes").Value(rank.host_bytes);
    json.Key("pid").Value(static_cast<uint64_t>(rank.pid));
    json.Key("is_left").Value(rank.is_left);
    json.EndObject();
  }
  json.EndArray();
  return json.text();
}

}  // namespace
}  // namespace geminid::c_api

using namespace geminid::c_api;  // below is the interface, outside of any namespace

geminid_code geminid_run_ranks(const char* socket, const char* job, const char* run,
                               double timeout_seconds, char** json, geminid_error* error) {
  return Guarded(error, [&]() -> absl::Status {
    GEMINID_RETURN_IF_ERROR(CheckGiven(socket, "socket"));
    GEMINID_RETURN_IF_ERROR(CheckGiven(run, "run"));
    GEMINID_RETURN_IF_ERROR(CheckGiven(json, "json"));
    GEMINID_ASSIGN_OR_RETURN(const std::string path, Text(socket, "socket"));
    GEMINID_ASSIGN_OR_RETURN(std::string of_job, Text(job, "job"));
    GEMINID_ASSIGN_OR_RETURN(const std::string of_run, Text(run, "run"));
    GEMINID_ASSIGN_OR_RETURN(const absl::Duration timeout,
                             SecondsOf(timeout_seconds, "timeout_seconds"));
    if (of_run.empty()) return absl::InvalidArgumentError("run is empty; give the name of a run");
    if (of_job.empty()) of_job = geminid::ConnectOptions().job;
    GEMINID_ASSIGN_OR_RETURN(const auto ranks,
                             geminid::JobScaling(path, timeout).GetRanks(of_job, of_run));
    GEMINID_ASSIGN_OR_RETURN(*json, NewText(ToJson(ranks)));
    return absl::OkStatus();
  });
}
