#include "daemon/service/entry/rpc_server.h"

#include <google/protobuf/wrappers.pb.h>
#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/process_limits.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "daemon/os/event.h"
#include "daemon/os/log.h"
#include "daemon/os/unix_socket.h"
#include "daemon/service/entry/library_logs.h"
#include "proto/rpc/deadline.h"
#include "proto/rpc/grpc_threads.h"

namespace geminid::service {
namespace {

// As many as the kernel allows by default (somaxconn). When the backlog is full, gRPC's clients
// fail at once.
constexpr int kBacklog = 4096;
// The longest request, MakePlan's, and room for gRPC's own bytes.
constexpr int kMaxReceivedBytes = static_cast<int>(kPlanBounds.bytes) + 4096;
constexpr int kMaxSentBytes = 64 << 20;
constexpr int kMaxStreamsPerConnection = 16;
constexpr int kMaxMetadataBytes = 8192;
constexpr int kMaxWorkers = 16;
constexpr int64_t kTickNanoseconds = 20'000'000;
// How soon a tenant without a connection is forgotten.
constexpr int64_t kIdleTickNanoseconds = 10'000'000'000;

// gRPC's own memory for one tenant: enough for all its workers to read requests of the longest
// kind, twice. Beyond that gRPC ends streams.
constexpr size_t kTenantBytes = size_t{512} << 20;
// How long cancelled calls may take to end. Calls that hang longer are left behind.
constexpr std::chrono::milliseconds kLongestEnd(1500);
constexpr int64_t kLookNanoseconds = 10'000'000;

// A failed start may destroy the first gRPC object and with it, without this, shut gRPC down.
absl::Status PrepareGrpc() {
  constexpr size_t kOurs = 2;  // the entrance's and one worker's
  GEMINID_RETURN_IF_ERROR(base::ProbeThreads(rpc::GrpcThreads() + kOurs));
  constexpr size_t kOfFirstSession = 5;  // else it would wait for a connection that nobody takes
  GEMINID_RETURN_IF_ERROR(base::ProbeDescriptors(rpc::kGrpcDescriptors + kOfFirstSession));
  [[maybe_unused]] static const bool initialized = [] {
    ::grpc_init();
    return true;
  }();
  return absl::OkStatus();
}

// Tenants with different keys share nothing. Root of an unreadable namespace has root's name.
std::string KeyOf(const Identity& identity) {
  return absl::StrCat(identity.is_operator ? "operator " : "", identity.tenant);
}

}  // namespace

std::string GrpcAddress(const std::string& path) {
  std::string address = "unix:";
  for (const char c : path) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '/' || c == '-' || c == '.' ||
        c == '_' || c == '~') {
      address += c;
    } else {
      absl::StrAppendFormat(&address, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return address;
}

// One tenant's gRPC server, and the connections that it was given.
class RpcServer::Tenant : public grpc::CallbackGenericService {
 public:
  Tenant(const Identity& identity, CallShared* shared)
      : calls_(std::make_shared<TenantCalls>(identity, shared)) {
    grpc::ServerBuilder builder;
    builder.RegisterCallbackGenericService(this);
    builder.SetMaxReceiveMessageSize(kMaxReceivedBytes);
    builder.SetMaxSendMessageSize(kMaxSentBytes);
    // Compressed messages are refused: a few bytes could become any number.
    for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
      builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
    }
    builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
    builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
    // The window of a stream that nobody reads stays at 64 KiB.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    builder.SetResourceQuota(grpc::ResourceQuota("a tenant").Resize(kTenantBytes));
    server_ = builder.BuildAndStart();
  }

  bool started() const { return server_ != nullptr; }
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return calls_->Begin(context);
  }

  absl::Status Take(Http2Gate* gate, base::UniqueFd client) {
    const Identity& identity = calls_->identity();
    GEMINID_ASSIGN_OR_RETURN(base::UniqueFd connection,
                             gate->Admit(identity.tenant, KeyOf(identity), std::move(client),
                                         [open = open_] { --*open; }));
    ++*open_;
    grpc::AddInsecureChannelFromFd(server_.get(), connection.Release());
    return absl::OkStatus();
  }
  size_t connections() const { return *open_; }
  TenantCalls& calls() { return *calls_; }
  void Shutdown(gpr_timespec deadline) { server_->Shutdown(deadline); }

 private:
  const std::shared_ptr<TenantCalls> calls_;
  const std::shared_ptr<size_t> open_ = std::make_shared<size_t>(0);  // connections
  std::unique_ptr<grpc::Server> server_;  // last: it uses the others until it is destroyed
};

RpcServer::RpcServer(const SettingsInForce* settings, const DaemonFacts& facts, os::EventLoop* loop,
                     SessionHub* hub, TenantLog* log, const Clients* clients,
                     std::function<void(shm::SessionId)> on_detached)
    : services_(settings, facts, hub, log, std::move(on_detached)),
      loop_(loop),
      log_(log),
      clients_(clients),
      flood_(&hub->limits()),
      gate_(loop, &hub->limits(), log) {
  shared_.hub = hub;
  shared_.limits = &hub->limits();
  shared_.log = log;
  shared_.times = &facts.vitals->calls;
  shared_.on_first_call = [this] { loop_->Post([] {}); };  // so that the loop looks at the clock
}

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const SettingsInForce* settings, const DaemonFacts& facts, base::UniqueFd handed_over,
    os::EventLoop* loop, SessionHub* hub, TenantLog* log, const Clients* clients,
    std::function<void(shm::SessionId)> on_detached) {
  QuietLibraries();
  GEMINID_RETURN_IF_ERROR(PrepareGrpc());
  std::unique_ptr<RpcServer> rpc(
      new RpcServer(settings, facts, loop, hub, log, clients, std::move(on_detached)));
  const int threads =
      std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 4, kMaxWorkers);
  // So a quarter of the threads is never taken by one tenant alone.
  GEMINID_ASSIGN_OR_RETURN(rpc->workers_, FairWorkers::Create(threads, threads - threads / 4));
  rpc->shared_.workers = rpc->workers_.get();
  rpc->shared_.worker_count = static_cast<size_t>(threads);
  rpc->AddMethods();
  rpc->keeper_ = std::make_unique<Tenant>(Identity{}, &rpc->shared_);
  if (!rpc->keeper_->started()) return absl::InternalError("gRPC could not start a server");
  GEMINID_ASSIGN_OR_RETURN(
      base::UniqueFd listener,
      handed_over.valid() ? os::AdoptListener(std::move(handed_over), SOCK_STREAM, facts.socket)
                          : os::ListenStream(facts.socket, settings->Get().socket_mode, kBacklog));
  absl::StatusOr<std::unique_ptr<os::Acceptor>> acceptor = os::Acceptor::Create(
      std::move(listener), "the control socket", loop,
      [raw = rpc.get()](base::UniqueFd connection) { raw->OnConnection(std::move(connection)); });
  if (!acceptor.ok()) return acceptor.status();
  rpc->acceptor_ = *std::move(acceptor);
  return rpc;
}

RpcServer::~RpcServer() { Shutdown(absl::ZeroDuration()); }

void RpcServer::AddMethods() {
  std::vector<RpcMethod> methods;
  services_.AddTo(&methods);
  for (RpcMethod& method : methods) shared_.methods[method.path] = std::move(method);
  AddHealth();
}

// grpc.health.v1: the request is a text and the answer a number, each the first field of its
// message. So the well-known wrapper types can parse them.
void RpcServer::AddHealth() {
  constexpr int kServing = 1;
  constexpr int kNotServing = 2;
  RpcMethod method;
  method.path = "/grpc.health.v1.Health/Check";
  ServeWith<google::protobuf::StringValue, google::protobuf::Int32Value>(
      &method, [this](const Caller&, const google::protobuf::StringValue& service,
                      google::protobuf::Int32Value* status) {
        if (!service.value().empty()) {
          return absl::NotFoundError("health is that of the whole daemon: name no service");
        }
        status->set_value(draining_.load() ? kNotServing : kServing);
        return absl::OkStatus();
      });
  shared_.methods[method.path] = std::move(method);
}

// Closing a connection at once costs a hundredth of serving it.
absl::Status RpcServer::CheckRate(const Identity& identity) {
  const std::string& name = identity.tenant;
  connections_.SetRate(
      shared_.limits->RateOf(config::kConnectionRate, config::kConnectionBurstSeconds));
  if (connections_.Take(KeyOf(identity), Now())) return absl::OkStatus();
  return shared_.limits->Refuse(
      config::kConnectionRate, name,
      absl::StrCat("connects more than ", shared_.limits->Get(config::kConnectionRate),
                   " times a second"),
      "keep connections");
}

absl::Status RpcServer::CheckDescriptors(const base::UniqueFd& newest, const Identity& identity) {
  const std::string& name = identity.tenant;
  if (identity.is_operator || !os::IsFromReserve(newest)) return absl::OkStatus();
  shared_.limits->Count(kOpenFiles, name);
  return absl::ResourceExhaustedError(absl::StrCat(
      "the daemon has no descriptor left for ", name, " of its ", os::MaxDescriptors(),
      " (open_files); raise the limit of open files (ulimit -n, LimitNOFILE=) and start it "
      "again"));
}

absl::Status RpcServer::CheckLimits(const std::string& name, Tenant* tenant) {
  Limits* const limits = shared_.limits;
  if (tenant == nullptr) {
    return limits->Refuse(
        config::kTenants, name,
        absl::StrCat("is one too many: ", tenants_.size(), " tenants have connections"),
        "end those of some");
  }
  // No tenant may have more than a quarter of the descriptors.
  const size_t most =
      std::min<size_t>(limits->Get(config::kConnections),
                       static_cast<size_t>(os::MaxDescriptors() - os::ReservedDescriptors()) / 4 /
                           kDescriptorsPerConnection);
  if (tenant->connections() < most) return absl::OkStatus();
  return limits->Refuse(config::kConnections, name,
                        absl::StrCat("has ", most, " connections, as many as a tenant may"),
                        "close some, raise the limit of open files (LimitNOFILE=)");
}

void RpcServer::OnConnection(base::UniqueFd connection) {
  if (flood_.Floods(connection, Now())) return;
  const absl::StatusOr<Client> client = clients_->OfCall(connection);
  if (!client.ok()) return;  // it has gone
  const std::string& name = client->identity.tenant;
  absl::Status status = CheckRate(client->identity);
  if (status.ok()) status = CheckDescriptors(connection, client->identity);
  Tenant* const tenant = status.ok() ? FindOrStart(client->identity) : nullptr;
  if (status.ok()) status = CheckLimits(name, tenant);
  if (status.ok()) status = tenant->Take(&gate_, std::move(connection));
  if (status.ok()) return;
  log_->Write(name, os::LogLevel::kWarning, "connection refused",
              {{"tenant", name}, {"error", std::string(status.message())}});
}

RpcServer::Tenant* RpcServer::FindOrStart(const Identity& identity) {
  const std::pair key(identity.tenant, identity.is_operator);
  auto found = tenants_.find(key);
  if (found != tenants_.end()) return found->second.get();
  // The operator always gets in, to find out why nobody else does.
  if (!identity.is_operator && tenants_.size() >= shared_.limits->Get(config::kTenants)) {
    return nullptr;
  }
  found = tenants_.emplace(key, std::make_unique<Tenant>(identity, &shared_)).first;
  if (found->second->started()) return found->second.get();
  tenants_.erase(found);
  return nullptr;
}

int64_t RpcServer::NextTick() const {
  return last_tick_ + (shared_.calls.load() > 0 ? kTickNanoseconds : kIdleTickNanoseconds);
}

void RpcServer::Expire(int64_t now_nanoseconds) {
  acceptor_->Expire(now_nanoseconds);
  gate_.Expire(now_nanoseconds);
  if (tenants_.empty() || now_nanoseconds < NextTick()) return;
  last_tick_ = now_nanoseconds;
  for (auto i = tenants_.begin(); i != tenants_.end();) {
    i->second->calls().Expire(now_nanoseconds);
    if (i->second->connections() > 0 || !i->second->calls().idle()) {
      ++i;
      continue;
    }
    // A worker destroys the server, which may take a moment. No calls are left in it to wait for.
    workers_->Submit("", [gone = std::shared_ptr<Tenant>(std::move(i->second))] {});
    i = tenants_.erase(i);
  }
}

std::optional<int64_t> RpcServer::NextDeadline() const {
  std::optional<int64_t> next = acceptor_->NextDeadline();
  for (const std::optional<int64_t> other :
       {gate_.NextDeadline(), tenants_.empty() ? std::nullopt : std::optional(NextTick())}) {
    if (other.has_value()) next = std::min(next.value_or(*other), *other);
  }
  return next;
}

bool RpcServer::Shutdown(absl::Duration patience) {
  acceptor_.reset();
  const auto tenants = std::make_shared<decltype(tenants_)>(std::move(tenants_));
  tenants_.clear();
  const auto ended = std::make_shared<std::promise<void>>();
  std::future<void> end = ended->get_future();
  const auto finish = [tenants, ended, deadline = rpc::DeadlineIn(patience)] {
    for (const auto& [name, tenant] : *tenants) tenant->Shutdown(deadline);
    tenants->clear();
    ended->set_value();
  };
  // gRPC's last bytes come through the gate, so the loop runs meanwhile.
  absl::StatusOr<std::thread> thread = base::StartThread(finish);
  const int64_t until = os::MonotonicNanoseconds() + absl::ToInt64Nanoseconds(patience);
  for (int64_t now = 0; thread.ok() && now < until;) {
    if (end.wait_for(std::chrono::seconds(0)) == std::future_status::ready) break;
    now = os::MonotonicNanoseconds();
    gate_.Expire(now);
    loop_->RunUntil(std::min(until, now + kLookNanoseconds));
  }
  gate_.CloseAll();
  if (!thread.ok()) {
    finish();
    return true;
  }
  if (end.wait_for(kLongestEnd) != std::future_status::ready) {
    thread->detach();
    return false;
  }
  thread->join();
  return true;
}

}  // namespace geminid::service
