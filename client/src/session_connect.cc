#include <errno.h>
#include <sys/stat.h>

#include <cstdlib>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/max_isa.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "client/device/cuda/cuda_device.h"
#include "client/device/host/host_device.h"
#include "client/src/device_choice.h"
#include "client/src/session_impl.h"
#include "proto/rpc/grpc_threads.h"
#include "proto/shm/daemon_socket.h"
#include "proto/shm/host_registration.h"

namespace geminid {
namespace {

constexpr absl::Duration kMeetPause = absl::Milliseconds(20);
// Environment variables; "1" turns them on.
constexpr char kStrictVariable[] = "GEMINID_STRICT_DEVICE";
constexpr char kEventsVariable[] = "GEMINID_COMPLETIONS_BY_EVENTS";

bool IsOn(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && std::string_view(value) == "1";
}

// One daemon for all sessions of this process that have none; ends with the last such session.
absl::StatusOr<std::shared_ptr<PrivateDaemon>> SharedPrivateDaemon(const ConnectOptions& session) {
  static std::mutex mutex;
  static std::weak_ptr<PrivateDaemon> shared;
  const std::lock_guard lock(mutex);
  if (std::shared_ptr<PrivateDaemon> running = shared.lock()) return running;
  PrivateDaemonOptions options;
  options.timeout = session.timeout;
  options.arguments = session.daemon_flags;
  GEMINID_ASSIGN_OR_RETURN(std::shared_ptr<PrivateDaemon> daemon, PrivateDaemon::Start(options));
  shared = daemon;
  return daemon;
}

// The holder ends with the last daemon that anything waits for.
bool HasHolder(const std::string& socket) {
  struct stat file = {};
  return stat(absl::StrCat(socket, shm::kHolderSuffix).c_str(), &file) == 0 &&
         S_ISSOCK(file.st_mode);
}

absl::Status CheckOptions(const ConnectOptions& options) {
  if (options.timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("timeout is ", absl::FormatDuration(options.timeout), "; it must be above 0"));
  }
  // NaN is refused, too.
  if (!(options.copy_bytes_per_second >= 0)) {
    return absl::InvalidArgumentError(absl::StrCat("copy_bytes_per_second is ",
                                                   options.copy_bytes_per_second,
                                                   "; it must be 0 (as fast as memory) or above"));
  }
  if (!(options.copy_latency_seconds >= 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "copy_latency_seconds is ", options.copy_latency_seconds, "; it must be 0 or above"));
  }
  if (options.device_memory_bytes > kMaxArenaBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "asked for ", base::FormatBytes(options.device_memory_bytes),
        " of device memory; one rank can have at most ", base::FormatBytes(kMaxArenaBytes)));
  }
  return base::MaxIsa().status();
}

absl::StatusOr<shm::Hello> MakeHello(const ConnectOptions& options) {
  shm::Hello hello = {};
  hello.magic = shm::kHelloMagic;
  hello.protocol_version = shm::kProtocolVersion;
  hello.layout_version = shm::kLayoutVersion;
  hello.oldest_protocol_version = shm::kOldestProtocolVersion;
  hello.oldest_layout_version = shm::kOldestLayoutVersion;
  hello.death_policy = options.keep_on_death ? shm::DeathPolicy::kKeep : shm::DeathPolicy::kFree;
  hello.rank = options.rank;
  hello.world_size = options.world_size;
  hello.local_rank = options.local_rank;
  // A job of one rank has no other rank on this node.
  hello.local_world_size = options.world_size == 1 ? 1 : options.local_world_size;
  GEMINID_ASSIGN_OR_RETURN(hello.device,
                           WantedDevice(options.device, std::getenv(kDeviceVariable)));
  const std::string program = program_invocation_short_name;
  const std::string name =
      options.client_name.empty() ? program.substr(0, shm::kNameBytes - 1) : options.client_name;
  absl::Status status = CopyName(options.job, "the job's name", hello.job);
  status.Update(CopyName(name, "the client's name", hello.client));
  status.Update(CopyName(options.run, "the run's name", hello.run));
  if (!status.ok()) return status;
  return hello;
}

shm::HostRegistration ToShm(const device::HostRegistrationCounts& pieces) {
  return {.bytes = pieces.given_bytes,
          .registered_bytes = pieces.registered_bytes,
          .refused_bytes = pieces.refused_bytes,
          .pieces = pieces.given,
          .registered_pieces = pieces.registered,
          .refused_pieces = pieces.refused};
}

// A device of the kind that the daemon named. `counters` outlive it.
absl::StatusOr<std::unique_ptr<device::Device>> MakeDevice(const ConnectOptions& options,
                                                           const DeviceDescription& description,
                                                           shm::ClientCounters* counters) {
  if (description.kind == DeviceKind::kCuda) {
    return device::MakeCudaDevice(
        {.uuid = description.uuid,
         .completes_by_events = IsOn(kEventsVariable),
         .on_registration = [counters](const device::HostRegistrationCounts& pieces) {
           shm::StoreHostRegistration(ToShm(pieces), counters);
         }});
  }
  device::HostDeviceOptions host;
  host.copy_bytes_per_second = options.copy_bytes_per_second;
  host.copy_latency_seconds = options.copy_latency_seconds;
  host.strict = options.strict_device || IsOn(kStrictVariable);
  return device::MakeHostDevice(host);
}

// The daemon sends its agent's memory; memory that the driver rejects has ended with the agent.
absl::Status OfSlab(const absl::Status& status, const DeviceDescription& device) {
  if (device.kind != DeviceKind::kCuda || !absl::IsInvalidArgument(status)) return status;
  return absl::UnavailableError(
      absl::StrCat("memory of ", device.name,
                   " was lost before this process had it: its agent ended ('geminictl status' says "
                   "why); connect again (",
                   std::string(status.message()), ")"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> Session::Connect(ConnectOptions options) {
  GEMINID_RETURN_IF_ERROR(CheckOptions(options));
  return ConnectWithDevice(std::move(options), nullptr);
}

absl::Status SessionImpl::Open(bool met_before) {
  absl::Status status = ResolveSocket();
  if (status.ok()) status = Attach(met_before);
  return status.ok() ? AwaitArena() : status;
}

// A session that was ended, by the operator or for an error of its own, is not forgotten.
bool SessionImpl::IsForgotten() const {
  return control != nullptr && control->never_known() && segments.state() != nullptr &&
         segments.state()->header.phase.load(std::memory_order_acquire) ==
             static_cast<uint32_t>(shm::Phase::kServing);
}

absl::Status SessionImpl::ResolveSocket() {
  const char* const from_environment = std::getenv(shm::kSocketVariable);
  struct stat file = {};
  if (!options.socket.empty()) {
    socket = options.socket;
  } else if (from_environment != nullptr && *from_environment != '\0') {
    socket = from_environment;
  } else if (stat(shm::kInstalledSocket, &file) == 0) {
    socket = shm::kInstalledSocket;
  } else {
    GEMINID_ASSIGN_OR_RETURN(private_daemon, SharedPrivateDaemon(options));
    socket = private_daemon->socket();
  }
  return absl::OkStatus();
}

// Waits for a daemon that died during this call, since something restarts it, and for one that died
// before, while a holder stores its sessions. Does not wait for a daemon that was never there.
absl::StatusOr<ReceivedWelcome> SessionImpl::MeetDaemon(const shm::Hello& hello, bool met_before) {
  const absl::Time give_up = base::MonotonicNow() + options.timeout;
  for (bool was_there = met_before || private_daemon != nullptr;;) {
    absl::StatusOr<AttachSocket> connected = AttachSocket::Connect(socket, options.timeout);
    if (connected.ok()) {
      attach = *std::move(connected);
      fork_guard.emplace(attach.fd());
      absl::StatusOr<ReceivedWelcome> welcome = attach.SayHello(hello);
      if (welcome.ok() || !attach.hung_up() || base::MonotonicNow() > give_up) return welcome;
      was_there = true;
    } else if (!(was_there || HasHolder(socket)) || !absl::IsUnavailable(connected.status()) ||
               base::MonotonicNow() > give_up) {
      return connected.status();
    }
    absl::SleepFor(kMeetPause);
  }
}

absl::Status SessionImpl::Attach(bool met_before) {
  GEMINID_ASSIGN_OR_RETURN(const shm::Hello hello, MakeHello(options));
  constexpr size_t kOwn = 1 + shm::kWelcomeFds;  // the attach socket, and what comes by it
  GEMINID_RETURN_IF_ERROR(base::ProbeDescriptors(kOwn + rpc::kGrpcDescriptors));
  GEMINID_ASSIGN_OR_RETURN(ReceivedWelcome welcome, MeetDaemon(hello, met_before));
  session_id = welcome.message.session_id;
  successor = welcome.message.successor;
  device_description = FromShm(welcome.message.device);
  const int local_ranks =
      options.local_world_size > 0 ? options.local_world_size : options.world_size;
  control =
      std::make_unique<Control>(socket, welcome.message, options.timeout, local_ranks, attach.fd());
  GEMINID_RETURN_IF_ERROR(control->Connect());

  using Fd = shm::WelcomeFd;
  GEMINID_ASSIGN_OR_RETURN(
      segments, Segments::Map(welcome.fd(Fd::kStateSegment), welcome.fd(Fd::kClientSegment),
                              welcome.fd(Fd::kCommitSegment)));
  GEMINID_ASSIGN_OR_RETURN(
      port, RequestPort::Create(
                segments.state(), segments.client(),
                {std::move(welcome.fd(Fd::kDaemonEvent)), std::move(welcome.fd(Fd::kClientEvent)),
                 attach.fd(), welcome.message.device.kind == shm::DeviceKind::kCuda},
                socket));
  if (device == nullptr) {
    GEMINID_ASSIGN_OR_RETURN(device,
                             MakeDevice(options, device_description, &segments.client()->counters));
  }
  // A GPU writes the completion words itself if it can.
  GEMINID_RETURN_IF_ERROR(device->RegisterHost(
      {reinterpret_cast<std::byte*>(segments.client()), sizeof(*segments.client())}));
  transfers = std::make_unique<Transfers>(port.get(), device.get(), &chunks, segments.client());
  return absl::OkStatus();
}

absl::Status SessionImpl::MakeArena() {
  GEMINID_ASSIGN_OR_RETURN(
      const Control::Arena created,
      control->CreateArena(options.device_memory_bytes, /*may_be_there=*/successor > 0));
  if (device->base() == nullptr) {
    GEMINID_RETURN_IF_ERROR(device->ReserveArena(created.bytes));
  }
  // Slabs from a daemon that ended midway may come first, so the last ones count.
  std::deque<ReceivedMemory> slabs;
  while (slabs.size() < created.slabs || attach.HasMemory()) {
    GEMINID_ASSIGN_OR_RETURN(ReceivedMemory memory, attach.ReceiveMemory());
    // The pool of an allocation or a claim that a daemon had answered before it ended.
    if (memory.message.type == shm::MemoryType::kHostPool) continue;
    if (memory.message.type != shm::MemoryType::kDeviceSlab) {
      return absl::InternalError("the daemon sent memory that is not the arena's");
    }
    slabs.push_back(std::move(memory));
    if (slabs.size() > created.slabs) slabs.pop_front();
  }
  for (ReceivedMemory& slab : slabs) {
    absl::Status status =
        device->ImportSlab(std::move(slab.fd), slab.message.arena_offset, slab.message.bytes);
    if (!status.ok()) return OfSlab(status, device_description);
  }
  if (device->memory_info().imported_bytes != created.bytes) {
    return absl::InternalError("the slabs the daemon sent do not fill the arena");
  }
  arena = device->base();
  arena_bytes = created.bytes;
  return absl::OkStatus();
}

// First stops new copies, then waits for running ones, then detaches; only then mappings may go.
void SessionImpl::Close() {
  if (transfers != nullptr) {
    device->compute_stream().Synchronize();  // its callbacks may give back leases
    transfers->StopCopying();
    device->copy_stream(device::Direction::kHostToDevice).Synchronize();
    device->copy_stream(device::Direction::kDeviceToHost).Synchronize();
    // A ticket that arrived before the stop may have become a copy since. The device waits for that
    // copy, and the port takes its completion until then.
    port->Stop(absl::CancelledError("the session ended before the request was carried out"));
    device->copy_stream(device::Direction::kHostToDevice).Synchronize();
    device->copy_stream(device::Direction::kDeviceToHost).Synchronize();
  }
  if (control != nullptr && !is_left.load()) {
    // Without Detach, a session with keep_on_death would be retained for a replacement that never
    // comes. Any other session ends with its connection.
    for (const std::function<void()>& call : at_detach) call();
    (void)control->Detach(/*insists=*/options.keep_on_death);
  }
}

absl::StatusOr<std::unique_ptr<Session>> ConnectWithDevice(ConnectOptions options,
                                                           std::unique_ptr<device::Device> device) {
  const bool is_given = device != nullptr;
  const absl::Time give_up = base::MonotonicNow() + options.timeout;
  std::shared_ptr<PrivateDaemon> own_daemon;  // survives between two attempts
  for (bool met_before = false;; met_before = true) {
    auto impl = std::make_unique<SessionImpl>(std::move(options), std::move(device));
    absl::Status status = impl->Open(met_before);
    if (status.ok()) return SessionImpl::MakeSession(std::move(impl));
    impl->is_left.store(impl->successor > 0);  // there may be another attempt
    impl->Close();
    if (!impl->IsForgotten() || base::MonotonicNow() > give_up) return status;
    own_daemon = impl->private_daemon;
    options = impl->options;
    if (is_given) device = std::move(impl->device);
  }
}

}  // namespace geminid
