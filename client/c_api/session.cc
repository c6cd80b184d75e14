// geminid_session: this process's connection to the daemon.
#include "geminid/session.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/json_writer.h"
#include "base/status_macros.h"
#include "client/c_api/arguments.h"
#include "client/c_api/errors.h"
#include "client/c_api/objects.h"
#include "client/src/session_internal.h"
#include "geminid/c_api.h"
#include "geminid/private_daemon.h"

namespace geminid::c_api {
namespace {

absl::StatusOr<std::vector<std::string>> FlagsOf(const geminid_session_options& given) {
  std::vector<std::string> flags;
  if (given.daemon_flag_count > 0) {
    GEMINID_RETURN_IF_ERROR(CheckGiven(given.daemon_flags, "daemon_flags"));
  }
  for (size_t i = 0; i < given.daemon_flag_count; ++i) {
    GEMINID_RETURN_IF_ERROR(CheckGiven(given.daemon_flags[i], "one of daemon_flags"));
    GEMINID_ASSIGN_OR_RETURN(std::string flag, Text(given.daemon_flags[i], "one of daemon_flags"));
    flags.push_back(std::move(flag));
  }
  return flags;
}

absl::StatusOr<ConnectOptions> ToConnect(const geminid_session_options& given) {
  ConnectOptions options;
  GEMINID_ASSIGN_OR_RETURN(options.socket, Text(given.socket, "socket"));
  GEMINID_ASSIGN_OR_RETURN(const std::string job, Text(given.job, "job"));
  if (!job.empty()) options.job = job;
  GEMINID_ASSIGN_OR_RETURN(options.run, Text(given.run, "run"));
  GEMINID_ASSIGN_OR_RETURN(options.client_name, Text(given.client_name, "client_name"));
  GEMINID_RETURN_IF_ERROR(CheckNumber(given.device, -1, INT32_MAX, "device"));
  if (given.device >= 0) options.device = DeviceIndex{static_cast<uint32_t>(given.device)};
  options.rank = given.rank;
  options.world_size = given.world_size;
  options.local_rank = given.local_rank;
  options.local_world_size = given.local_world_size;
  options.keep_on_death = given.keep_on_death != 0;
  options.strict_device = given.strict_device != 0;
  options.device_memory_bytes = given.device_memory_bytes;
  options.copy_bytes_per_second = given.copy_bytes_per_second;
  options.copy_latency_seconds = given.copy_latency_seconds;
  GEMINID_ASSIGN_OR_RETURN(options.timeout, SecondsOf(given.timeout_seconds, "timeout_seconds"));
  GEMINID_ASSIGN_OR_RETURN(options.daemon_flags, FlagsOf(given));
  return options;
}

absl::StatusOr<std::unique_ptr<PrivateDaemon>> StartDaemon(const geminid_session_options& given,
                                                           absl::Duration timeout) {
  PrivateDaemonOptions options = {.timeout = timeout};
  GEMINID_ASSIGN_OR_RETURN(options.binary, Text(given.daemon_program, "daemon_program"));
  GEMINID_ASSIGN_OR_RETURN(options.arguments, FlagsOf(given));
  return PrivateDaemon::Start(options);
}

absl::StatusOr<std::shared_ptr<SessionObject>> Connect(const geminid_session_options* given) {
  GEMINID_ASSIGN_OR_RETURN(const geminid_session_options options, Read(given, "options"));
  GEMINID_ASSIGN_OR_RETURN(ConnectOptions connect, ToConnect(options));
  auto object = std::make_shared<SessionObject>();
  if (options.private_daemon != 0) {
    if (!connect.socket.empty()) {
      return absl::InvalidArgumentError(
          "private_daemon starts a daemon of its own; leave `socket` empty");
    }
    GEMINID_ASSIGN_OR_RETURN(object->daemon, StartDaemon(options, connect.timeout));
    connect.socket = object->daemon->socket();
  }
  GEMINID_ASSIGN_OR_RETURN(object->session, Session::Connect(std::move(connect)));
  return object;
}

struct HeldMemory {
  void* address = nullptr;
  bool found = false;
};

absl::StatusOr<HeldMemory> Hold(Session& session, std::string name, uint64_t bytes) {
  const std::vector<ChunkSpec> specs = {{std::move(name), ChunkKind::kGeneric, bytes}};
  if (session.is_successor()) {
    const absl::StatusOr<std::vector<ChunkHandle>> left = Claim(session, specs);
    if (left.ok()) return HeldMemory{left->front().home, true};
    if (!absl::IsNotFound(left.status())) return left.status();
  }
  GEMINID_ASSIGN_OR_RETURN(const std::vector<ChunkHandle> made, session.Allocate(specs));
  return HeldMemory{made.front().home, false};
}

std::string Describe(const SessionObject& object) {
  const Session& session = *object.session;
  const DeviceDescription& device = session.device_description();
  base::JsonWriter json;
  json.BeginObject();
  json.Key("socket").Value(session.socket());
  json.Key("id").Value(session.id());
  json.Key("is_successor").Value(session.is_successor());
  json.Key("owns_daemon").Value(object.daemon != nullptr || OwnsDaemon(session));
  json.Key("arena_bytes").Value(session.arena_bytes());
  json.Key("device").BeginObject();
  json.Key("index").Value(uint64_t{static_cast<uint32_t>(device.index)});
  json.Key("kind").Value(device.kind == DeviceKind::kCuda ? "cuda" : "host");
  json.Key("name").Value(device.name);
  json.Key("uuid").Value(device.uuid);
  json.Key("capacity_bytes").Value(device.capacity_bytes);
  json.EndObject().EndObject();
  return json.text();
}

}  // namespace
}  // namespace geminid::c_api

using namespace geminid::c_api;  // below is the interface, outside of any namespace

void geminid_session_options_init(geminid_session_options* options, size_t struct_size) {
  const geminid::ConnectOptions defaults;
  geminid_session_options filled = {};
  filled.world_size = defaults.world_size;
  filled.device = -1;
  filled.timeout_seconds = absl::ToDoubleSeconds(defaults.timeout);
  Init(options, struct_size, filled);
}

geminid_code geminid_session_connect(const geminid_session_options* options,
                                     geminid_session** session, geminid_error* error) {
  return Guarded(error, [&]() -> absl::Status {
    GEMINID_RETURN_IF_ERROR(CheckGiven(session, "session"));
    GEMINID_ASSIGN_OR_RETURN(auto object, Connect(options));
    *session = Sessions().Add(std::move(object));
    return absl::OkStatus();
  });
}

void geminid_session_free(geminid_session** session) { Sessions().Free(session); }

geminid_code geminid_session_describe(geminid_session* session, char** json, geminid_error* error) {
  return Guarded(error, [&]() -> absl::Status {
    GEMINID_RETURN_IF_ERROR(CheckGiven(json, "json"));
    GEMINID_ASSIGN_OR_RETURN(const auto object, Sessions().Find(session));
    GEMINID_ASSIGN_OR_RETURN(*json, NewText(Describe(*object)));
    return absl::OkStatus();
  });
}

geminid_code geminid_session_health(geminid_session* session, geminid_error* error) {
  return Guarded(error, [&]() -> absl::Status {
    GEMINID_ASSIGN_OR_RETURN(const auto object, Sessions().Find(session));
    return object->session->Healthy();
  });
}

geminid_code geminid_session_hold(geminid_session* session, const char* name, uint64_t bytes,
                                  void** address, int* found, geminid_error* error) {
  return Guarded(error, [&]() -> absl::Status {
    GEMINID_RETURN_IF_ERROR(CheckGiven(name, "name"));
    GEMINID_RETURN_IF_ERROR(CheckGiven(address, "address"));
    GEMINID_RETURN_IF_ERROR(CheckGiven(found, "found"));
    GEMINID_ASSIGN_OR_RETURN(const auto object, Sessions().Find(session));
    GEMINID_ASSIGN_OR_RETURN(std::string text, Text(name, "name"));
    GEMINID_ASSIGN_OR_RETURN(const auto held, Hold(*object->session, std::move(text), bytes));
    *address = held.address;
    *found = held.found ? 1 : 0;
    return absl::OkStatus();
  });
}

geminid_code geminid_session_leave(geminid_session* session, geminid_error* error) {
  return Guarded(error, [&]() -> absl::Status {
    GEMINID_ASSIGN_OR_RETURN(const auto object, Sessions().Find(session));
    object->session->LeaveToSuccessor();
    return absl::OkStatus();
  });
}
